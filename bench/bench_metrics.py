#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What watching costs: reveille.metrics(), and what the counters add to a pause. bench/bench_metrics.py [CALLS]

On simulated memory without content, so that nothing is copied. The least of CALLS calls: other programs only add.
PYTHONPATH and RVL_LIBRARY_DIR name the package and a release build. Nothing of it is a test.
"""

import sys
import time

import reveille
from reveille import _watch

ROWS = ((1, 1), (10, 100), (100, 100), (100, 1))  # tags, allocations of each
DEFAULT_CALLS = 300


def least_us(calls, what):
    """The shortest of so many calls."""
    best = None
    for _ in range(calls):
        begin = time.perf_counter_ns()
        what()
        took = time.perf_counter_ns() - begin
        best = took if best is None else min(best, took)
    return best / 1e3


def watch(context, tag):
    """All that is counted around a move, around nothing."""
    with _watch.MOVES.watch("pause", [tag], lambda: context._reading([tag])):
        pass


def measure(tags, allocations, calls):
    with reveille.Context("sim", devices="140GiB", memory="accounted") as gpu:
        names = [f"tag{number}" for number in range(tags)]
        for name in names:
            for _ in range(allocations):
                gpu.alloc("2MiB", name)
        gpu.pause(names[0])
        found = {each.tag: each for each in reveille.metrics().tags}
        assert len(found) == tags and found[names[0]].paused_bytes == allocations << 21
        states = [found[names[0]].state, found[names[-1]].state]
        assert states == ["paused", "paused" if tags == 1 else "active"]
        return least_us(calls, reveille.metrics), least_us(calls, lambda: watch(gpu, names[0]))


def main():
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_CALLS
    print(f"Python {sys.version.split()[0]}, least of {calls} calls")
    print("tags  allocations  metrics() us  around a pause us")
    for tags, allocations in ROWS:
        snapshot, around = measure(tags, allocations, calls)
        print(f"{tags:4}  {tags * allocations:11}  {snapshot:12.1f}  {around:17.1f}")


if __name__ == "__main__":
    main()
