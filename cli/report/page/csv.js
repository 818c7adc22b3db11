/* Tables as CSV. */

/* Makes a cell text if a spreadsheet would take it for a formula. */
function csvCell(value) {
    const text = typeof value === 'number' ? String(value) : String(value).replace(/^[=+\-@\t\r]/, "'$&");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csv = (rows) => rows.map((row) => row.map(csvCell).join(',') + '\r\n').join('');

/* Writes all rows, in bytes and nanoseconds, also those that the table does not show. */
function csvOf(id) {
    const device = shown(), against = other();
    if (id === 'holders') {
        const there = against ? instantThere(against, view.time) : 0;
        return csv([['time_ns', 'holder', 'held_bytes', ...(against ? ['other_run_bytes', 'difference_bytes'] : []), 'paused_bytes'],
            ...holdersAt(device, view.instant, against, there).map((each) => [view.time, each.name, each.held,
                ...(against ? [each.there, each.held - each.there] : []), each.paused])]);
    }
    const theirs = new Map(against ? against.stages.map((stage) => [stage.column, stage]) : []);
    const peakThere = (stage) => theirs.has(stage.column) ? theirs.get(stage.column).peak_bytes : '';
    return csv([['stage', 'begin_ns', 'peak_bytes', 'end_bytes', 'host_bytes', 'transition_ns',
        ...(against ? ['other_run_peak_bytes'] : []), 'at_peak'],
        ...device.stages.map((stage) => [stage.name, stage.begin_ns, stage.peak_bytes, stage.end_bytes, stage.host_bytes,
            stage.transition_ns, ...(against ? [peakThere(stage)] : []),
            stage.at_peak.map((each) => `${holderName(each)}=${each.bytes}`).join(' ')])]);
}

function save(id) {
    const link = element('a');
    link.href = URL.createObjectURL(new Blob([csvOf(id)], { type: 'text/csv' }));
    link.download = `${id}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
}
