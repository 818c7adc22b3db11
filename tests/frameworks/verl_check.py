# SPDX-License-Identifier: MIT
"""Checks the results of verl.sh: verl_check.py SAID.jsonl RUN.json GPUS STEPS TOKENS, from verl's own metrics and from `reveille run`."""

import json
import sys

PROMPTS, GENERATIONS = 8, 4  # of examples/ci/verl/job.sh
PROMPT_TOKENS = 30  # a token for each byte, and the marks of the template
PHASES = {"step", "gen", "old_log_prob", "ref", "adv", "update_actor", "update_weights"}


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def check_step(step, new_tokens):
    said = step["data"]
    for name in "mean", "min", "max":  # no sequence ends by itself, so each has the maximum length
        check(said[f"response_length/{name}"], new_tokens, f"{name} length of an answer in step {step['step']}")
        check(said[f"prompt_length/{name}"], PROMPT_TOKENS, f"{name} length of a prompt in step {step['step']}")
        check(said[f"critic/score/{name}"], new_tokens, f"{name} words of an answer in step {step['step']}")
    tokens = PROMPTS * GENERATIONS * (PROMPT_TOKENS + new_tokens)
    check(said["perf/total_num_tokens"], tokens, f"tokens of step {step['step']}")


def main():
    gpus, count, new_tokens = map(int, sys.argv[3:])
    with open(sys.argv[1]) as said, open(sys.argv[2]) as run:
        steps, shown = [json.loads(line) for line in said], json.load(run)
    check([each["step"] for each in steps], list(range(1, count + 1)), "steps")
    for step in steps:
        check_step(step, new_tokens)
    check(len(shown["devices"]), gpus, "devices")
    for device in shown["devices"]:
        stages = {each["name"].split("#")[0] for each in device["stages"]}
        check(PHASES - stages, set(), "phases of verl that are no stages")
    check(shown["verdict"]["text"].startswith("fits, with "), True, shown["verdict"])
    print(f"verl made {count} steps of GRPO, each answer with {new_tokens} tokens")


main()
