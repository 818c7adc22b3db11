/*
 * A map of the blocks of all segments. Segments follow each other by address, in rows that are filled like lines of
 * text. All rows stand for the same number of bytes. The number of drawn shapes is bounded by the pixels, however many
 * blocks there are.
 */
const MAP_ROW = 20, MAP_GAP = 5, MAP_SPACE = 3, MAP_ROWS = { wide: 14, narrow: 26 };
const map = { places: [], rows: 0, scale: 1, width: 1, alone: null, host: 0, css: {} };

/* Reads sizes and colours once for each layout and colour scheme, because reading makes the browser lay out the page. */
function measureMap() {
    map.host = at('map-host').clientWidth;
    for (const name of ['free', 'soft', 'ink']) map.css[name] = css(`--${name}`);
}

/* Places the segments, in pixels along all rows. */
function layMap(state, width) {
    const rows = width < 600 ? MAP_ROWS.narrow : MAP_ROWS.wide;
    const segments = map.alone === null ? state.segments : state.segments.filter((each) => each.addr === map.alone);
    const total = segments.reduce((sum, each) => sum + each.bytes, 0);
    const space = segments.length * MAP_SPACE * 4 < rows * width ? MAP_SPACE : 0;
    map.width = width;
    map.scale = Math.max(1, rows * width - segments.length * (space + 1)) / Math.max(total, 1);
    let at = 0;
    map.places = segments.map((segment) => {
        const place = { segment, from: at, to: at + Math.max(1, segment.bytes * map.scale) };
        at = place.to + space;
        return place;
    });
    map.rows = Math.max(1, Math.ceil(at / width));
}

/* Fills a stretch along the rows, as rectangles. */
function fillStretch(ctx, from, to, inset) {
    for (let row = Math.floor(from / map.width); row * map.width < to; row++) {
        const left = Math.max(0, from - row * map.width), right = Math.min(map.width, to - row * map.width);
        if (right > left) ctx.fillRect(left, row * (MAP_ROW + MAP_GAP) + inset, right - left, MAP_ROW - 2 * inset);
    }
}

/* Draws the blocks of a segment. A block narrower than a pixel gets its first pixel, unless the block before has it. */
function drawBlocks(ctx, state, place, colours) {
    const { made, live } = state, { segment, from } = place, pending = map.css.soft;
    let filled = -1;
    for (let k = segment.first; k < segment.first + segment.count; k++) {
        const i = live[k], left = from + (made.addr[i] - segment.addr) * map.scale;
        const right = left + roundUp(made.bytes[i]) * map.scale;
        if (right <= filled) continue;
        const freed = made.end[i] <= state.instant, width = right - left;
        ctx.fillStyle = freed ? pending : colours[made.category[i]];
        fillStretch(ctx, Math.max(left, filled), Math.max(right - (width > 4 ? 1 : 0), Math.min(left + 1, place.to)), 0);
        filled = Math.max(right, Math.floor(left) + 1);
    }
}

function drawMap() {
    if (map.host === 0) measureMap();
    const canvas = at('map'), width = map.host, ratio = devicePixelRatio;
    if (!now || width === 0) return;
    layMap(now, width);
    const height = map.rows * (MAP_ROW + MAP_GAP), colours = now.made.categories.map((_, i) => colourOf(now.made, i));
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
    const ctx = canvas.getContext('2d'), { free } = map.css;
    ctx.scale(ratio, ratio);
    for (const place of map.places) {
        ctx.fillStyle = free;
        fillStretch(ctx, place.from, place.to, 0);
        drawBlocks(ctx, now, place, colours);
    }
    drawChosen(ctx);
    const { live, segments } = now;
    canvas.setAttribute('aria-label', `${counted(live.length, 'block', 'blocks')} in ${counted(segments.length, 'segment', 'segments')}, by address. ` +
        'The table below has the largest of them.');
}

/* Draws a frame around the chosen block. */
function drawChosen(ctx) {
    const i = tensorView.chosen, { made } = now;
    const place = i === null ? undefined : map.places.find(({ segment }) =>
        made.addr[i] >= segment.addr && made.addr[i] < segment.addr + segment.bytes);
    if (!place) return;
    const from = place.from + (made.addr[i] - place.segment.addr) * map.scale;
    ctx.strokeStyle = map.css.ink;
    ctx.lineWidth = 2;
    const to = Math.max(from + 2, from + roundUp(made.bytes[i]) * map.scale);
    for (let row = Math.floor(from / map.width); row * map.width < to; row++) {
        const left = Math.max(0, from - row * map.width), right = Math.min(map.width, to - row * map.width);
        ctx.strokeRect(left + 1, row * (MAP_ROW + MAP_GAP) + 1, Math.max(1, right - left - 2), MAP_ROW - 2);
    }
}

/* Returns the tensor under a point of the canvas, or null, and the segment. */
function underMap(x, y) {
    const along = Math.floor(y / (MAP_ROW + MAP_GAP)) * map.width + x;
    const place = map.places[lastAtMost(map.places.map((each) => each.from), along)];
    if (!place || along < place.from || along > place.to) return { segment: null, tensor: null };
    const { made, live } = now, { segment } = place, addr = segment.addr + (along - place.from) / map.scale;
    const pixel = 1 / map.scale;
    let tensor = null;
    for (let k = segment.first; k < segment.first + segment.count && made.addr[live[k]] <= addr; k++)
        if (made.addr[live[k]] + Math.max(roundUp(made.bytes[live[k]]), pixel) > addr) tensor = live[k];
    return { segment, tensor };
}
