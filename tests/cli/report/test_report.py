#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`reveille report` without a browser: test_report.py COMMAND SOURCE_DIR."""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

import colours

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
from terminal import read_terminal

COMMAND, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
STEP = SOURCE / "traces" / "qwen2.5-32b-tp2-h200.rvt"
RECORDED = sorted((SOURCE / "traces" / "recorded").glob("*.rvt"))
RECORDED_STAGES = ("startup", "asleep", "weights_awake", "training_copy_loaded", "training_copy_freed",
                   "kv_cache_awake", "rollout", "end")
GIB = 1 << 30
MIB = 1 << 20
SVG = "{http://www.w3.org/2000/svg}"
HEAD = (b"reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n"
        b"device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
        b"device 1 profile=- capacity_bytes=2097152000 granularity_bytes=2097152\n"
        b"process e pid=0\n")
NAMES = HEAD + (b"stage 1000 e 1 </title>&\n"
                b"alloc 2000 e 1 1 0 4194304 \"q\"</svg>\n"
                b"alloc 3000 e 1 2 0 2097152 \xff\xfe%01\n"
                b"alloc 4000 e 1 3 1 2097152 -\n"
                b"pause 5000 e 1 \"q\"</svg>\n"
                b"end 5\n")


def run(*words, **more):
    env = {**os.environ, **more.pop("env", {})}
    return subprocess.run([COMMAND, "report", *map(str, words)], capture_output=True, env=env, **more)


