#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The page of a snapshot with a million entries and stacks, in Chromium: bench/page_tensors.py COMMAND [ENTRIES [FOLDER]].

Makes the snapshot, writes its report, and zooms and clicks. Times are Chromium's own, from a trace of its main thread
(the protocol's Tracing): from the dispatch of the input to the end of the first commit behind what it caused. FOLDER
keeps the snapshot and the page. Run it by hand: nothing of it is a test.
"""
import pathlib
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tests" / "cli" / "report"))
import browser as chromium  # noqa: E402

MIB = 1 << 20
LAYERS, OPERATORS, DEPTH, SLOTS = 48, 24, 40, 3000
CTRL = 2


def make(path, entries):
    """Steps of a training run: every layer allocates, most is freed in the order of chance, weights stay."""
    chance = random.Random(11)
    frame = lambda name, file, line: {"name": name, "filename": file, "line": line}
    outer = [frame(f"run_{i}", "framework/trainer.py", 10 * i) for i in range(DEPTH - 4)]
    stacks = [[frame(f"op_{op}", "torch/nn/functional.py", 100 + op),
               frame(f"forward_{layer}", "/job/model.py", 20 + layer)] + outer
              for layer in range(LAYERS) for op in range(OPERATORS)]
    trace, time_us, top, segments = [], 1_700_000_000_000_000, 1 << 46, []
    free_slots, live = [], []

    def note(action, addr, size, stack=None):
        nonlocal time_us
        time_us += chance.randrange(1, 30)
        trace.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us,
                      "frames": stack if stack else [], "compile_context": "N/A", "user_metadata": ""})

    for _ in range(SLOTS // 10):
        note("segment_alloc", top, 20 * MIB)
        segments.append(top)
        free_slots += [top + 2 * MIB * i for i in range(10)]
        top += 20 * MIB + chance.choice((0, 2 * MIB))
    chance.shuffle(free_slots)
    while len(trace) < entries:
        if free_slots and (len(live) < 200 or chance.random() < 0.5 + 0.4 * (len(trace) // 20000 % 2 == 0)):
            addr, size = free_slots.pop(), chance.randrange(1, 2 * MIB)
            note("alloc", addr, size, chance.choice(stacks))
            live.append((addr, size))
        else:
            index = chance.randrange(len(live))
            addr, size = live[index]
            live[index] = live[-1]
            live.pop()
            note("free_requested", addr, size)
            note("free_completed", addr, size)
            free_slots.append(addr)
    held = dict(live)
    listed = []
    for base in segments:
        blocks = [{"address": base + 2 * MIB * i, "size": 2 * MIB, "requested_size": held.get(base + 2 * MIB * i, 0),
                   "state": "active_allocated" if base + 2 * MIB * i in held else "inactive", "frames": []} for i in range(10)]
        listed.append({"device": 0, "address": base, "total_size": 20 * MIB, "stream": 0, "segment_pool_id": (0, 0),
                       "segment_type": "large", "is_expandable": False, "frames": [], "blocks": blocks})
    with open(path, "wb") as file:
        pickle.dump({"segments": listed, "device_traces": [trace], "external_annotations": [], "allocator_settings": {}}, file, 4)


class Trace:
    """Events of the page's main thread, while some input is given."""

    def __init__(self, page):
        self.page, self.events = page, []

    def of(self, act):
        page = self.page
        page.call("Tracing.start", transferMode="ReportEvents",
                  traceConfig={"includedCategories": ["devtools.timeline", "disabled-by-default-devtools.timeline"]})
        act()
        page.call("Tracing.end")
        events, done = [], False
        while not done:
            message = page.receive(120)
            if message.get("method") == "Tracing.dataCollected":
                events += message["params"]["value"]
            done = message.get("method") == "Tracing.tracingComplete"
        return sorted((event for event in events if "ts" in event), key=lambda event: event["ts"])


def latencies(events, kind):
    """
    Milliseconds from every input of a kind to the end of the commit of the frame that shows it: by the clock, and as
    processor time of the main thread, which others on the machine do not lengthen.
    """
    clock, processor = [], []
    for event in events:
        if event["name"] != "EventDispatch" or event["args"]["data"]["type"] != kind:
            continue
        thread = [each for each in events if (each["pid"], each["tid"]) == (event["pid"], event["tid"]) and "dur" in each]
        end = event["ts"] + event["dur"]
        frames = [each for each in thread if each["name"] == "FireAnimationFrame" and event["ts"] < each["ts"] < end + 40_000]
        shown = frames[0]["ts"] if frames else end
        commits = [each for each in thread if each["name"] == "Commit" and each["ts"] >= shown]
        if not commits:
            continue
        done = commits[0]["ts"] + commits[0]["dur"]
        tasks = [each for each in thread if each["name"] == "RunTask" and each["ts"] + each["dur"] >= event["ts"] and each["ts"] <= done]
        clock.append((done - event["ts"]) / 1000)
        processor.append(sum(each.get("tdur", 0) for each in tasks) / 1000)
    return clock, processor


def tell(what, clock, processor):
    print(f"{what}: {len(clock)} inputs, median {statistics.median(clock):.1f} ms, at most {max(clock):.1f} ms "
          f"(processor time: median {statistics.median(processor):.1f}, at most {max(processor):.1f})")


def settle(page):
    page.settle()
    time.sleep(0.1)


def measure(page, url):
    loaded_s = page.open(url)
    settle(page)
    left, top, width, height = page.run("(() => { const b = document.querySelector('#held .u-over').getBoundingClientRect();"
                                        "return [b.left, b.top, b.width, b.height]; })()")
    print(f"loaded in {loaded_s:.2f} s; blocks at the peak: {page.run('+document.getElementById(`tensors`).dataset.blocks')}")
    trace = Trace(page)

    def clicks():
        for i in range(30):
            x = left + width * (i * 7 % 30 + 0.5) / 30
            for kind in ("mousePressed", "mouseReleased"):
                page.mouse(kind, x, top + height / 2, button="left", clickCount=1)
            settle(page)

    def zooms():
        for i in range(30):
            page.mouse("mouseWheel", left + width * 0.4, top + height / 2, deltaX=0, deltaY=-60 if i < 15 else 60, modifiers=CTRL)
            settle(page)

    def blocks():
        box = page.run("(() => { const b = document.getElementById('map').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        for i in range(30):
            for kind in ("mousePressed", "mouseReleased"):
                page.mouse(kind, box[0] + box[2] * (i + 0.5) / 30, box[1] + box[3] * (i * 11 % 30 + 0.5) / 30, button="left", clickCount=1)
            settle(page)

    for what, act, kind in (("click on an instant", clicks, "click"), ("zoom", zooms, "wheel")):
        tell(what, *latencies(trace.of(act), kind))
    page.run("document.getElementById('map').scrollIntoView()")
    settle(page)
    tell("click on a block", *latencies(trace.of(blocks), "click"))


def main():
    command, entries = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    path = chromium.find()
    if path is None:
        sys.exit("no Chromium (Debian package chromium; RVL_CHROMIUM names another)")
    with tempfile.TemporaryDirectory(prefix="reveille-bench-") as scratch:
        out = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else scratch).resolve()
        shot, report = out / "million.pickle", out / "million.html"
        make(shot, entries)
        begun = time.monotonic()
        subprocess.run([command, "report", shot, "-o", report], check=True)
        print(f"{entries} entries, {shot.stat().st_size / 1e6:.1f} MB: written in {time.monotonic() - begun:.2f} s; "
              f"the page has {report.stat().st_size / 1e6:.1f} MB")
        page = chromium.Browser(path, 1400, 1200)
        try:
            measure(page, report.as_uri())
            print("problems:", page.problems)
        finally:
            page.close()


if __name__ == "__main__":
    main()
