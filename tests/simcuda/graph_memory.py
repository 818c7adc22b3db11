#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the memory of graphs on simulated GPUs with every measurement on a card: graph_memory.py REVEILLE PROGRAM RESULTS.

PROGRAM is bench/gpu/driver/graph_arguments.py. RESULTS is the folder with its output on cards (DATE-CARD/graph_*.jsonl). Prints each
measured value beside the simulated one, in MiB. Fails if they differ by more than BOUND_BYTES, or if there are fewer values than before.
"""

import glob
import json
import os
import subprocess
import sys

BOUND_BYTES = 0  # every value matches the card to the byte
READINGS = {"h200": 222, "h100": 96}
DEVICES = {"h200": "h200", "h100": "h100-80g"}
MIB = 1 << 20


def read(lines):
    """Parameters -> bytes taken."""
    readings = {}
    for row in map(json.loads, lines):
        asked = tuple(sorted((key, row[key]) for key in row if key not in ("instantiated", "launched")))
        readings.update({(asked, when): row[when] for when in ("instantiated", "launched") if when in row})
    return readings


def simulate(command, program, card, files):
    done = subprocess.run([command, "run", "--device", DEVICES[card], "--", sys.executable, program, "--again", *files],
                          capture_output=True, text=True, timeout=240)  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return read(line for line in done.stdout.splitlines() if line.startswith('{"part"'))


def describe(question):
    asked, when = question
    return ", ".join(f"{key} {value}" for key, value in asked if key != "part") + f", {when}"


def compare(card, measured, simulated):
    worst = 0
    print(f"{card}: MiB measured, simulated")
    for question, taken in measured.items():
        if question not in simulated:
            sys.exit(f"{describe(question)}: not answered on a simulated GPU")
        off = simulated[question] - taken
        worst = max(worst, abs(off))
        print(f"  {taken / MIB:5.0f} {simulated[question] / MIB:5.0f}  {describe(question)}"
              + (f"  <- off by {off} bytes" if abs(off) > BOUND_BYTES else ""))  # fmt: skip
    return worst


def main():
    command, program, results = sys.argv[1:]
    worst = 0
    for card, count in READINGS.items():
        files = sorted(glob.glob(os.path.join(results, f"*-{card}", "graph_*.jsonl")))
        measured = {}
        for path in files:
            with open(path, encoding="utf-8") as file:
                measured.update(read(file))
        if len(measured) < count:
            sys.exit(f"{card}: {len(measured)} readings, and there were {count}: {files}")
        worst = max(worst, compare(card, measured, simulate(command, program, card, files)))
    print(f"worst difference: {worst} bytes; bound {BOUND_BYTES}")
    if worst > BOUND_BYTES:
        sys.exit(1)


main()
