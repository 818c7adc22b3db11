#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Phases that verl's controller times are stages of the devices of its workers: verl_phases.py COMMAND.

verl itself runs in tests/frameworks/verl.sh. Here a package has its timer alone, and a worker allocates at its word.
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MIB = 1 << 20
TIMER = """
import contextlib

@contextlib.contextmanager
def marked_timer(name, timing_raw, color=None, domain=None, category=None):
    yield
    timing_raw[name] = timing_raw.get(name, 0) + 1
"""
PHASES = {"gen": 32, "old_log_prob": 0, "update_actor": 96, "update_weights": -96}  # MiB that the worker takes


def worker():
    runtime = ctypes.CDLL(os.environ["RUNTIME"])
    pointers = {}
    for line in sys.stdin:
        size = int(line)
        if size > 0:
            pointers[size] = ctypes.c_void_p()
            assert runtime.cudaMalloc(ctypes.byref(pointers[size]), ctypes.c_size_t(size * MIB)) == 0
        elif size < 0:
            assert runtime.cudaFree(pointers.pop(-size)) == 0
        else:
            assert runtime.cudaFree(None) == 0
        print("done", flush=True)


def controller(dies):
    from verl.utils.profiler.performance import marked_timer

    hired = subprocess.Popen([sys.executable, __file__, "worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(size):
        print(size, file=hired.stdin, flush=True)
        assert hired.stdout.readline() == "done\n"

    ask(0)
    runtime, count = ctypes.CDLL(os.environ["RUNTIME"]), ctypes.c_int()
    assert runtime.cudaGetDeviceCount(ctypes.byref(count)) == 0 and count.value == 1  # as torch.cuda.is_available() asks
    timing = {}
    with marked_timer("step", timing):
        for name, size in PHASES.items():
            with marked_timer(name, timing, color="red"):
                ask(size)
                if name == dies:
                    raise RuntimeError("a worker is gone")
    assert timing == dict.fromkeys((*PHASES, "step"), 1), timing
    hired.stdin.close()
    assert hired.wait() == 0


def run(command, folder, *dies):
    environment = dict(os.environ, RUNTIME="libcudart.so.13", PYTHONPATH=str(folder))
    shown = folder / "run.json"
    done = subprocess.run(
        [command, "run", "--device", "h100-80g", "--stages", "verl.", f"--json={shown}", "--", sys.executable, __file__, "controller", *dies],
        env=environment,
        capture_output=True,
        text=True,
    )
    result = json.loads(shown.read_text())
    (device,) = result["devices"]
    return done, {each["name"]: each["peak_bytes"] for each in device["stages"]}, result["verdict"]["text"]


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def main(command):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        package = folder / "verl/utils/profiler"
        package.mkdir(parents=True)
        for each in "verl", "verl/utils", "verl/utils/profiler":
            (folder / each / "__init__.py").touch()
        (package / "performance.py").write_text(TIMER)

        done, stages, verdict = run(command, folder)
        check(done.returncode, 0, done.stderr)
        bare = stages["old_log_prob"] - 32 * MIB
        peaks = {"gen": 32, "old_log_prob": 32, "step": 128, "update_actor": 128, "update_weights": 128}
        check({each: (stages.get(each, 0) - bare) // MIB for each in peaks}, peaks, "peaks of verl's phases")
        check(verdict.startswith("fits, with "), True, verdict)

        done, stages, verdict = run(command, folder, "old_log_prob")
        check(done.returncode, 1, done.stderr)
        check({"gen", "old_log_prob", "step"} <= set(stages) and "update_actor" not in stages, True, stages)
        failed = "no verdict: the command failed with exit status 1; "
        check(re.sub(r"\S+\[\d+\]", "NAME[N]", verdict), failed + "NAME[N] failed first, in outside: exit status 1", "the verdict of a job that failed")
        # Marks alone are no use of a GPU.
        inside = "from verl.utils.profiler.performance import marked_timer\nwith marked_timer('gen', {}): pass"
        done = subprocess.run(
            [command, "run", "--stages", "verl.", "--", sys.executable, "-c", inside],
            env=dict(os.environ, PYTHONPATH=str(folder)),
            capture_output=True,
            text=True,
        )
        check(done.returncode, 2, done.stderr)
        check("no process of the command has used CUDA" in done.stderr, True, done.stderr)
    print("verl's phases are stages of its worker's device")


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker()
    elif sys.argv[1] == "controller":
        controller(sys.argv[2] if len(sys.argv) > 2 else None)
    else:
        main(*sys.argv[1:])
