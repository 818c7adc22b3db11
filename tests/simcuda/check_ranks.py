#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A job of several ranks is checked against its own baseline again and again, and against a change in one rank: check_ranks.py COMMAND.

Here the ranks are this file, in turn two and four on two GPUs, in three stages for three steps. They run in another order each time, and
take more in each step.
"""
import ctypes
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20


def rank():
    driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
    driver.rvli_simulated_enter.restype = ctypes.c_uint64
    number, more = int(os.environ["RANK"]), int(os.environ.get("MORE", "0"))
    time.sleep(random.random() / 10)
    assert runtime.cudaSetDevice(number % 2) == 0
    for step in range(3):
        for stage, mib in ((b"forward", 4), (b"backward", 8), (b"optimizer", 2)):
            place = ctypes.c_uint64(driver.rvli_simulated_enter(stage))
            extra = more if number == 1 and stage == b"backward" else 0
            held, size = ctypes.c_void_p(), (mib * (number + 1) + 2 * step + extra) * MIB
            assert runtime.cudaMalloc(ctypes.byref(held), ctypes.c_size_t(size)) == 0
            assert runtime.cudaFree(held) == 0
            driver.rvli_simulated_leave(place)


def job(ranks):
    """The ranks of one GPU run one after another, so that their total is the same each time. The GPUs run in any order."""
    for first in range(0, ranks, 2):
        running = [subprocess.Popen([sys.executable, "-B", __file__, "--rank"], env={**os.environ, "RANK": str(number)})
                   for number in random.sample(range(first, first + 2), 2)]
        assert [each.wait() for each in running] == [0, 0]


def check(command, folder, ranks, *words, **environment):
    path = pathlib.Path(folder, "checks.json")
    path.write_text(json.dumps({"schema": 1, "baseline": "base.json", "tolerance_percent": 0, "checks": [
        {"name": "job", "command": [sys.executable, "-B", __file__, "--job", str(ranks)], "gpus": 2, "devices": "h200",
         "stages": "stage:"}]}))
    return subprocess.run([command, "check", *words, str(path)], capture_output=True, text=True,
                          env={**os.environ, **environment})


def main(command):
    for ranks, times in ((2, 3), (4, 20)):
        with tempfile.TemporaryDirectory() as folder:
            first = check(command, folder, ranks, "--update-baseline")
            assert first.returncode == 0, first
            stages = json.loads(pathlib.Path(folder, "base.json").read_text())["stages"]
            names = {(each["index"], each["stage"]) for each in stages if not each["stage"].startswith("start")}
            expected = {(each % 2, f"{name}[rank {each}]" if ranks > 2 else name)
                        for each in range(ranks) for name in ("forward", "backward", "optimizer")}
            assert names == expected, names
            for _ in range(times):
                done = check(command, folder, ranks)
                assert (done.returncode, done.stdout) == (0, first.stdout), (done.stdout, first.stdout)
            more = check(command, folder, ranks, MORE="6")
            named = "backward[rank 1]" if ranks > 2 else "backward"
            failed = [line for line in more.stdout.splitlines() if "ABOVE THE BASELINE" in line and "  start" not in line]
            assert more.returncode == 3 and len(failed) == 1 and named in failed[0], more.stdout


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank()
    elif sys.argv[1] == "--job":
        job(int(sys.argv[2]))
    else:
        main(sys.argv[1])
