/* The page of a report: the data that the command has put into it, drawn, asked and walked over. */
(() => {
'use strict';
const MAX_ROWS = 60;
const NS = 1e9;
const HELD_HEIGHT = 376, PAUSED_HEIGHT = 130, DIFFERENCE_HEIGHT = 170, AXIS_WIDTH = 68, PLOT_RIGHT = 14;

const data = JSON.parse(document.getElementById('data').textContent);
const at = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* ---- Sizes and times as people read them ---- */

const UNITS = [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['B', 1]];
const unitFor = (bytes) => UNITS.find(([, size]) => bytes >= size) || UNITS[3];
function sizeText(bytes) {
    const [name, size] = unitFor(Math.abs(bytes));
    return size === 1 ? bytes + ' B' : (bytes / size).toFixed(1) + ' ' + name;
}
const count = (number) => number.toLocaleString('en-US');
/* Seconds with as many digits as tell two instants of a range apart. */
function timeText(ns, range) {
    const digits = Math.min(9, Math.max(0, Math.ceil(Math.log10(NS * 1000 / Math.max(range, 1)))));
    return (ns / NS).toFixed(digits) + ' s';
}

/* How many digits a step of an axis has after the point: 2 of 0.25. */
function digitsOf(step) {
    let digits = 0;
    while (digits < 9 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
    return digits;
}

/* ---- From points to instants ---- */

const holderName = (series) => series.process + '/' + (series.tag === null ? 'untagged' : series.tag);

/*
 * A point becomes up to two instants: its peak and its end. At both, what every series had is exact.
 * Kept by series, so that a row of a table or a layer of the chart is one array.
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
 * What is drawn from the bottom up: external bytes, then by process, then what tensors of a snapshot
 * have, then the largest first.
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
        layers.push({ name: `${rest.length} others`, colour: data.rest_colour, members: rest.map((each) => each.index) });
    return layers;
}

for (const run of data.runs) {
    for (const device of run.devices) {
        /* Of a device that nobody named nothing is too much. */
        if (device.capacity_bytes === null) device.capacity_bytes = Infinity;
        for (const series of device.series) series.name = holderName(series);
        device.sampleTimes = device.samples.map(([time]) => time);
        Object.assign(device, unfold(run, device));
    }
}

/* ---- What is shown ---- */

const view = { axis: data.axis, run: 0, device: 0, from: 0, to: 1, instant: 0, time: 0, held: false, showPaused: true };

/*
 * Which holders are shown: one alone; else those that are not switched off, by themselves or with their process, and
 * that match what is searched for, if any does.
 */
const chosen = { alone: null, off: new Set(), search: '' };
const matches = (name) => name.toLowerCase().includes(chosen.search.toLowerCase());
const everySeries = () => data.runs.flatMap((each) => each.devices.flatMap((device) => device.series));
function isShown(series) {
    if (chosen.alone !== null) return series.name === chosen.alone;
    return !chosen.off.has(series.name) && !chosen.off.has(series.process + '/') && (!chosen.found || matches(series.name));
}
const isFiltered = () => chosen.alone !== null || chosen.off.size > 0 || chosen.found;

/* What the charts draw, of all devices. */
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

/* Index of the last value of an ascending list that is at most this one; 0 where all are more. */
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

/*
 * ---- Where a time lies ----
 *
 * By time a place is the time itself. By event every stage has the same width, and within it every instant at which
 * something changes. Stages that both runs have lie above each other. Either way knots say where some times
 * lie, and between two of them places are in proportion. `from`, `to` and `places` are places.
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

/*
 * Instants worth drawing: in each column of pixels that which has most and the last one, and one
 * before and after the view. So redrawing costs the same however many there are.
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

/* Places of the own and the other run's instants in one ascending list, for one x axis. */
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
 * What each holder has more (up, stacked) or less (down) than in the other run, at every place where either
 * changes. Both runs' own layers have theirs; all other holders are one.
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

/* Values at the places of x, which has all of times: between two of them the earlier one holds. */
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

/* ---- Drawing ---- */

let charts = [];
let started = false;
let drawnAt = 0;

function hatch(colour) {
    const tile = document.createElement('canvas');
    const size = 8 * devicePixelRatio;
    tile.width = tile.height = size;
    const ctx = tile.getContext('2d');
    ctx.fillStyle = colour + '30';
    ctx.fillRect(0, 0, size, size);
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1.6 * devicePixelRatio;
    for (const shift of [-size, 0, size]) {
        ctx.beginPath();
        ctx.moveTo(shift, size);
        ctx.lineTo(shift + size, 0);
        ctx.stroke();
    }
    return ctx.createPattern(tile, 'repeat');
}

function allSpans() {
    const stages = shown().stages;
    return stages.map((stage, i) => ({
        stage, index: i, ...(view.axis === 'time'
            ? { from: stage.begin_ns, to: i + 1 < stages.length ? stages[i + 1].begin_ns : endOf() }
            : { from: stage.column * NS, to: (stage.column + 1) * NS }),
    }));
}
const stageSpans = () => allSpans().filter((span) => span.to > view.from && span.from < view.to);

function drawBands(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.fillStyle = css('--band');
    for (const span of stageSpans()) {
        const left = Math.max(bbox.left, u.valToPos(span.from / NS, 'x', true));
        const right = Math.min(bbox.left + bbox.width, u.valToPos(span.to / NS, 'x', true));
        if (span.index % 2 === 0 && right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
    }
    ctx.restore();
}

function fitted(ctx, text, width) {
    if (ctx.measureText(text).width <= width) return text;
    let cut = text.length;
    while (cut > 1 && ctx.measureText(text.slice(0, cut) + '…').width > width) cut--;
    return cut > 4 ? text.slice(0, cut) + '…' : '';
}

/*
 * Names of the stages above the plot. One that has no room before the next goes into a lane above it, and one that
 * would pass the right edge is moved to the left. Only where all lanes are full a name is left out: the table has it.
 * Of very many stages one lane has as many as it can.
 */
const LANES_MAX = 6, MANY_STAGES = 60, LANE_HEIGHT = 15, LABEL_GAP = 8;
const LABEL_FONT = '12px system-ui, sans-serif';

function placeLabels(spans, left, right, xOf, widthOf) {
    const ends = [], placed = [], lanesMax = spans.length > MANY_STAGES ? 1 : LANES_MAX;
    for (const span of spans) {
        const width = Math.min(widthOf(span.stage.name), right - left);
        const begin = Math.max(left, xOf(span.from));
        const at = Math.max(left, Math.min(begin + 5, right - width));
        let lane = ends.findIndex((end) => end <= at);
        if (lane < 0) lane = ends.length;
        if (lane >= lanesMax) continue;
        ends[lane] = at + width + LABEL_GAP;
        placed.push({ span, lane, at, begin, width });
    }
    return placed;
}

/* How many lanes the whole run needs: zoomed in it is no more. */
const measure = document.createElement('canvas').getContext('2d');
function lanesFor(plotWidth) {
    const spans = allSpans(), end = endOf();
    measure.font = LABEL_FONT;
    const placed = placeLabels(spans, 0, plotWidth, (at) => at / end * plotWidth,
        (name) => measure.measureText(name).width);
    return placed.reduce((lanes, each) => Math.max(lanes, each.lane + 1), 1);
}

function drawStageNames(u, names) {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    const spans = stageSpans(), right = bbox.left + bbox.width, lane = LANE_HEIGHT * ratio;
    const xOf = (at) => u.valToPos(at / NS, 'x', true);
    ctx.save();
    ctx.font = LABEL_FONT.replace('12', 12 * ratio);
    ctx.textAlign = 'left';
    ctx.lineWidth = ratio;
    const placed = names ? placeLabels(spans, bbox.left, right, xOf, (name) => ctx.measureText(name).width) : [];
    const lanes = new Map(placed.map((each) => [each.span.index, each.lane]));
    ctx.strokeStyle = css('--soft');
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    for (const span of spans) {
        const left = xOf(span.from), above = lanes.get(span.index);
        if (left < bbox.left || spans.length >= bbox.width / (6 * ratio)) continue;
        ctx.beginPath();
        ctx.moveTo(left, bbox.top - (above === undefined ? 0 : above * lane + 16 * ratio));
        ctx.lineTo(left, bbox.top + bbox.height);
        ctx.stroke();
    }
    ctx.setLineDash([]);
    for (const each of placed) {
        const y = bbox.top - 6 * ratio - each.lane * lane, name = fitted(ctx, each.span.stage.name, each.width);
        ctx.fillStyle = css('--paper');
        ctx.fillRect(each.at - 2 * ratio, y - 11 * ratio, each.width + 4 * ratio, 14 * ratio);
        ctx.fillStyle = css('--ink');
        ctx.fillText(name, each.at, y);
    }
    ctx.restore();
    if (names) at('charts').dataset.labels = JSON.stringify(placed.map((each) => each.span.stage.name));
}

function label(ctx, text, x, y, colour, align) {
    ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = align;
    ctx.lineJoin = 'round';
    ctx.lineWidth = 4 * devicePixelRatio;
    ctx.strokeStyle = css('--paper');
    ctx.strokeText(text, x, y);
    ctx.fillStyle = colour;
    ctx.fillText(text, x, y);
}

function drawCapacity(u, unit) {
    const { ctx, bbox } = u, ratio = devicePixelRatio, device = shown();
    if (!isNamed(device)) return;
    const y = u.valToPos(device.capacity_bytes / unit, 'y', true);
    if (y < bbox.top) return;
    ctx.save();
    ctx.strokeStyle = css('--danger');
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash([8 * ratio, 5 * ratio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.setLineDash([]);
    const below = y - bbox.top < 20 * ratio;
    label(ctx, 'capacity ' + sizeText(device.capacity_bytes), bbox.left + 6 * ratio,
        below ? y + 15 * ratio : y - 6 * ratio, css('--danger'), 'left');
    ctx.restore();
}

function drawPeak(u, unit) {
    const { ctx, bbox } = u, ratio = devicePixelRatio, device = shown();
    const place = placeOf(device, device.peak_ns);
    if (place < view.from || place > view.to || device.peak_bytes === 0) return;
    const x = u.valToPos(place / NS, 'x', true);
    const y = u.valToPos(device.peak_bytes / unit, 'y', true);
    ctx.save();
    ctx.fillStyle = css('--ink');
    ctx.strokeStyle = css('--paper');
    ctx.lineWidth = 2 * ratio;
    ctx.beginPath();
    ctx.arc(x, y, 4.5 * ratio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
    const right = x > bbox.left + bbox.width - 140 * ratio;
    const over = y - bbox.top > 22 * ratio;
    label(ctx, 'peak ' + sizeText(device.peak_bytes), x + (right ? -9 : 9) * ratio,
        over ? y - 8 * ratio : y + 18 * ratio, css('--ink'), right ? 'right' : 'left');
    ctx.restore();
}

/* What was truly in use, over what is predicted. */
function drawSamples(u, unit) {
    const { ctx } = u, ratio = devicePixelRatio, device = shown();
    ctx.save();
    ctx.fillStyle = css('--paper');
    ctx.strokeStyle = css('--ink');
    ctx.lineWidth = 1.5 * ratio;
    for (const [ns, bytes] of device.samples) {
        const place = placeOf(device, ns);
        if (place < view.from || place > view.to) continue;
        ctx.beginPath();
        ctx.arc(u.valToPos(place / NS, 'x', true), u.valToPos(bytes / unit, 'y', true), 3.5 * ratio, 0, 2 * Math.PI);
        ctx.fill();
        ctx.stroke();
    }
    ctx.restore();
}

function drawLabel(u, text) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
    label(ctx, fitted(ctx, text, bbox.width - 12 * devicePixelRatio), bbox.left + 6 * devicePixelRatio, bbox.top + 16 * devicePixelRatio, css('--ink'), 'left');
    ctx.restore();
}

function plotOptions(host, height, names, series, range, unitName, hooks) {
    return {
        width: host.clientWidth, height, padding: [names, PLOT_RIGHT, hooks.axis ? 0 : 10, 0], legend: { show: false }, series,
        scales: { x: { time: false, range: () => [view.from / NS, view.to / NS] }, y: { range: () => range } },
        axes: [timeAxis(!hooks.axis), axisOf({
            size: AXIS_WIDTH, values: (u, splits) => splits.map((s) => `${+s.toFixed(2)} ${unitName}`),
        })],
        cursor: {
            y: false, points: { show: false }, drag: { x: true, y: false, setScale: false },
            bind: { dblclick: () => () => { zoomTo(0, endOf()); } },
        },
        hooks: {
            drawClear: [drawBands], draw: [hooks.draw], setSelect: [onSelect],
            ready: [placeCursor], /* not before: it has no size */
        },
    };
}

/* A plot that is asked, zoomed and moved as all others are. */
function addPlot(host, options, make) {
    const chart = new uPlot(options, make(), host);
    chart.remake = () => chart.setData(make());
    chart.over.addEventListener('wheel', onWheel, { passive: false });
    chart.over.addEventListener('mousedown', onPanStart, true);
    chart.over.addEventListener('click', onClick);
    chart.over.addEventListener('mousemove', onMove);
    chart.over.addEventListener('mouseleave', () => {
        placeCursor();
        at('tip').hidden = true;
    });
    charts.push(chart);
}
const columnsOf = (host) => Math.max(100, Math.round(host.clientWidth - AXIS_WIDTH));
const stepped = uPlot.paths.stepped({ align: 1 });

function makeDifference(host) {
    const device = shown(), against = other(), layers = differenceLayers(device, against);
    const columns = columnsOf(host);
    const all = differences(device, against, layers, columns, 1).slice(1);
    const top = Math.max(0, ...all.map((list) => list.reduce((a, b) => Math.max(a, b), 0)));
    const bottom = Math.min(0, ...all.map((list) => list.reduce((a, b) => Math.min(a, b), 0)));
    const [unitName, unit] = unitFor(Math.max(top, -bottom, 1));
    const painted = [...layers].reverse().map((layer) => (
        { stroke: layer.colour, fill: layer.colour, width: 1, points: { show: false }, paths: stepped }));
    const edge = Math.max(top, -bottom, 1) / unit * 0.08;
    addPlot(host, plotOptions(host, DIFFERENCE_HEIGHT, 8, [{}, ...painted, ...painted.map((each) => ({ ...each }))],
        [bottom / unit - edge, top / unit + edge], unitName, {
            draw: (u) => {
                drawStageNames(u, false);
                drawLabel(u, `above zero: more than in ${data.runs[1 - view.run].label}`);
            },
        }), () => differences(device, against, layers, columns, unit));
}

const axisOf = (extra) => ({
    stroke: css('--soft'), grid: { stroke: css('--line'), width: 1 }, ticks: { stroke: css('--line'), width: 1 }, ...extra,
});

/* By event: where stages begin; within one, a few places. */
function eventSplits(u) {
    const least = (view.to - view.from) * 80 / Math.max(80, u.over.clientWidth), splits = [];
    const begins = stageSpans().map((span) => span.from).filter((place) => place >= view.from);
    for (const place of begins.length > 1 ? begins : [0.1, 0.3, 0.5, 0.7, 0.9].map((part) =>
        view.from + part * (view.to - view.from)))
        if (splits.length === 0 || place - splits[splits.length - 1] >= least) splits.push(place);
    return splits.map((place) => place / NS);
}

/* The labels are also in the page, for scripts that drive it. */
function timeAxis(hidden) {
    const byEvent = view.axis === 'event';
    return axisOf({
        show: !hidden, size: 34, space: 90, ...(byEvent ? { splits: eventSplits } : {}),
        values: (u, splits, axis, space, step) => {
            const digits = digitsOf(step), device = shown();
            const range = timeAt(device, view.to) - timeAt(device, view.from);
            const texts = splits.map((s) => byEvent ? timeText(timeAt(device, s * NS), range) : s.toFixed(digits) + ' s');
            if (!hidden) at('charts').dataset.ticks = JSON.stringify(splits.map((s, i) => [s, texts[i]]));
            return texts;
        },
    });
}

function highest(device) {
    const against = other();
    const peak = device.samples.reduce((most, [, bytes]) => Math.max(most, bytes),
        Math.max(device.peak_bytes, against ? against.peak_bytes : 0, 1));
    /* A device far larger than what is used would leave nothing to see. */
    return device.capacity_bytes <= 20 * peak ? Math.max(peak, device.capacity_bytes) : peak;
}

function makeChart(host, kind) {
    const device = shown(), isHeld = kind === 'held';
    const layers = isHeld ? device.heldLayers : device.pausedLayers;
    const most = (list) => list.reduce((a, b) => Math.max(a, b), 1);
    const top = !isHeld ? most(device.shownPaused) : isFiltered() ? most(device.shownTotal) : highest(device);
    const [unitName, unit] = unitFor(top);
    const series = [{}];
    for (const layer of [...layers].reverse())
        series.push({
            /* The line keeps what is narrower than a pixel in sight. */
            stroke: layer.colour, width: isHeld ? 1 : 0, points: { show: false }, paths: stepped,
            fill: isHeld ? layer.colour : hatch(layer.colour),
        });
    /* Totals say nothing of a part. */
    const against = isHeld && !isFiltered() && other();
    if (against)
        series.push({ stroke: css('--ink'), width: 2, dash: [6, 4], points: { show: false }, paths: stepped });
    const names = isHeld ? 9 + LANE_HEIGHT * lanesFor(host.clientWidth - AXIS_WIDTH - PLOT_RIGHT) : 8;
    const columns = columnsOf(host);
    addPlot(host, plotOptions(host, isHeld ? HELD_HEIGHT + names : PAUSED_HEIGHT, names, series, [0, top / unit * 1.06], unitName, {
        axis: isHeld,
        draw: (u) => {
            drawStageNames(u, isHeld);
            if (isHeld) {
                if (isFiltered()) {
                    drawLabel(u, `shown: at most ${sizeText(most(device.shownTotal))}`);
                } else {
                    drawCapacity(u, unit);
                    drawSamples(u, unit);
                    drawPeak(u, unit);
                }
                performance.measure('redraw', { start: drawnAt });
            } else {
                drawLabel(u, 'paused (uses no GPU memory)');
            }
        },
    }), () => stacked(device, layers, isHeld ? device.shownTotal : device.shownPaused, columns, unit, against));
}

function rebuild() {
    drawnAt = performance.now();
    charts.forEach((chart) => chart.destroy());
    charts = [];
    makeChart(at('held'), 'held');
    const withPaused = shown().pausedLayers.length > 0;
    at('show-all').hidden = !isFiltered();
    at('paused-choice').hidden = !withPaused;
    at('paused').hidden = !withPaused || !view.showPaused;
    if (!at('paused').hidden) makeChart(at('paused'), 'paused');
    at('difference').hidden = !other();
    if (other()) makeDifference(at('difference'));
    tellView();
    placeCursor();
}

/* What is in view, for scripts that drive the page. */
function tellView() {
    Object.assign(at('charts').dataset, { from: view.from, to: view.to });
}

let scheduled = false;
function redraw() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
        scheduled = false;
        drawnAt = performance.now();
        charts.forEach((chart) => chart.remake());
        tellView();
        placeCursor();
    });
}

/* ---- Zoom and movement ---- */

const NARROWEST = 10; /* ns, or as much of a stage as 1e-8 */

function zoomTo(from, to) {
    const end = endOf();
    let width = Math.min(end, Math.max(NARROWEST, to - from));
    let left = Math.min(Math.max(0, from), end - width);
    view.from = left;
    view.to = left + width;
    redraw();
}

function zoomAround(place, factor) {
    zoomTo(place - (place - view.from) * factor, place + (view.to - place) * factor);
}

function moveBy(part) {
    const shift = (view.to - view.from) * part;
    zoomTo(view.from + shift, view.to + shift);
}

function onSelect(u) {
    const { left, width } = u.select;
    if (width < 4) return;
    const from = u.posToVal(left, 'x') * NS, to = u.posToVal(left + width, 'x') * NS;
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    suppressClick = true;
    zoomTo(from, to);
}

/* The wheel is the page's: it zooms with Ctrl or Cmd alone, and moves sideways while there is more. */
function onWheel(event) {
    const width = event.currentTarget.clientWidth;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const turned = sideways && event.deltaX || event.deltaY;
    if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoomAround(placeUnder(event), Math.exp(Math.max(-100, Math.min(100, turned)) / 400));
    } else if (sideways && (turned < 0 ? view.from > 0 : view.to < endOf())) {
        event.preventDefault();
        moveBy(turned / width);
    }
}

