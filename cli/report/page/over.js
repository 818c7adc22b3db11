/*
 * Draws tensors over the recording, as a stack of categories. A column of pixels stands for several entries, and shows
 * the one after which the most bytes are allocated. A click goes there.
 */
const OVER_HEIGHT = 200;
const OVER_ORDER = ['weights', 'optimizer', 'gradients', 'inputs', 'activations', 'autograd', 'temporary']; /* long-lived categories first, at the bottom */
let over = null; /* for a recording: the entry of each column, and the bytes of every category after it */

function overOf(made, columns) {
    if (over && over.made === made && over.entries.length === columns) return over;
    const sums = allocatedBy(made), entries = new Float64Array(columns);
    for (let column = 0; column < columns; column++) {
        const first = Math.floor(column * (made.entries + 1) / columns);
        const end = Math.max(first + 1, Math.floor((column + 1) * (made.entries + 1) / columns));
        entries[column] = first;
        for (let i = first; i < end; i++) if (sums[i] > sums[entries[column]]) entries[column] = i;
    }
    const bytes = made.categories.map(() => new Float64Array(columns + 1));
    const firstFrom = (entry) => {
        let low = 0, high = columns;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (entries[middle] < entry) low = middle + 1;
            else high = middle;
        }
        return low;
    };
    for (let i = 0; i < made.count; i++) {
        bytes[made.category[i]][firstFrom(made.begin[i])] += made.bytes[i];
        if (made.end[i] !== NEVER) bytes[made.category[i]][firstFrom(made.end[i])] -= made.bytes[i];
    }
    for (const list of bytes) for (let column = 1; column <= columns; column++) list[column] += list[column - 1];
    over = { made, entries, bytes, most: entries.reduce((most, entry) => Math.max(most, sums[entry]), 1) };
    return over;
}

function drawOver() {
    const canvas = at('over'), ratio = devicePixelRatio, { made } = now;
    const columns = Math.max(100, Math.min(at('over-host').clientWidth, 2000));
    const { entries, bytes, most } = overOf(made, columns);
    canvas.width = columns * ratio;
    canvas.height = OVER_HEIGHT * ratio;
    canvas.style.height = `${OVER_HEIGHT}px`;
    const ctx = canvas.getContext('2d'), scale = OVER_HEIGHT / most;
    ctx.scale(ratio, ratio);
    const rank = (category) => (OVER_ORDER.indexOf(made.categories[category]) + OVER_ORDER.length + 1) % (OVER_ORDER.length + 1);
    const order = bytes.map((_, category) => category).filter((category) => bytes[category].some((each) => each > 0))
        .sort((a, b) => rank(a) - rank(b) || a - b);
    for (let column = 0; column < columns; column++) {
        let y = OVER_HEIGHT;
        for (const category of order) {
            const height = bytes[category][column] * scale;
            ctx.fillStyle = colourOf(made, category);
            ctx.fillRect(column, y - height, 1, height);
            y -= height;
        }
    }
    const here = now.instant / (made.entries + 1) * columns;
    ctx.fillStyle = css('--ink');
    ctx.fillRect(here, 0, 1, OVER_HEIGHT);
    at('over-said').textContent = `At most ${sizeText(most)} over ${counted(made.entries, 'entry', 'entries')}. ` +
        'Colours: what each block is for, as listed below the map.';
    canvas.setAttribute('aria-label', at('over-said').textContent);
    const highest = entries.reduce((best, entry, column) => allocatedBy(made)[entry] > allocatedBy(made)[entries[best]] ? column : best, 0);
    canvas.dataset.peak = JSON.stringify(Object.fromEntries(order.map((category) => [made.categories[category], bytes[category][highest]])));
    canvas.dataset.entry = entries[highest];
}
at('over').addEventListener('click', (event) => {
    const box = at('over').getBoundingClientRect(), { made } = now;
    const column = Math.floor((event.clientX - box.left) / box.width * over.entries.length);
    showInstant(made, over.entries[Math.max(0, Math.min(over.entries.length - 1, column))]);
});
