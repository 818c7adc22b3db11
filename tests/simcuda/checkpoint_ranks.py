# SPDX-License-Identifier: MIT
"""Connected ranks and the process checkpoint on two simulated GPUs, by the program that asks cards: what comes back, and that both are empty.

usage: checkpoint_ranks.py COMMAND PROGRAM
"""

import json
import subprocess
import sys

# What is open in the importer while it sleeps never comes back.
LOST = {"ipc_open_both", "ipc_open_exporter_first", "vmm_open_exporter_first"}
ALL_SLEEP = "nccl_"  # these cases take all ranks off at once, except for the two below
SOME_SLEEP = ("nccl_suspended_one_by_one", "nccl_suspended_one_sleeps")


def main():
    command, program = sys.argv[1:3]
    words = [command, "run", "--gpus", "2", "--device", "h100-80g", "--keep-contents", "128MiB", "--", sys.executable, program]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    facts = [json.loads(line) for line in said if line.startswith("{")]
    ends = {fact["case"]: fact for fact in facts if "back" in fact and "case" in fact}
    lost = {name for name, fact in ends.items() if not fact["back"]}
    assert len(ends) > 20 and lost == LOST, [ends[name] for name in lost ^ LOST]
    for name, fact in ends.items():
        assert not any(fact["before_mib"] + fact["after_mib"]), fact
    asleep = [fact for fact in facts if fact.get("call") == "Checkpoint" and fact["case"].startswith(ALL_SLEEP)
              and fact["case"] not in SOME_SLEEP]  # fmt: skip
    assert len(asleep) > 12 and all(fact["used_mib"] == [0, 0] for fact in asleep), asleep
    print(len(ends), "cases,", len(lost), "lost as on a card;", len(asleep), "sleeps with nothing on either card")


main()
