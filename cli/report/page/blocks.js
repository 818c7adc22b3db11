/* The view of a snapshot's tensors: the instant, the map, the chosen block, and the tables. */
const BLOCKS_ROWS = 20;
const tensorView = { chosen: null, flame: 0, of: null, run: null, index: 0, lower: null };

const hasTensors = () => shotsOf(view.run).length > 0;
const shotShown = () => decodeShot(shotsOf(view.run)[Math.min(tensorView.index, shotsOf(view.run).length - 1)]);

/* Makes a button that shows a tensor. */
function tensorButton(made, tensor, text) {
    const button = element('button', text);
    button.type = 'button';
    button.title = 'Show its stack';
    button.addEventListener('click', () => choose(tensor));
    return button;
}

function choose(tensor) {
    tensorView.chosen = tensor;
    drawMap();
    showBlock();
}

function showSegment(addr) {
    map.alone = addr;
    at('all-segments').hidden = addr === null;
    drawMap();
}

const timeOfEntry = (made, instant) => instant === 0 ? 'before the first entry' :
    `entry ${count(instant)}, ${timeText(made.ns[instant - 1], lastEnd())}`;

/* Shows the chosen tensor: its size, category, place and times, and its stack from the innermost frame outwards. */
function showBlock() {
    const i = tensorView.chosen, host = at('block');
    host.hidden = i === null;
    if (i === null) return;
    const { made } = now, stage = made.begin[i] > 0 ? stageAt(made.ns[made.begin[i] - 1]) : null;
    const head = element('p'), category = made.categories[made.category[i]];
    const label = made.texts[made.label[i]];
    head.append(swatch(colourOf(made, made.category[i])), element('strong', `${sizeText(made.bytes[i])}, ${category}`),
        ` (${reasonOf(made, i)}${label && label !== category ? ': ' + label : ''}); ${count(made.bytes[i])} bytes at ${addressText(made.addr[i])}; ` +
        `allocated: ${timeOfEntry(made, made.begin[i])}${stage ? ' in ' + stage.name : ''}; ` +
        (made.end[i] === NEVER ? 'not freed' : `freed: ${timeOfEntry(made, made.end[i])}`));
    const frames = stackOf(made, made.call[i]), list = element('ol', undefined, 'stack');
    for (const frame of frames) list.append(element('li', frameText(made, frame, true)));
    host.replaceChildren(head, frames.length > 0 ? list : element('p', made.caller.length > 1 ? 'No stack was recorded with it.' :
        'The snapshot has no stacks: record it with _record_memory_history(stacks="python").'));
    Object.assign(host.dataset, { addr: made.addr[i], bytes: made.bytes[i], category });
}

/* Returns the largest live tensors, in order. Does not sort all tensors, because there can be very many. */
function largestOf({ made, live, instant }, most) {
    const compare = (a, b) => made.bytes[b] - made.bytes[a] || made.addr[a] - made.addr[b];
    let kept = [];
    for (const i of live) {
        if (made.end[i] <= instant || (kept.least !== undefined && made.bytes[i] <= kept.least)) continue;
        kept.push(i);
        if (kept.length < 8 * most) continue;
        kept = kept.sort(compare).slice(0, most);
        kept.least = made.bytes[kept[most - 1]];
    }
    return kept.sort(compare).slice(0, most);
}

function showBlocks() {
    const { made, live, instant } = now, largest = largestOf(now, BLOCKS_ROWS);
    const rows = largest.map((i) => {
        const row = rowOf([['', '', tensorButton(made, i, addressText(made.addr[i]))], [sizeText(made.bytes[i]), 'number'], [count(made.bytes[i]), 'number bytes'],
            [`${made.categories[made.category[i]]} (${reasonOf(made, i)})`], [siteText(made, made.call[i])],
            [made.begin[i] > 0 ? count(made.begin[i]) : 'before', 'number']]);
        Object.assign(row.dataset, { addr: made.addr[i], bytes: made.bytes[i] });
        row.keys = [made.addr[i], made.bytes[i], made.bytes[i], made.categories[made.category[i]], siteText(made, made.call[i]), made.begin[i]];
        return row;
    });
    const all = live.reduce((sum, i) => sum + (made.end[i] > instant ? 1 : 0), 0);
    const rest = now.bytes - largest.reduce((sum, i) => sum + made.bytes[i], 0);
    if (all > largest.length) rows.push(rowOf([[`${count(all - largest.length)} smaller`], [sizeText(rest), 'number'], [count(rest), 'number bytes']]));
    fillTable(at('blocks'), [['block'], ['size', 'number'], ['bytes', 'number'], ['category'], ['allocated in'], ['entry', 'number']], rows);
}

