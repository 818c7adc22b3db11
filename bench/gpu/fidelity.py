#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the simulator against a real device: replays each trace on both, and prints a table.

    bench/gpu/fidelity.py REVEILLE TRACE...

Half a second lies between what one stage releases and the next resumes, as there does in a run: what
the driver clears in between is not predicted. The prediction's external bytes are taken off: on the
real device nobody holds them. Exit status 1 if a peak differs by more than 0.1 %.
"""
import json
import os
import subprocess
import sys

TOLERANCE = 0.001


def replay(command, trace, backend):
    settle = ["--settle", "500"] if backend == "cuda" else []  # a simulated device clears by itself
    result = subprocess.run([command, "replay", "--json", "--backend", backend, *settle, trace],
                            capture_output=True, text=True, check=False)
    if result.returncode not in (0, 3):
        sys.exit(f"{trace} on {backend}: {result.stderr.strip()}")
    return json.loads(result.stdout)["devices"][0]


def external_bytes(stage):
    return sum(held["bytes"] for held in stage["at_peak"]
               if held["process"] == "external" and held["tag"] != "pinned host memory")


def main():
    command, traces = sys.argv[1], sys.argv[2:]
    worst = 0.0
    print("| trace | stage | predicted bytes | measured bytes | difference | predicted s | measured s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for trace in traces:
        predicted = replay(command, trace, "sim")
        if not predicted["fits"]:
            print(f"| {os.path.basename(trace)} | does not fit: not run | | | | | |")
            continue
        measured = replay(command, trace, "cuda")
        for ours, real in zip(predicted["stages"], measured["stages"]):
            ours_bytes = ours["peak_bytes"] - external_bytes(ours)
            real_bytes = real["measured_peak_bytes"]
            difference = abs(real_bytes - ours_bytes) / max(ours_bytes, 1)
            worst = max(worst, difference)
            print(f"| {os.path.basename(trace)} | {ours['name']} | {ours_bytes} | {real_bytes} "
                  f"| {difference:.5%} | {ours['seconds']:.4f} | {real['seconds']:.4f} |")
    print(f"\nworst difference of a peak: {worst:.5%}")
    return 1 if worst > TOLERANCE else 0


sys.exit(main())
