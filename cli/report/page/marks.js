/* Draws the marks of a chart: stages, capacity, peak, samples and labels. */
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
 * Places the names of stages above the plot. A name without room before the next one goes into a higher lane. A name that
 * would pass the right edge moves to the left. If all lanes are full, a name is left out; the table has it. Very many
 * stages get only one lane.
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

/* Returns the number of lanes for the whole run. A zoomed view needs no more. */
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

/* Begins to draw over the layers. Resets the dashes, which uPlot leaves from its last line. */
function begin(ctx) {
    ctx.save();
    ctx.setLineDash([]);
}

const MARK_FONT = `600 ${LABEL_FONT}`;

function label(ctx, text, x, y, colour, align) {
    ctx.font = MARK_FONT.replace('12', 12 * devicePixelRatio);
    ctx.textAlign = align;
    ctx.lineJoin = 'round';
    ctx.lineWidth = 4 * devicePixelRatio;
    ctx.strokeStyle = css('--paper');
    ctx.strokeText(text, x, y);
    ctx.fillStyle = colour;
    ctx.fillText(text, x, y);
}

/* Draws the capacity. Returns where its label ends, and its base line; null: the capacity is not in view. */
function drawCapacity(u, unit) {
    const { ctx, bbox } = u, ratio = devicePixelRatio, device = shown();
    if (!isNamed(device)) return null;
    const y = u.valToPos(device.capacity_bytes / unit, 'y', true);
    if (y < bbox.top || y > bbox.top + bbox.height) return null;
    begin(ctx);
    ctx.strokeStyle = css('--danger');
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash([8 * ratio, 5 * ratio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.setLineDash([]);
    const below = y - bbox.top < 20 * ratio;
    const text = 'capacity ' + sizeText(device.capacity_bytes), left = bbox.left + 6 * ratio;
    const base = below ? y + 15 * ratio : y - 6 * ratio;
    label(ctx, text, left, base, css('--danger'), 'left');
    const right = left + ctx.measureText(text).width;
    ctx.restore();
    return { right, base };
}

/* Draws the peak. Its label goes below that of the capacity if they would overlap, as on a phone. */
function drawPeak(u, unit, capacity) {
    const { ctx, bbox } = u, ratio = devicePixelRatio, device = shown();
    const place = placeOf(device, device.peak_ns);
    if (place < view.from || place > view.to || device.peak_bytes === 0) return;
    const x = u.valToPos(place / NS, 'x', true);
    const y = u.valToPos(device.peak_bytes / unit, 'y', true);
    if (y < bbox.top || y > bbox.top + bbox.height) return;
    begin(ctx);
    ctx.fillStyle = css('--ink');
    ctx.strokeStyle = css('--paper');
    ctx.lineWidth = 2 * ratio;
    ctx.beginPath();
    ctx.arc(x, y, 4.5 * ratio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
    const right = x > bbox.left + bbox.width - 140 * ratio;
    const over = y - bbox.top > 22 * ratio;
    const text = 'peak ' + sizeText(device.peak_bytes), from = x + (right ? -9 : 9) * ratio;
    let base = over ? y - 8 * ratio : y + 18 * ratio;
    ctx.font = MARK_FONT.replace('12', 12 * ratio);
    const left = right ? from - ctx.measureText(text).width : from;
    if (capacity && left < capacity.right + 6 * ratio && Math.abs(base - capacity.base) < 15 * ratio) base = capacity.base + 15 * ratio;
    label(ctx, text, from, base, css('--ink'), right ? 'right' : 'left');
    ctx.restore();
}

/* Draws the samples of true use over the prediction. */
function drawSamples(u, unit) {
    const { ctx } = u, ratio = devicePixelRatio, device = shown();
    begin(ctx);
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

/* Draws the title of a chart at its top. low: at its bottom, because the curves start at the top. */
function drawLabel(u, text, low = false) {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    begin(ctx);
    ctx.font = MARK_FONT.replace('12', 12 * ratio);
    label(ctx, fitted(ctx, text, bbox.width - 12 * ratio), bbox.left + 6 * ratio,
        low ? bbox.top + bbox.height - 7 * ratio : bbox.top + 16 * ratio, css('--ink'), 'left');
    ctx.restore();
}
