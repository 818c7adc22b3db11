# SPDX-License-Identifier: MIT
"""Predicts FSDP2 training in three ways, and compares with a card: formula, snapshot, simulated run. Prints two tables.

    four_ways.py REVEILLE [--keep FOLDER] [--only NAME]...

formula: `reveille model` with the config only; the trainer's share of stage `train`. simulated: programs/train.py on two simulated
H200s. snapshot: `reveille replay` of the snapshot that PyTorch made there. card: truth/, two H200s. REVEILLE is a build with the headers
of this Python's PyTorch (torch.sh makes it). Needs PyTorch and transformers. The exit status is 1 if the simulated run differs from the
card by more than the limits.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, "..", "data", "configs")
# Name of the truth: config, and the options of both the formula and the program.
CASES = {
    "qwen2.5-0.5b": ["--micro-batch", "4", "--seq-len", "2048"],
    "qwen3-0.6b": ["--micro-batch", "4", "--seq-len", "4096"],
    "llama-3.2-1b": ["--micro-batch", "2", "--seq-len", "2048"],
    "qwen2.5-7b": ["--micro-batch", "2", "--seq-len", "4096", "--recompute", "--reshard"],
}
LAST = "step2"  # the first step has no optimizer state yet
MIB = 1 << 20
BOUNDS = {"max_allocated": 0.005, "max_reserved": 0.01}


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: ended with {done.returncode}\n{done.stderr[-4000:]}")
    return done.stdout


def last_stage(reveille, path, name):
    """The last stage with that name in a trace or snapshot."""
    stages = json.loads(run(reveille, "replay", "--json", path))["devices"][0]["stages"]
    return [stage for stage in stages if stage["name"].split("#")[0] == name][-1]


def formula(reveille, config, options, folder):
    """Bytes of the trainer at the peak of `train`, without the driver's share: allocated, reserved."""
    trace = os.path.join(folder, "formula.rvt")
    run(reveille, "model", config, "--train", "fsdp:2", "--optimizer", "adamw-bf16", *options, "-o", trace)
    holders = last_stage(reveille, trace, "train")["at_peak"]
    held = {holder["tag"]: holder["bytes"] for holder in holders if holder["process"] == "trainer"}
    return sum(held.values()) - held.get("cached", 0), sum(held.values())


def simulated(reveille, config, options, folder):
    """What the program measured in its last step, and the path of its snapshot."""
    out, snapshot = (os.path.join(folder, name) for name in ("read.json", "snapshot.pickle"))
    run(reveille, "run", "--device", "h200", "--gpus", "2", "--", sys.executable, "-m", "torch.distributed.run",
        "--standalone", "--nproc-per-node", "2", os.path.join(HERE, "programs", "train.py"), config,
        *options, "--out", out, "--snapshot", snapshot)
    with open(out, encoding="utf-8") as file:
        return json.load(file), snapshot


def truth(name):
    with open(os.path.join(HERE, "truth", f"train-{name}.json"), encoding="utf-8") as file:
        return json.load(file)


def cell(bytes_, card):
    return f"{bytes_ / MIB:.0f} ({(bytes_ / card - 1) * 100:+.1f} %)"


def out_of_bounds(name, read):
    """Descriptions of what differs too much from the card: every part of every step is compared."""
    card, found = truth(name), []
    for stage in [key for key in card if key.startswith("step")]:
        for part, values in card[stage].items():
            for what, bound in BOUNDS.items():
                apart = read[stage][part][what] / values[what] - 1
                if abs(apart) > bound:
                    found.append(f"{name}, {stage}, {part}: {what} is {apart * 100:+.2f} % off the card's")
    return found


def row(reveille, name, folder):
    """A row of each table, and what exceeds the limits."""
    config = os.path.join(CONFIGS, f"{name}.json")
    card = truth(name)[LAST]["end"]
    allocated, reserved = formula(reveille, config, CASES[name], folder)
    read, snapshot = simulated(reveille, config, CASES[name], folder)
    replayed = last_stage(reveille, snapshot, "train")["peak_bytes"]
    ours, wanted = read[LAST]["end"], (card["max_allocated"], card["max_reserved"])
    program = " ".join([name, *CASES[name]])
    lines = (f"| {program} | {cell(allocated, wanted[0])} | {cell(ours['max_allocated'], wanted[0])} | {wanted[0] / MIB:.0f} |",
            f"| {program} | {cell(reserved, wanted[1])} | {cell(replayed, wanted[1])} | {cell(ours['max_reserved'], wanted[1])} "
            f"| {wanted[1] / MIB:.0f} |",
            f"| {program} | {cell(ours['used'], card['used'])} | {card['used'] / MIB:.0f} |")
    return lines, out_of_bounds(name, read)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reveille", type=os.path.abspath)
    parser.add_argument("--keep", help="where what was made stays (default: nowhere)")
    parser.add_argument("--only", action="append", choices=sorted(CASES), metavar="NAME")
    options = parser.parse_args()
    rows, apart = [], []
    for name in options.only or CASES:
        with tempfile.TemporaryDirectory() as own:
            folder = os.path.join(options.keep, name) if options.keep else own
            os.makedirs(folder, exist_ok=True)
            lines, found = row(options.reveille, name, folder)
            rows.append(lines)
            apart += found
    titles = ("| peak allocated, MiB | formula | simulated | card |", "| peak reserved, MiB | formula | snapshot | simulated | card |",
              "| in use at the end, MiB | simulated | card |")
    for title, lines in zip(titles, zip(*rows)):
        print("\n".join([title, "| " + " | ".join(["---"] * (title.count("|") - 1)) + " |", *lines, ""]))
    if apart:
        sys.exit("\n".join(apart))


if __name__ == "__main__":
    main()
