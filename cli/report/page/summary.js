/* The legend, and the lines at the top. */
function showLegend() {
    const device = shown(), entries = [];
    const add = (...parts) => {
        const entry = element('li');
        entry.append(...parts);
        entries.push(entry);
    };
    /* Adds a button that switches a process or a holder off and on. */
    const addSwitch = (key, mark, name) => {
        const made = element('button', '');
        made.type = 'button';
        made.setAttribute('aria-pressed', !chosen.off.has(key));
        made.title = `${chosen.off.has(key) ? 'Show' : 'Hide'} ${name}`;
        made.append(...(mark ? [mark] : []), name);
        made.addEventListener('click', () => {
            if (!chosen.off.delete(key)) chosen.off.add(key);
            showAll();
            const again = [...at('legend').querySelectorAll('button')].find((each) => each.dataset.key === key);
            if (again) again.focus();
        });
        made.dataset.key = key;
        made.classList.toggle('process', !mark);
        add(made);
    };
    const processes = new Set(device.series.map((series) => series.process));
    if (processes.size > 1) for (const process of processes) addSwitch(process + '/', null, `all of ${process}`);
    const names = new Set(), colours = new Map(device.series.map((series) => [series.name, series.colour]));
    for (const layer of [...device.heldLayers].reverse().concat(device.pausedLayers)) {
        if (names.has(layer.name)) continue;
        names.add(layer.name);
        if (layer.alone) addSwitch(layer.name, swatch(layer.colour), layer.name);
        else add(swatch(layer.colour), layer.name);
    }
    for (const name of chosen.off) if (colours.has(name) && !names.has(name)) addSwitch(name, swatch(colours.get(name)), name);
    if (device.pausedLayers.length > 0) add(element('span', '', 'swatch hatched'), 'hatched: paused');
    if (device.samples.length > 0) add(element('span', '', 'sample'), 'true use, read while it was recorded');
    if (other()) add(element('span', '', 'dashed'), `all of ${data.runs[1 - view.run].label}`);
    at('legend').replaceChildren(...entries);
}

/* Describes the room that a device has left at its peak. */
function roomText(device) {
    const { capacity_bytes: capacity, peak_bytes: peak } = device;
    if (!isNamed(device)) return 'give --device to see whether it fits';
    return peak > capacity ? `${sizeText(peak - capacity)} too much` : `${sizeText(capacity - peak)} to spare`;
}

/* Makes the line of a run: verdict, peak and device. */
function summaryOf(each, device) {
    const line = element('p'), stage = stageOf(device, device.peak_ns);
    const bad = each.verdict && !['fits', 'tight', 'survived refusals', 'no refusals recorded'].includes(each.verdict_kind);
    const remedy = each.remedy && isNamed(device) && !device.fits ? `; ${each.remedy}` : '';
    line.append(`${each.label}: `, ...(each.verdict ? [element('strong', each.verdict, bad ? 'bad' : 'good'), `${remedy}. `] : []),
        `Peak ${sizeText(device.peak_bytes)}` + (stage ? ` in ${stage.name}` : '') +
        `, ${roomText(device)}; device ${device.device}, ${deviceText(device)}; ${counted(each.events, 'event', 'events')}`);
    return line;
}

function showSummary() {
    const lines = [summaryOf(run(), shown())];
    if (other()) lines.push(summaryOf(data.runs[1 - view.run], other()));
    at('summary').replaceChildren(...lines);
    document.title = `${data.runs.map((each) => each.label).join(' against ')}: memory over time`;
    at('charts').setAttribute('aria-label', `Memory over time: ${at('summary').textContent}. ` +
        'Arrow keys go to the previous and the next change; the table below says who holds what.');
}

function showAll() {
    layOut();
    rebuild();
    showSummary();
    showLegend();
    showStages();
    selectTime(view.time);
    placeCursor();
    if (started && tensorView.run !== view.run) showTensors();
}
