/* Decodes the columns of a snapshot's tensors, as `reveille snapshot --tensors` writes them (docs/snapshot.md). */
const BASE64 = new Uint8Array(128);
[...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'].forEach((digit, i) => {
    BASE64[digit.charCodeAt(0)] = i;
});

/* Calls back for every number of a column, with its row. Numbers above 2^53 lose their last bits. */
function eachNumber(text, found) {
    const length = text.endsWith('==') ? text.length - 2 : text.endsWith('=') ? text.length - 1 : text.length;
    let bits = 0, held = 0, number = 0, factor = 1, row = 0;
    for (let i = 0; i < length; i++) {
        bits = (bits << 6 | BASE64[text.charCodeAt(i)]) & 0xffff;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        const byte = bits >> held & 255;
        number += (byte & 127) * factor;
        factor *= 128;
        if (byte > 127) continue;
        found(number, row++);
        number = 0;
        factor = 1;
    }
}

/* Return the numbers of a column. In a signed column, each number is stored as the difference to the one before. */
function columnOf(text, rows, Type) {
    const column = new Type(rows);
    eachNumber(text, (number, row) => { column[row] = number; });
    return column;
}
function signedColumnOf(text, rows, Type, first = 0) {
    const column = new Type(rows);
    let last = first;
    eachNumber(text, (number, row) => {
        last += number % 2 === 1 ? -(number + 1) / 2 : number / 2;
        column[row] = last;
    });
    return column;
}

/* Returns the order of numbers up to 2^48, by a radix sort with three rounds of 16 bits. */
function orderOf(numbers) {
    let order = new Uint32Array(numbers.length), next = new Uint32Array(numbers.length);
    for (let i = 0; i < order.length; i++) order[i] = i;
    for (let divisor = 1; divisor <= 2 ** 32; divisor *= 65536) {
        const begins = new Uint32Array(65537), digit = (i) => Math.floor(numbers[i] / divisor) % 65536;
        for (let i = 0; i < order.length; i++) begins[digit(i) + 1]++;
        for (let i = 1; i < begins.length; i++) begins[i] += begins[i - 1];
        for (const i of order) next[begins[digit(i)]++] = i;
        [order, next] = [next, order];
    }
    return order;
}
const inOrderOf = (column, order) => column.map((_, i) => column[order[i]]);

const NEVER = 2 ** 32 - 1;

/* Decodes instants that are stored as a distance from others, with 0 for never. */
function instantsSince(text, begins) {
    const column = columnOf(text, begins.length, Uint32Array);
    return column.map((since, i) => since === 0 || begins[i] === NEVER ? NEVER : begins[i] + since - 1);
}

/* Decodes tensors and segments, sorted by address, and the times of entries on the chart's clock, made monotonic. */
function decodeTensors(of, offset_ns) {
    const { tensors, segments, entries, frames, calls, unit_bytes: unit } = of;
    const made = { entries, texts: of.texts, file: of.file };
    const addr = signedColumnOf(of.addr, tensors, Float64Array), order = orderOf(addr);
    const begin = signedColumnOf(of.begin, tensors, Uint32Array), end = instantsSince(of.end, begin);
    const take = (column) => inOrderOf(column, order);
    Object.assign(made, {
        count: tensors, addr: take(addr).map((each) => each * unit), bytes: take(columnOf(of.bytes, tensors, Float64Array)),
        begin: take(begin), end: take(end), done: take(instantsSince(of.done, end)),
        call: take(columnOf(of.call, tensors, Uint32Array)), label: take(columnOf(of.label, tensors, Uint32Array)),
    });
    const segmentAddr = signedColumnOf(of.segment_addr, segments, Float64Array), segmentOrder = orderOf(segmentAddr);
    const segmentBegin = columnOf(of.segment_begin, segments, Uint32Array);
    const takeSegment = (column) => inOrderOf(column, segmentOrder);
    made.segments = {
        count: segments, addr: takeSegment(segmentAddr).map((each) => each * unit),
        bytes: takeSegment(columnOf(of.segment_bytes, segments, Float64Array)), begin: takeSegment(segmentBegin),
        end: takeSegment(instantsSince(of.segment_end, segmentBegin)),
        expandable: takeSegment(columnOf(of.segment_expandable, segments, Uint8Array)),
    };
    /* Calls are numbered from 1; 0 means none. */
    made.caller = new Uint32Array(calls + 1);
    made.frame = new Uint32Array(calls + 1);
    eachNumber(of.call_caller, (back, i) => { made.caller[i + 1] = i + 1 - back; });
    eachNumber(of.call_frame, (frame, i) => { made.frame[i + 1] = frame; });
    made.frames = { file: columnOf(of.frame_file, frames, Uint32Array), name: columnOf(of.frame_name, frames, Uint32Array),
        line: columnOf(of.frame_line, frames, Uint32Array) };
    let latest = 0;
    made.ns = signedColumnOf(of.time_us, entries, Float64Array, of.origin_us)
        .map((us) => (latest = Math.max(latest, (us - of.origin_us) * 1000 + offset_ns)));
    return made;
}