let suppressClick = false;
function onPanStart(event) {
    suppressClick = false;
    if (!event.shiftKey || event.button !== 0) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    const width = event.currentTarget.clientWidth, begin = event.clientX, { from, to } = view;
    const move = (moved) => {
        const shift = (begin - moved.clientX) / width * (to - from);
        suppressClick = true;
        zoomTo(from + shift, to + shift);
    };
    const end = () => {
        removeEventListener('mousemove', move);
        removeEventListener('mouseup', end);
    };
    addEventListener('mousemove', move);
    addEventListener('mouseup', end);
}

/* ---- The instant ---- */

function placeUnder(event) {
    const box = event.currentTarget.getBoundingClientRect();
    return view.from + (event.clientX - box.left) / box.width * (view.to - view.from);
}
const timeUnder = (event) => timeAt(shown(), placeUnder(event));

/* The chart under the pointer moves its own line. */
let movedTo = null;
function onMove(event) {
    showTip(event);
    if (view.held) {
        placeCursor();
        return;
    }
    const over = event.currentTarget, left = event.clientX - over.getBoundingClientRect().left;
    if (movedTo === null) requestAnimationFrame(() => {
        const start = performance.now();
        if (!view.held) selectTime(movedTo);
        movedTo = null;
        performance.measure('instant', { start });
    });
    movedTo = timeUnder(event);
    charts.filter((chart) => chart.over !== over).forEach((chart) => chart.setCursor({ left, top: 1 }));
}

