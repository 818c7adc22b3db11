#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The page of `reveille report` in a real browser: test_page.py COMMAND SOURCE_DIR [OUT_DIR].

What the page says at an instant is held against `reveille replay --json`. With OUT_DIR the
screenshots stay there, to be looked at. Exit status 77: no Chromium, or built without the page.
"""
import csv
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import browser as chromium

MIB = 1 << 20
EVENTS = 1_000_000
CTRL, SHIFT = 2, 8  # modifiers
REDRAW_MS_MAX = 100.0  # generous: a test machine may have one slow core


def command(*words):
    return subprocess.run([sys.argv[1], *map(str, words)], capture_output=True, text=True)


def replay(*words):
    return json.loads(command("replay", "--json", *words).stdout)["devices"]


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def same(found, expected, what):
    check(found == expected, f"{what}: {found}, expected {expected}")


def near(found, expected, allowed, what):
    check(abs(found - expected) <= allowed, f"{what}: {found}, expected {expected}")


# ---- Asking the page ----

def box(page):
    """Left, top, width and height of the plot."""
    return page.run("(() => { const b = document.querySelector('#held .u-over').getBoundingClientRect();"
                    "return [b.left, b.top, b.width, b.height]; })()")


def view(page):
    return page.run("(({from, to}) => [+from, +to])(document.getElementById('charts').dataset)")


def table(page):
    """Held and paused bytes by holder, and of all."""
    return page.run("""(() => {
        const rows = [...document.querySelectorAll('#holders tbody tr')].map((r) => r.dataset);
        const all = document.querySelector('#holders tfoot tr').dataset;
        return { held: Object.fromEntries(rows.filter((r) => +r.held).map((r) => [r.holder, +r.held])),
                 paused: Object.fromEntries(rows.filter((r) => +r.paused).map((r) => [r.holder, +r.paused])),
                 total: +all.held };
    })()""")


def hover(page, ns):
    left, top, width, height = box(page)
    begin, end = view(page)
    page.mouse("mouseMoved", left + (ns - begin) / (end - begin) * width, top + height / 2)
    page.settle()


def drag(page, part_from, part_to, shift=False):
    left, top, width, height = box(page)
    modifiers = SHIFT if shift else 0
    y = top + height / 2
    page.mouse("mouseMoved", left + part_from * width, y, modifiers=modifiers)
    page.mouse("mousePressed", left + part_from * width, y, button="left", clickCount=1,
               modifiers=modifiers)
    for i in range(1, 6):
        page.mouse("mouseMoved", left + (part_from + (part_to - part_from) * i / 5) * width, y,
                   button="left", modifiers=modifiers)
    page.mouse("mouseReleased", left + part_to * width, y, button="left", clickCount=1,
               modifiers=modifiers)
    page.settle()


def holders_of(stage):
    return {f"{h['process']}/{h['tag'] if h['tag'] is not None else 'untagged'}": h["bytes"]
            for h in stage["at_peak"]}


def looks(page):
    """
    Luminances, 0 to 1, of background and text, as they are computed; of what the charts have drawn, on
    the paper of the page: the mean of the pixels, and the part of them that nothing is drawn on; and
    which of the page's parts can be seen.
    """
    return page.run("""(() => {
        const light = (r, g, b) => (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
        const colour = (element, name) =>
            light(...getComputedStyle(element)[name].match(/[\\d.]+/g).slice(0, 3).map(Number));
        const canvas = document.querySelector('#held canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const paper = colour(document.body, 'backgroundColor');
        let sum = 0, bare = 0, dark = 0;
        for (let i = 0; i < data.length; i += 4) {
            const part = data[i + 3] / 255;
            const seen = part * light(data[i], data[i + 1], data[i + 2]) + (1 - part) * paper;
            sum += seen;
            bare += part === 0;
            dark += seen < 0.15;
        }
        const pixels = data.length / 4;
        const shown = (id) => getComputedStyle(document.getElementById(id)).display !== 'none';
        return { paper, ink: colour(document.body, 'color'), label: colour(document.querySelector('#instant'), 'color'),
                 canvas: sum / pixels, bare: bare / pixels, dark: dark / pixels,
                 choices: shown('choices'), keys: shown('keys'), stages: shown('stages') };
    })()""")


def near_white(page, what):
    seen = looks(page)
    check(seen["paper"] > 0.99 and seen["ink"] < 0.2, what, seen)
    check(seen["bare"] < 0.95, what, "has a chart:", seen)
    check(seen["canvas"] > 0.5 and seen["dark"] < 0.1, what, "draws no dark chart:", seen)
    return seen


# ---- Tests ----

def test_hover(page, device):
    """In the middle of each stage of this trace its peak is still in use, but where it falls at once."""
    stages = page.run("JSON.parse(document.getElementById('data').textContent)"
                      ".runs[0].devices[0].stages.map((s) => s.begin_ns)")
    ends = stages[1:] + [view(page)[1]]
    compared = 0
    for stage, begin, end in zip(device["stages"], stages, ends):
        hover(page, (begin + end) // 2)
        seen = table(page)
        same(seen["total"], stage["end_bytes"], stage["name"])
        if stage["end_bytes"] == stage["peak_bytes"]:
            same(seen["held"], holders_of(stage), "who holds " + stage["name"])
            compared += 1
    check(compared >= 4, "stages with compared holders:", compared)
    hover(page, (stages[0] + stages[1]) // 2)
    check(table(page)["paused"].get("engine/kv_cache", 0) > 90 << 30, "paused:", table(page))


def test_stages(page, device):
    rows = page.run("[...document.querySelectorAll('#stages tbody tr')].map((r) => [r.dataset.stage, +r.dataset.peak])")
    same(rows, [[s["name"], s["peak_bytes"]] for s in device["stages"]], "table of stages")
    page.run("document.querySelectorAll('#stages tbody button')[2].click()")
    page.settle()
    begin, end = view(page)
    near(begin, 3000392000, 2, "a stage's button shows the stage")
    near(end, 4000846000, 2, "to its end")


def test_wheel(page):
    """It scrolls the page, also where the chart is under the pointer and where there is nothing to move to."""
    page.resize(1280, 500)
    page.run("document.getElementById('charts').focus(); scrollTo(0, 0)")
    page.key("0")
    whole = view(page)
    left, top, width, height = box(page)
    page.mouse("mouseWheel", left + width / 2, top + height / 2, deltaX=0, deltaY=100)
    page.wait("scrollY === 100", "a wheel over the chart scrolls the page")
    same(view(page), whole, "and does not zoom")
    page.run("scrollTo(0, 0)")
    took = page.run("""[[0, 100, false], [-100, 0, false], [0, 100, true]].map(([deltaX, deltaY, ctrlKey]) => {
        const turned = new WheelEvent('wheel', { deltaX, deltaY, ctrlKey, bubbles: true, cancelable: true });
        return !document.querySelector('#held .u-over').dispatchEvent(turned);
    })""")
    same(took, [False, False, True], "what the chart takes: a wheel, one beyond its edge, one with Ctrl")
    page.settle()
    page.key("0")
    page.resize(1280)


def test_ticks(page):
    """A tick's label is where it says, whatever the zoom: of steps of 0.25 s none reads 0.3."""
    page.run("document.getElementById('charts').focus()")
    page.key("0")
    end = view(page)[1]
    for _ in range(12):
        ticks = page.run("JSON.parse(document.getElementById('charts').dataset.ticks)")
        check(len(ticks) > 1, "ticks:", ticks)
        for seconds, text in ticks:
            near(float(text.removesuffix(" s")), seconds, end * 1e-15, "a tick's label")
        page.key("+")
    page.key("0")


def test_zoom(page):
    page.run("document.getElementById('charts').focus()")
    page.key("0")
    whole = view(page)
    left, top, width, height = box(page)
    page.mouse("mouseWheel", left + width / 2, top + height / 2, deltaX=0, deltaY=-100, modifiers=CTRL)
    page.settle()
    begin, end = view(page)
    check(0.5 < (end - begin) / (whole[1] - whole[0]) < 0.9, "wheel:", begin, end)
    near((begin + end) / 2, (whole[0] + whole[1]) / 2, whole[1] / 100, "the pointer stays where it is")
    drag(page, 0.25, 0.75)
    inner = view(page)
    near(inner[1] - inner[0], (end - begin) / 2, (end - begin) / 50, "dragged range")
    drag(page, 0.5, 0.25, shift=True)
    moved = view(page)
    near(moved[0] - inner[0], (inner[1] - inner[0]) / 4, whole[1] / 100, "moved by dragging")
    near(moved[1] - moved[0], inner[1] - inner[0], 10, "width after moving")
    for count in (1, 2):
        page.mouse("mousePressed", left + 50, top + 50, button="left", clickCount=count)
        page.mouse("mouseReleased", left + 50, top + 50, button="left", clickCount=count)
    page.settle()
    same(view(page), whole, "double click")


def test_keys(page, device):
    page.run("document.getElementById('charts').focus()")
    page.key("Escape")
    whole = view(page)
    page.key("p")
    same(table(page)["total"], device["peak_bytes"], "at the peak")
    page.key("+")
    half = view(page)
    near(half[1] - half[0], whole[1] / 2, 2, "+")
    page.key("ArrowLeft", shift=True)
    near(view(page)[0], half[0] - whole[1] / 20, 2, "shift and left")
    page.key("ArrowRight", shift=True)
    near(view(page)[0], half[0], 2, "shift and right")
    before = page.run("+document.getElementById('instant').dataset.ns")
    page.key("ArrowLeft")
    after = page.run("+document.getElementById('instant').dataset.ns")
    check(after < before, "the change before", before, "is", after)
    check(page.run("document.getElementById('live').textContent").startswith("At "), "is told")
    page.key("ArrowRight")
    same(page.run("+document.getElementById('instant').dataset.ns"), before, "and back")
    same(page.run("""['ArrowUp', 'ArrowDown'].map((key) => document.getElementById('charts')
        .dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true })))"""), [True, True],
         "up and down are left to the page")
    page.key("-")
    same(view(page), whole, "-")
    page.key("Escape")
    check("(held)" not in page.run("document.getElementById('instant').textContent"), "let go")
    check(page.run("document.getElementById('charts').getAttribute('aria-label')").startswith("Memory over time: "),
          "label")
    page.key("Tab")


def test_hold(page):
    hover(page, 3_500_000_000)
    seen = table(page)
    left, top, width, height = box(page)
    x = left + 3.5e9 / view(page)[1] * width
    page.mouse("mousePressed", x, top + 30, button="left", clickCount=1)
    page.mouse("mouseReleased", x, top + 30, button="left", clickCount=1)
    hover(page, 1_500_000_000)
    same(table(page), seen, "a held instant")
    page.run("document.getElementById('charts').focus()")
    page.key("Escape")
    hover(page, 1_500_000_000)
    check(table(page) != seen, "let go, the table follows the pointer")


def test_against(page, together):
    page.run("(() => { const r = document.getElementById('run'); r.value = 1; r.dispatchEvent(new Event('change')); })()")
    page.settle()
    page.run("document.getElementById('charts').focus()")
    page.key("p")
    seen = table(page)
    same(seen["total"], together["peak_bytes"], "the other run's peak")
    stage = next(s for s in together["stages"] if s["name"] == together["peak_stage"])
    same(seen["held"], holders_of(stage), "the other run's holders")
    check("out of memory: " in page.run("document.getElementById('summary').textContent"), "verdict")
    page.run("(() => { const r = document.getElementById('run'); r.value = 0; r.dispatchEvent(new Event('change')); })()")
    page.key("Escape")
    page.settle()


def test_differences(page, staged, together):
    """Both verdicts, and per stage and holder what one run has more than the other: table and chart."""
    said = page.run("[...document.querySelectorAll('#summary p')].map((p) => p.textContent)")
    same(len(said), 2, "lines of the summary")
    for line, device, begin, end in zip(said, (staged, together), ("fits, with 7.5 GiB to spare", "out of memory: trainer/training_copy asked for "),
                                        ("7.5 GiB to spare", "; it would fit with engine/kv_cache of 37.6 GiB instead of 94.8 GiB")):
        check(f": {begin}" in line and f"{end}. Peak {device['peak_bytes'] / 2**30:.1f} GiB" in line, begin, line)
    more = [a["peak_bytes"] - b["peak_bytes"] for a, b in zip(staged["stages"], together["stages"])]
    check(min(more) < -90 << 30, "the runs differ:", more)
    rows = page.run("[...document.querySelectorAll('#stages tbody tr')].map((r) => Object.fromEntries("
                    "[...r.cells].slice(1).map((c) => [c.dataset.title, c.textContent])))")
    for row, bytes_, there in zip(rows, more, together["stages"]):
        same(row["difference"], f"\u2212{-bytes_ / 2**30:.1f} GiB" if bytes_ else "", "a stage's difference")
        same(row["peak, other run"], f"{there['peak_bytes'] / 2**30:.1f} GiB", "its other peak")
        same(row["who differs at the peak"], f"engine/kv_cache \u2212{-bytes_ / 2**30:.1f}\u00a0GiB" if bytes_ else "",
             "who, a size beside its unit")
    for row, device in zip(rows, staged["stages"]):
        same(len(re.findall(r"\d\u00a0[KMG]?i?B\b", row["who holds the peak"])), len(device["at_peak"]), "sizes beside their units")
    hover(page, 3_500_000_000)
    kv = page.run("(({held, there}) => [+held, +there])(document.querySelector("
                  "'#holders tr[data-holder=\"engine/kv_cache\"]').dataset)")
    same(kv, [0, -more[2]], "the holder's difference")
    seen, colour = page.run("""(() => {
        const canvas = document.querySelector('#difference canvas'), over = document.querySelector('#difference .u-over');
        const left = over.offsetLeft, top = over.offsetTop, w = over.clientWidth, h = over.clientHeight;
        const at = (x) => [...canvas.getContext('2d').getImageData(left + x * w, top + h / 2, 1, 1).data];
        const { series } = JSON.parse(document.getElementById('data').textContent).runs[0].devices[0];
        return [[at(3.6 / 5.3), at(1.2 / 5.3)], series.find((s) => s.tag === 'kv_cache').colour];
    })()""")
    same(seen[0], [int(colour[i:i + 2], 16) for i in (1, 3, 5)] + [255], "the chart of differences, where there is one")
    check(seen[1] != seen[0], "and where there is none:", seen)


def holders(page):
    return page.run("[...document.querySelectorAll('#holders tbody tr')].map((r) => r.dataset.holder)")


def press(page, selector, text):
    """Clicks the button that has this text."""
    page.run(f"[...document.querySelectorAll('{selector}')].find((b) => b.textContent === '{text}').click()")
    page.settle()


def coloured(page, tag):
    """Pixels of the chart that have the colour of a tag."""
    return page.run(f"""(() => {{
        const {{ series }} = JSON.parse(document.getElementById('data').textContent).runs[0].devices[0];
        const hex = series.find((s) => s.tag === '{tag}').colour, canvas = document.querySelector('#held canvas');
        const wanted = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
        const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        let count = 0;
        for (let i = 0; i < data.length; i += 4) count += wanted.every((part, k) => part === data[i + k]);
        return count;
    }})()""")


def test_tip(page, staged):
    """Beside the pointer stands who holds what there, as the table says."""
    hover(page, 3_500_000_000)
    tip = page.run("[...document.querySelectorAll('#tip div')].map((d) => [...d.children].map((s) => s.textContent))")
    stage = staged["stages"][2]
    check(tip[0][0].endswith("s, training_copy_loaded"), "its title:", tip)
    same(tip[1], ["in use", f"{stage['end_bytes'] / 2**30:.1f} GiB"], "all")
    same([name for name, _ in tip[2:]], list(table(page)["held"]), "its holders")
    x, y = page.run("(({left, top}) => [left, top])(document.getElementById('tip').getBoundingClientRect())")
    left, top, width, height = box(page)
    near(x, left + 3.5e9 / view(page)[1] * width, 30, "beside the pointer")
    hover(page, view(page)[1] - 1_000_000)
    check(page.run("document.getElementById('tip').getBoundingClientRect().right") <= 1280, "within the window")
    page.mouse("mouseMoved", 5, 5)
    page.settle()
    check(page.run("document.getElementById('tip').hidden"), "it goes with the pointer")


def test_choice(page):
    """Holders alone, processes off, a search; the tables in another order."""
    hover(page, 3_500_000_000)
    page.mouse("mouseMoved", 5, 5)
    everybody = holders(page)
    weights, copy = coloured(page, "weights"), coloured(page, "training_copy")
    check(min(weights, copy) > 5000, "both are drawn:", weights, copy)
    press(page, "#holders tbody button", "engine/weights")
    check(coloured(page, "weights") > weights and coloured(page, "training_copy") == 0, "one alone")
    check("shown" not in page.run("document.getElementById('summary').textContent"), "the verdict is that of all")
    press(page, "#holders tbody button", "engine/weights")
    same((coloured(page, "weights"), coloured(page, "training_copy")), (weights, copy), "all again")
    press(page, "#legend button", "all of engine")
    check(coloured(page, "weights") == 0 and coloured(page, "training_copy") > copy, "a process is switched off")
    press(page, "#legend button", "trainer/training_copy")
    same(coloured(page, "training_copy"), 0, "and a holder")
    press(page, "#choices button", "show all")
    same(coloured(page, "training_copy"), copy, "all again")
    search = "(() => {{ const e = document.getElementById('search'); e.value = '{}'; e.dispatchEvent(new Event('input')); }})()"
    page.run(search.format("WEIGHTS"))
    page.settle()
    same(holders(page), ["engine/weights"], "holders found")
    same(coloured(page, "training_copy"), 0, "those that were not found")
    same(page.run("[...document.querySelectorAll('#stages tbody tr')].map((r) => r.dataset.stage)"), ["weights_awake"],
         "stages found")
    page.run(search.format("no such name"))
    page.settle()
    same(holders(page), everybody, "where nothing is found all is shown")
    page.run(search.format(""))
    page.settle()
    press(page, "#holders th button", "holder")
    same(holders(page), sorted(everybody), "by name")
    press(page, "#holders th button", "holder")
    same(holders(page), sorted(everybody, reverse=True), "the other way round")
    same(page.run("[...document.querySelectorAll('#holders th')].map((h) => h.getAttribute('aria-sort'))")[:2],
         ["descending", "none"], "what is told of it")
    press(page, "#holders th button", "held")
    same(holders(page), everybody, "by size")
    press(page, "#stages th button", "peak")
    peaks = page.run("[...document.querySelectorAll('#stages tbody tr')].map((r) => +r.dataset.peak)")
    same(peaks, sorted(peaks, reverse=True), "stages by peak")
    press(page, "#stages th button", "begins")
    press(page, "#stages th button", "begins")


def test_link(page, url, together):
    """The address leads back to an instant, a run, an axis and a holder; and what it cannot mean does nothing."""
    left, top, width, height = box(page)
    x = left + 3.5e9 / view(page)[1] * width
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, x, top + 30, button="left", clickCount=1)
    page.settle()
    held, there = page.run("location.hash"), page.run("+document.getElementById('instant').dataset.ns")
    same(held, f"#t={there}", "the address of an instant")
    page.run("document.getElementById('charts').focus()")
    page.key("Escape")
    same(page.run("location.hash"), "", "let go")
    page.open("about:blank")
    page.open(f"{url}#t={there}&run=1&axis=event&holder=engine/kv_cache")
    same(page.run("+document.getElementById('instant').dataset.ns"), there, "the instant")
    check("(held)" in page.run("document.getElementById('instant').textContent"), "is held")
    same(table(page)["total"], together["stages"][2]["end_bytes"], "of the second run")
    same(page.run("document.getElementById('axis').value"), "event", "its axis")
    check(coloured(page, "weights") == 0 and coloured(page, "kv_cache") > 5000, "its holder")
    page.run("location.hash = '#t=x&run=7&device=-1&axis=up&holder=<b>'")
    page.wait("document.getElementById('run').value === '0'", "a bad address is that of the whole page")
    same(page.run("document.getElementById('axis').value"), "time", "its axis")
    same(table(page)["total"], page.run("JSON.parse(document.getElementById('data').textContent).runs[0].devices[0].peak_bytes"),
         "at the peak")
    page.run("location.hash = ''")
    page.settle()


SAVED = """new Promise((done) => {
    const make = URL.createObjectURL;
    URL.createObjectURL = (blob) => { blob.text().then(done); URL.createObjectURL = make; return make.call(URL, blob); };
    document.getElementById('save-%s').click();
})"""


def test_csv(page, staged, together):
    hover(page, 3_500_000_000)
    rows = list(csv.reader(io.StringIO(page.run(SAVED % "holders"))))
    same(rows[0], ["time_ns", "holder", "held_bytes", "other_run_bytes", "difference_bytes", "paused_bytes"], "titles")
    same({row[1]: int(row[2]) for row in rows[1:] if int(row[2])}, table(page)["held"], "holders to the byte")
    check(all(int(row[2]) - int(row[3]) == int(row[4]) for row in rows[1:]), "differences:", rows)
    rows = list(csv.reader(io.StringIO(page.run(SAVED % "stages"))))
    same([[row[0], int(row[2]), int(row[6])] for row in rows[1:]],
         [[a["name"], a["peak_bytes"], b["peak_bytes"]] for a, b in zip(staged["stages"], together["stages"])], "stages")


def choose(page, id, value):
    page.run(f"(() => {{ const e = document.getElementById('{id}'); e.value = '{value}';"
             "e.dispatchEvent(new Event('change')); })()")
    page.settle()


def test_axis(page, device):
    """By event a stage has its share of the width, not of the time, and says the same in its middle."""
    stages = device["stages"]
    choose(page, "axis", "event")
    whole = view(page)
    same(whole, [0, len(stages) * 1e9], "a column for each stage")
    left, top, width, height = box(page)
    for i, stage in enumerate(stages):
        page.run(f"document.querySelectorAll('#stages tbody button')[{i}].click()")
        page.settle()
        same(view(page), [i * 1e9, (i + 1) * 1e9], "a stage's button shows its column")
        page.mouse("mouseMoved", left + width - 1, top + height / 2)
        page.settle()
        check(f"in {stage['name']}" in page.run("document.getElementById('instant').textContent"), stage["name"])
        same(table(page)["total"], stage["end_bytes"], f"the end of {stage['name']}")
    page.run("document.getElementById('charts').focus()")
    page.key("0")
    page.key("p")
    line = page.run("+document.querySelector('#held .u-cursor-x').style.transform.match(/[\\d.]+/)[0]")
    check(line / width >= (len(stages) - 1) / len(stages) - 0.01, "the peak is in the last column:", line, width)
    page.key("+")
    check(view(page)[1] - view(page)[0] < whole[1] * 0.6, "it zooms")
    page.key("Escape")
    same(page.run("JSON.parse(document.getElementById('charts').dataset.labels)")[-1], stages[-1]["name"], "labels")
    choose(page, "axis", "time")
    check(view(page)[1] > 5e9, "back to time")


def accessible(page, url, prepare):
    """What axe-core finds fault with: nothing, in both schemes, on a desk and on a phone. None: it is not there."""
    axe = os.environ.get("RVL_AXE")
    if not axe:
        print("SKIP accessibility: this build has no axe-core (npm could not get it; RVL_AXE names its folder)")
        return None
    source = (pathlib.Path(axe) / "axe.min.js").read_text()
    passed = 0
    for width in (1280, 390):
        page.resize(width)
        for dark in (False, True):
            page.media(dark=dark)
            page.open("about:blank")
            page.open(url)
            page.run(source + "; 0")
            page.run(prepare)
            page.settle()
            found = page.run("""axe.run(document, { resultTypes: ['violations'] }).then((said) => ({ passes: said.passes.length,
                faults: said.violations.map((fault) => [fault.id, fault.nodes.map((node) => node.html.slice(0, 160))]) }))""")
            same(found["faults"], [], f"faults at {width} pixels, dark={dark}")
            passed += found["passes"]
    check(passed > 60, "rules that were looked at and hold:", passed)
    print(f"accessibility: {passed} rules hold, in 4 views")
    page.resize(1280)
    page.media()
    return passed


def test_simulated(page, out):
    """A run of `reveille run` is drawn by event, and ends before its processes give all back."""
    trace, report = out / "simulated.rvt", out / "simulated.html"
    lines = [f"alloc {10 * i} python 0 {i} 0 {i * MIB} -" for i in range(1, 5)]
    lines += ["free 100 python 0 4", f"alloc 110 python 0 5 0 {2 * MIB} -"]
    lines += [f"free {5000000 + i} python 0 {i}" for i in (1, 2, 3, 5)]
    for end in ("ended 6000000 machine 1 exit=0", f"sample 6000000 python 0 0 {MIB}"):
        trace.write_text("\n".join(
            ["reveille-trace 1.2", "clock boot=- mono_ns=0 wall_ns=0",
             f"device 0 profile=- capacity_bytes={64 * MIB} granularity_bytes={MIB}",
             "process machine pid=1 refusals=yes", "process python pid=2 refusals=yes", "stage 0 python 0 run",
             *lines, end, f"end {len(lines) + 2}", ""]))
        simulated = end.startswith("ended")
        written = command("report", trace, "-o", report)
        same(written.returncode, 0, written.stderr)
        page.open(report.as_uri())
        page.settle()
        same(page.run("document.getElementById('axis').value"), "event" if simulated else "time", "the axis")
        choose(page, "axis", "time")
        same(view(page)[1], 5000001 if simulated else 6000000, "where the chart ends")
        same(command("report", trace, "-o", report, "--axis", "time").returncode, 0, "by time")
        page.open(report.as_uri())
        same(page.run("document.getElementById('axis').value"), "time", "the axis that was asked for")
    same(page.run("document.title"), "simulated.rvt: memory over time", "the title")


def test_zoom_of_bytes(page, url):
    """A rectangle is zoomed on both axes, a line on one; 0 shows all again."""
    page.open(url)
    page.run("document.getElementById('charts').focus()")
    page.key("0")
    page.settle()
    left, top, width, height = box(page)
    whole = view(page)[1]
    shown = "(({from, to, low, high}) => [+from, +to, +low, +high])(document.getElementById('charts').dataset)"
    x, y = (left + 0.25 * width, left + 0.75 * width), (top + 0.2 * height, top + 0.7 * height)
    page.mouse("mouseMoved", x[0], y[0])
    page.mouse("mousePressed", x[0], y[0], button="left", clickCount=1)
    page.mouse("mouseMoved", (x[0] + x[1]) / 2, (y[0] + y[1]) / 2, button="left")
    page.mouse("mouseMoved", x[1], y[1], button="left")
    page.mouse("mouseReleased", x[1], y[1], button="left", clickCount=1)
    page.settle()
    begin, end, low, high = page.run(shown)
    near(begin / whole, 0.25, 0.01, "from")
    near(end / whole, 0.75, 0.01, "to")
    near(low, 0.3, 0.01, "the least bytes")
    near(high, 0.8, 0.01, "the most bytes")
    drag(page, 0.5, 0.9)
    same(page.run(shown)[2:], [low, high], "a drag along the chart leaves the bytes")
    page.run("document.getElementById('charts').focus()")
    page.key("0")
    page.settle()
    same(page.run(shown), [0, whole, 0, 1], "all again")


def test_accessibility(page, url):
    """Whatever is chosen; and a fault is found."""
    chosen = "document.querySelector('#holders th button').click(); document.querySelector('#legend button').click()"
    if accessible(page, f"{url}#t=3500000000&holder=engine/weights", chosen) is None:
        return
    page.run("document.documentElement.removeAttribute('lang')")
    same(page.run("axe.run(document).then((said) => said.violations.map((fault) => fault.id))"), ["html-has-lang"],
         "a fault is found")


LEGEND_INDENT = """(() => {
    const legend = document.getElementById('legend'), shown = [...legend.children].find((each) => each.offsetWidth > 0);
    return shown.getBoundingClientRect().left - legend.getBoundingClientRect().left;
})()"""


MARKS_OF_A_REDRAW = """(async () => {
    const made = CanvasRenderingContext2D.prototype, labels = [], outlines = [];
    const own = { strokeText: made.strokeText, arc: made.arc };
    made.strokeText = function (text, x, y) {
        const right = this.textAlign === 'right' ? x : x + this.measureText(text).width;
        labels.push({ text, left: right - this.measureText(text).width, right, y, chart: this.canvas.closest('#charts > div').id });
        outlines.push(this.getLineDash().length);
        return own.strokeText.call(this, text, x, y);
    };
    made.arc = function (...words) {
        outlines.push(this.getLineDash().length);
        return own.arc.apply(this, words);
    };
    document.getElementById('zoom-in').click();
    document.getElementById('zoom-all').click();
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    Object.assign(made, own);
    return { labels, outlines };
})()"""


def test_marks(page, capacity):
    """Labels, the peak's point and samples have whole outlines, though the other run's line is dashed; no label lies on another."""
    seen = page.run(MARKS_OF_A_REDRAW)
    labels = {(each["chart"], each["text"]): each for each in seen["labels"]}
    check(("held", f"capacity {capacity}") in labels and any(text.startswith("peak ") for _, text in labels), "labels:", list(labels))
    check(not any(seen["outlines"]), "dashes of outlines:", seen["outlines"])
    for one in labels.values():
        for two in labels.values():
            check(one is two or one["chart"] != two["chart"] or one["right"] < two["left"] or two["right"] < one["left"] or
                  abs(one["y"] - two["y"]) >= 12, "a label on another:", one, two)


def test_media(page, out):
    """Dark on screens that want it, and never on paper, where there is nothing to choose either."""
    seen = near_white(page, "on a light screen")
    check(seen["choices"] and seen["keys"] and seen["stages"], "all is there:", seen)
    page.media(dark=True)
    hover(page, 1_500_000_000)
    seen = looks(page)
    check(seen["paper"] < 0.1 and seen["ink"] > 0.7 and seen["label"] > 0.7, "dark:", seen)
    check(seen["bare"] < 0.95 and seen["canvas"] < 0.5, "a dark chart:", seen)
    page.screenshot(out / "dark.png")
    for dark in (True, False):
        page.media("print", dark=dark)
        page.settle()
        seen = near_white(page, f"printed, dark={dark}")
        same((seen["choices"], seen["keys"], seen["stages"]), (False, False, True), "what is printed")
        same(page.run(LEGEND_INDENT), 0, "pixels before the legend on paper")
        page.screenshot(out / "print.png")
    page.media()
    page.settle()
    check(near_white(page, "on a screen again")["choices"], "choices are back")


def test_shipped(page, source, out):
    trace = source / "traces" / "qwen2.5-32b-tp2-h200.rvt"
    report = out / "step.html"
    made = command("report", trace, "-o", report, "--against-wake", "together")
    if "built without the page" in made.stderr:
        print("SKIP: built without the page")
        sys.exit(77)
    same(made.returncode, 0, made.stderr)
    staged, together = replay(trace)[0], replay("--wake", "together", trace)[0]
    page.open(report.as_uri())
    page.screenshot(out / "light.png")
    test_hover(page, staged)
    test_stages(page, staged)
    test_wheel(page)
    test_ticks(page)
    test_zoom(page)
    test_keys(page, staged)
    test_hold(page)
    test_differences(page, staged, together)
    test_tip(page, staged)
    test_choice(page)
    test_csv(page, staged, together)
    test_against(page, together)
    test_axis(page, staged)
    test_link(page, report.as_uri(), together)
    test_accessibility(page, report.as_uri())
    page.open(report.as_uri())
    test_marks(page, "139.8 GiB")
    page.open(report.as_uri())
    test_media(page, out)
    same([url for url in page.requests if not url.startswith("file:")], [], "what the page loads")


def test_widths(page, source, out):
    """On a desk and on a phone every stage has its name above the chart, and nothing is cut off."""
    report = out / "recorded.html"
    recorded = sorted((source / "traces" / "recorded").glob("*.rvt"))
    same(command("report", *recorded, "-o", report).returncode, 0, "report")
    names = [stage["name"] for stage in replay(*recorded)[0]["stages"]]
    same(len(names), 8, "stages")
    for width in (1400, 390):
        page.resize(width)
        page.open(report.as_uri())
        same(page.run("JSON.parse(document.getElementById('charts').dataset.labels)"), names,
             f"labels at {width} pixels")
        same(page.run("""(() => {
            const wide = [...document.querySelectorAll('table, td, #instant, #legend, #choices')]
                .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5 || each.scrollWidth > each.clientWidth + 1);
            return [document.documentElement.scrollWidth, wide.map((each) => each.outerHTML.slice(0, 80))];
        })()"""), [width, []], "what is cut off at the right edge")
        page.screenshot(out / f"recorded-{width}.png")
        test_marks(page, "139.8 GiB")
    page.resize(1280)
    page.open(report.as_uri())
    test_samples(page)


def test_samples(page):
    """What was truly in use is marked over the prediction, and told at an instant."""
    found = page.run("""(() => {
        const device = JSON.parse(document.getElementById('data').textContent).runs[0].devices[0];
        const [ns, bytes] = device.samples.find(([, bytes]) => bytes > 100 * 2 ** 30);
        const canvas = document.querySelector('#held canvas'), over = document.querySelector('#held .u-over');
        const { from, to } = document.getElementById('charts').dataset;
        const x = over.offsetLeft + (ns - from) / (to - from) * over.clientWidth;
        const top = Math.max(device.capacity_bytes, device.peak_bytes) * 1.06;
        const y = over.offsetTop + (1 - bytes / top) * over.clientHeight;
        return { count: device.samples.length, ns, bytes, middle: [...canvas.getContext('2d').getImageData(x, y, 1, 1).data] };
    })()""")
    same(found["count"], 16, "samples")
    same(found["middle"], [255, 255, 255, 255], "a mark is hollow")
    hover(page, found["ns"] + 40_000_000)
    check(f"last read: {found['bytes'] / 2**30:.1f} GiB" in page.run("document.getElementById('instant').textContent"),
          "last read:", found)


def test_names(page, out):
    """Names that would end the script, or are no text at all, are shown and do nothing."""
    trace = out / "names.rvt"
    text = (
        "reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n"
        "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
        "device 1 profile=h200 capacity_bytes=150109880320 granularity_bytes=2097152\n"
        "process e pid=0\n"
        "stage 1 e 1 </script><script>alert(1)</script>\n"
        'alloc 2 e 1 1 0 2097152 "quoted"\n'
        "alloc 3 e 1 2 0 2097152 <b>&amp;\n"
        "alloc 4 e 1 3 0 2097152 \xff\xferaw\n"
        "alloc 5 e 1 4 0 2097152 caf\xc3\xa9%0A\n"
        "stage 5 e 1 =HYPERLINK(1)\nalloc 6 e 1 5 1 4194304 other\nalloc 7 e 1 6 0 2097152 =1+1,\"x\"\nend 8\n")
    trace.write_bytes(text.encode("latin-1"))
    report = out / "names.html"
    made = command("report", trace, "-o", report)
    same(made.returncode, 0, made.stderr)
    page.open(report.as_uri())
    page.run("document.getElementById('charts').focus()")
    page.key("End")
    same(table(page)["held"], {'e/"quoted"': 2 * MIB, "e/<b>&amp;": 2 * MIB, "e/%FF%FEraw": 2 * MIB,
                               "e/café\n": 2 * MIB, 'e/=1+1,"x"': 2 * MIB}, "names")
    rows = list(csv.reader(io.StringIO(page.run(SAVED % "holders"))))
    same({row[1] for row in rows[1:]}, set(table(page)["held"]), "names as CSV")
    rows = list(csv.reader(io.StringIO(page.run(SAVED % "stages"))))
    same([row[0] for row in rows[1:]], ["'=HYPERLINK(1)", "</script><script>alert(1)</script>"][::-1], "formulas are text")
    same(page.run("document.querySelectorAll('script').length"), 3, "scripts of the page")
    page.run("(() => { const d = document.getElementById('device'); d.value = 1;"
             "d.dispatchEvent(new Event('change')); })()")
    page.key("End")
    same(table(page)["held"], {"e/other": 4 * MIB}, "the other device")
    check("device 1, h200" in page.run("document.getElementById('summary').textContent"), "its name")


def test_snapshot(page, source, out):
    """What tensors have, and what the allocator holds beyond that, as `reveille snapshot` says."""
    shots, report = source / "traces" / "snapshots", out / "snapshot.html"
    shot = shots / "dev-default.pickle.gz"
    made = command("report", shot, "-o", report, "--against", shots / "dev-expandable.pickle.gz")
    same(made.returncode, 0, made.stderr)
    stages = json.loads(command("snapshot", "--json", shot).stdout)["stages"]
    page.open(report.as_uri())
    said = page.run("['header', '#instant', '#holders', '#stages'].map((part) => document.querySelector(part).innerText).join()")
    check("no device named" in said and not any(word in said for word in ("h200", "fits,", " free", "capacity")),
          "a device that nobody named:", said)
    rows = dict(page.run("[...document.querySelectorAll('#stages tbody tr')]"
                         ".map((r) => [r.dataset.stage, +r.dataset.peak])"))
    for stage in stages:
        same(rows[stage["name"]], stage["peak_reserved_bytes"], stage["name"])
    highest = max(stages, key=lambda stage: stage["peak_reserved_bytes"])
    page.run("document.getElementById('charts').focus()")
    page.key("p")
    seen, gap = table(page), highest["gap"]
    same(seen["total"], highest["peak_reserved_bytes"], "the most that was reserved")
    same(sum(seen["held"].values()), seen["total"], "the sum of the parts")
    for part in ("split", "cached", "rounding", "pending"):
        near(seen["held"].get("trainer/" + part, 0), gap[part + "_bytes"], 2 * MIB, part)
    near(seen["held"]["trainer/tensors"], seen["total"] - sum(gap.values()), MIB, "tensors")
    page.key("Escape")
    page.screenshot(out / "snapshot.png")
    same(command("report", shot, "-o", report, "--device", "20GiB").returncode, 0, "with a device")
    page.open(report.as_uri())
    spare = (20 << 30) - highest["peak_reserved_bytes"]
    check("device 0, given by size, 20.0 GiB" in page.run("document.getElementById('summary').textContent"), "its name")
    check(f"fits, with {spare / 2**30:.1f} GiB to spare" in page.run("document.getElementById('summary').textContent"),
          "its margin")


def write_million(path):
    """Bursts and silences over ten minutes, twelve tags, stages, and spikes one event long."""
    chance = random.Random(7)
    live, time_ns, number, events = [], 0, 0, 0
    with open(path, "w") as out:
        out.write("reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n"
                  "device 0 profile=h200 capacity_bytes=150109880320 granularity_bytes=2097152\n"
                  "process engine pid=0\nprocess trainer pid=0\n")
        for event in range(EVENTS):
            time_ns += chance.randrange(1, 1200) if event % 1000 else chance.randrange(1, 1_000_000_000)
            process = "engine" if event % 100_000 < 50_000 else "trainer"
            if event % 25_000 == 0:
                events += 1
                out.write(f"stage {time_ns} engine 1 {'rollout' if event % 50_000 else 'train'}\n")
            elif live and (len(live) > 3000 or chance.random() < 0.48):
                index = chance.randrange(len(live))
                owner, identity = live[index]
                live[index] = live[-1]
                live.pop()
                events += 1
                out.write(f"free {time_ns} {owner} 1 {identity}\n")
            else:
                number += 1
                events += 1
                size = chance.choice((2, 4, 8, 16)) * MIB if chance.random() > 1e-4 else 40 << 30
                live.append((process, number))
                out.write(f"alloc {time_ns} {process} 1 {number} 0 {size} tag{chance.randrange(6)}\n")
                if size > 1 << 30:
                    live.pop()
                    events += 1
                    out.write(f"free {time_ns} {process} 1 {number}\n")
        out.write(f"end {events}\n")
    return events


FRAMES = """new Promise((done) => {
    const over = document.querySelector('#held .u-over'), b = over.getBoundingClientRect();
    performance.clearMeasures('redraw');
    const frames = [];
    let last = performance.now(), n = 0;
    const step = (now) => {
        frames.push(now - last);
        last = now;
        if (++n > 80) {
            const redraws = performance.getEntriesByName('redraw').map((m) => m.duration);
            done([frames.slice(2), redraws]);
            return;
        }
        over.dispatchEvent(new WheelEvent('wheel', { deltaY: n <= 40 ? -60 : 60, bubbles: true,
            ctrlKey: true, cancelable: true, clientX: b.left + b.width * 0.4, clientY: b.top + 100 }));
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
})"""


def median(values):
    return sorted(values)[len(values) // 2]


def test_million(page, out):
    trace, report = out / "million.rvt", out / "million.html"
    events = write_million(trace)
    begun = time.monotonic()
    made = command("report", trace, "-o", report)
    same(made.returncode, 0, made.stderr)
    written_s = time.monotonic() - begun
    device = replay(trace)[0]
    loaded_s = page.open(report.as_uri())
    page.run("document.getElementById('charts').focus()")
    page.key("p")
    seen = table(page)
    stage = next(s for s in device["stages"] if s["name"] == device["peak_stage"])
    same(seen["total"], device["peak_bytes"], "the peak of a million events")
    same(seen["held"], holders_of(stage), "who holds it")
    page.screenshot(out / "million.png")
    frames, redraws = page.run(FRAMES)
    check(len(redraws) > 40, "redraws:", len(redraws))
    page.key("Escape")
    for part in range(40):
        hover(page, view(page)[1] * (part + 0.5) / 40)
    instants = page.run("performance.getEntriesByName('instant').map((m) => m.duration)")
    check(len(instants) >= 40, "instants:", len(instants))
    check(median(instants) < REDRAW_MS_MAX, "the table lags:", median(instants), "ms an instant")
    print(f"the table of an instant takes {median(instants):.1f} ms (at most {max(instants):.1f})")
    print(f"{events} events: written in {written_s:.2f} s ({report.stat().st_size / MIB:.1f} MiB), "
          f"loaded in {loaded_s:.2f} s; while zooming a redraw takes {median(redraws):.1f} ms "
          f"(at most {max(redraws):.1f}), a frame {median(frames):.1f} ms (at most {max(frames):.1f})")
    check(median(redraws) < REDRAW_MS_MAX, "zooming lags:", median(redraws), "ms a redraw")
    trace.unlink()


def main():
    path = chromium.find()
    if path is None:
        print("SKIP: no Chromium (Debian package chromium; RVL_CHROMIUM names another)")
        return 77
    with tempfile.TemporaryDirectory(prefix="reveille-page-") as scratch:
        out = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else scratch).resolve()
        out.mkdir(parents=True, exist_ok=True)
        page = chromium.Browser(path)
        try:
            test_shipped(page, pathlib.Path(sys.argv[2]), out)
            test_widths(page, pathlib.Path(sys.argv[2]), out)
            test_names(page, out)
            test_simulated(page, out)
            test_zoom_of_bytes(page, (out / "step.html").as_uri())
            test_snapshot(page, pathlib.Path(sys.argv[2]), out)
            test_million(page, out)
            same(page.problems, [], "errors on the console")
        finally:
            page.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
