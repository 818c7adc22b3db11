/* The charts. */
const HELD_HEIGHT = 376, PAUSED_HEIGHT = 130, DIFFERENCE_HEIGHT = 170, AXIS_WIDTH = 74, PLOT_RIGHT = 14;

/* Returns the part of a range of bytes that is in view. */
const part = ([least, most]) => [least + view.low * (most - least), least + view.high * (most - least)];

function plotOptions(host, height, names, series, range, unitName, hooks) {
    return {
        width: host.clientWidth, height, padding: [names, PLOT_RIGHT, hooks.axis ? 0 : 10, 0], legend: { show: false }, series,
        scales: { x: { time: false, range: () => [view.from / NS, view.to / NS] }, y: { range: () => hooks.axis ? part(range) : range } },
        axes: [timeAxis(!hooks.axis), axisOf({
            size: AXIS_WIDTH, values: (u, splits) => splits.map((s) => `${+s.toFixed(2)} ${unitName}`),
        })],
        cursor: {
            y: false, points: { show: false }, drag: { x: true, y: Boolean(hooks.axis), uni: 40, setScale: false },
            bind: { dblclick: () => () => { zoomAll(); } },
        },
        hooks: {
            drawClear: [drawBands], draw: [hooks.draw], setSelect: [onSelect],
            ready: [placeCursor], /* before this, the chart has no size */
        },
    };
}

/* Adds a plot with the pointer, zoom and movement of all plots. */
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
                drawLabel(u, `above zero: more than in ${data.runs[1 - view.run].label}`, top < -bottom / 4);
            },
        }), () => differences(device, against, layers, columns, unit));
}

const axisOf = (extra) => ({
    stroke: css('--soft'), grid: { stroke: css('--line'), width: 1 }, ticks: { stroke: css('--line'), width: 1 }, ...extra,
});

/* Returns the ticks of the axis by event: the begins of stages, or, within a single stage, a few places. */
function eventSplits(u) {
    const least = (view.to - view.from) * 80 / Math.max(80, u.over.clientWidth), splits = [];
    const begins = stageSpans().map((span) => span.from).filter((place) => place >= view.from);
    for (const place of begins.length > 1 ? begins : [0.1, 0.3, 0.5, 0.7, 0.9].map((part) =>
        view.from + part * (view.to - view.from)))
        if (splits.length === 0 || place - splits[splits.length - 1] >= least) splits.push(place);
    return splits.map((place) => place / NS);
}

/* Makes the time axis. Also stores its labels in the page, for scripts that drive it. */
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
    /* Up to the capacity of a far larger device, the chart would show nothing. */
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
            /* The outline keeps parts visible that are narrower than a pixel. */
            stroke: layer.colour, width: isHeld ? 1 : 0, points: { show: false }, paths: stepped,
            fill: isHeld ? layer.colour : hatch(layer.colour),
        });
    /* The other run's total cannot be compared with a part. */
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
                    const capacity = drawCapacity(u, unit);
                    drawSamples(u, unit);
                    drawPeak(u, unit, capacity);
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
    measureMap();
    drawMap();
    tellView();
    placeCursor();
}

/* Stores the view in the page, for scripts that drive it. */
function tellView() {
    Object.assign(at('charts').dataset, { from: view.from, to: view.to, low: view.low, high: view.high });
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
