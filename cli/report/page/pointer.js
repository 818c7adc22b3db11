/* The instant under the pointer, and moves to an instant. */
function placeUnder(event) {
    const box = event.currentTarget.getBoundingClientRect();
    return view.from + (event.clientX - box.left) / box.width * (view.to - view.from);
}
const timeUnder = (event) => timeAt(shown(), placeUnder(event));

/* Follows the pointer. The chart under it moves its own cursor line. */
let movedTo = null;
function onMove(event) {
    showTip(event);
    if (view.held) {
        placeCursor();
        return;
    }
    const over = event.currentTarget, left = event.clientX - over.getBoundingClientRect().left;
    if (movedTo === null) requestAnimationFrame(() => {
        const start = performance.now();
        if (!view.held) selectTime(movedTo);
        movedTo = null;
        performance.measure('instant', { start });
    });
    movedTo = timeUnder(event);
    charts.filter((chart) => chart.over !== over).forEach((chart) => chart.setCursor({ left, top: 1 }));
}

function onClick(event) {
    if (suppressClick) return;
    view.held = true;
    selectTime(timeUnder(event));
    placeCursor();
}

/* Shows the holders at the pointer, beside it. The table has the same content for people who cannot see the tip. */
const TIP_ROWS = 8;
function showTip(event) {
    const device = shown(), ns = timeUnder(event), index = instantAt(device, ns), stage = stageAt(ns);
    const holders = holdersAt(device, index).filter((each) => each.held > 0);
    const rest = holders.slice(TIP_ROWS).reduce((sum, each) => sum + each.held, 0);
    const lines = [[null, `${timeText(ns, timeAt(device, view.to) - timeAt(device, view.from))}${stage ? ', ' + stage.name : ''}`, ''],
        [null, 'in use', sizeText(device.total[index])],
        ...holders.slice(0, TIP_ROWS).map((each) => [each.colour, each.name, sizeText(each.held)]),
        ...(rest > 0 ? [[data.rest_colour, counted(holders.length - TIP_ROWS, 'other', 'others'), sizeText(rest)]] : [])];
    at('tip').replaceChildren(...lines.map(([colour, name, size]) => {
        const line = element('div'), text = element('span', name);
        if (colour) text.prepend(swatch(colour));
        line.append(text, element('span', size));
        return line;
    }));
    at('tip').hidden = false;
    const host = at('charts').getBoundingClientRect(), tip = at('tip').getBoundingClientRect();
    const x = event.clientX - host.left, y = event.clientY - host.top;
    const left = x + 16 + tip.width > host.width ? x - 16 - tip.width : x + 16;
    at('tip').style.left = `${Math.max(0, left)}px`;
    at('tip').style.top = `${Math.min(y + 12, host.height - tip.height)}px`;
}

/*
 * Moves the cursor lines to the current time. Takes the width from the chart, because asking the document would make
 * the browser lay out the page an extra time after a click.
 */
function placeCursor() {
    const place = placeOf(shown(), view.time);
    for (const chart of charts) {
        const width = chart.bbox.width / devicePixelRatio, left = (place - view.from) / (view.to - view.from) * width;
        const inside = left >= 0 && left <= width;
        chart.setCursor({ left: inside ? left : -10, top: inside ? 1 : -10 });
    }
}

/* Goes to an instant by key or button: holds it, and brings it into view. */
function goTo(index) {
    const device = shown(), width = view.to - view.from;
    view.held = true;
    select(Math.min(Math.max(0, index), device.times.length - 1));
    const place = device.places[view.instant];
    if (place < view.from || place > view.to) zoomTo(place - width / 2, place + width / 2);
    else placeCursor();
    at('live').textContent = at('instant').textContent;
}

function peakInstant() {
    const { total, peak_bytes: peak } = shown();
    return Math.max(0, total.indexOf(peak));
}

function stageOf(device, ns) {
    let found = null;
    for (const stage of device.stages) if (stage.begin_ns <= ns) found = stage;
    return found;
}
const stageAt = (ns) => stageOf(shown(), ns);
