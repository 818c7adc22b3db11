/* The page's address: a link to the current view. */

/* Writes the view to the address: the instant, if it is held, and the choices. */
function tell() {
    const words = new URLSearchParams();
    if (view.held) words.set('t', view.time);
    if (view.run > 0) words.set('run', view.run);
    if (view.device > 0) words.set('device', view.device);
    if (view.axis !== data.axis) words.set('axis', view.axis);
    if (chosen.alone !== null) words.set('holder', chosen.alone);
    const wanted = words.size > 0 ? '#' + words : '';
    if (wanted !== location.hash && started) history.replaceState(null, '', wanted || location.pathname + location.search);
}

/* Waits for the next frame: changing the address takes longer than drawing the view. */
let isTelling = false;
function tellSoon() {
    if (isTelling) return;
    isTelling = true;
    requestAnimationFrame(() => setTimeout(() => {
        isTelling = false;
        tell();
    }));
}

/* Shows the view that the address names, as far as possible. */
function follow() {
    const words = new URLSearchParams(location.hash.slice(1));
    const choice = (name, id) => {
        const wanted = Number(words.get(name));
        at(id).value = at(id).options[wanted] ? wanted : 0;
        view[name] = Number(at(id).value);
    };
    choice('run', 'run');
    choice('device', 'device');
    view.axis = ['time', 'event'].includes(words.get('axis')) ? words.get('axis') : data.axis;
    at('axis').value = view.axis;
    chosen.alone = everySeries().some((series) => series.name === words.get('holder')) ? words.get('holder') : null;
    placeAll();
    view.from = 0;
    view.to = endOf();
    showAll();
    const ns = Number(words.get('t'));
    view.held = words.has('t') && Number.isFinite(ns);
    if (view.held) selectTime(Math.min(Math.max(0, ns), lastEnd()));
    else select(peakInstant());
    if (!view.held) showTensors();
    placeCursor();
}
