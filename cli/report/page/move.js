/* Zoom and movement. */
const NARROWEST = 10; /* ns, or 1e-8 of a stage */

function zoomTo(from, to) {
    const end = endOf();
    let width = Math.min(end, Math.max(NARROWEST, to - from));
    let left = Math.min(Math.max(0, from), end - width);
    view.from = left;
    view.to = left + width;
    redraw();
}

function zoomAround(place, factor) {
    zoomTo(place - (place - view.from) * factor, place + (view.to - place) * factor);
}

/* Zooms the chart of held memory vertically. low and high are fractions of its height. */
function zoomBytes(low, high) {
    const height = Math.min(1, Math.max(1e-4, high - low));
    view.low = Math.min(Math.max(0, low), 1 - height);
    view.high = view.low + height;
    redraw();
}

function zoomAll() {
    Object.assign(view, { low: 0, high: 1 });
    zoomTo(0, endOf());
}

function moveBy(part) {
    const shift = (view.to - view.from) * part;
    zoomTo(view.from + shift, view.to + shift);
}

function onSelect(u) {
    const { left, width, top, height } = u.select, whole = u.over.clientHeight;
    if (width < 4 && (height < 4 || height >= whole)) return;
    const from = u.posToVal(left, 'x') * NS, to = u.posToVal(left + width, 'x') * NS;
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    suppressClick = true;
    if (u === charts[0] && height >= 4 && height < whole - 1) {
        const shownHeight = view.high - view.low, bottom = (whole - top - height) / whole;
        zoomBytes(view.low + bottom * shownHeight, view.low + (bottom + height / whole) * shownHeight);
    }
    if (width >= 4) zoomTo(from, to);
}

/* The wheel scrolls the page. It zooms only with Ctrl or Cmd, or with Alt in bytes, and moves sideways up to the ends. */
function onWheel(event) {
    const width = event.currentTarget.clientWidth;
    if (event.altKey && event.currentTarget === charts[0].over) {
        const under = view.low + (1 - event.offsetY / event.currentTarget.clientHeight) * (view.high - view.low);
        const factor = Math.exp(Math.max(-100, Math.min(100, event.deltaY)) / 400);
        event.preventDefault();
        zoomBytes(under - (under - view.low) * factor, under + (view.high - under) * factor);
        return;
    }
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const turned = sideways && event.deltaX || event.deltaY;
    if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoomAround(placeUnder(event), Math.exp(Math.max(-100, Math.min(100, turned)) / 400));
    } else if (sideways && (turned < 0 ? view.from > 0 : view.to < endOf())) {
        event.preventDefault();
        moveBy(turned / width);
    }
}

let suppressClick = false;
function onPanStart(event) {
    suppressClick = false;
    if (!event.shiftKey || event.button !== 0) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    const width = event.currentTarget.clientWidth, begin = event.clientX, { from, to } = view;
    const move = (moved) => {
        const shift = (begin - moved.clientX) / width * (to - from);
        suppressClick = true;
        zoomTo(from + shift, to + shift);
    };
    const end = () => {
        removeEventListener('mousemove', move);
        removeEventListener('mouseup', end);
    };
    addEventListener('mousemove', move);
    addEventListener('mouseup', end);
}