function onClick(event) {
    if (suppressClick) return;
    view.held = true;
    selectTime(timeUnder(event));
    placeCursor();
}

/* Who holds what under the pointer, beside it. The table says the same to who cannot see it. */
const TIP_ROWS = 8;
function showTip(event) {
    const device = shown(), ns = timeUnder(event), index = instantAt(device, ns), stage = stageAt(ns);
    const holders = holdersAt(device, index).filter((each) => each.held > 0);
    const rest = holders.slice(TIP_ROWS).reduce((sum, each) => sum + each.held, 0);
    const lines = [[null, `${timeText(ns, timeAt(device, view.to) - timeAt(device, view.from))}${stage ? ', ' + stage.name : ''}`, ''],
        [null, 'in use', sizeText(device.total[index])],
        ...holders.slice(0, TIP_ROWS).map((each) => [each.colour, each.name, sizeText(each.held)]),
        ...(rest > 0 ? [[data.rest_colour, `${holders.length - TIP_ROWS} others`, sizeText(rest)]] : [])];
    at('tip').replaceChildren(...lines.map(([colour, name, size]) => {
        const line = element('div'), text = element('span', name);
        if (colour) text.prepend(swatch(colour));
        line.append(text, element('span', size));
        return line;
    }));
    at('tip').hidden = false;
    const host = at('charts').getBoundingClientRect(), tip = at('tip').getBoundingClientRect();
    const x = event.clientX - host.left, y = event.clientY - host.top;
    const left = x + 16 + tip.width > host.width ? x - 16 - tip.width : x + 16;
    at('tip').style.left = `${Math.max(0, left)}px`;
    at('tip').style.top = `${Math.min(y + 12, host.height - tip.height)}px`;
}

