#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What changed between two runs, as `reveille compare` says it.

    compare.py REVEILLE SOURCE_DIR
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

COMMAND, SOURCES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DEFAULT = os.path.join(SOURCES, "traces/snapshots/dev-default.pickle.gz")
EXPANDABLE = os.path.join(SOURCES, "traces/snapshots/dev-expandable.pickle.gz")
STACKS = os.path.join(SOURCES, "traces/snapshots/stacks-all.pickle.gz")
GIB = 1 << 30


def trace_text(stages, process="python[41]"):
    """(stage, {tag: GiB}): all of it is freed when the stage ends."""
    lines = ["reveille-trace 1.0", "clock boot=- mono_ns=0 wall_ns=0",
             "device 0 profile=- capacity_bytes=85899345920 granularity_bytes=2097152", f"process {process} pid=1"]
    first = len(lines)
    number = 0
    for at, (stage, tags) in enumerate(stages):
        lines.append(f"stage {at * 100} {process} 0 {stage}")
        numbers = []
        for tag, size in tags.items():
            number += 1
            numbers.append(number)
            lines.append(f"alloc {at * 100 + 1} {process} 0 {number} 0 {size * GIB} {tag}")
        lines.extend(f"free {at * 100 + 2} {process} 0 {each}" for each in numbers)
    return "\n".join([*lines, f"end {len(lines) - first}"]) + "\n"


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def make(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def compare(self, *words):
        done = subprocess.run([COMMAND, "compare", *words], capture_output=True, text=True, check=False,
                              cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def json(self, *words):
        code, out, errors = self.compare(*words, "--json")
        self.assertEqual(code, 0, errors)
        return json.loads(out)

    def two(self):
        self.make("a.rvt", trace_text([("train", {"weights": 4, "grads": 2}), ("train", {"weights": 5, "grads": 2}),
                                       ("old", {"weights": 1}), ("same", {"weights": 3})]))
        self.make("b.rvt", trace_text([("train", {"weights": 5, "grads": 4}), ("same", {"weights": 3}),
                                       ("new", {"weights": 2})], "python[977]"))
        return "a.rvt", "b.rvt"

    def test_stages_meet_by_name_and_the_largest_counts(self):
        found = self.json(*self.two())
        stages = {row["stage"]: row for row in found["stages"]}
        self.assertEqual([row["stage"] for row in found["stages"]], ["train", "old", "same", "new"])
        self.assertEqual((found["a"]["name"], found["b"]["name"]), ("a.rvt", "b.rvt"))
        train = stages["train"]
        self.assertEqual((train["a_peak_bytes"], train["b_peak_bytes"], train["change_bytes"]),
                         (7 * GIB, 9 * GIB, 2 * GIB))
        self.assertEqual((train["a_count"], train["b_count"]), (2, 1))
        self.assertAlmostEqual(train["change_percent"], 200 / 7, places=3)
        self.assertEqual(train["holders"], [{"name": "python/grads", "a_bytes": 2 * GIB, "b_bytes": 4 * GIB,
                                             "change_bytes": 2 * GIB}])
        self.assertEqual((stages["old"]["a_peak_bytes"], stages["old"]["b_peak_bytes"]), (GIB, None))
        self.assertEqual((stages["new"]["a_peak_bytes"], stages["new"]["b_peak_bytes"]), (None, 2 * GIB))
        self.assertEqual((stages["same"]["change_bytes"], stages["same"]["holders"]), (0, []))

    def test_text_says_what_changed(self):
        code, out, errors = self.compare(*self.two())
        self.assertEqual((code, errors), (0, ""))
        rows = [line.split() for line in out.splitlines()]
        self.assertIn("0 train 7.0 GiB 9.0 GiB +2.0 GiB (+28.57 %) python/grads +2.0 GiB".split(), rows)
        self.assertIn("0 old 1.0 GiB A only".split(), rows)
        self.assertIn("0 new 2.0 GiB B only".split(), rows)
        self.assertIn("  1 stage is unchanged", out.splitlines())
        self.assertEqual(out.splitlines()[-1], "train on device 0 grew most: by 2.0 GiB (+28.57 %), to 9.0 GiB")

    def test_what_shrank_is_told_where_nothing_grew(self):
        a, b = self.two()
        self.assertEqual(self.compare(b, a)[1].splitlines()[-1],
                         "train on device 0 shrank most: by 2.0 GiB (-22.22 %), to 7.0 GiB")
        self.assertEqual(self.compare(a, a)[1].splitlines()[-1], "no peak has changed")

    def test_results_are_read_as_their_traces(self):
        for each in self.two():
            subprocess.run([COMMAND, "replay", each, f"--json={each[0]}.json"], check=True, cwd=self.folder,
                           stdout=subprocess.DEVNULL)
        of_traces, of_results = self.json("a.rvt", "b.rvt"), self.json("a.json", "b.json")
        self.assertEqual(of_traces["stages"], of_results["stages"])
        self.assertEqual(of_traces["a"]["verdict"], of_results["a"]["verdict"])

    def test_snapshots_are_compared_by_what_is_reserved(self):
        found = {row["stage"]: row for row in self.json(DEFAULT, EXPANDABLE)["stages"]}
        peaks = {}
        for path in (DEFAULT, EXPANDABLE):
            done = subprocess.run([COMMAND, "snapshot", path, "--json"], capture_output=True, check=True)
            peaks[path] = {each["name"]: each["peak_reserved_bytes"] for each in json.loads(done.stdout)["stages"]}
        self.assertEqual({name: row["a_peak_bytes"] for name, row in found.items()}, peaks[DEFAULT])
        self.assertEqual({name: row["b_peak_bytes"] for name, row in found.items()}, peaks[EXPANDABLE])

    def lines(self, *lines):
        """A result of a snapshot with lines: (function, file, line, bytes)."""
        listed = [{"tag": "activations", "file": file, "line": line, "name": name, "bytes": size}
                  for name, file, line, size in lines]
        total = sum(each["bytes"] for each in listed)
        return json.dumps({"schema": 1, "mode": "predict",
                           "stages": [{"name": "train", "peak_reserved_bytes": total,
                                       "at_peak": [{"tag": "activations", "module": "Block", "bytes": total}],
                                       "lines": listed}]})

    def test_lines_that_moved_are_the_same_lines(self):
        self.make("a.json", self.lines(("forward", "/x/gpt.py", 20, 4 * GIB), ("loss", "/x/gpt.py", 40, GIB)))
        self.make("b.json", self.lines(("forward", "/x/gpt.py", 23, 6 * GIB), ("loss", "/x/gpt.py", 40, GIB)))
        row, = self.json("a.json", "b.json")["stages"]
        self.assertEqual(row["lines"], [{"name": "forward (gpt.py:23)", "a_bytes": 4 * GIB, "b_bytes": 6 * GIB,
                                         "change_bytes": 2 * GIB}])
        self.assertEqual(row["holders"][0]["name"], "activations of Block")
        text = self.compare("a.json", "b.json")[1]
        self.assertIn("+2.0 GiB    4.0 GiB    6.0 GiB  forward (gpt.py:23)", text)

    def test_what_a_run_says_memory_is_for_is_preferred(self):
        for name, size in (("a.json", 1), ("b.json", 2)):
            self.make(name, json.dumps({
                "schema": 1, "events": 3, "verdict": {"text": "fits"},
                "devices": [{"device": 1, "stages": [{"name": "train", "peak_bytes": size * GIB, "at_peak": [
                    {"process": "python[7]", "tag": "cudaMalloc", "bytes": size * GIB}]}]}],
                "holders": [{"device": 1, "stage": "train", "lines": [],
                             "at_peak": [{"tag": "weights", "module": None, "bytes": size * GIB}]}]}))
        row, = self.json("a.json", "b.json")["stages"]
        self.assertEqual((row["device"], [each["name"] for each in row["holders"]]), (1, ["weights"]))

    def test_growth_can_fail(self):
        a, b = self.two()
        self.assertEqual(self.compare(a, b, "--fail-over", "28")[0], 3)
        self.assertEqual(self.compare(a, b, "--fail-over", "29%")[0], 0)
        self.assertEqual(self.compare(b, a, "--fail-over", "0")[0], 0)
        self.make("c.rvt", trace_text([("train", {"weights": 5, "grads": 2}), ("eval", {"weights": 70})]))
        self.assertEqual(self.compare(a, "c.rvt", "--fail-over", "50")[0], 3)

    def test_markdown(self):
        a, b = self.two()
        code, out, _ = self.compare(a, b, "--markdown")
        lines = out.splitlines()
        self.assertEqual(code, 0)
        self.assertEqual(lines[0], "### GPU memory: train on device 0 grew most: by 2.0 GiB (+28.57 %), to 9.0 GiB")
        self.assertIn("| 0 | `train` | 7.0 GiB | 9.0 GiB | +2.0 GiB (+28.57 %) | `python/grads` +2.0 GiB |", lines)
        self.assertIn("| 0 | `new` |  | 2.0 GiB |  | B only |", lines)
        self.compare(a, b, "--markdown=out.md", "--json=out.json")
        with open(os.path.join(self.folder, "out.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), out)

    def test_bad_inputs_are_refused(self):
        a, b = self.two()
        self.make("broken.json", "{\n  nope\n}")
        self.make("other.json", '{"schema": 1, "cases": []}')
        for words, said in (([a], "name two runs"), ([a, b, b], "name two runs"),
                            ([a, "none.rvt"], "none.rvt"), ([a, "none.json"], "none.json"),
                            (["broken.json", b], "broken.json:2:"), ([a, "other.json"], "no result of a run"),
                            ([a, b, "--fail-over", "x"], "--fail-over x: expected a number"),
                            ([a, b, "--fail-over", "-1"], "--fail-over -1: expected"),
                            ([a, b, f"--json={a}"], "end it in .json"),
                            ([a, "other.json", "--json=other.json"], "which is read")):
            with self.subTest(words=words):
                code, out, errors = self.compare(*words)
                self.assertEqual((code, out), (2, ""), errors)
                self.assertIn(said, errors)


unittest.main(argv=sys.argv[:1])
