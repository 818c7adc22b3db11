/* The table of stages. */
function showStages() {
    const device = shown(), table = at('stages'), end = lastEnd(), against = other();
    const theirs = new Map(against ? against.stages.map((stage) => [stage.column, stage]) : []);
    const columns = [['stage'], ['begins', 'number'], ['peak', 'number'], ['end', 'number'], ...(isNamed(device) ? [['free at peak', 'number']] : []),
        ['host', 'number'], ['transitions', 'number'],
        ...(against ? [['peak, other run', 'number'], ['difference', 'number'], ['who differs at the peak', 'holders']] : []),
        ['who holds the peak', 'holders']];
    const rows = device.stages.map((stage, i) => {
        const go = element('button', stage.merged ? `${stage.name} and ${stage.merged - 1} more` : stage.name);
        go.type = 'button';
        go.title = 'Zoom to this stage';
        go.addEventListener('click', () => {
            const { from, to } = allSpans()[i];
            zoomTo(from, Math.max(to, from + NARROWEST));
        });
        const over = stage.peak_bytes > device.capacity_bytes;
        const row = rowOf([['', '', go], [timeText(stage.begin_ns, end), 'number'],
            [sizeText(stage.peak_bytes) + (over ? ' does not fit' : ''), over ? 'number bad' : 'number'],
            [sizeText(stage.end_bytes), 'number'],
            ...(isNamed(device) ? [[sizeText(stage.free_at_peak_bytes), 'number']] : []),
            [sizeText(stage.host_bytes), 'number'], [(stage.transition_ns / NS).toFixed(3) + ' s', 'number'],
            ...(against ? comparison(stage, theirs.get(stage.column)) : []),
            [stage.at_peak.slice(0, 6).map((each) => `${holderName(each)} ${unbroken(sizeText(each.bytes))}`).join(', ') +
                (stage.at_peak.length > 6 ? `, ${stage.at_peak.length - 6 + (stage.others || 0)} more` : ''), 'holders']]);
        Object.assign(row.dataset, { stage: stage.name, peak: stage.peak_bytes });
        const there = theirs.get(stage.column);
        row.keys = [stage.name, stage.begin_ns, stage.peak_bytes, stage.end_bytes,
            ...(isNamed(device) ? [stage.free_at_peak_bytes] : []), stage.host_bytes, stage.transition_ns, ...(against ? [there ? there.peak_bytes : 0, there ? stage.peak_bytes - there.peak_bytes : 0] : [])];
        return row;
    });
    if (against) {
        const own = new Set(device.stages.map((stage) => stage.column));
        for (const stage of against.stages.filter((each) => !own.has(each.column))) {
            const row = rowOf([[`${stage.name} (other run only)`, ''], ...Array(isNamed(device) ? 6 : 5).fill(['', 'number']),
                ...comparison(null, stage), ['', '']]);
            row.dataset.other = stage.name;
            row.keys = [stage.name, stage.begin_ns, ...Array(isNamed(device) ? 5 : 4).fill(0), stage.peak_bytes, -stage.peak_bytes];
            rows.push(row);
        }
    }
    /* If no stage matches, the search is for a holder: show all stages. */
    const found = rows.filter((row) => matches(row.dataset.stage || row.dataset.other));
    fillTable(table, columns, found.length > 0 ? found : rows);
}

/* Returns cells: the stage's peak in the other run, the difference, and the holders that differ, the largest first. */
function comparison(own, theirs) {
    const more = new Map();
    const add = (stage, sign) => stage && stage.at_peak.forEach((each) => {
        more.set(holderName(each), (more.get(holderName(each)) || 0) + sign * each.bytes);
    });
    add(own, 1);
    add(theirs, -1);
    const who = [...more].filter(([, bytes]) => bytes !== 0).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    return [[theirs ? sizeText(theirs.peak_bytes) : '', 'number'],
        own && theirs ? differenceCell(own.peak_bytes - theirs.peak_bytes) : ['', 'number'],
        [own && theirs ? who.slice(0, 4).map(([name, bytes]) => `${name} ${unbroken(differenceText(bytes))}`).join(', ') : '', 'holders']];
}