/* The line of the cursor, at the time that is shown. */
function placeCursor() {
    const place = placeOf(shown(), view.time);
    for (const chart of charts) {
        const left = (place - view.from) / (view.to - view.from) * chart.over.clientWidth;
        const inside = left >= 0 && left <= chart.over.clientWidth;
        chart.setCursor({ left: inside ? left : -10, top: inside ? 1 : -10 });
    }
}

/* Goes to an instant by key or button: it is held, and brought into view. */
function goTo(index) {
    const device = shown(), width = view.to - view.from;
    view.held = true;
    select(Math.min(Math.max(0, index), device.times.length - 1));
    const place = device.places[view.instant];
    if (place < view.from || place > view.to) zoomTo(place - width / 2, place + width / 2);
    else placeCursor();
    at('live').textContent = at('instant').textContent;
}

function peakInstant() {
    const { total, peak_bytes: peak } = shown();
    return Math.max(0, total.indexOf(peak));
}

function stageOf(device, ns) {
    let found = null;
    for (const stage of device.stages) if (stage.begin_ns <= ns) found = stage;
    return found;
}
const stageAt = (ns) => stageOf(shown(), ns);

/* ---- Tables ---- */

function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
}

function rowOf(cells) {
    const row = element('tr');
    for (const [text, className, node] of cells) {
        const cell = element('td', text, className);
        if (node) cell.prepend(node);
        row.append(cell);
    }
    return row;
}