function showCategories() {
    const { made, live, instant } = now, sums = new Map();
    for (const i of live) {
        const name = made.end[i] > instant ? made.categories[made.category[i]] : 'pending';
        const sum = sums.get(name) || { bytes: 0, annotated: 0, category: made.category[i] };
        sum.bytes += made.bytes[i];
        sum.annotated += made.annotated[i] ? made.bytes[i] : 0;
        sums.set(name, sum);
    }
    const free = now.reserved - now.segments.reduce((sum, each) => sum + each.live, 0);
    const entries = [...sums].sort((a, b) => b[1].bytes - a[1].bytes).map(([name, sum]) => {
        const entry = element('li');
        const how = name === 'pending' ? 'another stream may still use it' :
            sum.annotated === sum.bytes ? 'as recorded' : sum.annotated === 0 ? 'guessed from lifetimes' : 'as recorded in part, else guessed from lifetimes';
        entry.append(swatch(name === 'pending' ? 'var(--soft)' : colourOf(made, sum.category)), `${name} ${sizeText(sum.bytes)} (${how})`);
        Object.assign(entry.dataset, { category: name, bytes: sum.bytes });
        return entry;
    });
    const rest = element('li');
    rest.append(swatch('var(--free)'), `free ${sizeText(Math.max(0, free))}`);
    at('categories').replaceChildren(...entries, rest);
}

/* Goes to an instant of the snapshot. Keeps the chosen tensor if it is live. */
function showInstant(made, instant) {
    now = stateAt(made, instant);
    if (tensorView.of !== made) {
        Object.assign(tensorView, { of: made, flame: 0, chosen: null });
        map.alone = null;
    }
    const stays = tensorView.chosen !== null && made.begin[tensorView.chosen] <= instant && made.end[tensorView.chosen] > instant;
    if (!stays) tensorView.chosen = null;
    if (!now.segments.some((each) => each.addr === map.alone)) map.alone = null;
    at('all-segments').hidden = map.alone === null;
    at('entry').max = made.entries;
    at('entry').value = instant;
    at('tensors-at').textContent = `After entry ${count(instant)} of ${count(made.entries)}` +
        (instant > 0 ? `, at ${timeText(made.ns[instant - 1], lastEnd())}` : '') +
        `: ${counted(now.live.length, 'block', 'blocks')}, ${sizeText(now.bytes)} live` + (now.pending > 0 ? `, ${sizeText(now.pending)} pending` : '') +
        `, in ${counted(now.segments.length, 'segment', 'segments')} of ${sizeText(now.reserved)}`;
    Object.assign(at('tensors').dataset, { instant, live: now.bytes, blocks: now.live.length, reserved: now.reserved });
    drawMap();
    drawOver();
    showCategories();
    showBlock();
    showBlocks();
    later();
}

/* Draws the lower parts of the page in a later task, so that the blocks appear first. */
let isLater = false;
function later() {
    if (isLater) return;
    isLater = true;
    setTimeout(() => {
        isLater = false;
        showFlames();
        showPins();
        if (tensorView.lower !== now.made) showLower();
    });
}

/* Shows the tensors at the instant of the charts. */
function showTensors() {
    const left = data.tensors.some((each) => each.run === view.run && each.of === null);
    at('tensors').hidden = !hasTensors() && !left;
    at('tensors-left-out').hidden = hasTensors() || !left;
    at('tensors-body').hidden = !hasTensors();
    if (tensorView.run !== view.run) fillShots();
    if (!hasTensors()) return;
    const made = shotShown(), start = performance.now();
    showInstant(made, instantOf(made, view.time));
    performance.measure('tensors', { start });
}

/* ---- Controls ---- */

const stepBy = (entries) => showInstant(now.made, Math.min(Math.max(0, now.instant + entries), now.made.entries));
at('entry').addEventListener('change', () => showInstant(now.made, Math.min(Math.max(0, Math.round(Number(at('entry').value)) || 0), now.made.entries)));
at('entry-before').addEventListener('click', () => stepBy(-1));
at('entry-after').addEventListener('click', () => stepBy(1));
at('all-segments').addEventListener('click', () => showSegment(null));
const pointOnMap = (event) => {
    const box = at('map').getBoundingClientRect();
    return underMap(event.clientX - box.left, event.clientY - box.top);
};
at('map').addEventListener('click', (event) => choose(pointOnMap(event).tensor));
at('map').addEventListener('dblclick', (event) => {
    const { segment } = pointOnMap(event);
    showSegment(map.alone === null && segment ? segment.addr : null);
});
at('map').addEventListener('mousemove', (event) => {
    const { segment, tensor } = pointOnMap(event), { made } = now;
    at('map').title = tensor !== null ? `${sizeText(made.bytes[tensor])}, ${made.categories[made.category[tensor]]}: ${siteText(made, made.call[tensor])}` :
        segment ? `free; segment ${addressText(segment.addr)}, ${sizeText(segment.bytes)}` : '';
});
at('snapshot').addEventListener('change', () => {
    tensorView.index = Number(at('snapshot').value);
    showTensors();
});
function fillShots() {
    const names = shotsOf(view.run).map((each) => `${each.process}: ${each.file}`);
    at('snapshot').replaceChildren(...names.map((name, i) => new Option(name, i)));
    Object.assign(tensorView, { index: 0, run: view.run });
    at('snapshot-choice').hidden = names.length < 2;
}
