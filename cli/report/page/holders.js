/* The table of holders at an instant. */
const MAX_ROWS = 60;

/* Makes a button for a holder: a click shows it alone, a second click shows all again. */
function holderButton({ name, colour }) {
    const made = element('button', name);
    made.type = 'button';
    made.title = chosen.alone === name ? 'Show all holders' : 'Show this holder alone';
    made.setAttribute('aria-pressed', chosen.alone === name);
    made.prepend(swatch(colour));
    made.addEventListener('click', () => {
        chosen.alone = chosen.alone === name ? null : name;
        showAll();
    });
    return made;
}

/* For an instant that stands for several changes, returns the minimum and maximum of each series that changed. */
function rangesAt(device, index) {
    const point = device.points[device.pointOf[index]], ranges = new Map();
    if (point && point[3] > 1)
        for (const [series, , least, most] of point[7]) if (least !== most) ranges.set(series, [least, most]);
    return ranges;
}

/* Returns every holder with memory: its bytes held and paused, and its range if the point stands for several changes. */
function holdersAt(device, index, against, indexThere) {
    const holders = new Map(), ranges = rangesAt(device, index);
    const holderOf = ({ name, colour }) => {
        const holder = holders.get(name) || { name, colour, held: 0, paused: 0, there: 0, range: null };
        holders.set(name, holder);
        return holder;
    };
    if (against) against.series.forEach((series, s) => {
        if (!series.paused) holderOf(series).there += against.bytes[s][indexThere];
    });
    device.series.forEach((series, s) => {
        const holder = holderOf(series);
        holder[series.paused ? 'paused' : 'held'] += device.bytes[s][index];
        if (!series.paused && ranges.has(s)) holder.range = ranges.get(s);
    });
    return [...holders.values()].filter((each) => !chosen.found || matches(each.name)).filter((each) => each.held > 0 || each.paused > 0 || each.there > 0)
        .sort((a, b) => b.held - a.held || b.paused - a.paused || (a.name < b.name ? -1 : 1));
}

function swatch(colour) {
    const made = element('span', '', 'swatch');
    made.style.background = colour;
    made.setAttribute('aria-hidden', 'true');
    return made;
}

const share = (part, whole) => whole > 0 && part > 0 ? (100 * part / whole).toFixed(1) + ' %' : '';
const rangeText = (range) => range ? `${sizeText(range[0])} to ${sizeText(range[1])}` : '';
/* Formats "+61.0 GiB" or "-512 B"; "" without a difference. */
const differenceText = (bytes) => bytes === 0 ? '' : (bytes > 0 ? '+' : '\u2212') + sizeText(Math.abs(bytes));
const differenceCell = (bytes) => [differenceText(bytes), 'number'];
const numberCell = (bytes) => [bytes > 0 ? sizeText(bytes) : '', 'number'];

/* Returns the instant of the other run at the same place. */
const instantThere = (against, ns) => instantAt(against, timeAt(against, placeOf(shown(), ns)));
const selectTime = (ns) => select(instantAt(shown(), ns), ns);

/* Shows the state at a time, which is that of the last instant before it. */
function select(index, time) {
    const device = shown(), table = at('holders'), since = device.times[index];
    const ns = time === undefined ? since : Math.round(time);
    view.instant = index;
    view.time = ns;
    const total = device.total[index], paused = device.paused[index];
    const stage = stageAt(ns), point = device.points[device.pointOf[index]];
    const against = other(), indexThere = against ? instantThere(against, ns) : 0;
    const there = against ? against.total[indexThere] : 0;
    const range = timeAt(device, view.to) - timeAt(device, view.from), shows = (each) => timeText(each, range);
    const parts = [`At ${shows(ns)}` + (shows(ns) !== shows(since) ? `, unchanged since ${shows(since)}` : '')];
    if (stage) parts.push(`in ${stage.name}`);
    parts.push(`${sizeText(total)} in use` +
        (isNamed(device) ? `, ${sizeText(Math.max(0, device.capacity_bytes - total))} free` : ''));
    if (total > device.capacity_bytes) parts.push(`${sizeText(total - device.capacity_bytes)} too much`);
    if (paused > 0) parts.push(`${sizeText(paused)} paused`);
    const read = lastAtMost(device.sampleTimes, ns);
    if (device.samples.length > 0 && device.samples[read][0] <= ns)
        parts.push(`last read: ${sizeText(device.samples[read][1])} at ${shows(device.samples[read][0])}`);
    if (against) parts.push(`${data.runs[1 - view.run].label}: ${sizeText(there)}`);
    if (point && point[3] > 1) parts.push(`${count(point[3])} changes in this pixel`);
    at('instant').textContent = parts.join('; ') + (view.held ? ' (held)' : '');
    at('instant').dataset.ns = ns;

    const holders = holdersAt(device, index, against, indexThere), withRange = holders.some((each) => each.range);
    const columns = [['holder'], ['held', 'number'], ['bytes', 'number'], ['share', 'number'],
        ...(against ? [['other run', 'number'], ['difference', 'number']] : []), ['paused', 'number'],
        ...(withRange ? [['downsampled: spans', 'number']] : [])];
    /* While the pointer moves, show only the first rows. */
    const rows = holders.length > MAX_ROWS && !view.held ? holders.slice(0, MAX_ROWS) : holders;
    const rest = holders.slice(rows.length).reduce((held, each) => held + each.held, 0);
    const lines = rows.map((each) => {
        const row = rowOf([['', '', holderButton(each)], numberCell(each.held),
            [each.held > 0 ? count(each.held) : '', 'number bytes'], [share(each.held, total), 'number'],
            ...(against ? [numberCell(each.there), differenceCell(each.held - each.there)] : []), numberCell(each.paused), ...(withRange ? [[rangeText(each.range), 'number']] : [])]);
        Object.assign(row.dataset, { holder: each.name, held: each.held, paused: each.paused, there: each.there });
        row.keys = [each.name, each.held, each.held, each.held, ...(against ? [each.there, each.held - each.there] : []),
            each.paused, each.range ? each.range[1] - each.range[0] : 0];
        return row;
    });
    if (rows.length < holders.length)
        lines.push(rowOf([[`${holders.length - rows.length} smaller: click to see all`], numberCell(rest),
            [count(rest), 'number bytes']]));
    const sum = rowOf([['all', ''], [sizeText(total), 'number'], [count(total), 'number'], [isNamed(device) ?
        share(total, device.capacity_bytes) + ' of capacity' : '', 'number'], ...(against ? [numberCell(there), differenceCell(total - there)] : []),
        numberCell(paused), ...(withRange ? [['', '']] : [])]);
    Object.assign(sum.dataset, { held: total, paused });
    fillTable(table, columns, lines, sum);
    if (view.held) showTensors();
    tellSoon();
}