/*
 * A table by its titles and rows. On a narrow screen a row is a card, whose cells have their titles beside them; the
 * roles keep it a table for who hears it.
 */
function fillTable(table, names, rows, sum) {
    titles(table, names);
    table.setAttribute('role', 'table');
    table.tBodies[0].replaceChildren(...inOrder(table, names, rows));
    if (table.tFoot) table.tFoot.replaceChildren(...(sum ? [sum] : []));
    for (const part of [table.tHead, ...table.tBodies, ...(table.tFoot ? [table.tFoot] : [])]) {
        part.setAttribute('role', 'rowgroup');
        for (const row of part.rows) {
            row.setAttribute('role', 'row');
            [...row.cells].forEach((cell, i) => {
                cell.setAttribute('role', cell.tagName === 'TH' ? 'columnheader' : 'cell');
                if (i > 0) cell.dataset.title = names[i][0];
            });
        }
    }
}

/* By the column that was chosen; what has no key, as the sum of many, stays last. */
function inOrder(table, names, rows) {
    const index = names.findIndex(([name]) => name === table.dataset.by), down = table.dataset.down === 'true';
    if (index < 0 || rows.some((row) => row.keys && row.keys[index] === undefined)) return rows;
    const compare = (a, b) => typeof a === 'string' ? (a < b ? -1 : Number(a > b)) : a - b;
    return [...rows].sort((a, b) => !a.keys || !b.keys ? Number(!a.keys) - Number(!b.keys) :
        (down ? -1 : 1) * compare(a.keys[index], b.keys[index]));
}

/* Titles are buttons that sort. They are made when they change, so that the focus stays. */
function titles(table, names) {
    const said = JSON.stringify(names);
    if (table.dataset.titles !== said) {
        table.dataset.titles = said;
        const row = element('tr');
        for (const [name, className] of names) {
            const cell = element('th', '', className), sort = element('button', name);
            cell.scope = 'col';
            sort.type = 'button';
            sort.addEventListener('click', () => sortBy(table, name, className === 'number'));
            cell.append(className === 'holders' ? name : sort);
            row.append(cell);
        }
        table.tHead.replaceChildren(row);
    }
    for (const cell of table.tHead.rows[0].cells) {
        const order = cell.textContent === table.dataset.by ? table.dataset.down === 'true' ? 'descending' : 'ascending' : 'none';
        cell.setAttribute('aria-sort', order);
    }
}

/* Numbers from the largest on, names from A on; once more turns it round. */
function sortBy(table, name, down) {
    table.dataset.down = table.dataset.by === name ? table.dataset.down !== 'true' : down;
    table.dataset.by = name;
    if (table === at('stages')) showStages();
    else select(view.instant, view.time);
}

/* A holder's name: a click shows it alone, and a second one all again. */
function holderButton({ name, colour }) {
    const made = element('button', name);
    made.type = 'button';
    made.title = chosen.alone === name ? 'Show all holders' : 'Show this holder alone';
    made.setAttribute('aria-pressed', chosen.alone === name);
    made.prepend(swatch(colour));
    made.addEventListener('click', () => {
        chosen.alone = chosen.alone === name ? null : name;
        showAll();
    });
    return made;
}

/* Where an instant stands for several changes: the least and the most of a series among them. */
function rangesAt(device, index) {
    const point = device.points[device.pointOf[index]], ranges = new Map();
    if (point && point[3] > 1)
        for (const [series, , least, most] of point[7]) if (least !== most) ranges.set(series, [least, most]);
    return ranges;
}

/* Held, paused, and the range within the point, of every holder that has anything. */
function holdersAt(device, index, against, indexThere) {
    const holders = new Map(), ranges = rangesAt(device, index);
    const holderOf = ({ name, colour }) => {
        const holder = holders.get(name) || { name, colour, held: 0, paused: 0, there: 0, range: null };
        holders.set(name, holder);
        return holder;
    };
    if (against) against.series.forEach((series, s) => {
        if (!series.paused) holderOf(series).there += against.bytes[s][indexThere];
    });
    device.series.forEach((series, s) => {
        const holder = holderOf(series);
        holder[series.paused ? 'paused' : 'held'] += device.bytes[s][index];
        if (!series.paused && ranges.has(s)) holder.range = ranges.get(s);
    });
    return [...holders.values()].filter((each) => !chosen.found || matches(each.name)).filter((each) => each.held > 0 || each.paused > 0 || each.there > 0)
        .sort((a, b) => b.held - a.held || b.paused - a.paused || (a.name < b.name ? -1 : 1));
}

function swatch(colour) {
    const made = element('span', '', 'swatch');
    made.style.background = colour;
    made.setAttribute('aria-hidden', 'true');
    return made;
}

