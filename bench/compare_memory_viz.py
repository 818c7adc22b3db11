#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sets `reveille snapshot` against `python -m torch.cuda._memory_viz trace_plot` on the same file, in turns.

usage: compare_memory_viz.py REVEILLE FILE.pickle

Prints the best of 3 of each, their ratio, and the most memory that reveille took. Needs PyTorch: without it, status 77.
"""
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time


def seconds(words):
    begin = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main(command, path):
    ours = [command, "snapshot", "--json", path]
    best = [min(seconds(ours) for _ in range(3))]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"reveille: {best[0]:.3f} s, {peak / os.path.getsize(path):.2f} times the file's size in memory")
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: no comparison", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        theirs = [sys.executable, "-m", "torch.cuda._memory_viz", "trace_plot", path, "-o", f"{folder}/plot.html"]
        best.append(min(seconds(theirs) for _ in range(3)))
    print(f"trace_plot: {best[1]:.3f} s; ratio {best[1] / best[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
