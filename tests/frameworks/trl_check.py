# SPDX-License-Identifier: MIT
"""Checks the results of trl_grpo.py: trl_check.py SAID.json RUN.json [vllm], from the trainer and from `reveille run`."""

import json
import math
import sys

import torch
from trl_grpo import GENERATIONS, NEW_TOKENS, PROMPT_WORDS, STEPS, model

PHASES = {"_prepare_inputs", "_calculate_rewards", "compute_loss"}
GENERATED_BY = {True: {"vLLM.generate", "sync_weights"}, False: {"transformers.generate"}}


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def check_memory(holders):
    """Weights of the policy and of the reference, gradients, and Adam's two moments with a step for each parameter. An engine sleeps."""
    with torch.device("meta"):
        made = model()
    parameters, buffers = ([each.nbytes for each in kind()] for kind in (made.parameters, made.buffers))
    expected = {
        "weights": 2 * sum(parameters) + 2 * sum(buffers),
        "gradients": sum(parameters),
        "optimizer": 2 * sum(parameters) + 4 * len(parameters),
    }
    (last,) = (each["at_peak"] for each in holders if each["stage"].startswith("outside"))
    found = {each["tag"]: each["bytes"] for each in last if each["tag"] in expected}
    check(found, expected, "what the optimizer's step holds")


def check_engine(device, engines):
    """The engine is awake while it generates, and holds nothing while the trainer works."""
    (engine,) = engines
    for stage, awake in ("vLLM.generate", True), ("compute_loss", False):
        peaks = [each["peak_bytes"] for each in device["stages"] if each["name"].split("#")[0] == stage]
        check(len(peaks), STEPS, stage)
        check([each > engine["kv_cache_bytes"] for each in peaks], STEPS * [awake], f"the KV cache is there in {stage}")


def main():
    with open(sys.argv[1]) as said, open(sys.argv[2]) as run:
        log, shown = json.load(said), json.load(run)
    steps = [each for each in log if "completions/mean_length" in each]
    check(len(steps), STEPS, "steps")
    for i, step in enumerate(steps):
        for name in "mean", "min", "max":  # no sequence ends by itself, so each has the maximum length
            check(float(step[f"completions/{name}_length"]), float(NEW_TOKENS), f"{name} length of step {i}")
        check(float(step["reward"]), float(NEW_TOKENS), f"words of a completion in step {i}")
        check([name for name, number in step.items() if not math.isfinite(float(number))], [], f"numbers of step {i} that are not finite")
        read = (i + 1) * GENERATIONS * (PROMPT_WORDS + NEW_TOKENS)
        check(float(step["num_tokens"]), float(read), f"tokens up to step {i}")
    (device,) = shown["devices"]
    stages = {each["name"].split("#")[0] for each in device["stages"]}
    with_engine = "vllm" in sys.argv[3:]
    check((PHASES | GENERATED_BY[with_engine]) - stages, set(), "phases of TRL that are no stages")
    check_memory(shown["holders"])
    if with_engine:
        check_engine(device, shown["engines"])
    check(shown["verdict"]["text"].startswith("fits, with "), True, shown["verdict"])
    print(f"TRL made {STEPS} steps of GRPO, each completion with {NEW_TOKENS} tokens")


main()