const share = (part, whole) => whole > 0 && part > 0 ? (100 * part / whole).toFixed(1) + ' %' : '';
const rangeText = (range) => range ? `${sizeText(range[0])} to ${sizeText(range[1])}` : '';
/* "+61.0 GiB", "-512 B"; nothing where there is no difference. */
const differenceText = (bytes) => bytes === 0 ? '' : (bytes > 0 ? '+' : '\u2212') + sizeText(Math.abs(bytes));
const differenceCell = (bytes) => [differenceText(bytes), 'number'];
const numberCell = (bytes) => [bytes > 0 ? sizeText(bytes) : '', 'number'];

/* The instant of the other run that lies at the same place. */
const instantThere = (against, ns) => instantAt(against, timeAt(against, placeOf(shown(), ns)));
const selectTime = (ns) => select(instantAt(shown(), ns), ns);

/* Shows what holds at a time: what the instant says, which is the last one before it. */
function select(index, time) {
    const device = shown(), table = at('holders'), since = device.times[index];
    const ns = time === undefined ? since : Math.round(time);
    view.instant = index;
    view.time = ns;
    const total = device.total[index], paused = device.paused[index];
    const stage = stageAt(ns), point = device.points[device.pointOf[index]];
    const against = other(), indexThere = against ? instantThere(against, ns) : 0;
    const there = against ? against.total[indexThere] : 0;
    const range = timeAt(device, view.to) - timeAt(device, view.from), shows = (each) => timeText(each, range);
    const parts = [`At ${shows(ns)}` + (shows(ns) !== shows(since) ? `, unchanged since ${shows(since)}` : '')];
    if (stage) parts.push(`in ${stage.name}`);
    parts.push(`${sizeText(total)} in use` +
        (isNamed(device) ? `, ${sizeText(Math.max(0, device.capacity_bytes - total))} free` : ''));
    if (total > device.capacity_bytes) parts.push(`${sizeText(total - device.capacity_bytes)} too much`);
    if (paused > 0) parts.push(`${sizeText(paused)} paused`);
    const read = lastAtMost(device.sampleTimes, ns);
    if (device.samples.length > 0 && device.samples[read][0] <= ns)
        parts.push(`last read: ${sizeText(device.samples[read][1])} at ${shows(device.samples[read][0])}`);
    if (against) parts.push(`${data.runs[1 - view.run].label}: ${sizeText(there)}`);
    if (point && point[3] > 1) parts.push(`${count(point[3])} changes merged`);
    at('instant').textContent = parts.join('; ') + (view.held ? ' (held)' : '');
    at('instant').dataset.ns = ns;

    const holders = holdersAt(device, index, against, indexThere), withRange = holders.some((each) => each.range);
    const columns = [['holder'], ['held', 'number'], ['bytes', 'number'], ['share', 'number'],
        ...(against ? [['other run', 'number'], ['difference', 'number']] : []), ['paused', 'number'],
        ...(withRange ? [['within the point', 'number']] : [])];
    /* While the pointer moves, as many as can be read. */
    const rows = holders.length > MAX_ROWS && !view.held ? holders.slice(0, MAX_ROWS) : holders;
    const rest = holders.slice(rows.length).reduce((held, each) => held + each.held, 0);
    const lines = rows.map((each) => {
        const row = rowOf([['', '', holderButton(each)], numberCell(each.held),
            [each.held > 0 ? count(each.held) : '', 'number bytes'], [share(each.held, total), 'number'],
            ...(against ? [numberCell(each.there), differenceCell(each.held - each.there)] : []), numberCell(each.paused), ...(withRange ? [[rangeText(each.range), 'number']] : [])]);
        Object.assign(row.dataset, { holder: each.name, held: each.held, paused: each.paused, there: each.there });
        row.keys = [each.name, each.held, each.held, each.held, ...(against ? [each.there, each.held - each.there] : []),
            each.paused, each.range ? each.range[1] - each.range[0] : 0];
        return row;
    });
    if (rows.length < holders.length)
        lines.push(rowOf([[`${holders.length - rows.length} smaller: click to see all`], numberCell(rest),
            [count(rest), 'number bytes']]));
    const sum = rowOf([['all', ''], [sizeText(total), 'number'], [count(total), 'number'], [isNamed(device) ?
        share(total, device.capacity_bytes) + ' of capacity' : '', 'number'], ...(against ? [numberCell(there), differenceCell(total - there)] : []),
        numberCell(paused), ...(withRange ? [['', '']] : [])]);
    Object.assign(sum.dataset, { held: total, paused });
    fillTable(table, columns, lines, sum);
    tell();
}

function showStages() {
    const device = shown(), table = at('stages'), end = lastEnd(), against = other();
    const theirs = new Map(against ? against.stages.map((stage) => [stage.column, stage]) : []);
    const columns = [['stage'], ['begins', 'number'], ['peak', 'number'], ['end', 'number'], ...(isNamed(device) ? [['free at peak', 'number']] : []),
        ['host', 'number'], ['transitions', 'number'],
        ...(against ? [['peak, other run', 'number'], ['difference', 'number'], ['who differs at the peak', 'holders']] : []),
        ['who holds the peak', 'holders']];
    const rows = device.stages.map((stage, i) => {
        const go = element('button', stage.merged ? `${stage.name} and ${stage.merged - 1} more` : stage.name);
        go.type = 'button';
        go.title = 'Zoom to this stage';
        go.addEventListener('click', () => {
            const { from, to } = allSpans()[i];
            zoomTo(from, Math.max(to, from + NARROWEST));
        });
        const over = stage.peak_bytes > device.capacity_bytes;
        const row = rowOf([['', '', go], [timeText(stage.begin_ns, end), 'number'],
            [sizeText(stage.peak_bytes) + (over ? ' does not fit' : ''), over ? 'number bad' : 'number'],
            [sizeText(stage.end_bytes), 'number'],
            ...(isNamed(device) ? [[sizeText(stage.free_at_peak_bytes), 'number']] : []),
            [sizeText(stage.host_bytes), 'number'], [(stage.transition_ns / NS).toFixed(3) + ' s', 'number'],
            ...(against ? comparison(stage, theirs.get(stage.column)) : []),
            [stage.at_peak.slice(0, 6).map((each) => `${holderName(each)} ${sizeText(each.bytes)}`).join(', ') +
                (stage.at_peak.length > 6 ? `, ${stage.at_peak.length - 6 + (stage.others || 0)} more` : ''), 'holders']]);
        Object.assign(row.dataset, { stage: stage.name, peak: stage.peak_bytes });
        const there = theirs.get(stage.column);
        row.keys = [stage.name, stage.begin_ns, stage.peak_bytes, stage.end_bytes,
            ...(isNamed(device) ? [stage.free_at_peak_bytes] : []), stage.host_bytes, stage.transition_ns, ...(against ? [there ? there.peak_bytes : 0, there ? stage.peak_bytes - there.peak_bytes : 0] : [])];
        return row;
    });
    if (against) {
        const own = new Set(device.stages.map((stage) => stage.column));
        for (const stage of against.stages.filter((each) => !own.has(each.column))) {
            const row = rowOf([[`${stage.name} (other run only)`, ''], ...Array(isNamed(device) ? 6 : 5).fill(['', 'number']),
                ...comparison(null, stage), ['', '']]);
            row.dataset.other = stage.name;
            row.keys = [stage.name, stage.begin_ns, ...Array(isNamed(device) ? 5 : 4).fill(0), stage.peak_bytes, -stage.peak_bytes];
            rows.push(row);
        }
    }
    /* A search that meets no stage is one for a holder. */
    const found = rows.filter((row) => matches(row.dataset.stage || row.dataset.other));
    fillTable(table, columns, found.length > 0 ? found : rows);
}

