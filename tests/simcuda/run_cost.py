#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cost of `reveille run` in addition to simulated calls, in pairs: run_cost.py COMMAND [--rounds N] [NAME=COMMAND LINE]...

COMMAND is `reveille`. Each program runs in turn in three ways: normally, with `--attribution=off`, and with `--keep-contents 0
--attribution=off`. Prints medians of CPU time, which other work on the machine changes little, and their ratios to the last way; and the
median of the ratios of pairs.
"""
import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TORCHRUN = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"
PROGRAMS = {
    "small tensors": f"{sys.executable} {HERE}/ten/small.py",
    "FSDP2 on two ranks": f"{TORCHRUN} {HERE}/ten/fsdp.py",
}
WAYS = {"run": [], "without attribution": ["--attribution=off"], "neither": ["--attribution=off", "--keep-contents", "0"]}


def cpu_seconds(arguments):
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", type=os.path.abspath)
    parser.add_argument("programs", nargs="*", metavar="NAME=COMMAND LINE")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_intermixed_args()
    programs = dict(each.split("=", 1) for each in options.programs) or PROGRAMS
    print("| program | " + " | ".join(f"{way}, s" for way in WAYS) + " | run, times | attribution, times |\n| --- |" + " --- |" * 5)
    for name, line in programs.items():
        seen = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, more in WAYS.items():
                seen[way].append(cpu_seconds([options.command, "run", "--gpus", "2", *more, "--", *shlex.split(line)])[0])
        row = " | ".join(f"{statistics.median(each):.2f}" for each in seen.values())
        pairs = [statistics.median(a / b for a, b in zip(seen["run"], seen[other])) for other in ("neither", "without attribution")]
        print(f"| {name} | {row} | {pairs[0]:.2f} | {pairs[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