class Report(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="reveille-report-")
        self.addCleanup(self.scratch.cleanup)
        self.out = pathlib.Path(self.scratch.name)
        self.names = self.out / "names.rvt"
        self.names.write_bytes(NAMES)

    def good(self, *words, **more):
        made = run(*words, **more)
        self.assertEqual((made.returncode, made.stderr), (0, b""))
        return made.stdout

    def bad(self, status, part, *words):
        made = run(*words)
        self.assertEqual(made.returncode, status, made.stderr)
        self.assertEqual(made.stdout, b"")
        self.assertTrue(made.stderr.startswith(b"reveille: "))
        self.assertIn(part, made.stderr.decode())

    # ---- Chrome's trace ----

    def counters(self, path):
        """Of each process and counter the values in order of time; and the slices."""
        events = json.loads(path.read_text())["traceEvents"]
        values = {}
        for event in events:
            if event["ph"] == "C":
                values.setdefault((event["pid"], event["name"]), []).append(
                    (event["ts"], event["args"]["bytes"]))
        return values, [event for event in events if event["ph"] == "X"]

    def test_chrome(self):
        path = self.out / "step.json"
        self.good(STEP, "--chrome", path, "--against-wake", "together")
        values, slices = self.counters(path)
        self.assertEqual(values[1, "capacity"], [(0, 150109880320)])
        self.assertEqual(max(bytes_ for _, bytes_ in values[1, "in use"]), 142007808818)
        together = json.loads(subprocess.run([COMMAND, "replay", "--json", "--wake", "together", STEP],
                                             capture_output=True).stdout)["devices"][0]
        self.assertEqual(max(bytes_ for _, bytes_ in values[2, "in use"]), together["peak_bytes"])
        self.assertEqual(values[1, "engine/kv_cache (paused)"][-1], (5001301.0, 0))
        self.assertEqual(values[1, "engine/kv_cache"], [(5001301.0, 101737037824)])
        for times in values.values():
            self.assertEqual([time for time, _ in times], sorted(time for time, _ in times))
        own = [(each["name"], each["ts"]) for each in slices if each["pid"] == 1]
        self.assertEqual(own[1:4], [("asleep", 1000001.0), ("weights_awake", 2000390.0),
                                    ("training_copy_loaded", 3000392.0)])

    def test_chrome_names(self):
        path = self.out / "names.json"
        self.good(self.names, "--chrome", path)
        self.assertNotIn("</", path.read_text())
        values, slices = self.counters(path)
        self.assertEqual(values[1, 'e/"q"</svg>'], [(2, 4 * MIB), (5, 0)])
        self.assertEqual(values[1, 'e/"q"</svg> (paused)'], [(5, 4 * MIB)])
        self.assertEqual(values[1, "e/%FF%FE\x01"], [(3, 2 * MIB)])
        self.assertEqual(values[2, "e/untagged"], [(4, 2 * MIB)])
        self.assertIn("</title>&", [each["name"] for each in slices])

    # ---- Pictures ----

    def test_svg(self):
        path = self.out / "step.svg"
        self.good(STEP, "--svg", path, "--against-wake", "together")
        root = xml.parse(path).getroot()
        texts = ["".join(text.itertext()) for text in root.iter(SVG + "text")]
        for text in ("capacity 139.8 GiB", "peak 132.3 GiB", "weights_awake",
                     "engine/kv_cache, at most 94.8 GiB",
                     "paused (uses no GPU memory), at most 125.5 GiB",
                     "all of qwen2.5-32b-tp2-h200.rvt, woken together"):
            self.assertIn(text, texts)
        self.assertIn("peak 132.3 GiB", root.find(SVG + "title").text)

    def test_two_runs_are_compared(self):
        """Both verdicts, and who has more when: in the picture and in the terminal."""
        root = xml.fromstring(self.good(STEP, "--svg", "-", "--against-wake", "together"))
        texts = ["".join(text.itertext()) for text in root.iter(SVG + "text")]
        self.assertIn("qwen2.5-32b-tp2-h200.rvt: device 0, h200, 139.8 GiB; peak 132.3 GiB, 7.5 GiB to spare", texts)
        self.assertIn("fits, with 7.5 GiB to spare", texts)
        self.assertIn("qwen2.5-32b-tp2-h200.rvt, woken together: device 0, h200, 139.8 GiB; peak 192.7 GiB, "
                      "52.9 GiB too much", texts)
        self.assertIn("out of memory: trainer/training_copy asked for 270.0 MiB of device 0 with 171.9 MiB free, in training_copy_loaded", texts)
        self.assertIn("difference to qwen2.5-32b-tp2-h200.rvt, woken together: at most 0 B more, 94.8 GiB less", texts)
        areas = [(p.get("fill"), re.findall(r"H([\d.]+)V([\d.]+)", p.get("d"))) for p in root.iter(SVG + "path")
                 if p.get("class") == "difference"]
        areas = [(fill, [(float(x), float(y)) for x, y in corners]) for fill, corners in areas if len(corners) > 1]
        kv_cache = self.colours_of_svg(STEP)["engine/kv_cache"]
        self.assertEqual(areas[-1][0], kv_cache)
        (begin, down), (end, zero), *_ = areas[-1][1]
        # From the second stage to the last: what it lacks stands below the line, over the whole height.
        self.assertAlmostEqual(begin, 84 + 1096 * 2.00039 / 5.31355, delta=1)
        self.assertAlmostEqual(end, 84 + 1096 * 5.0013 / 5.31355, delta=1)
        self.assertAlmostEqual(down - zero, 92, delta=0.2)
        text = self.good(STEP, "--against-wake", "together").decode().split("differences on device 0\n")[1]
        rows = [re.split(r"  +", line.strip()) for line in text.splitlines()]
        self.assertEqual(rows[0], ["stage", "peak", "second run", "difference", "who differs at the peak"])
        self.assertEqual(rows[1], ["asleep", "5.8 GiB", "5.8 GiB"])
        self.assertEqual(rows[3], ["training_copy_loaded", "98.0 GiB", "192.7 GiB", "-94.8 GiB", "engine/kv_cache -94.8 GiB"])
        self.assertEqual(len(rows), 6)
        # Other stages, other holders.
        other = self.out / "other.rvt"
        other.write_bytes(NAMES.replace(b"</title>&", b"other").replace(b"4194304", b"8388608"))
        text = self.good(self.names, "--against", other).decode()
        self.assertIn("</title>&  6.0 MiB                          first run only\n", text)
        self.assertIn("other                 10.0 MiB              second run only\n", text)

    def test_what_would_fit_is_what_plan_says(self):
        plan = subprocess.run([COMMAND, "plan", STEP, "--max", "engine/kv_cache", "--wake", "together"], capture_output=True)
        largest = re.match(r"engine/kv_cache: at most ([\d.]+ GiB)", plan.stdout.decode())[1]
        remedy = f"it would fit with engine/kv_cache of {largest} instead of 94.8 GiB"
        self.assertEqual(self.good(STEP, "--wake", "together").decode().split("\n")[1], remedy)
        root = xml.fromstring(self.good(STEP, "--against-wake", "together", "--svg", "-"))
        self.assertEqual([t.text for t in root.iter(SVG + "text") if t.text == remedy], [remedy])
        self.assertNotIn("would", self.good(STEP).decode())
        # A device that even what the others hold does not fit on, and a pipe, which cannot be read again.
        self.assertIn("\nthe largest holder is engine/kv_cache; it would not fit without it either\n",
                      self.good(STEP, "--device", "20GiB").decode())
        piped = subprocess.run([COMMAND, "report", "/dev/stdin", "--device", "20GiB"], input=STEP.read_bytes(),
                               capture_output=True)
        self.assertIn(b"\n`reveille plan --max engine/kv_cache` says how much of it would fit\n", piped.stdout)
        self.assertEqual((piped.returncode, piped.stderr), (0, b""))

    def test_true_use_lies_over_the_prediction(self):
        """Each sample of the recorded run is where it was read, to the pixel; and in every output."""
        trace = [line.split() for path in RECORDED for line in path.read_text().splitlines()]
        clocks = [int(words[2].removeprefix("mono_ns=")) for words in trace if words[0] == "clock"]
        late = {"engine": clocks[0] - min(clocks), "trainer": clocks[1] - min(clocks)}
        expected = sorted((int(w[1]) + late[w[2]], int(w[5])) for w in trace if w[0] == "sample")
        self.assertEqual(len(expected), 16)
        for words in ((), ("--wake", "together")):
            root = xml.fromstring(self.good(*RECORDED, "--svg", "-", *words))
            marks = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(SVG + "circle") if c.get("class") == "sample"]
            self.assertEqual(len(marks), 17)  # and one in the legend
            grid = [re.match(r"M[\d.]+ ([\d.]+)", p.get("d"))[1] for p in root.iter(SVG + "path") if p.get("class") == "grid"]
            title = root.find(SVG + "title").text
            top = max(150109880320, float(re.search(r"peak ([\d.]+) GiB", title)[1]) * GIB) * 17 / 16
            for (x, y), (ns, used) in zip(marks, expected):
                self.assertAlmostEqual(y, float(grid[0]) - 360 * used / top, delta=0.3)
                self.assertAlmostEqual(x, 84 + 1096 * ns / 6.7011e9, delta=2)
        chart = self.good(*RECORDED, env={"COLUMNS": "100"}).decode().splitlines()
        self.assertIn("o true use, read while it was recorded", "\n".join(chart))
        self.assertGreaterEqual(sum(line[11:].count("o") for line in chart[1:17]), 8)
        self.assertNotIn("true use", self.good(STEP).decode() + self.good(STEP, "--svg", "-").decode())

    def test_svg_shows_the_peak_where_it_is(self):
        path = self.out / "names.svg"
        self.good(self.names, "--svg", path)
        root = xml.parse(path).getroot()
        peak = next(c for c in root.iter(SVG + "circle"))
        grid = [p.get("d") for p in root.iter(SVG + "path") if p.get("class") == "grid"]
        zero = float(re.match(r"M[\d.]+ ([\d.]+)", grid[0])[1])
        # 6 MiB of 6 MiB and a sixteenth: a device 160 times larger is not shown whole.
        self.assertAlmostEqual((zero - float(peak.get("cy"))) / 360, 16 / 17, places=3)
        self.assertIn("e/\"q\"</svg>, at most 4.0 MiB",
                      ["".join(t.itertext()) for t in root.iter(SVG + "text")])
        self.assertIn("e/%FF%FE%01, at most 2.0 MiB",
                      ["".join(t.itertext()) for t in root.iter(SVG + "text")])

    def test_every_stage_has_its_name(self):
        """Also stages that are narrower than a letter; and no name lies on another."""
        root = xml.fromstring(self.good(*RECORDED, "--svg", "-"))
        labels = [(float(t.get("y")), float(t.get("x")), t.text) for t in root.iter(SVG + "text")
                  if t.get("class") == "stage"]
        self.assertEqual({name for _, _, name in labels}, set(RECORDED_STAGES))
        for y, x, name in labels:
            self.assertLess(x + 6.6 * len(name), 1200)
            self.assertFalse([other for other in labels if other[0] == y and x < other[1] < x + 6.6 * len(name)])
        for columns in ("80", "60"):
            chart = self.good(*RECORDED, env={"COLUMNS": columns}).decode()
            for name in RECORDED_STAGES:
                self.assertTrue(f"|{name}" in chart or f"{name}|" in chart, (columns, name))

    def test_by_event_stages_are_equally_wide(self):
        """The modelled peak has a sixteenth of the time, and a fifth of the events' axis."""
        def begins(*words):
            root = xml.fromstring(self.good(STEP, "--svg", "-", *words))
            peak = float(next(c for c in root.iter(SVG + "circle")).get("cx"))
            return [float(p.get("d")[1:].split()[0]) for p in root.iter(SVG + "path") if p.get("class") == "begin"], peak
        by_time, at_peak = begins()
        self.assertAlmostEqual((1180 - at_peak) / 1096, 0.0588, places=3)
        by_event, at_peak = begins("--axis", "event")
        for i, x in enumerate(by_event):
            self.assertAlmostEqual(x, 84 + 1096 * i / 5, places=1)
        self.assertEqual((len(by_time), len(by_event)), (5, 5))
        self.assertTrue(84 + 1096 * 4 / 5 <= at_peak < 1180, at_peak)
        lines = self.good(STEP, "--axis", "event", env={"COLUMNS": "162"}).decode().split("\n")
        self.assertEqual([lines[17][12 + 30 * i:][:7] for i in (0, 1, 3)], ["|asleep", "|weight", "|traini"])
        self.assertEqual(lines[17][12 + 120:], "|kv_cache_awake".ljust(30))
        self.assertTrue(lines[18].endswith(" s (by event)"), lines[19])
        self.bad(2, "--axis stage: expected time or event", STEP, "--axis", "stage")

    def test_svg_of_another_device(self):
        self.good(self.names, "--svg", self.out / "one.svg", "--index", "1")
        title = xml.parse(self.out / "one.svg").getroot().find(SVG + "title").text
        self.assertIn("device 1, given by size, 2.0 GiB; peak 2.0 MiB", title)
        self.bad(2, "--index: the trace has fewer devices", self.names, "--svg", "-", "--index", "2")

    # ---- Colours ----

    def on_terminal(self, *words, **env):
        parent, child = pty.openpty()
        made = subprocess.Popen([COMMAND, "report", *map(str, words)], stdout=child,
                                env={**os.environ, "COLUMNS": "60", "TERM": "xterm", "LC_ALL": "C.UTF-8", **env})
        os.close(child)
        text = read_terminal(parent)
        os.close(parent)
        self.assertEqual(made.wait(), 0)
        return text.decode()

    def test_ascii_without_utf8(self):
        """The same chart, sign for sign."""
        signs = str.maketrans("█▓▒░│╌", "#%+.|-")
        path = self.many(4, 0)
        path.write_bytes(path.read_bytes().replace(HEAD, HEAD + b"stage 1 e 1 start\n").replace(b"end 4", b"end 5"))
        words = (path, "--device", "100MiB")
        drawn = self.good(*words, env={"LC_ALL": "C.UTF-8"}).decode()
        self.assertTrue(set("█▓▒░│╌") <= set(drawn), drawn)
        self.assertEqual(self.good(*words, env={"LC_ALL": "none_HERE.utf8"}).decode(), drawn)
        for env in ({"LC_ALL": "C"}, {"LC_ALL": "", "LC_CTYPE": "POSIX", "LANG": "C.UTF-8"},
                    {"LC_ALL": "", "LC_CTYPE": "", "LANG": "none_HERE"}, {"LC_ALL": "", "LC_CTYPE": "", "LANG": ""}):
            self.assertEqual(self.good(*words, env=env).decode(), drawn.translate(signs), env)
        shown = self.on_terminal(STEP, LC_ALL="C", NO_COLOR="")
        self.assertTrue(shown.isascii() and "m#\x1b[0m engine/" in shown, shown)

    def colours_of_svg(self, *words):
        """By holder, as the legend has them."""
        text = self.good(*words, "--svg", "-").decode()
        found = re.findall(r'<rect [^>]*width="11"[^>]*fill="(#\w+)"/><text [^>]*>([^<]*)</text>', text)
        return {name.split(", at most")[0]: css for css, name in found}

    def colours_of_terminal(self, *words):
        found = re.findall(r"\x1b\[38;5;(\d+)m█\x1b\[0m ([^\r]*)", self.on_terminal(*words, NO_COLOR=""))
        return {name.split(", at most")[0]: int(ansi) for ansi, name in found}

    def many(self, tags, causes):
        path = self.out / "many.rvt"
        text = HEAD + b"".join(b"external %d e 1 0 4194304 cause%d\n" % (i + 1, i) for i in range(causes))
        text += b"".join(b"alloc %d e 1 %d 0 %d tag%d\n" % (50 + i, i + 1, 40 - 2 * i << 20, i) for i in range(tags))
        path.write_bytes(text + b"end %d\n" % (tags + causes))
        return path

    def test_distances_are_those_of_the_standard(self):
        for first, second, distance in (((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
                                        ((50, 2.5, 0), (58, 24, 15), 19.4535),
                                        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082)):
            self.assertAlmostEqual(colours.ciede2000(first, second), distance, places=4)

    def test_colours_can_be_told_apart(self):
        css, ansi = set(), set()
        for tags, causes in ((10, 0), (7, 3), (14, 0)):  # all, with the greys, with the rest
            path = self.many(tags, causes)
            svg, terminal = self.colours_of_svg(path), self.colours_of_terminal(path)
            self.assertEqual(svg.keys(), terminal.keys())
            self.assertEqual(len(set(svg.values())), min(tags + causes, 11), svg)
            css.update(svg.values())
            ansi.update(terminal.values())
        self.assertEqual((len(css), len(ansi)), (14, 14))
        self.assertGreater(colours.nearest([colours.of_css(each) for each in css])[0], 10)
        self.assertGreater(colours.nearest([colours.of_ansi(each) for each in ansi])[0], 8)
        for code in ansi:  # nor from what is behind them
            for paper in (16, 231):
                self.assertGreater(colours.nearest([colours.of_ansi(code), colours.of_ansi(paper)])[0], 12)

    def test_a_name_has_one_colour_everywhere(self):
        svg, terminal = self.colours_of_svg(*RECORDED), self.colours_of_terminal(*RECORDED)
        self.assertEqual(svg.keys(), terminal.keys())
        pairs = {(svg[name], terminal[name]) for name in svg}
        for parts in zip(*pairs):  # a colour of the picture is one of the terminal, and back
            self.assertEqual(len(set(parts)), len(pairs))
        self.assertEqual(svg["engine/weights"], self.colours_of_svg(STEP)["engine/weights"])
        self.assertEqual(svg["engine/kv_cache"], self.colours_of_svg(STEP)["engine/kv_cache"])
        other = self.colours_of_svg(STEP, "--against", RECORDED[0])
        self.assertEqual(other["engine/weights"], svg["engine/weights"])

    # ---- The terminal ----

    def test_terminal(self):
        lines = self.good(STEP, env={"COLUMNS": "100"}).decode().split("\n")
        self.assertEqual(lines[0], "device 0: h200, 139.8 GiB; peak 132.3 GiB at 5.001 s; "
                                   "paused at most 125.5 GiB; 7.5 GiB to spare")
        self.assertEqual(lines[-2:], ["fits, with 7.5 GiB to spare", ""])
        self.assertTrue(lines[1].startswith(" 139.8 GiB ╌"))
        self.assertEqual({len(line) for line in lines[1:17]}, {100})
        self.assertIn("|weights_awake", lines[17])
        self.assertIn("engine/kv_cache, at most 94.8 GiB", "\n".join(lines))
        self.assertNotIn("\x1b", "\n".join(lines))
        # The last column shows the peak: 132.3 of 139.8 GiB fill 15 of 16 rows.
        self.assertEqual(sum(line[-1] not in " ╌" for line in lines[1:17]), 15)

    def test_terminal_colours(self):
        self.assertIn("\x1b[38;5;", self.on_terminal(STEP, NO_COLOR=""))
        self.assertNotIn("\x1b", self.on_terminal(STEP, NO_COLOR="1"))

    def test_terminal_of_two_runs_and_devices(self):
        other = self.out / "other.rvt"
        other.write_bytes(NAMES.replace(b" e ", b" f "))
        text = self.good(self.names, "--against", self.names, "--against", other).decode()
        self.assertEqual(re.findall(r"^device (\d)", text, re.M), ["0", "1", "0", "1"])
        self.assertIn("differences on device 1\n", text)
        self.assertIn("names.rvt and 1 more\n", text)

    def test_empty_trace(self):
        path = self.out / "empty.rvt"
        path.write_bytes(HEAD + b"end 0\n")
        self.assertIn("peak 0 B", self.good(path).decode())
        self.good(path, "--svg", self.out / "e.svg", "--chrome", self.out / "e.json")
        xml.parse(self.out / "e.svg")
        json.loads((self.out / "e.json").read_text())

    # ---- Pages ----

    def test_page(self):
        path = self.out / "page.html"
        made = run(self.names, "-o", path, "--points", "16")
        if made.returncode == 2 and b"built without the page" in made.stderr:
            self.assertFalse(path.exists())
            print("SKIP test_page: built without the page", flush=True)
            self.skipTest("built without the page")
        self.assertEqual(made.returncode, 0, made.stderr)
        text = path.read_text()
        data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
        first = data["runs"][0]["devices"][0]
        self.assertEqual([(s["tag"], s["paused"], s["peak_bytes"]) for s in first["series"]],
                         [('"q"</svg>', False, 4 * MIB), ("%FF%FE\x01", False, 2 * MIB),
                          ('"q"</svg>', True, 4 * MIB)])
        shown = {f"{s['process']}/{s['tag']}": s["colour"] for s in first["series"] if not s["paused"]}
        self.assertEqual(list(shown.values()), list(self.colours_of_svg(self.names).values()))
        self.assertEqual(first["series"][2]["colour"], first["series"][0]["colour"])
        self.assertEqual(first["points"][2], [5000, 5000, 5000, 1, 2 * MIB, 2 * MIB, 2 * MIB,
                                              [[0, 0], [2, 4 * MIB]]])
        self.assertEqual(first["peak_ns"], 3000)
        self.assertNotRegex(text, r'(src|href)="http')
        weight = len(text.encode()) - len(json.dumps(data))
        print(f"a page without its data: {weight} bytes", flush=True)
        self.assertLess(weight, 176 << 10)
        self.assertEqual(text.count("</script>"), 3)

    # ---- What goes wrong ----

    def test_bad_usage(self):
        self.bad(2, "name at least one trace")
        self.bad(2, "unknown option --what", "--what", STEP)
        self.bad(2, "option -o needs a value", STEP, "-o")
        self.bad(2, "--points 15: expected a number from 16 to 1000000", STEP, "--points", "15")
        self.bad(2, "--points x: expected", STEP, "--points", "x")
        self.bad(2, "--index 64: expected", STEP, "--index", "64")
        self.bad(2, "--wake never: expected staged or together", STEP, "--wake", "never")
        self.bad(2, "--against-wake never: expected", STEP, "--against-wake", "never")
        self.bad(2, "--device tube: neither a size", STEP, "--device", "tube")
        self.bad(2, "only one file can be the standard output", STEP, "--svg", "-", "--chrome", "-")

    def test_bad_trace(self):
        path = self.out / "bad.rvt"
        path.write_bytes(HEAD + b"free 1 e 1 7\nend 1\n")
        self.bad(2, f"{path}:6:12: free of an unknown id", path, "--svg", self.out / "x.svg")
        self.bad(2, f"{path}:6:12: ", STEP, "--against", path)
        self.assertFalse((self.out / "x.svg").exists())

    def test_files_are_whole_or_not_there(self):
        target = self.out / "there.svg"
        target.write_text("as it was")
        self.bad(2, "No such file or directory", STEP, "--svg", self.out / "none" / "x.svg")
        self.bad(1, "/dev/full: No space left on device", STEP, "--svg", "/dev/full")
        # No room for the file: what was there before stays, and no draft is left behind.
        # With coverage the counts would be cut off, too, and every later program complain of them.
        elsewhere = {**os.environ, "GCOV_PREFIX": str(self.out / "counts"),
                     "GCOV_ERROR_FILE": "/dev/null"}  # fmt: skip
        made = subprocess.run(["bash", "-c", "ulimit -f 4; trap '' XFSZ; exec \"$@\"", "-", COMMAND,
                               "report", STEP, "--svg", target], capture_output=True, env=elsewhere)
        shutil.rmtree(self.out / "counts", ignore_errors=True)
        self.assertEqual(made.returncode, 1, made.stderr)
        self.assertIn(b"File too large", made.stderr)
        self.assertEqual(target.read_text(), "as it was")
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["names.rvt", "there.svg"])
        self.good(STEP, "--svg", target)
        xml.parse(target)

    def test_output_to_stdout(self):
        xml.fromstring(self.good(STEP, "--svg", "-"))

    def test_help(self):
        self.assertIn(b"--against-wake", self.good("--help"))
        self.assertIn(b"report", subprocess.run([COMMAND, "--help"], capture_output=True).stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
