/*
 * Finds what would lower the peak of allocated bytes: for each place that allocates, the peak without its allocations.
 * Searches the whole recording, because without one holder another instant can be the highest. A place is a call;
 * tensors without a stack are grouped by category and size.
 */
const LOWER_ROWS = 10, LOWER_TRIED = 24;

function placesAtPeak(made, peak) {
    const places = new Map();
    for (let i = 0; i < made.count; i++) {
        if (made.begin[i] > peak || made.end[i] <= peak) continue;
        const key = made.call[i] > 0 ? made.call[i] : `${made.category[i]} ${made.bytes[i]}`;
        const place = places.get(key) || { key, call: made.call[i], tensor: i, bytes: 0, count: 0 };
        place.bytes += made.bytes[i];
        place.count++;
        if (made.bytes[i] > made.bytes[place.tensor]) place.tensor = i;
        places.set(key, place);
    }
    return [...places.values()].sort((a, b) => b.bytes - a.bytes).slice(0, LOWER_TRIED);
}

/* Returns for each of these places the peak without it. */
function peaksWithout(made, places) {
    const sums = allocatedBy(made), own = new Float64Array(made.entries + 2), numbers = new Map(places.map((each, i) => [each.key, i]));
    const of = new Int8Array(made.count);
    for (let i = 0; i < made.count; i++) {
        const number = numbers.get(made.call[i] > 0 ? made.call[i] : `${made.category[i]} ${made.bytes[i]}`);
        of[i] = number === undefined ? -1 : number;
    }
    return places.map((_, number) => {
        own.fill(0);
        for (let i = 0; i < made.count; i++) {
            if (of[i] !== number) continue;
            own[made.begin[i]] += made.bytes[i];
            if (made.end[i] !== NEVER) own[made.end[i]] -= made.bytes[i];
        }
        let held = 0, highest = 0;
        for (let i = 0; i <= made.entries; i++) {
            held += own[i];
            if (sums[i] - held > highest) highest = sums[i] - held;
        }
        return highest;
    });
}

function whatLowers(made) {
    if (made.lowers) return made.lowers;
    const sums = allocatedBy(made);
    let peak = 0;
    for (let i = 0; i <= made.entries; i++) if (sums[i] > sums[peak]) peak = i;
    const places = placesAtPeak(made, peak), without = peaksWithout(made, places);
    places.forEach((each, i) => { each.lower = sums[peak] - without[i]; });
    made.lowers = { peak, bytes: sums[peak], places: places.sort((a, b) => b.lower - a.lower || b.bytes - a.bytes).slice(0, LOWER_ROWS) };
    return made.lowers;
}

/* Shows the places that lower the peak most, and how much of the peak of reserved bytes is not in tensors. */
function showLower() {
    const { made } = now;
    tensorView.lower = made;
    const { peak, bytes, places } = whatLowers(made), reserved = reservedBy(made);
    let most = 0;
    for (let i = 0; i <= made.entries; i++) if (reserved[i] > reserved[most]) most = i;
    const beyond = reserved[most] - allocatedBy(made)[most];
    at('lower-said').textContent = `Tensors have most after entry ${count(peak)}: ${sizeText(bytes)}. Without what one place allocates, ` +
        `the peak would fall by:`;
    at('beyond-said').textContent = reserved[most] > 0 ? `At the peak of ${sizeText(reserved[most])} reserved, ${sizeText(beyond)} hold no tensor. ` +
        `What another setting of the allocator would make of it: reveille snapshot ${made.file} --set KEY=VALUE` : '';
    fillTable(at('lower'), [['allocated in'], ['category'], ['at the peak', 'number'], ['tensors', 'number'], ['lowers the peak by', 'number']],
        places.map((each) => {
            const row = rowOf([['', '', tensorButton(made, each.tensor, each.call > 0 ? placeText(made, each.call) : `${sizeText(made.bytes[each.tensor])} each, no stack`)],
                [made.categories[made.category[each.tensor]]], [sizeText(each.bytes), 'number'], [count(each.count), 'number'],
                [sizeText(each.lower), 'number']]);
            Object.assign(row.dataset, { bytes: each.bytes, tensors: each.count, lower: each.lower });
            row.keys = [placeText(made, each.call), made.categories[made.category[each.tensor]], each.bytes, each.count, each.lower];
            return row;
        }));
}
