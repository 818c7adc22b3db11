/* Segments that cannot be released: their free bytes, and the blocks that pin them. */
const PINS_ROWS = 10;

/* Returns the free bytes that empty_cache() cannot release. An expandable segment releases single pages. */
function pinnedIn(state, segment) {
    const { made, live } = state;
    if (segment.count === 0) return 0;
    if (!segment.expandable) return segment.bytes - segment.live;
    let held = 0, open = -1;
    for (let k = segment.first; k < segment.first + segment.count; k++) {
        const i = live[k], at = made.addr[i] - segment.addr;
        const from = Math.floor(at / segment.page), to = Math.floor((at + roundUp(made.bytes[i]) - 1) / segment.page);
        held += Math.max(0, to - Math.max(from, open + 1) + 1) * segment.page;
        open = Math.max(open, to);
    }
    return Math.max(0, Math.min(held, segment.bytes) - segment.live);
}

function showPins() {
    const { made, live } = now, pinned = now.segments.map((segment) => ({ segment, bytes: pinnedIn(now, segment) }))
        .filter((each) => each.bytes > 0).sort((a, b) => b.bytes - a.bytes || a.segment.addr - b.segment.addr);
    const sum = pinned.reduce((total, each) => total + each.bytes, 0);
    at('pins-said').textContent = pinned.length === 0 ? 'No segment is kept for a part of it.' :
        `${sizeText(sum)} are free in ${counted(pinned.length, 'segment', 'segments')} that something live or pending keeps. The largest:`;
    at('pins').hidden = pinned.length === 0;
    fillTable(at('pins'), [['segment'], ['bytes', 'number'], ['free, but kept', 'number'], ['blocks', 'number'], ['largest block'], ['allocated in']],
        pinned.slice(0, PINS_ROWS).map(({ segment, bytes }) => {
            let largest = live[segment.first];
            for (let k = segment.first; k < segment.first + segment.count; k++) if (made.bytes[live[k]] > made.bytes[largest]) largest = live[k];
            const show = element('button', addressText(segment.addr));
            show.type = 'button';
            show.title = 'Show this segment alone';
            show.addEventListener('click', () => showSegment(segment.addr));
            const row = rowOf([['', '', show], [sizeText(segment.bytes), 'number'], [sizeText(bytes), 'number'], [count(segment.count), 'number'],
                ['', '', tensorButton(made, largest, `${sizeText(made.bytes[largest])}, ${made.categories[made.category[largest]]}`)],
                [siteText(made, made.call[largest])]]);
            Object.assign(row.dataset, { segment: segment.addr, free: bytes, blocks: segment.count });
            row.keys = [segment.addr, segment.bytes, bytes, segment.count, made.bytes[largest], siteText(made, made.call[largest])];
            return row;
        }));
}
