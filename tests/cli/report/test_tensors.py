#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The tensors of a snapshot in the page of `reveille report`, in a real browser: test_tensors.py COMMAND SOURCE_DIR [OUT_DIR].

What the page says at an instant is held against a recording that is made up here and known. With OUT_DIR the page
and its screenshots stay there. Exit status 77: no Chromium, or built without the page.
"""
import pathlib
import pickle
import sys
import tempfile

import browser as chromium
from test_page import accessible, box, check, command, same, view

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "predict"))
import tensors  # noqa: E402


def hold(page, ns):
    """Goes to a time by the page's address."""
    page.run(f"location.hash = '#t={ns}'")
    page.wait(f"[{ns}, lastNs].includes(+document.getElementById('instant').dataset.ns)".replace(
        "lastNs", "JSON.parse(document.getElementById('data').textContent).runs[0].end_ns"), "the instant")
    page.settle()


def tensors_shown(page):
    """What the page says of the tensors of an instant."""
    return page.run("""(() => {
        const cells = (id) => [...document.querySelectorAll(`#${id} tbody tr`)].map((row) => ({ ...row.dataset }));
        const { instant, live, reserved } = document.getElementById('tensors').dataset;
        return { instant: +instant, live: +live, reserved: +reserved,
            blocks: cells('blocks').filter((row) => row.addr).map((row) => [+row.addr, +row.bytes]),
            categories: Object.fromEntries([...document.querySelectorAll('#categories li')].filter((li) => li.dataset.category)
                .map((li) => [li.dataset.category, +li.dataset.bytes])),
            pins: cells('pins').map((row) => [+row.segment, +row.free, +row.blocks]),
            flames: [...document.querySelectorAll('#flames button')].map((box) => [box.title.split(': ')[0], +box.dataset.bytes]) };
    })()""")


def stack_shown(page):
    return page.run("[...document.querySelectorAll('#block .stack li')].map((li) => li.textContent)")


