/* Choices, keys, and the first view. */
function fillChoice(id, names, chosen) {
    at(id).replaceChildren(...names.map((name, i) => new Option(name, i)));
    at(id).addEventListener('change', () => {
        chosen(Number(at(id).value));
        showAll();
    });
    at(id + '-choice').hidden = names.length < 2;
}

fillChoice('run', data.runs.map((each) => each.label), (i) => { view.run = i; });
fillChoice('device', data.runs[0].devices.map((each) => `${each.device}: ${deviceText(each)}`),
    (i) => { view.device = i; });
at('axis').value = view.axis;
at('axis').addEventListener('change', () => {
    view.axis = at('axis').value;
    placeAll();
    zoomAll();
    rebuild();
});
at('search').addEventListener('input', () => {
    chosen.search = at('search').value.trim();
    showAll();
    showFound();
});
at('show-all').addEventListener('click', () => {
    Object.assign(chosen, { alone: null, off: new Set(), search: '' });
    at('search').value = '';
    showAll();
    showFound();
});
for (const id of ['holders', 'stages']) at(`save-${id}`).addEventListener('click', () => save(id));
at('show-paused').addEventListener('change', (event) => {
    view.showPaused = event.target.checked;
    rebuild();
});
const zoomHere = (factor) => {
    const place = placeOf(shown(), view.time);
    const inside = place >= view.from && place <= view.to;
    zoomAround(inside ? place : (view.from + view.to) / 2, factor);
};
const letGo = () => {
    view.held = false;
    select(view.instant, view.time);
};
const actions = {
    '+': () => zoomHere(0.5), '=': () => zoomHere(0.5), '-': () => zoomHere(2), '0': () => zoomAll(),
    'p': () => goTo(peakInstant()), 'Escape': letGo, 'Home': () => goTo(0), 'End': () => goTo(Infinity),
    'ArrowLeft': () => goTo(view.instant - 1), 'ArrowRight': () => goTo(view.instant + 1),
    'Shift+ArrowLeft': () => moveBy(-0.1), 'Shift+ArrowRight': () => moveBy(0.1),
};
at('charts').addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const shifted = event.shiftKey && event.key.startsWith('Arrow') ? 'Shift+' : '';
    const action = actions[shifted + event.key];
    if (!action) return;
    event.preventDefault();
    action();
});
at('zoom-in').addEventListener('click', actions['+']);
at('zoom-out').addEventListener('click', actions['-']);
at('zoom-all').addEventListener('click', actions['0']);
at('go-peak').addEventListener('click', actions.p);
at('choices').addEventListener('submit', (event) => event.preventDefault());

/* Redraws for another colour scheme, for printing, and for another window size. */
for (const query of ['(prefers-color-scheme: dark)', 'print'])
    matchMedia(query).addEventListener('change', rebuild);
let width = at('charts').clientWidth;
new ResizeObserver(() => {
    if (at('charts').clientWidth === width) return;
    width = at('charts').clientWidth;
    rebuild();
}).observe(at('charts'));

follow();
started = true;
addEventListener('hashchange', follow);
