/* Maps times to places along the charts. */

/*
 * On the axis by time, a place is the time itself. On the axis by event, all stages have the same width, and so have all
 * instants at which something changes within a stage. Stages that both runs have share a place. Knots give the
 * places of some times; between two knots, places are interpolated linearly. `from`, `to` and `places` are places.
 */
function knotsOf(each, device) {
    const ns = [], places = [];
    const add = (time, place) => {
        ns.push(time);
        places.push(place);
    };
    if (view.axis === 'time') return { ns: [0, lastEnd()], places: [0, lastEnd()] };
    let next = 0;
    device.stages.forEach((stage, i) => {
        const end = i + 1 < device.stages.length ? device.stages[i + 1].begin_ns : each.end_ns;
        const begin = Math.min(stage.begin_ns, end);
        const inside = [];
        while (next < device.times.length && device.times[next] <= begin) next++;
        for (; next < device.times.length && device.times[next] < end; next++)
            if (device.times[next] !== inside[inside.length - 1]) inside.push(device.times[next]);
        add(begin, stage.column * NS);
        inside.forEach((time, k) => add(time, (stage.column + (k + 1) / (inside.length + 1)) * NS));
        add(end, (stage.column + 1) * NS);
    });
    return ns.length > 0 ? { ns, places } : { ns: [0, each.end_ns], places: [0, endOf()] };
}

function between(from, to, value) {
    const at = lastAtMost(from, value), span = from[at + 1] - from[at];
    if (!(span > 0) || value < from[at]) return to[at];
    return to[at] + (value - from[at]) / span * (to[at + 1] - to[at]);
}
const placeOf = (device, ns) => between(device.knots.ns, device.knots.places, ns);
const timeAt = (device, place) => between(device.knots.places, device.knots.ns, place);

function placeAll() {
    for (const each of data.runs) {
        for (const device of each.devices) {
            device.knots = knotsOf(each, device);
            device.places = device.times.map((ns) => placeOf(device, ns));
        }
    }
}