/* Peak of the same stage in the other run, the difference, and the holders that make it, the largest first. */
function comparison(own, theirs) {
    const more = new Map();
    const add = (stage, sign) => stage && stage.at_peak.forEach((each) => {
        more.set(holderName(each), (more.get(holderName(each)) || 0) + sign * each.bytes);
    });
    add(own, 1);
    add(theirs, -1);
    const who = [...more].filter(([, bytes]) => bytes !== 0).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    return [[theirs ? sizeText(theirs.peak_bytes) : '', 'number'],
        own && theirs ? differenceCell(own.peak_bytes - theirs.peak_bytes) : ['', 'number'],
        [own && theirs ? who.slice(0, 4).map(([name, bytes]) => `${name} ${differenceText(bytes)}`).join(', ') : '', 'holders']];
}

function showLegend() {
    const device = shown(), entries = [];
    const add = (...parts) => {
        const entry = element('li');
        entry.append(...parts);
        entries.push(entry);
    };
    /* A button switches a process or a holder off and on. */
    const addSwitch = (key, mark, name) => {
        const made = element('button', '');
        made.type = 'button';
        made.setAttribute('aria-pressed', !chosen.off.has(key));
        made.title = `${chosen.off.has(key) ? 'Show' : 'Hide'} ${name}`;
        made.append(...(mark ? [mark] : []), name);
        made.addEventListener('click', () => {
            if (!chosen.off.delete(key)) chosen.off.add(key);
            showAll();
            const again = [...at('legend').querySelectorAll('button')].find((each) => each.dataset.key === key);
            if (again) again.focus();
        });
        made.dataset.key = key;
        made.classList.toggle('process', !mark);
        add(made);
    };
    const processes = new Set(device.series.map((series) => series.process));
    if (processes.size > 1) for (const process of processes) addSwitch(process + '/', null, `all of ${process}`);
    const names = new Set(), colours = new Map(device.series.map((series) => [series.name, series.colour]));
    for (const layer of [...device.heldLayers].reverse().concat(device.pausedLayers)) {
        if (names.has(layer.name)) continue;
        names.add(layer.name);
        if (layer.alone) addSwitch(layer.name, swatch(layer.colour), layer.name);
        else add(swatch(layer.colour), layer.name);
    }
    for (const name of chosen.off) if (colours.has(name) && !names.has(name)) addSwitch(name, swatch(colours.get(name)), name);
    if (device.pausedLayers.length > 0) add(element('span', '', 'swatch hatched'), 'hatched: paused');
    if (device.samples.length > 0) add(element('span', '', 'sample'), 'true use, read while it was recorded');
    if (other()) add(element('span', '', 'dashed'), `all of ${data.runs[1 - view.run].label}`);
    at('legend').replaceChildren(...entries);
}

function verdictText(device) {
    const { capacity_bytes: capacity, peak_bytes: peak } = device;
    if (!isNamed(device)) return '--device says whether it fits';
    if (peak > capacity) return `does not fit, ${sizeText(peak - capacity)} too much`;
    return `${device.fits ? 'fits' : 'does not fit'}, ${sizeText(capacity - peak)} to spare`;
}

/* A line for each run: device, peak, verdict. That which is shown comes first. */
function summaryOf(each, device) {
    const line = element('p'), stage = stageOf(device, device.peak_ns);
    const verdict = element('strong', verdictText(device), isNamed(device) && !device.fits ? 'bad' : 'good');
    const remedy = each.remedy && isNamed(device) && !device.fits ? `; ${each.remedy}` : '';
    line.append(`${each.label}: `, verdict, `${remedy}. Peak ${sizeText(device.peak_bytes)}` + (stage ? ` in ${stage.name}` : '') +
        `; device ${device.device}, ${deviceText(device)}; ${count(each.events)} events`);
    return line;
}

function showSummary() {
    const lines = [summaryOf(run(), shown())];
    if (other()) lines.push(summaryOf(data.runs[1 - view.run], other()));
    at('summary').replaceChildren(...lines);
    at('charts').setAttribute('aria-label', `Memory over time: ${at('summary').textContent}. ` +
        'Arrow keys go to the previous and the next change; the table below says who holds what.');
}

function showAll() {
    layOut();
    rebuild();
    showSummary();
    showLegend();
    showStages();
    selectTime(view.time);
    placeCursor();
}

/* ---- Tables as CSV ---- */

