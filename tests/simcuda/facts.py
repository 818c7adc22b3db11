#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares a simulated H200 with a card: facts.py REVEILLE FACTS CARD OWN.

FACTS is the program facts.c, ipc_facts.c or context_facts.c. CARD is its output on an H200 (driver 580, CUDA 13.0). OWN is its output
here for what was not run on a card: these results are those of CUDA's documentation. Each line begins with the question, up to the
colon. Known differences are listed here with both results, so that a change of either is detected.
"""

import os
import subprocess
import sys

# What each program is asked for, with the device, and the minimum number of results.
IPC = {"memory": "h200", "ends": "h200", "events": "h200", "files": "h200", "unmapped": "h200", "devices": "h200"}
FACTS = {"rules": "h200", "graphs": "h200", "objects": "h200", "cost": "h200", "streams": "h200",
         "implicit": "h200", "full": "1GiB",
         "pools": "h200", "managed": "h200", "arrays": "h200", "graph_pools": "h200", "orders": "h200", "modules": "h200"}  # fmt: skip
CONTEXTS = {"release": "h200", "reset": "h200", "destroy": "h200", "handles": "h200", "runtime": "h200"}
PROGRAMS = {"simcuda-facts": (FACTS, 100), "simcuda-ipc": (IPC, 80), "simcuda-contexts": (CONTEXTS, 60)}
A_MOMENT_LATER = "a card's copy from unpinned memory may arrive when the call has returned"
DIFFER = {
    "modules load no such instruction": "instructions are not read",
    "writes": A_MOMENT_LATER,
    "mapped writes": A_MOMENT_LATER,
    "open a destroyed event": "the card has it until its process ends",
}


def read(lines):
    """Question -> results in order: some questions are repeated."""
    asked = {}
    for line in lines:
        what, colon, answer = line.partition(":")
        if colon:
            asked.setdefault(what, []).append(answer.strip())
    return asked


def main():
    command, facts = sys.argv[1:3]
    simulated = {}
    parts, least = PROGRAMS[os.path.basename(facts)]
    for part, device in parts.items():
        gpus = "2" if part == "devices" else "1"
        done = subprocess.run([command, "run", "--device", device, "--gpus", gpus, "--", facts, part],
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        if done.returncode != 0:
            sys.exit(f"{part} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        simulated.update(read(done.stdout.splitlines()))
    known = {}
    for path in sys.argv[3:]:
        with open(path, encoding="utf-8") as file:
            known.update(read(file))
    differ = {what for what in DIFFER if what in known}
    wrong = 0
    for what, answers in known.items():
        same = simulated.get(what) == answers
        if same == (what in differ):
            print(f"{what}\n  expected:  {answers}\n  simulated: {simulated.get(what)}"
                  + (" (listed as different)" if same else ""))  # fmt: skip
            wrong += 1
    print(f"{len(known)} facts, {len(differ)} known to differ, {wrong} unexpected")
    if len(known) < least or wrong:
        sys.exit(1)


main()
