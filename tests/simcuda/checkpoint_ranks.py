# SPDX-License-Identifier: MIT
"""Connected ranks and the process checkpoint on two simulated GPUs: the program that was run on two H100s, and what can be restored there.

usage: checkpoint_ranks.py COMMAND PROGRAM RECORDED
"""

import json
import subprocess
import sys

# The simulated NCCL has one way from card to card: the other card's memory. On cards there are more.
OTHER_WAYS = {"nccl_alive_through_host_by_files", "nccl_alive_through_sockets", "nccl_suspended_through_host"}
# After a wake, the card's driver does not export earlier memory through cuIpcOpenMemHandle(): it returns 800, or 400 for an older handle.
GIVEN_AGAIN = {"ipc_closed", "ipc_same_handle"}
# On a card, an importer that stays awake keeps the memory as it was when the exporter left. Here it sees the exporter's memory.
KEPT = {"ipc_open_exporter_alone"}
NOT_SIMULATED = OTHER_WAYS | GIVEN_AGAIN | KEPT
SOME_SLEEP = ("nccl_suspended_one_by_one", "nccl_suspended_one_sleeps")  # not all ranks at once


def ends(facts):
    return {fact["case"]: fact for fact in facts if "case" in fact and "back" in fact}


def main():
    command, program, recorded = sys.argv[1:4]
    card = ends(json.loads(line) for line in open(recorded, encoding="utf-8"))
    words = [command, "run", "--gpus", "2", "--device", "h100-80g", "--keep-contents", "128MiB", "--", sys.executable, program, *card]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    facts = [json.loads(line) for line in said if line.startswith("{")]
    here = ends(facts)
    assert len(card) > 20 and list(here) == list(card), (sorted(card), sorted(here))
    for name, fact in here.items():
        assert not any(fact["before_mib"] + fact["after_mib"]), fact
        assert (fact["back"] == card[name]["back"]) != (name in NOT_SIMULATED), (fact, card[name])
    asleep = [fact for fact in facts if fact.get("call") == "Checkpoint" and fact["case"].startswith("nccl_")
              and fact["case"] not in SOME_SLEEP]  # fmt: skip
    assert len(asleep) > 12 and all(fact["used_mib"] == [0, 0] for fact in asleep), asleep
    print(len(here) - len(NOT_SIMULATED), "cases end as on the cards;", len(asleep), "sleeps with nothing on either")


main()
