/* Data of the charts for a view: a bounded number of instants, stacked, and the difference of two runs. */

/*
 * Picks the instants to draw: in each column of pixels the one with the most bytes and the last one, and one before and
 * one after the view. So the cost of a redraw does not depend on the number of instants.
 */
function pick(device, sum, columns) {
    const { places } = device;
    const first = lastAtMost(places, view.from);
    const last = Math.min(lastAtMost(places, view.to) + 1, places.length - 1);
    const picked = [];
    if (last - first <= 2 * columns) {
        for (let i = first; i <= last; i++) picked.push(i);
        return picked;
    }
    const scale = columns / (view.to - view.from);
    for (let i = first; i <= last;) {
        const column = Math.floor((places[i] - view.from) * scale);
        let highest = i, next = i;
        for (; next <= last && Math.floor((places[next] - view.from) * scale) === column; next++)
            if (sum[next] > sum[highest]) highest = next;
        picked.push(highest);
        if (next - 1 !== highest) picked.push(next - 1);
        i = next;
    }
    return picked;
}

/* Merges the places of both runs' instants into one ascending list, for one x axis. */
function merge(a, b) {
    const all = [];
    let i = 0, j = 0;
    while (i < a.length || j < b.length)
        all.push(j >= b.length || (i < a.length && a[i] <= b[j]) ? a[i++] : b[j++]);
    return all;
}

function stacked(device, layers, sum, columns, unit, against) {
    const picked = pick(device, sum, columns);
    const own = picked.map((i) => device.places[i]);
    const lists = layers.map((layer) => picked.map((i) => layer.members.reduce((s, m) => s + device.bytes[m][i], 0)));
    for (let l = 1; l < lists.length; l++)
        for (let i = 0; i < picked.length; i++) lists[l][i] += lists[l - 1][i];
    let x = own, line = null;
    if (against) {
        const there = pick(against, against.total, columns);
        const places = there.map((i) => against.places[i]);
        x = merge(own, places);
        line = spread(x, places, there.map((i) => against.total[i]), unit);
    }
    const drawn = lists.reverse().map((list) => spread(x, own, list, unit));
    return [x.map((place) => place / NS), ...drawn, ...(line ? [line] : [])];
}

/*
 * Returns the layers of the difference, which has at every place where a run changes the bytes that a holder has more
 * (up, stacked) or less (down) than in the other run. Holders with their own layer in one of the runs have one here. All
 * other holders share a layer.
 */
function differenceLayers(device, against) {
    const layers = [...device.heldLayers, ...against.heldLayers].filter((layer, i, all) =>
        layer.alone && all.findIndex((each) => each.name === layer.name) === i);
    const named = new Set(layers.map((layer) => layer.name));
    const members = (of, wanted) => of.series.flatMap((series, s) => !series.paused && isShown(series) && wanted(series.name) ? [s] : []);
    const made = layers.map(({ name, colour }) => ({ name, colour,
        own: members(device, (each) => each === name), theirs: members(against, (each) => each === name) }));
    const rest = { name: 'others', colour: data.rest_colour, own: members(device, (each) => !named.has(each)),
        theirs: members(against, (each) => !named.has(each)) };
    return rest.own.length + rest.theirs.length > 0 ? [...made, rest] : made;
}

function differences(device, against, layers, columns, unit) {
    const picked = pick(device, device.total, columns), there = pick(against, against.total, columns);
    const places = picked.map((i) => device.places[i]), placesThere = there.map((i) => against.places[i]);
    const x = merge(places, placesThere);
    const up = [], down = [], sums = { up: new Array(x.length).fill(0), down: new Array(x.length).fill(0) };
    const sumOf = (of, members, list) => list.map((i) => members.reduce((sum, m) => sum + of.bytes[m][i], 0));
    for (const layer of layers) {
        const own = spread(x, places, sumOf(device, layer.own, picked), unit);
        const theirs = spread(x, placesThere, sumOf(against, layer.theirs, there), unit);
        for (let i = 0; i < x.length; i++) {
            const more = (own[i] || 0) - (theirs[i] || 0);
            sums[more > 0 ? 'up' : 'down'][i] += more;
        }
        up.push([...sums.up]);
        down.push([...sums.down]);
    }
    return [x.map((place) => place / NS), ...up.reverse(), ...down.reverse()];
}

/* Returns the values at the places x, which contain all of times. Between two times, the earlier value holds. */
function spread(x, times, values, unit) {
    const result = new Array(x.length);
    let next = 0, value = null, i = 0;
    while (i < x.length) {
        let same = i;
        while (same < x.length && x[same] === x[i]) same++;
        for (; i < same; i++) {
            if (next < times.length && times[next] === x[i]) value = values[next++] / unit;
            result[i] = value;
        }
    }
    return result;
}
