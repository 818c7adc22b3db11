/*
 * Shows the results of a search. The charts show only the holders that match, and the table only the stages that match.
 * For a snapshot, lines of stacks and categories that match are listed with the bytes that they allocated. A message
 * tells if nothing is found.
 */
const FOUND_ROWS = 10;

/* Returns for each call the innermost matching frame of its stack; -1: none. */
function matchingFrames(made, wanted) {
    const hits = Array.from(made.frames.name, (_, frame) => frameText(made, frame).toLowerCase().includes(wanted));
    const found = new Int32Array(made.caller.length).fill(-1), known = new Uint8Array(made.caller.length);
    known[0] = 1;
    for (let call = 1; call < found.length; call++) {
        const open = [];
        let at = call;
        for (; !known[at]; at = made.caller[at]) open.push(at);
        for (const each of open.reverse()) {
            found[each] = hits[made.frame[each]] ? made.frame[each] : found[made.caller[each]];
            known[each] = 1;
        }
    }
    return found;
}

/* Returns the matching lines and categories, with all bytes that they allocated in the recording, the most first. */
function foundTensors(wanted) {
    const made = shotShown(), frames = matchingFrames(made, wanted), found = new Map();
    const categories = made.categories.map((each) => each.toLowerCase().includes(wanted));
    for (let i = 0; i < made.count; i++) {
        const frame = made.call[i] > 0 ? frames[made.call[i]] : -1;
        if (frame < 0 && !categories[made.category[i]]) continue;
        const name = frame >= 0 ? frameText(made, frame) : made.categories[made.category[i]];
        const sum = found.get(name) || { name, bytes: 0, count: 0, largest: i };
        sum.bytes += made.bytes[i];
        sum.count++;
        if (made.bytes[i] > made.bytes[sum.largest]) sum.largest = i;
        found.set(name, sum);
    }
    return [...found.values()].sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1));
}

/* Makes an entry of the results. Its button goes to the allocation of the largest tensor. */
function foundEntry({ name, bytes, count: tensors, largest }) {
    const made = shotShown(), entry = element('li'), button = element('button', name);
    button.type = 'button';
    button.title = 'Go to the largest of them';
    button.addEventListener('click', () => {
        showInstant(made, made.begin[largest]);
        choose(largest);
        at('block').scrollIntoView({ block: 'center' });
    });
    entry.append(button, ` ${counted(tensors, 'tensor', 'tensors')}, ${sizeText(bytes)} in all`);
    Object.assign(entry.dataset, { name, bytes, tensors });
    return entry;
}

function showFound() {
    const wanted = chosen.search.toLowerCase(), stages = shown().stages.filter((stage) => matches(stage.name));
    at('found').hidden = wanted === '';
    if (wanted === '') return;
    const holders = new Set(shown().series.map((series) => series.name).filter(matches)).size;
    const tensors = hasTensors() ? foundTensors(wanted) : [];
    const parts = [];
    if (holders > 0) parts.push(counted(holders, 'holder', 'holders'));
    if (stages.length > 0) parts.push(counted(stages.length, 'stage', 'stages'));
    if (tensors.length > 0) parts.push(counted(tensors.length, 'line or category', 'lines and categories'));
    const where = 'holders and stages' + (hasTensors() ? ', lines of stacks and categories of tensors' : '');
    at('found-said').textContent = parts.length > 0 ? `Found: ${parts.join(', ')}.` :
        `Nothing is found for \u201c${chosen.search}\u201d among ${where}.`;
    at('found-list').replaceChildren(...tensors.slice(0, FOUND_ROWS).map(foundEntry),
        ...(tensors.length > FOUND_ROWS ? [element('li', `${count(tensors.length - FOUND_ROWS)} more, which allocated less`)] : []));
}