/* A cell that a spreadsheet would take for a formula is text there. */
function csvCell(value) {
    const text = typeof value === 'number' ? String(value) : String(value).replace(/^[=+\-@\t\r]/, "'$&");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csv = (rows) => rows.map((row) => row.map(csvCell).join(',') + '\r\n').join('');

/* To the byte and to the nanosecond, all rows, whatever the table shows. */
function csvOf(id) {
    const device = shown(), against = other();
    if (id === 'holders') {
        const there = against ? instantThere(against, view.time) : 0;
        return csv([['time_ns', 'holder', 'held_bytes', ...(against ? ['other_run_bytes', 'difference_bytes'] : []), 'paused_bytes'],
            ...holdersAt(device, view.instant, against, there).map((each) => [view.time, each.name, each.held,
                ...(against ? [each.there, each.held - each.there] : []), each.paused])]);
    }
    const theirs = new Map(against ? against.stages.map((stage) => [stage.column, stage]) : []);
    const peakThere = (stage) => theirs.has(stage.column) ? theirs.get(stage.column).peak_bytes : '';
    return csv([['stage', 'begin_ns', 'peak_bytes', 'end_bytes', 'host_bytes', 'transition_ns',
        ...(against ? ['other_run_peak_bytes'] : []), 'at_peak'],
        ...device.stages.map((stage) => [stage.name, stage.begin_ns, stage.peak_bytes, stage.end_bytes, stage.host_bytes,
            stage.transition_ns, ...(against ? [peakThere(stage)] : []),
            stage.at_peak.map((each) => `${holderName(each)}=${each.bytes}`).join(' ')])]);
}

function save(id) {
    const link = element('a');
    link.href = URL.createObjectURL(new Blob([csvOf(id)], { type: 'text/csv' }));
    link.download = `${id}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
}

/* ---- The address: a link to what is shown ---- */

/* The instant, where it is held, and what it is seen in. */
function tell() {
    const words = new URLSearchParams();
    if (view.held) words.set('t', view.time);
    if (view.run > 0) words.set('run', view.run);
    if (view.device > 0) words.set('device', view.device);
    if (view.axis !== data.axis) words.set('axis', view.axis);
    if (chosen.alone !== null) words.set('holder', chosen.alone);
    const wanted = words.size > 0 ? '#' + words : '';
    if (wanted !== location.hash && started) history.replaceState(null, '', wanted || location.pathname + location.search);
}

/* What the address says, as far as it can be. */
function follow() {
    const words = new URLSearchParams(location.hash.slice(1));
    const choice = (name, id) => {
        const wanted = Number(words.get(name));
        at(id).value = at(id).options[wanted] ? wanted : 0;
        view[name] = Number(at(id).value);
    };
    choice('run', 'run');
    choice('device', 'device');
    view.axis = ['time', 'event'].includes(words.get('axis')) ? words.get('axis') : data.axis;
    at('axis').value = view.axis;
    chosen.alone = everySeries().some((series) => series.name === words.get('holder')) ? words.get('holder') : null;
    placeAll();
    view.from = 0;
    view.to = endOf();
    showAll();
    const ns = Number(words.get('t'));
    view.held = words.has('t') && Number.isFinite(ns);
    if (view.held) selectTime(Math.min(Math.max(0, ns), lastEnd()));
    else select(peakInstant());
    placeCursor();
}

/* ---- Choices, keys ---- */

function fillChoice(id, names, chosen) {
    at(id).replaceChildren(...names.map((name, i) => new Option(name, i)));
    at(id).addEventListener('change', () => {
        chosen(Number(at(id).value));
        showAll();
    });
    at(id + '-choice').hidden = names.length < 2;
}

fillChoice('run', data.runs.map((each) => each.label), (i) => { view.run = i; });
fillChoice('device', data.runs[0].devices.map((each) => `${each.device}: ${deviceText(each)}`),
    (i) => { view.device = i; });
at('axis').value = view.axis;
at('axis').addEventListener('change', () => {
    view.axis = at('axis').value;
    placeAll();
    view.from = 0;
    view.to = endOf();
    rebuild();
});
at('search').addEventListener('input', () => {
    chosen.search = at('search').value.trim();
    showAll();
});
at('show-all').addEventListener('click', () => {
    Object.assign(chosen, { alone: null, off: new Set(), search: '' });
    at('search').value = '';
    showAll();
});
for (const id of ['holders', 'stages']) at(`save-${id}`).addEventListener('click', () => save(id));
at('show-paused').addEventListener('change', (event) => {
    view.showPaused = event.target.checked;
    rebuild();
});
const zoomHere = (factor) => {
    const place = placeOf(shown(), view.time);
    const inside = place >= view.from && place <= view.to;
    zoomAround(inside ? place : (view.from + view.to) / 2, factor);
};
const letGo = () => {
    view.held = false;
    select(view.instant, view.time);
};
const actions = {
    '+': () => zoomHere(0.5), '=': () => zoomHere(0.5), '-': () => zoomHere(2), '0': () => zoomTo(0, endOf()),
    'p': () => goTo(peakInstant()), 'Escape': letGo, 'Home': () => goTo(0), 'End': () => goTo(Infinity),
    'ArrowLeft': () => goTo(view.instant - 1), 'ArrowRight': () => goTo(view.instant + 1),
    'Shift+ArrowLeft': () => moveBy(-0.1), 'Shift+ArrowRight': () => moveBy(0.1),
};
at('charts').addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const shifted = event.shiftKey && event.key.startsWith('Arrow') ? 'Shift+' : '';
    const action = actions[shifted + event.key];
    if (!action) return;
    event.preventDefault();
    action();
});
at('zoom-in').addEventListener('click', actions['+']);
at('zoom-out').addEventListener('click', actions['-']);
at('zoom-all').addEventListener('click', actions['0']);
at('go-peak').addEventListener('click', actions.p);
at('choices').addEventListener('submit', (event) => event.preventDefault());

/* Colours follow the scheme, and paper is white; sizes follow the window. */
for (const query of ['(prefers-color-scheme: dark)', 'print'])
    matchMedia(query).addEventListener('change', rebuild);
let width = at('charts').clientWidth;
new ResizeObserver(() => {
    if (at('charts').clientWidth === width) return;
    width = at('charts').clientWidth;
    rebuild();
}).observe(at('charts'));

follow();
started = true;
addEventListener('hashchange', follow);
})();
