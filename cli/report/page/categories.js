/*
 * Finds what each tensor is for. An annotation of the allocation by PyTorch or the program is used as it is. Without
 * one, the category is guessed from the tensor's lifetime:
 *
 * The bytes that are freed within the recording rise and fall with every step. A tensor that is live at the top of a
 * step comes from the forward pass: an activation. A tensor that is made after the top, and is as large as a weight, is
 * a gradient. A tensor that is never freed is a weight if it was made before the first top, and else the optimizer's
 * state. All other tensors are temporary.
 */
const ANNOTATED = { parameter: 'weights', weight: 'weights', weights: 'weights', gradient: 'gradients', gradients: 'gradients',
    optimizer_state: 'optimizer', optimizer: 'optimizer', activation: 'activations', activations: 'activations',
    temporary: 'temporary', input: 'inputs', autograd_detail: 'autograd' };
const CATEGORY_COLOURS = { weights: '#5882ff', gradients: '#ecca39', optimizer: '#7d37ac', activations: '#357552',
    temporary: '#eb866a', inputs: '#d9b2ff', autograd: '#9e7c00' };
const OTHER_COLOURS = ['#24e7aa', '#934204', '#8871a3', '#c3c8cd'];
const HIGH = 0.6, LOW = 0.35; /* a step rises above HIGH times the maximum, and falls below LOW times */

function categoryNumber(made, name) {
    let number = made.categories.indexOf(name);
    if (number < 0) number = made.categories.push(name) - 1;
    return number;
}
function colourOf(made, category) {
    const name = made.categories[category], known = CATEGORY_COLOURS[name];
    return known || OTHER_COLOURS[made.categories.filter((each) => !CATEGORY_COLOURS[each]).indexOf(name) % OTHER_COLOURS.length];
}

/* Returns the entries at which the steps reach their maximum. */
function heightsOf(sums, entries) {
    let most = 0;
    for (let i = 0; i <= entries; i++) if (sums[i] > most) most = sums[i];
    const heights = [];
    let high = false, at = 0;
    for (let i = 0; i <= entries && most > 0; i++) {
        if (!high && sums[i] > HIGH * most) {
            high = true;
            at = i;
        }
        if (high && sums[i] > sums[at]) at = i;
        if (high && (sums[i] < LOW * most || i === entries)) {
            heights.push(at);
            high = false;
        }
    }
    return heights;
}

function sortIntoCategories(made) {
    const { count: all, begin, end, bytes, label, texts, entries } = made;
    const freed = { count: all, begin, end, bytes: bytes.map((each, i) => end[i] === NEVER ? 0 : each) };
    const heights = heightsOf(sumsOf(freed, entries), entries), first = heights.length > 0 ? heights[0] : NEVER;
    made.categories = [];
    made.category = new Uint8Array(all);
    made.annotated = new Uint8Array(all);
    const number = (name) => categoryNumber(made, name), byLabel = new Map();
    const weights = new Set();
    for (let i = 0; i < all; i++) if (end[i] === NEVER && begin[i] <= first) weights.add(bytes[i]);
    for (let i = 0; i < all; i++) {
        const said = texts[label[i]];
        if (said && said !== 'unknown' && made.categories.length < 250) {
            if (!byLabel.has(said)) byLabel.set(said, number(Object.hasOwn(ANNOTATED, said.toLowerCase()) ? ANNOTATED[said.toLowerCase()] : said));
            made.category[i] = byLabel.get(said);
            made.annotated[i] = 1;
        } else if (end[i] === NEVER) {
            made.category[i] = number(begin[i] <= first ? 'weights' : 'optimizer');
        } else {
            const before = heights.length > 0 && heights[0] < begin[i] ? lastAtMost(heights, begin[i] - 1) : -1;
            const next = heights[before + 1];
            const atHeight = next !== undefined && end[i] > next;
            const afterwards = before >= 0 && weights.has(bytes[i]) && end[i] - begin[i] > 2;
            made.category[i] = number(atHeight ? 'activations' : afterwards ? 'gradients' : 'temporary');
        }
    }
}
const reasonOf = (made, tensor) => made.annotated[tensor] ? 'as recorded' : 'guessed from its lifetime';
