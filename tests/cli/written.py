#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Results as documents: JSON and Markdown, on the standard output or in a file beside the text.

    written.py REVEILLE SOURCE_DIR
"""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from terminal import read_terminal

COMMAND, SOURCES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
TRACE = os.path.join(SOURCES, "traces/llama-3.1-8b-tp2-h200.rvt")
SNAPSHOT = os.path.join(SOURCES, "traces/snapshots/dev-default.pickle.gz")
GIB = 1 << 30


def reveille(*words, folder=None):
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def trace_text(stages):
    """A trace of one process: (stage, GiB that it allocates)."""
    lines = ["reveille-trace 1.0", "clock boot=- mono_ns=0 wall_ns=0",
             "device 0 profile=- capacity_bytes=85899345920 granularity_bytes=2097152", "process engine pid=1"]
    for number, (name, size) in enumerate(stages):
        lines.append(f"stage {number * 10} engine 0 {name}")
        lines.append(f"alloc {number * 10 + 1} engine 0 {number + 1} 0 {size * GIB} weights")
        lines.append(f"free {number * 10 + 2} engine 0 {number + 1}")
    return "\n".join([*lines, f"end {3 * len(stages)}"]) + "\n"


def cells(row):
    """Cells of a row as GitHub splits them: at each | that no backslash stands before."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip())[1:-1]]