def rounded(size):
    return -(-size // 512) * 512


def pinned(live, segments):
    """Free bytes of segments that something lies in. Segments of these recordings are not expandable."""
    found = []
    for begin, end in segments:
        blocks = [each for each in live if begin <= each[0] < end]
        free = end - begin - sum(rounded(each[1]) for each in blocks)
        if blocks and free:
            found.append([begin, free, len(blocks)])
    return sorted(found, key=lambda each: (-each[1], each[0]))[:10]


def lowered(made):
    """For every stack, how much lower the peak of what is live would be without what it allocated."""
    sums = [sum(each[1] for each in live) for live, _, _ in made.known]
    peak = max(range(len(sums)), key=lambda i: (sums[i], -i))
    savings = {}
    for stack in {each[2] for each in made.known[peak][0]}:
        rest = [sum(each[1] for each in live if each[2] != stack) for live, _, _ in made.known]
        held = sum(each[1] for each in made.known[peak][0] if each[2] == stack)
        savings[stack] = (sums[peak] - max(rest), held)
    return peak + 1, sorted(savings.values(), reverse=True)[:10]


def test_tensors(page, out):
    """At instants of a recording that is known: blocks, sizes, stacks, categories, flames, pins and what lowers the peak."""
    made = tensors.random_run(3, 900, together=False)
    shot, report = out / "tensors.pickle", out / "tensors.html"
    shot.write_bytes(pickle.dumps(made.snapshot(), 4))
    written = command("report", shot, "-o", report)
    if "built without the page" in written.stderr:
        print("SKIP: built without the page")
        sys.exit(77)
    same(written.returncode, 0, written.stderr)
    page.resize(1280)
    page.open(report.as_uri())
    begun = made.trace[0]["time_us"]
    times = [(entry["time_us"] - begun) * 1000 for entry in made.trace]
    seen = tensors_shown(page)
    same(seen["reserved"], max(sum(end - at for at, end in mapped) for _, mapped, _ in made.known), "reserved, at the peak")
    # Behind an allocation nothing is pending.
    allocations = [i for i, entry in enumerate(made.trace) if entry["action"] == "alloc"]
    for ns in (times[allocations[20]], times[allocations[250]] + 999, times[-1]):
        hold(page, ns)
        seen = tensors_shown(page)
        peak = page.run("JSON.parse(document.getElementById('data').textContent).runs[0].devices[0].peak_ns") == ns
        instant = seen["instant"] if peak else sum(time_ns <= ns for time_ns in times)
        same(seen["instant"], instant, "entries that have happened")
        live, mapped, segments = made.known[instant - 1]
        same(seen["live"], sum(each[1] for each in live), "live bytes")
        same(seen["reserved"], sum(end - at for at, end in mapped), "segments")
        largest = sorted(live, key=lambda each: (-each[1], each[0]))[:20]
        same(seen["blocks"], [list(each[:2]) for each in largest], "the largest blocks")
        same(seen["pins"], pinned(live, segments), "what keeps segments")
        same(seen["flames"][0][1], seen["live"], "all flames")
        for name in ("<module> (/job/train.py:3)", "layer_4 (/job/model.py:204)"):
            file, line = name.split("(")[1][:-1].split(":")
            expected = sum(each[1] for each in live if any(f[0] == file and f[2] == int(line) for f in each[2]))
            same(sum(size for title, size in seen["flames"] if title == name), expected, "flame of " + name) if expected > seen["live"] * 0.02 else None
        said = {}
        for each in live:
            if each[3]:
                said[each[3]] = said.get(each[3], 0) + each[1]
        same({name: size for name, size in seen["categories"].items() if name in ("<b>&\"</script>",)},
             {name: size for name, size in said.items() if name != "weights"}, "an annotation is the category")
        check(seen["categories"].get("weights", 0) >= said.get("weights", 0), "weights:", seen["categories"], said)
        for row, (addr, size, stack, label) in list(enumerate(largest))[:3]:
            page.run(f"document.querySelectorAll('#blocks tbody button')[{row}].click()")
            same(page.run("(({addr, bytes}) => [+addr, +bytes])(document.getElementById('block').dataset)"), [addr, size], "block")
            same(stack_shown(page), [f"{name} ({file}:{line})" for file, name, line in stack], "its stack")
            check(("(as recorded" in page.run("document.getElementById('block').textContent")) == (label != ""), "how it is known")
    peak, savings = lowered(made)
    page.wait("document.querySelectorAll('#lower tbody tr').length > 0", "what lowers the peak")
    check(f"after entry {peak}:" in page.run("document.getElementById('lower-said').textContent"), "where the peak is")
    same(page.run("[...document.querySelectorAll('#lower tbody tr')].map((r) => [+r.dataset.lower, +r.dataset.bytes])"),
         [list(each) for each in savings], "what lowers the peak")
    test_search(page, made)
    test_over(page, made)
    test_map(page, made, times)
    same(page.run("document.querySelectorAll('script').length"), 3, "scripts of the page")
    page.screenshot(out / "tensors.png")
    accessible(page, report.as_uri(), "document.querySelector('#blocks tbody button').click()")
    page.resize(390)
    page.wait("document.documentElement.scrollWidth <= 390", "nothing is clipped on a phone")
    page.resize(1280)


def found(page, text):
    """What the page says of a search, and what it lists."""
    page.run("((text) => { const s = document.getElementById('search'); s.value = text; s.dispatchEvent(new Event('input')); })"
             f"({text!r})")
    page.settle()
    return page.run("""[document.getElementById('found').hidden, document.getElementById('found-said').textContent,
        [...document.querySelectorAll('#found-list li')].filter((li) => li.dataset.name)
            .map(({ dataset }) => [dataset.name, +dataset.bytes, +dataset.tensors])]""")


def test_search(page, made):
    """A line finds all that it allocated, by the innermost frame that matches; nothing found is said."""
    allocated = [entry for entry in made.trace if entry["action"] == "alloc"]
    sums = {}
    for entry in allocated:
        for frame in entry.get("frames", []):
            if "layer_4" in frame["name"]:
                name = f"layer_4 (model.py:{frame['line']})"
                size, tensors_there = sums.get(name, (0, 0))
                sums[name] = (size + entry["size"], tensors_there + 1)
                break
    check(len(sums) > 0, "the recording has such a line")
    hidden, said, listed = found(page, "LAYER_4")
    same(hidden, False, "what was found")
    check("line" in said and said.startswith("Found: "), said)
    same(listed, [[name, *sums[name]] for name in sorted(sums, key=lambda name: (-sums[name][0], name))][:10], "lines")
    page.run("document.querySelector('#found-list button').click()")
    check(any("layer_4" in frame for frame in stack_shown(page)), "the largest of them:", stack_shown(page))
    hidden, said, listed = found(page, "no such thing")
    same((hidden, listed), (False, []), "nothing")
    same(said, "Nothing is found for \u201cno such thing\u201d among holders and stages, lines of stacks and categories of tensors.",
         "that nothing is found")
    same(found(page, "")[0], True, "no search")


def test_over(page, made):
    """The stack of categories: at its highest entry it is all that is live, and a click goes there."""
    live = [sum(each[1] for each in known) for known, _, _ in made.known]
    entry, peak = page.run("(({entry, peak}) => [+entry, JSON.parse(peak)])(document.getElementById('over').dataset)")
    same(sum(peak.values()), max(live), "the highest of the stack")
    same(live[entry - 1], max(live), "where it is highest")
    page.run(f"(() => {{ const n = document.getElementById('entry'); n.value = {entry}; n.dispatchEvent(new Event('change')); }})()")
    seen = tensors_shown(page)["categories"]
    same({name: size for name, size in seen.items() if name != "pending"}, {name: size for name, size in peak.items() if size},
         "its categories")
    page.run("""(() => { const canvas = document.getElementById('over'), box = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new MouseEvent('click', { clientX: box.left + 1, clientY: box.top + 9, bubbles: true })); })()""")
    check(tensors_shown(page)["instant"] < len(live) / 20, "a click at the left goes to the beginning")


def met(page):
    """Address and bytes of every block that clicks all over the map tell of."""
    return page.run("""(() => {
        const canvas = document.getElementById('map'), box = canvas.getBoundingClientRect(), found = new Map();
        for (let y = 8; y < box.height; y += 25) for (let x = 1; x < box.width; x += 3) {
            canvas.dispatchEvent(new MouseEvent('click', { clientX: box.left + x, clientY: box.top + y, bubbles: true }));
            const block = document.getElementById('block');
            if (!block.hidden) found.set(+block.dataset.addr, +block.dataset.bytes);
        }
        return [...found];
    })()""")


def test_map(page, made, times):
    """A click on the chart, then one on every large block of the map: what is drawn lies where it should."""
    page.run("document.getElementById('charts').focus()")
    page.key("0")
    left, top, width, height = box(page)
    page.run("scrollTo(0, 0)")
    most = max(range(len(times)), key=lambda i: len(made.known[i][0]))
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, left + times[most] / view(page)[1] * width, top + 0.5 * height, button="left", clickCount=1)
    page.settle()
    ns = page.run("+document.getElementById('instant').dataset.ns")
    seen = tensors_shown(page)
    same(seen["instant"], sum(time_ns <= ns for time_ns in times), "the instant of a click")
    live, _, mapped = made.known[seen["instant"] - 1]
    base = mapped[0][0]
    page.run("document.getElementById('map').scrollIntoView()")
    found = met(page)
    known = {each[0]: each[1] for each in live}
    check(len(found) >= 8, "blocks that were met on the map:", len(found))
    for addr, size in found:
        same(size, known.get(addr), f"a block of the map at {addr - base}")
    total = sum(end - at for at, end in mapped)
    wide = [each for each in live if rounded(each[1]) > total / 300]
    check({each[0] for each in wide} <= {addr for addr, _ in found}, "every wide block is there:", len(wide), len(found))
    page.run("document.querySelector('#pins tbody button').click()")
    segment = page.run("+document.querySelector('#pins tbody tr').dataset.segment")
    check(not page.run("document.getElementById('all-segments').hidden"), "a segment alone")
    end = next(end for at, end in mapped if at == segment)
    inside, seen = [each for each in live if segment <= each[0] < end], {addr for addr, _ in met(page)}
    check(seen <= {each[0] for each in inside}, "no block but its own:", seen)
    check({each[0] for each in inside if rounded(each[1]) > (end - segment) / 1000} <= seen, "all but the smallest:", seen)
    check(len(seen) > 0, "some")
    page.run("document.getElementById('all-segments').click()")


