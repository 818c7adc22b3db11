/*
 * A snapshot's tensors by address at an instant. An instant is the number of entries that have happened. `now` is the
 * state of the current snapshot at its instant: its tensors and segments, by address.
 */
const ROUNDING = 512; /* PyTorch's blocks are multiples of this */
const roundUp = (bytes) => Math.ceil(Math.max(bytes, 1) / ROUNDING) * ROUNDING;

let now = null;
const shots = data.tensors.filter((each) => each.of !== null);
const decoded = new Map();
const shotsOf = (index) => shots.filter((each) => each.run === index);

/* Decodes a snapshot once. Its times are relative to the first snapshot of the run. */
function decodeShot(each) {
    if (!decoded.has(each)) {
        const first = Math.min(...shotsOf(each.run).map((other) => other.of.origin_us));
        const made = decodeTensors(each.of, (each.of.origin_us - first) * 1000);
        made.file = each.file;
        sortIntoCategories(made);
        decoded.set(each, made);
    }
    return decoded.get(each);
}

/*
 * Returns the number of entries that have happened at a time. At the chart's peak, returns the entry of that microsecond
 * with the most reserved bytes. At the end of the chart, returns all entries.
 */
function instantOf(made, ns) {
    if (ns >= run().end_ns && shown().peak_ns < ns) return made.entries;
    let last = made.entries > 0 && made.ns[0] <= ns ? lastAtMost(made.ns, ns) + 1 : 0;
    if (last === 0 || shown().peak_ns !== Math.round(ns)) return last;
    const reserved = reservedBy(made);
    let most = last;
    for (let i = last; i > 0 && made.ns[i - 1] === made.ns[last - 1]; i--) if (reserved[i] > reserved[most]) most = i;
    return most;
}

/* Returns the sum of bytes at every instant, for tensors or segments. */
function sumsOf(made, entries) {
    const sums = new Float64Array(entries + 2);
    for (let i = 0; i < made.count; i++) {
        sums[made.begin[i]] += made.bytes[i];
        if (made.end[i] !== NEVER) sums[made.end[i]] -= made.bytes[i];
    }
    for (let i = 1; i <= entries; i++) sums[i] += sums[i - 1];
    return sums;
}
function reservedBy(made) {
    if (!made.reserved) made.reserved = sumsOf(made.segments, made.entries);
    return made.reserved;
}
function allocatedBy(made) {
    if (!made.allocated) made.allocated = sumsOf(made, made.entries);
    return made.allocated;
}

/* Returns the segments at an instant. Joins adjacent pieces of an expandable segment; page is the smallest piece. */
function segmentsAt(made, instant) {
    const { count: all, addr, bytes, begin, end, expandable } = made.segments, found = [];
    for (let i = 0; i < all; i++) {
        if (begin[i] > instant || end[i] <= instant) continue;
        const last = found[found.length - 1];
        if (last && last.expandable && expandable[i] && last.addr + last.bytes === addr[i]) {
            last.bytes += bytes[i];
            last.page = Math.min(last.page, bytes[i]);
        } else {
            found.push({ addr: addr[i], bytes: bytes[i], page: bytes[i], expandable: expandable[i] === 1, live: 0, first: 0, count: 0 });
        }
    }
    return found;
}

/* Returns the state at an instant: live tensors, and freed ones that another stream may still use. */
function stateAt(made, instant) {
    const { count: all, addr, bytes, begin, end, done } = made;
    const live = [], segments = segmentsAt(made, instant);
    let sum = 0, pending = 0, next = 0;
    for (let i = 0; i < all; i++) {
        if (begin[i] > instant || (end[i] <= instant && done[i] <= instant) || (end[i] <= instant && done[i] === NEVER)) continue;
        if (end[i] > instant) sum += bytes[i];
        else pending += bytes[i];
        while (next < segments.length && segments[next].addr + segments[next].bytes <= addr[i]) next++;
        const segment = segments[next];
        if (segment && addr[i] >= segment.addr) {
            if (segment.count++ === 0) segment.first = live.length;
            segment.live += roundUp(bytes[i]);
        }
        live.push(i);
    }
    const reserved = segments.reduce((total, each) => total + each.bytes, 0);
    return { made, instant, live, segments, bytes: sum, pending, reserved };
}

/* ---- Stacks ---- */

/* Returns the frames of a call, from the innermost one outwards. */
function stackOf(made, call) {
    const frames = [];
    for (let i = call; i > 0; i = made.caller[i]) frames.push(made.frame[i]);
    return frames;
}
const baseName = (path) => path.slice(path.lastIndexOf('/') + 1);
function frameText(made, frame, whole) {
    const { texts, frames } = made, file = texts[frames.file[frame]], line = frames.line[frame];
    return `${texts[frames.name[frame]] || '?'} (${whole ? file : baseName(file)}${line > 0 ? ':' + line : ''})`;
}
/* Files that are not the program's own: those of PyTorch, Python and packages. siteText() skips them. */
const FOREIGN = /^$|\/torch\/|\/site-packages\/|\/dist-packages\/|\/lib\/python3\.|^<|\.(c|cc|cpp|cxx|cu|cuh|h|hpp|so)$|\/_reveille_\w+\.py$|\?\?/;
function siteText(made, call) {
    const frames = stackOf(made, call);
    if (frames.length === 0) return 'no stack';
    const own = frames.find((frame) => !FOREIGN.test(made.texts[made.frames.file[frame]]));
    return frameText(made, own === undefined ? frames[0] : own);
}
/* Files that are in the stack of every operator. placeText() skips them, and adds the innermost other frame. */
const OPERATOR = /\/(_ops|_reveille_tensors)\.py$/;
function placeText(made, call) {
    const inner = stackOf(made, call).find((frame) => !OPERATOR.test(made.texts[made.frames.file[frame]]));
    const site = siteText(made, call), text = inner === undefined ? site : frameText(made, inner);
    return text === site ? site : `${site}: ${text}`;
}
const addressText = (addr) => '0x' + addr.toString(16);
