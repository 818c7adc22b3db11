/* The view: run, device, range along the chart, low and high as fractions of its height, and the shown holders. */
const view = { axis: data.axis, run: 0, device: 0, from: 0, to: 1, low: 0, high: 1, instant: 0, time: 0, held: false, showPaused: true };

/*
 * The shown holders: one alone; or else those that are not switched off, by themselves or with their process, and that
 * match the search, if any holder does.
 */
const chosen = { alone: null, off: new Set(), search: '' };
const matches = (name) => name.toLowerCase().includes(chosen.search.toLowerCase());
const everySeries = () => data.runs.flatMap((each) => each.devices.flatMap((device) => device.series));
function isShown(series) {
    if (chosen.alone !== null) return series.name === chosen.alone;
    return !chosen.off.has(series.name) && !chosen.off.has(series.process + '/') && (!chosen.found || matches(series.name));
}
const isFiltered = () => chosen.alone !== null || chosen.off.size > 0 || chosen.found;

/* Makes the layers of all devices. */
function layOut() {
    chosen.found = chosen.search !== '' && everySeries().some((series) => matches(series.name));
    for (const device of data.runs.flatMap((each) => each.devices)) {
        device.heldLayers = layersOf(device, false);
        device.pausedLayers = layersOf(device, true);
        device.shownTotal = sumOf(device, device.heldLayers);
        device.shownPaused = sumOf(device, device.pausedLayers);
    }
}

function sumOf(device, layers) {
    const sum = new Float64Array(device.times.length);
    for (const layer of layers)
        for (const member of layer.members)
            for (let i = 0; i < sum.length; i++) sum[i] += device.bytes[member][i];
    return sum;
}

const run = () => data.runs[view.run];
const shown = () => run().devices[Math.min(view.device, run().devices.length - 1)];
const other = () => {
    const against = data.runs[1 - view.run];
    return against && against.devices[view.device];
};
const lastEnd = () => Math.max(1, ...data.runs.map((each) => each.end_ns));
const endOf = () => view.axis === 'time' ? lastEnd() : Math.max(1, data.columns) * NS;

/* Returns the index of the last value of an ascending list that is at most this one; 0: all are larger. */
function lastAtMost(list, value) {
    let low = 0, high = list.length - 1;
    while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (list[middle] <= value) low = middle;
        else high = middle - 1;
    }
    return low;
}
const instantAt = (device, ns) => lastAtMost(device.times, ns);
