#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/ share: the summary of skips, and long work with a log. test_scripts.py SOURCE_DIR."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1])

CASES = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="x" tests="6">
<testcase name="good" status="run"><system-out>[  PASSED  ] 3 test(s).
</system-out></testcase>
<testcase name="test_disk" status="run"><system-out>[  SKIPPED ] 2 test(s), listed below:
[  SKIPPED ] of_others
[  SKIPPED ] mute
[ RUN      ] of_others
SKIP: you are not root
[  SKIPPED ] of_others
[ RUN      ] mute
[  SKIPPED ] mute
</system-out></testcase>
<testcase name="python" status="run"><system-out>140 passed
SKIP 53 cases: the fake driver was not built
SKIP 1 cases: you are not root
</system-out></testcase>
<testcase name="gpu" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>
SKIP: libcuda.so.1: cannot open: no such file
</system-out></testcase>
<testcase name="silent" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>
</system-out></testcase>
<testcase name="bad" status="fail"><failure message="exit"/></testcase>
<testcase name="gone" status="notrun"><skipped message="Unable to find executable"/></testcase>
</testsuite>
"""

SUMMARY = """
not built: pages: npm was not found
skipped: you are not root
  test_disk: of_others
  python: 1 cases
skipped: no reason given
  test_disk: mute
  silent
skipped: the fake driver was not built
  python: 53 cases
skipped: libcuda.so.1: cannot open: no such file
  gpu
3 passed, 2 failed, 2 skipped
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="reveille-scripts-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def bash(self, line):
        return subprocess.run(
            ["bash", "-euc", '. "$1/scripts/logged.sh"; ' + line, "-", SOURCE], cwd=self.folder,
            capture_output=True, text=True, timeout=60)

    def cuda_headers(self, **variables):
        return subprocess.run([SOURCE / "scripts" / "cuda-headers"], capture_output=True, text=True, timeout=60,
                              env={"PATH": os.environ["PATH"], **variables})  # fmt: skip

    def test_summary(self):
        (self.folder / "tests.xml").write_text(CASES)
        (self.folder / "left-out.txt").write_text("pages: npm was not found\n")
        words = [sys.executable, SOURCE / "scripts" / "summary.py", "tests.xml"]
        for left_out, expected in [(["left-out.txt"], SUMMARY),
                                   (["none.txt"], SUMMARY.replace("not built: pages: npm was not found\n", ""))]:
            made = subprocess.run(words + left_out, cwd=self.folder, capture_output=True, text=True)
            self.assertEqual((made.stdout, made.stderr, made.returncode), (expected, "", 0))

    def test_what_goes_well_is_in_the_log_alone(self):
        made = self.bash("logged a/b.log 'doing it' bash -c 'echo one; echo two >&2'; echo after")
        self.assertEqual((made.stdout, made.stderr, made.returncode), ("after\n", "doing it\n", 0))
        self.assertEqual((self.folder / "a" / "b.log").read_text(), "one\ntwo\n")

    def test_what_fails_is_shown(self):
        made = self.bash("logged b.log 'doing it' bash -c 'seq 100; exit 7' || echo status $?")
        self.assertEqual(made.stdout, "status 7\n")
        self.assertEqual(made.stderr.splitlines(), ["doing it", *map(str, range(71, 101)),
                                                    "failed: doing it (all of it: b.log)"])

    def test_headers_of_a_toolkit_are_taken(self):
        include = self.folder / "toolkit" / "include"
        (include / "crt").mkdir(parents=True)
        for header in ("cuda.h", "crt/host_runtime.h"):
            (include / header).touch()
        made = self.cuda_headers(CUDA_PATH=include.parent)
        self.assertEqual((made.stdout, made.stderr, made.returncode), (f"{include}\n", "", 0))

    @unittest.skipIf(any(pathlib.Path(each, "cuda.h").exists() for each in ("/usr/local/cuda/include", "/usr/include"))
                     or (SOURCE / "build" / "cuda").exists(), "there are headers")  # fmt: skip
    def test_no_headers_are_fetched(self):
        made = self.cuda_headers(RVL_CUDA_HEADERS="no", CUDA_PATH=self.folder)
        self.assertEqual((made.stdout, made.returncode), ("", 1))
        self.assertIn("no `reveille run`, no `reveille record`", made.stderr)
        self.assertIn('To get them: unset RVL_CUDA_HEADERS, which is "no"', made.stderr)

    def test_progress(self):
        made = self.bash("progress_s=1; logged b.log 'doing it' bash -c 'printf \"%s\" begun; "
                         "printf \"\\r12 of 34\\n\\n\"; sleep 4'")
        self.assertRegex(made.stderr, r"\Adoing it\n(  [1-9] s: 12 of 34\n)+\Z")

    def test_progress_of_what_says_nothing(self):
        made = self.bash("progress_s=1; logged b.log 'doing it' sleep 3")
        self.assertRegex(made.stderr, r"\Adoing it\n(  [1-9] s\n)+\Z")

    def test_unknown_arguments_are_refused_at_once(self):
        for words, said in [(["demo", "x"], "scripts/demo takes no arguments, and was given x"),
                            (["test", "dve"], "scripts/test: no preset dve: name one of dev, clang, "),
                            (["../.ci/run", "x"], ".ci/run takes no arguments, and was given x")]:
            made = subprocess.run([SOURCE / "scripts" / words[0], *words[1:]], capture_output=True, text=True, timeout=60)
            self.assertEqual((made.stdout, made.returncode), ("", 2))
            self.assertTrue(made.stderr.startswith(said), made.stderr)
            self.assertEqual(made.stderr.count("\n"), 2 if words[0] != "test" else 1, made.stderr)

    def test_what_is_not_simulated_is_new_once(self):
        said = ("reveille: {}, asked for by /x/libtorch_cuda.so, is not simulated (libcuda.so.1): "
                'it answers "not supported"\n')  # fmt: skip
        known = (SOURCE / "tests/simcuda/not_simulated.txt").read_text().splitlines()[-1].split()[0]
        log = self.folder / "stderr"
        for text, found, status in [("nothing of ours\n", [], 0), (said.format(known), [], 0),
                                    (said.format("cuNever") * 2 + "x\n", ["cuNever of libcuda.so.1"], 1)]:
            log.write_text(text)
            made = subprocess.run([SOURCE / "scripts" / "tested", "--read", log], capture_output=True, text=True, timeout=60)
            self.assertEqual((made.stderr, made.returncode), ("", status))
            self.assertEqual([line.split(",")[0] for line in made.stdout.splitlines()], [f"new: {each}" for each in found])

    def test_each_says_what_it_does(self):
        for name in ("demo", "test", "deb", "wheel", "cuda-headers", "foreign-debs", "foreign-run", "aarch64", "release", "tested", "../.ci/run", "../tests/bare/run"):
            made = subprocess.run([SOURCE / "scripts" / name, "--help"], capture_output=True, text=True, timeout=60)
            self.assertEqual((made.stderr, made.returncode), ("", 0), name)
            self.assertRegex(made.stdout, r"\Ausage: ", name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
