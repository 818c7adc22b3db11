#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds `reveille model` against training that ran: the most that PyTorch allocated and reserved in the last step.

    training_truth.py REVEILLE

The programs are tests/simcuda/programs/train.py with FSDP2 on two ranks, bf16 and AdamW. card: two H200s; simulated: two
simulated ones, for programs that have not run on a card. terms: the formulas of docs/model.md added up, which is what `--given
cached=0` leaves. program: the step as a program, which is the default. Prints a table for docs/fidelity.md, and ends with 1
where the program is beyond its bounds.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, "..", "data", "configs")
TRUTH = os.path.join(HERE, "..", "simcuda", "truth")
# What it ran on, file of its readings, config, options.
PROGRAMS = [
    ("card", "train-qwen2.5-0.5b", "qwen2.5-0.5b", "--micro-batch 4 --seq-len 2048"),
    ("card", "train-qwen3-0.6b", "qwen3-0.6b", "--micro-batch 4 --seq-len 4096"),
    ("card", "train-llama-3.2-1b", "llama-3.2-1b", "--micro-batch 2 --seq-len 2048"),
    ("card", "train-qwen2.5-7b", "qwen2.5-7b", "--micro-batch 2 --seq-len 4096 --recompute --reshard"),
]
BOUNDS = {"max_allocated": 0.05, "max_reserved": 0.08}
MIB = 1 << 20


def holders(reveille, config, options, folder):
    """Bytes of the trainer at the peak of `train`, by tag."""
    trace = os.path.join(folder, "step.rvt")
    line = [reveille, "model", os.path.join(CONFIGS, f"{config}.json"), "--train", "fsdp:2", "--optimizer",
            "adamw-bf16", *options, "-o", trace]  # fmt: skip
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    said = subprocess.run([reveille, "replay", "--json", trace], stdout=subprocess.PIPE, check=False).stdout
    stages = {stage["name"]: stage for stage in json.loads(said)["devices"][0]["stages"]}
    return {row["tag"]: row["bytes"] for row in stages["train"]["at_peak"] if row["process"] == "trainer"}


def predict(reveille, config, options, folder):
    """What is allocated and reserved, of which the cache is the difference."""
    held = holders(reveille, config, options, folder)
    reserved = sum(held.values())
    return {"max_allocated": reserved - held.get("cached", 0), "max_reserved": reserved}


def read(name):
    with open(os.path.join(TRUTH, f"{name}.json"), encoding="utf-8") as file:
        return json.load(file)["step2"]["end"]


def cell(predicted, truth):
    return f"{predicted / MIB:.0f} ({(predicted / truth - 1) * 100:+.2f} %)"


def main():
    reveille = os.path.abspath(sys.argv[1])
    beyond = []
    for what, bound in BOUNDS.items():
        print(f"\n| {what.replace('max_', 'peak ')}, MiB | terms | program | read | on |\n| --- | --- | --- | --- | --- |")
        for on, name, config, options in PROGRAMS:
            truth = read(name)[what]
            with tempfile.TemporaryDirectory() as folder:
                terms = predict(reveille, config, [*options.split(), "--given", "cached=0"], folder)[what]
                program = predict(reveille, config, options.split(), folder)[what]
            print(f"| {config} {options} | {cell(terms, truth)} | {cell(program, truth)} | {truth / MIB:.0f} | {on} |")
            if abs(program / truth - 1) > bound:
                beyond.append(f"{config} {options}: {what} is {program}, and was {truth}")
    if beyond:
        sys.exit("\n".join(beyond))


if __name__ == "__main__":
    main()