class Written(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def make_trace(self, stages, name="run.rvt"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(trace_text(stages))
        return self.path(name)

    def test_json_in_a_file_is_the_json_that_is_printed(self):
        for words in (["replay", TRACE], ["snapshot", SNAPSHOT], ["devices"], ["devices", "--device", "h200"],
                      ["plan", TRACE, "--max", "kv_cache"], ["plan", TRACE, "--sweep", "--device", "h200,h100-80g"],
                      ["snapshot", SNAPSHOT, "--tensors"]):
            with self.subTest(words=words):
                code, text, _ = reveille(*words)
                printed_code, printed, _ = reveille(*words, "--json")
                file_code, beside, errors = reveille(*words, f"--json={self.path('a.json')}")
                self.assertEqual((code, code), (printed_code, file_code))
                self.assertEqual(self.read("a.json"), printed)
                self.assertEqual(errors, "")
                if "--tensors" in words:
                    self.assertEqual(beside, "")
                else:
                    self.assertEqual(beside, text)
                self.assertIn("{", printed[:1])
                json.loads(printed)

    def test_output_named_dash_is_the_standard_output(self):
        self.assertEqual(reveille("replay", TRACE, "--json=-"), reveille("replay", TRACE, "--json"))

    def test_pipe_is_written_once_and_whole(self):
        os.mkfifo(self.path("pipe"))
        got = []
        reader = threading.Thread(target=lambda: got.append(self.read("pipe")))
        reader.start()
        code, _, _ = reveille("replay", TRACE, f"--json={self.path('pipe')}")
        reader.join(20)
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(got[0])["schema"], 1)

    def test_bad_names_are_refused_before_the_work(self):
        marker = self.path("ran")
        for words, said in (
                ([f"--json={self.folder}/none/a.json"], "No such file or directory"),
                (["--json=a.md"], "--json a.md: this writes .json"),
                (["--markdown=a.json"], "--markdown a.json: this writes .md"),
                (["--json="], "expected the name of a file after the ="),
                (["--json", "--markdown"], "one of them can be the standard output"),
                (["--json=both", "--markdown=both"], "would replace what --json both writes")):
            with self.subTest(words=words):
                code, out, errors = reveille("run", *words, "--", "touch", marker, folder=self.folder)
                self.assertEqual((code, out), (2, ""), errors)
                self.assertIn(said, errors)
                self.assertFalse(os.path.exists(marker))
        self.assertEqual(os.listdir(self.folder), [])

    def test_value_that_is_not_joined_is_told(self):
        for words, said in ((["run", "--json", "out.json", "--", "true"], "--json out.json: join them by =, as --json=out.json"),
                            (["replay", TRACE, "--markdown", "out.md"], "--markdown out.md: join them by =")):
            code, out, errors = reveille(*words, folder=self.folder)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(said, errors)
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        self.assertNotIn("join them", reveille("replay", "--json", "config.json", folder=self.folder)[2])

    def test_inputs_are_not_replaced(self):
        path = self.make_trace([("train", 1)], "run.json")
        code, _, errors = reveille("replay", path, f"--json={path}")
        self.assertEqual(code, 2)
        self.assertIn("is read: name another file", errors)
        self.assertIn("reveille-trace", self.read("run.json"))

    def test_markdown_has_a_row_for_each_name(self):
        path = self.make_trace([("train", 4), ("rollout", 2), ("train", 6), ("a|b`c", 1), ("@you", 3)])
        code, out, _ = reveille("replay", path, "--markdown")
        self.assertEqual(code, 0, out)
        lines = out.splitlines()
        verdict = reveille("replay", path)[1].splitlines()[-1]
        self.assertEqual(lines[0], f"### GPU memory: {verdict}")
        rows = [cells(line) for line in lines if line.startswith("| 0 |")]
        self.assertEqual([row[1:3] for row in rows],
                         [["`train`, 2 times", "6.0 GiB"], ["`rollout`", "2.0 GiB"],
                          ["``a\\|b`c``", "1.0 GiB"], ["`@you`", "3.0 GiB"]])
        self.assertEqual(rows[0][4], "`engine/weights` 6.0 GiB")
        widths = {len(cells(line)) for line in lines if line.startswith("|")}
        self.assertEqual(widths, {5})

    def test_markdown_says_what_does_not_fit(self):
        path = self.make_trace([("train", 90)])
        code, out, _ = reveille("replay", path, f"--markdown={self.path('a.md')}")
        self.assertEqual(code, 3)
        self.assertIn("* OOM", out)
        self.assertIn("90.0 GiB **OOM** | none |", self.read("a.md"))
        self.assertTrue(self.read("a.md").startswith("### GPU memory: out of memory"))

    def test_text_of_a_verdict_is_no_markup(self):
        path = self.make_trace([("<b>@you#1*", 90)])
        _, out, _ = reveille("replay", path, "--markdown")
        self.assertIn(r"\<b\>@<!-- -->you#<!-- -->1\*", out.splitlines()[0])

    def test_check_writes_markdown(self):
        self.make_trace([("train", 6), ("rollout", 2)])
        with open(self.path("memory.toml"), "w", encoding="utf-8") as file:
            file.write('schema = 1\n[[checks]]\nname = "a|b"\ntrace = "run.rvt"\nbudgets = { train = "5GiB" }\n')
        code, text, _ = reveille("check", "memory.toml", "--markdown=out.md", folder=self.folder)
        printed = reveille("check", "memory.toml", "--markdown", folder=self.folder)
        self.assertEqual((code, printed[0]), (3, 3))
        self.assertIn("OVER BUDGET", text)
        self.assertEqual(self.read("out.md"), printed[1])
        lines = printed[1].splitlines()
        self.assertEqual(lines[0], "### GPU memory: 2 stages, 1 failed")
        self.assertIn("| `a\\|b` | `own` | `train` | 6.0 GiB | 5.0 GiB |  |  | **OVER BUDGET** |", lines)
        self.assertIn("over budget: the peak of 6.0 GiB is more than 5.0 GiB; at its peak: engine/weights 6.0 GiB",
                      lines[-1])

    def test_key_that_is_unknown_is_named_with_its_place(self):
        for text, said in (('schema = 1\n[[checks]]\nnme = "x"\ntrace = "run.rvt"\n',
                            'memory.toml:3:1: unknown key "nme" in a check: is it "name"?'),
                           ('schema = 1\n[[checks]]\nname = "x"\nmodel = "c.json"\nsettings = { trian = "fsdp:8" }\n',
                            "memory.toml:5:14: check x: setting trian: no such setting"),
                           ('schema = 1\nbaselnie = "b.json"\n',
                            'memory.toml:2:1: unknown key "baselnie" in the file: is it "baseline"?')):
            with self.subTest(text=text):
                with open(self.path("memory.toml"), "w", encoding="utf-8") as file:
                    file.write(text)
                code, out, errors = reveille("check", "memory.toml", folder=self.folder)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(said, errors)

    def test_file_of_another_kind_names_its_command(self):
        with open(SNAPSHOT, "rb") as whole, open(self.path("run.bin"), "wb") as file:
            file.write(whole.read())
        reveille("replay", TRACE, f"--json={self.path('run.json')}")
        for words, said in ((["snapshot", TRACE], f"try `reveille replay {TRACE}`"),
                            (["replay", "run.bin"], "try `reveille snapshot run.bin`"),
                            (["replay", "run.json"], "`reveille compare old.json run.json`")):
            code, out, errors = reveille(*words, folder=self.folder)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(said, errors)

    def on_terminal(self, *words, **environment):
        """What a terminal shows, 80 columns wide, and the exit status."""
        child, terminal = pty.fork()
        if child == 0:
            os.environ.update(environment)
            os.execv(COMMAND, [COMMAND, *words])
        shown = read_terminal(terminal)
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode().replace("\r\n", "\n")

    def test_terminal_hears_what_was_written_and_what_is_next(self):
        name = self.path("it's a.svg")
        code, shown = self.on_terminal("report", TRACE, "--svg", name)
        quoted = "'" + name.replace("'", "'\\''") + "'"
        self.assertEqual((code, shown), (0, f"wrote {quoted}; next: xdg-open {quoted}\n"))
        code, shown = self.on_terminal("replay", TRACE, f"--json={self.path('a.json')}")
        self.assertEqual(shown.splitlines()[-1], f"wrote {self.path('a.json')}")
        self.assertEqual(reveille("report", TRACE, "--svg", name), (0, "", ""))

    def test_manual_is_rendered_on_a_terminal(self):
        viewer = self.path("bin")
        os.mkdir(viewer)
        with open(os.path.join(viewer, "man"), "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\n[ "$*" = "-l -" ] || exit 1\nread -r first\necho "SHOWN $first"\nexit ${MAN_STATUS:-0}\n')
        os.chmod(os.path.join(viewer, "man"), 0o755)
        code, shown = self.on_terminal("manual", "compare", PATH=viewer)
        self.assertEqual(code, 0)
        self.assertTrue(shown.startswith("SHOWN .TH REVEILLE\\-COMPARE 1"), shown)
        help_text = reveille("help", "compare")[1]
        code, shown = self.on_terminal("manual", "compare", PATH=viewer, MAN_STATUS="1")
        self.assertEqual((code, shown.split("\n", 1)[1]), (0, help_text))
        self.assertEqual(self.on_terminal("manual", "compare", PATH=self.folder), (0, help_text))
        self.assertTrue(reveille("manual", "compare")[1].startswith(".TH REVEILLE"))

    def test_full_disk_is_said(self):
        code, _, errors = reveille("replay", TRACE, "--json=/dev/full")
        self.assertEqual(code, 1)
        self.assertIn("No space left on device", errors)


unittest.main(argv=sys.argv[:1])
