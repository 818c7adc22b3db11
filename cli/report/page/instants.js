/* Turns the points of a timeline into instants, and holders into layers. */
const holderName = (series) => series.process + '/' + (series.tag === null ? 'untagged' : series.tag);

/*
 * Turns each point into one or two instants: its peak and its end. At both, the bytes of every series are exact.
 * Stores them by series, so that a row of a table or a layer of a chart is one array.
 */
function unfold(run, device) {
    const times = [], pointOf = [];
    const bytes = device.series.map(() => []);
    const now = device.series.map(() => 0);
    const note = (time, point) => {
        times.push(time);
        pointOf.push(point);
        bytes.forEach((list, series) => list.push(now[series]));
    };
    note(0, -1);
    device.points.forEach((point, index) => {
        const [, end, peak, changes, , , , values] = point;
        const differs = changes > 1 && (peak < end || values.some((v) => v.length > 2 && v[5] !== v[4]));
        if (differs) {
            for (const v of values) now[v[0]] = v.length > 2 ? v[5] : v[1];
            note(peak, index);
        }
        for (const v of values) now[v[0]] = v.length > 2 ? v[4] : v[1];
        note(end, index);
    });
    if (times[times.length - 1] < run.end_ns) note(run.end_ns, -1);
    const total = new Float64Array(times.length), paused = new Float64Array(times.length);
    device.series.forEach((series, s) => {
        const sum = series.paused ? paused : total;
        for (let i = 0; i < sum.length; i++) sum[i] += bytes[s][i];
    });
    return { times, pointOf, bytes, total, paused };
}

const isNamed = (device) => device.capacity_bytes !== Infinity;
const deviceText = (device) => isNamed(device) ?
    `${device.profile || 'given by size'}, ${sizeText(device.capacity_bytes)}` : 'no device named';

/*
 * Returns the layers from the bottom up: external bytes first, then by process. Within a process, the tensors of a
 * snapshot come first, then the largest series.
 */
function layersOf(device, paused) {
    const order = device.series.map((series, index) => ({ series, index }))
        .filter((each) => each.series.paused === paused && isShown(each.series));
    const large = [...order].sort((a, b) => b.series.peak_bytes - a.series.peak_bytes);
    const drawn = new Set(large.slice(0, large.length > data.layers ? data.layers - 1 : data.layers));
    const layers = order.filter((each) => drawn.has(each)).sort((a, b) =>
        Number(b.series.external) - Number(a.series.external) ||
        a.series.process.localeCompare(b.series.process) ||
        Number(b.series.tag === "tensors") - Number(a.series.tag === "tensors") ||
        b.series.peak_bytes - a.series.peak_bytes)
        .map((each) => ({ name: each.series.name, colour: each.series.colour, members: [each.index], alone: true }));
    const rest = order.filter((each) => !drawn.has(each));
    if (rest.length > 0)
        layers.push({ name: counted(rest.length, 'other', 'others'), colour: data.rest_colour, members: rest.map((each) => each.index) });
    return layers;
}

/*
 * Returns the end of a simulated run without the exit of its processes, during which memory is only freed, down to
 * zero, which tells nothing about the program. Keeps the exit if there would be nothing else to show.
 */
function endWithoutExit(run) {
    let end = 0;
    for (const { times, total } of run.devices) {
        let last = times.length - 1;
        if (last < 1 || total[last] > 0) return run.end_ns;
        while (last > 0 && total[last - 1] >= total[last]) last--;
        let next = last + 1;
        while (next + 1 < times.length && (times[next] === times[last] || total[next] === total[last])) next++;
        end = Math.max(end, times[Math.min(next, times.length - 1)]);
    }
    return end > 0 ? end : run.end_ns;
}

for (const run of data.runs) {
    for (const device of run.devices) {
        /* A device that was not named has no limit. */
        if (device.capacity_bytes === null) device.capacity_bytes = Infinity;
        for (const series of device.series) series.name = holderName(series);
        device.sampleTimes = device.samples.map(([time]) => time);
        Object.assign(device, unfold(run, device));
    }
    if (run.simulated) run.end_ns = endWithoutExit(run);
}
