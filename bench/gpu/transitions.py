#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds a profile against the card it was measured on: every transition of every trace.

    bench/gpu/transitions.py REVEILLE CARD.json OUT.json [--seconds N] [--again OLD.json]
                             [--time-tolerance SHARE] TRACE...

Every pause and resume of a trace gets a stage of its own, so that a stage's time is a transition's.
Each trace is replayed on the card, and on the profile; OUT.json keeps both. With --again the card is not
asked: what it answered is taken from OLD.json. A table is printed. Exit status 1 if a peak
differs by more than 0.1 %, or a transition of more than 5 ms by more than 15 %.

Before each resume the card has 400 ms: what the driver clears in between is not predicted. External
bytes are taken off the prediction: on the card nobody holds them. --seconds: no replay begins later.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

PEAK_TOLERANCE = 0.001
TIME_TOLERANCE = 0.15
TIME_COUNTS_S = 0.005
SETTLE_MS = 400


def split(path, folder):
    """The trace with a stage for each transition, marked by the process that marks first."""
    lines = open(path, encoding="utf-8").read().split("\n")
    conductor = next(line.split()[2] for line in lines if line.startswith("stage "))
    out, count = [], 0
    for line in lines:
        words = line.split()
        if words and words[0] in ("pause", "resume"):
            count += 1
            tag = words[4] if len(words) > 4 else "untagged"
            out.append(f"stage {words[1]} {conductor} 0 {count:03d}-{words[0]}-{words[2]}-{tag}")
        elif words and words[0] == "end":
            line = f"end {int(words[1]) + count}"
        out.append(line)
    made = os.path.join(folder, os.path.basename(path))
    with open(made, "w", encoding="utf-8") as file:
        file.write("\n".join(out))
    return made


def replay(command, trace, options, timeout_s):
    try:
        result = subprocess.run([command, "replay", "--json", *options, trace], capture_output=True, text=True,
                                check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return None, "took too long"
    if result.returncode not in (0, 3) or not result.stdout.startswith("{"):
        return None, result.stderr.strip() or f"exit status {result.returncode}"
    return json.loads(result.stdout)["devices"][0], ""


def external_bytes(stage):
    """Of causes that the trace has: the driver's records of pinned memory are there on the card, too."""
    return sum(held["bytes"] for held in stage["at_peak"]
               if held["process"] == "external" and held["tag"] != "pinned host memory")


def ours_of(device):
    return [{"name": stage["name"], "peak_bytes": stage["peak_bytes"] - external_bytes(stage),
             "seconds": stage["seconds"]} for stage in device["stages"]]


def real_of(device):
    return [{"name": stage["name"], "peak_bytes": stage["measured_peak_bytes"], "seconds": stage["seconds"]}
            for stage in device["stages"]]


def share(ours, real):
    return (ours - real) / real if real else 0.0


def write(path, answers):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(answers, file, indent=1)


def measure(arguments, folder):
    """What the card answers, as {trace: {"real": [stages]}} or {"why": text}."""
    began = time.monotonic()
    answers = {}
    for path in arguments.trace:
        name = os.path.basename(path)
        if arguments.seconds and time.monotonic() - began > arguments.seconds:
            answers[name] = {"why": "no time was left"}
            continue
        device, why = replay(arguments.reveille, split(path, folder),
                             ["--backend", "cuda", "--settle", str(SETTLE_MS)], 60)
        answers[name] = {"real": real_of(device)} if device else {"why": why}
        write(arguments.out, answers)  # what there is stays if this is ended
    return answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reveille")
    parser.add_argument("card")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--again")
    parser.add_argument("--time-tolerance", type=float, default=TIME_TOLERANCE)
    parser.add_argument("trace", nargs="+")
    arguments = parser.parse_args()
    worst_peak = worst_time = 0.0
    with tempfile.TemporaryDirectory() as folder:
        if arguments.again:
            answers = json.load(open(arguments.again, encoding="utf-8"))
        else:
            answers = measure(arguments, folder)
        print("| trace | transition | predicted bytes | measured bytes | | predicted ms | measured ms | |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for path in arguments.trace:
            answer = answers.get(os.path.basename(path), {"why": "was not asked"})
            device, why = replay(arguments.reveille, split(path, folder), ["--device", arguments.card], 60)
            if "real" not in answer or device is None:
                print(f"| {os.path.basename(path)} | not compared: {answer.get('why') or why} | | | | | | |")
                continue
            answer["ours"] = ours_of(device)
            for ours, real in zip(answer["ours"], answer["real"]):
                peak = share(ours["peak_bytes"], real["peak_bytes"])
                took = share(ours["seconds"], real["seconds"])
                worst_peak = max(worst_peak, abs(peak))
                counts = max(ours["seconds"], real["seconds"]) > TIME_COUNTS_S
                worst_time = max(worst_time, abs(took)) if counts else worst_time
                print(f"| {os.path.basename(path)} | {ours['name']} | {ours['peak_bytes']} | {real['peak_bytes']} "
                      f"| {peak:+.4%} | {ours['seconds'] * 1e3:.2f} | {real['seconds'] * 1e3:.2f} "
                      f"| {f'{took:+.1%}' if counts else ''} |")
    write(arguments.out, answers)
    print(f"\nworst difference of a peak: {worst_peak:.4%}; of a transition over 5 ms: {worst_time:.1%}")
    return 1 if worst_peak > PEAK_TOLERANCE or worst_time > arguments.time_tolerance else 0


sys.exit(main())
