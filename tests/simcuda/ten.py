#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The table of programs in docs/run.md: ten.py COMMAND [NAME]...

COMMAND is `reveille`. This Python has PyTorch, Ray for the program with actors, and vLLM for the engine. Each program of `ten` runs
once. The exit status is 1 if one ends differently than expected.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TORCHRUN = "torchrun --standalone --nproc-per-node"
# No network, and vLLM's own sampler, since the other one is compiled at its first use.
VLLM = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
PROGRAMS = {  # description, options of `reveille run`, command, exit status, beginning of the verdict
    "train": ("a GPT, batch 96: dies in its backward pass", "--device h100-80g", "python train.py --batch 96", 1, "out of memory: "),
    "leak": ("keeps every step's graph: dies", "--device h100-80g", "python leak.py", 1, "out of memory: "),
    "generate": ("a cache that grows by `torch.cat()`: dies", "--device h100-80g", "python generate.py", 1, "out of memory: "),
    "halve": ("halves its batch until it fits", "--device l4", "python halve.py", 0, "fits after 4 refusals that the program survived"),
    "swallow": ("skips what does not fit, without a word", "--device a100-40g", "python swallow.py", 0,
                "fits after 2 refusals that the program survived"),
    "ddp": ("DDP, four ranks", "--device h100-80g --gpus 4 --stages stage:", TORCHRUN + " 4 ddp.py", 0, "fits, with "),
    "fsdp": ("FSDP2, four ranks", "--device h100-80g --gpus 4 --stages stage:", TORCHRUN + " 4 fsdp.py", 0, "fits, with "),
    "lost": ("DDP, two ranks, one is killed", "--device h100-80g --gpus 2", TORCHRUN + " 2 lost.py", 1,
             "no verdict: the command failed with exit status 1; python[rank 1] failed first, in run: killed, crashed"),
    "ray": ("two actors of Ray", "--device l4 --gpus 2", "python actors.py", 0, "fits, with "),
    "vllm": ("an engine of vLLM that sleeps and wakes", "--device h100-80g", "python engine.py", 0, "fits, with "),
    "snapshot": ("records its history itself, with default stacks", "--device h100-80g", "python recorded.py run.pickle", 0, "fits, with "),
}


def run(command, name, python):
    _, options, line, _, _ = PROGRAMS[name]
    run_by = {"python": [python], "torchrun": [python, "-m", "torch.distributed.run"]}
    words = [each for word in line.split() for each in run_by.get(word, [word])]
    words = [os.path.join(HERE, "ten", word) if word.endswith(".py") else word for word in words]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([command, "run", *options.split(), "--", *words], cwd=folder, capture_output=True, text=True, env={**VLLM, **os.environ})
    return done, time.monotonic() - begun


def rows_of(said):
    """The number of rows for stages and holders in the last table."""
    lines = said.splitlines()
    begin = next((i for i, line in enumerate(lines) if re.match(r"devices? \d", line)), len(lines))
    return len([line for line in lines[begin:] if re.match(r"\s+\S", line) and not re.match(r"\s+(stage|held)\s", line)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", type=os.path.abspath)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--texts", metavar="FOLDER", help="where all that is printed goes")
    options = parser.parse_intermixed_args()
    wrong = []
    print("| program | `reveille run` | the last line | rows | seconds |\n| --- | --- | --- | --- | --- |")
    for name in options.names or PROGRAMS:
        what, asked, line, status, begins = PROGRAMS[name]
        done, seconds = run(options.command, name, sys.executable)
        if options.texts:
            with open(os.path.join(options.texts, name + ".txt"), "w", encoding="utf-8") as file:
                file.write(done.stdout + "\n--- stderr ---\n" + done.stderr)
        verdict = (done.stdout.splitlines() or [""])[-1]
        if done.returncode != status or not verdict.startswith(begins):
            wrong.append(f"{name}: exit status {done.returncode}: {verdict}\n{done.stderr[-2000:]}")
        print(f"| {what} | `{asked} -- {line}` | `{verdict}` | {rows_of(done.stdout)} | {seconds:.0f} |", flush=True)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