def test_simulated(page, out):
    """Of a run on simulated GPUs blocks are allocated in the program, not in the simulation's own file."""
    made, shot, report = tensors.random_run(6, 300, together=False), out / "simulated.pickle", out / "simulated.html"
    recorded = made.snapshot()
    own = {"name": "__torch_dispatch__", "filename": "lib/reveille/_reveille_tensors.py", "line": 442}
    for entry in recorded["device_traces"][0]:
        if entry.get("frames"):
            entry["frames"] = [own, *entry["frames"]]
    shot.write_bytes(pickle.dumps(recorded, 4))
    same(command("report", shot, "-o", report).returncode, 0, "a report")
    page.open(report.as_uri())
    places = page.run("[...document.querySelectorAll('#blocks tbody td')].map((cell) => cell.textContent).filter((text) => text.includes('.py'))")
    check(len(places) > 3, "places:", places)
    check(not any("_reveille_" in place for place in places), "in the program:", places)


def test_several(page, source, out):
    """Two snapshots have a choice, and one clock. Beside a trace of another kind there are no tensors."""
    first, second, report = out / "first.pickle", out / "second.pickle", out / "several.html"
    runs = [tensors.random_run(seed, 300, together=False) for seed in (4, 5)]
    late_us = 2_000_000
    for entry in runs[1].trace:
        entry["time_us"] += late_us
    for path, made in zip((first, second), runs):
        path.write_bytes(pickle.dumps(made.snapshot(), 4))
    same(command("report", first, second, "-o", report).returncode, 0, "a report of two")
    page.open(report.as_uri())
    hold(page, page.run("JSON.parse(document.getElementById('data').textContent).runs[0].end_ns"))
    for index, made in enumerate(runs):
        page.run(f"(() => {{ const s = document.getElementById('snapshot'); s.value = {index}; s.dispatchEvent(new Event('change')); }})()")
        page.settle()
        same(tensors_shown(page)["live"], sum(each[1] for each in made.known[-1][0]), f"snapshot {index}")
    same(page.run("[...document.getElementById('snapshot').options].map((o) => o.text)"),
         ["trainer: first.pickle", "trainer2: second.pickle"], "their names")
    hold(page, late_us * 1000 // 2)
    same(tensors_shown(page)["instant"], 0, "the second one has not begun")
    same(command("report", first, source / "traces" / "qwen2.5-32b-tp2-h200.rvt", "-o", report).returncode, 0, "beside a trace")
    page.open(report.as_uri())
    same(page.run("[document.getElementById('tensors').hidden, JSON.parse(document.getElementById('data').textContent).tensors.length]"),
         [True, 0], "beside a trace")


def main():
    path = chromium.find()
    if path is None:
        print("SKIP: no Chromium (Debian package chromium; RVL_CHROMIUM names another)")
        return 77
    with tempfile.TemporaryDirectory(prefix="reveille-tensors-") as scratch:
        out = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else scratch).resolve()
        out.mkdir(parents=True, exist_ok=True)
        page = chromium.Browser(path)
        try:
            test_tensors(page, out)
            test_simulated(page, out)
            test_several(page, pathlib.Path(sys.argv[2]), out)
            same(page.problems, [], "errors on the console")
        finally:
            page.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
