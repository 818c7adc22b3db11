/* Live bytes by call. A call is as wide as the live bytes that it and its callees allocated. Callers are above. */
const FLAME_ROW = 20, FLAME_LEAST = 0.004, FLAME_DEPTH = 48;

/* Returns the bytes of each call, with those of its callees. Callers have smaller numbers than their callees. */
function bytesByCall(state) {
    const { made, live, instant } = state, sums = new Float64Array(made.caller.length);
    for (const i of live) if (made.end[i] > instant) sums[made.call[i]] += made.bytes[i];
    const without = sums[0];
    for (let call = sums.length - 1; call > 0; call--) if (made.caller[call] > 0) sums[made.caller[call]] += sums[call];
    return { sums, without };
}

/* Returns the wide enough callees of each call, the largest first. 0 stands for the caller of the outermost calls. */
function calleesOf(made, sums, least) {
    const callees = new Map();
    for (let call = 1; call < sums.length; call++) {
        if (sums[call] < least || sums[call] === 0) continue;
        if (!callees.has(made.caller[call])) callees.set(made.caller[call], []);
        callees.get(made.caller[call]).push(call);
    }
    for (const list of callees.values()) list.sort((a, b) => sums[b] - sums[a]);
    return callees;
}

function flameBox(text, title, left, width, depth, press) {
    const box = element('button', text, 'flame');
    box.type = 'button';
    box.title = title;
    Object.assign(box.style, { left: `${left * 100}%`, width: `${width * 100}%`, top: `${depth * FLAME_ROW}px` });
    box.addEventListener('click', press);
    return box;
}

function showFlames() {
    const { made } = now, { sums, without } = bytesByCall(now), root = tensorView.flame;
    const whole = root === 0 ? now.bytes : sums[root];
    const callees = calleesOf(made, sums, whole * FLAME_LEAST), boxes = [];
    let depth = 0;
    const go = (call) => () => {
        tensorView.flame = call;
        showFlames();
        at('flames').querySelector('button').focus();
    };
    const told = (bytes) => `${sizeText(bytes)}, ${share(bytes, whole) || '0 %'}`;
    const add = (call, left, level) => {
        const text = frameText(made, made.frame[call]), width = sums[call] / whole;
        const box = flameBox(text, `${frameText(made, made.frame[call], true)}: ${told(sums[call])}`, left, width, level, go(call));
        box.dataset.bytes = sums[call];
        box.style.background = `hsl(${24 + made.frame[call] * 37 % 30} 80% ${call === root ? 58 : 66}%)`;
        boxes.push(box);
        depth = Math.max(depth, level + 1);
        if (level < FLAME_DEPTH) addAll(callees.get(call) || [], left, level + 1);
    };
    const addAll = (calls, left, level) => {
        let from = left;
        for (const call of calls) {
            add(call, from, level);
            from += sums[call] / whole;
        }
    };
    if (whole > 0 && root > 0) add(root, 0, 1);
    if (whole > 0 && root === 0) {
        addAll(callees.get(0) || [], 0, 1);
        if (without > 0) {
            const box = flameBox('no stack', `no stack: ${told(without)}`, 1 - without / whole, without / whole, 1, go(0));
            box.dataset.bytes = without;
            boxes.push(box);
        }
    }
    const all = flameBox(`all: ${sizeText(now.bytes)}${root > 0 ? ' (show all)' : ''}`, 'All that is live', 0, 1, 0, go(0));
    all.dataset.bytes = now.bytes;
    at('flames').style.height = `${Math.max(depth, 2) * FLAME_ROW}px`;
    at('flames').replaceChildren(all, ...boxes);
}
