# SPDX-License-Identifier: MIT
"""Processes of a node with the same content: host memory that they take, and rates, with a store or without.

    reveille store /tmp/store.sock &
    REVEILLE_STORE=/tmp/store.sock python -m torch.distributed.run --nproc-per-node 2 store.py NAME GIB [ROUNDS]

NAME is cuda, or sim for simulated devices, where times mean nothing. Ranks use the GPUs in turn, so one is enough.
Without REVEILLE_STORE every process keeps its own backup. Prints one line of JSON on rank 0.

First they pause one after the other, so that the later ones find their content in the store; once all are paused, the last one resumes and
pauses again. Then all pause at the same moment. Bytes that were copied are those that left the device.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import reveille
import torch.distributed as dist

from links import MIB, Cards, Simulated

SETTLE_S = 0.3  # the driver clears what was released


def node_bytes() -> int:
    """Host memory of this machine that is in use, as the kernel counts it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        kib = {words[0].rstrip(":"): int(words[1]) for words in map(str.split, file)}
    return (kib["MemTotal"] - kib["MemAvailable"]) * 1024


def at_node() -> int:
    """The same, read between two barriers: the same moment for all ranks."""
    dist.barrier()
    used = node_bytes()
    dist.barrier()
    return used


def copied_bytes(memory: Cards | Simulated) -> int:
    """What pauses of this process have copied from the device so far."""
    own = memory.context if isinstance(memory, Simulated) else reveille
    return sum(each.backup_out_bytes for each in own.stats().devices)


def timed_pause(memory: Cards | Simulated, found: dict[str, Any], name: str) -> None:
    memory.synchronize()
    before, begin = copied_bytes(memory), time.perf_counter()
    memory.pause(None)
    found.setdefault(f"{name}_s", []).append(time.perf_counter() - begin)
    found.setdefault(f"{name}_copied_bytes", []).append(copied_bytes(memory) - before)


def timed_resume(memory: Cards | Simulated, found: dict[str, Any], name: str) -> None:
    begin = time.perf_counter()
    memory.resume(None, False)
    found.setdefault(f"{name}_s", []).append(time.perf_counter() - begin)


def in_turn(memory: Cards | Simulated, rounds: int) -> dict[str, Any]:
    """Pauses and resumes of this rank, with no other under way."""
    found: dict[str, Any] = {"right": True}
    for _ in range(rounds):
        for turn in range(dist.get_world_size()):
            dist.barrier()
            if turn == dist.get_rank():
                timed_pause(memory, found, "pause")
        dist.barrier()
        if dist.get_rank() == dist.get_world_size() - 1:
            time.sleep(SETTLE_S)
            memory.resume(None, False)
            timed_pause(memory, found, "again")
        for turn in range(dist.get_world_size()):
            dist.barrier()
            time.sleep(SETTLE_S)
            if turn == dist.get_rank():
                timed_resume(memory, found, "resume")
        found["right"] = found["right"] and memory.is_right()
    return found


def at_once(memory: Cards | Simulated, rounds: int) -> dict[str, Any]:
    """Seconds of pauses and resumes of this rank, all ranks at once."""
    found: dict[str, Any] = {"pause_s": [], "resume_s": [], "right": True}
    before = at_node()
    for _ in range(rounds):
        memory.synchronize()
        dist.barrier()
        timed_pause(memory, found, "pause")
        found["node_bytes"] = at_node() - before
        found["own_host_bytes"] = memory.host_bytes()
        found["stores"] = [vars(each) for each in reveille.metrics().stores]
        time.sleep(SETTLE_S)
        dist.barrier()
        timed_resume(memory, found, "resume")
        found["right"] = found["right"] and memory.is_right()
    return found


def main() -> None:
    name, size = sys.argv[1], int(float(sys.argv[2]) * 1024 * MIB)
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    dist.init_process_group("gloo")
    memory = Cards(size) if name == "cuda" else Simulated(size)
    turns = in_turn(memory, rounds)
    own = at_once(memory, rounds) | {"in_turn": turns}
    own["right"] = own["right"] and turns["right"]
    own["first_pause_gb_per_s"] = size / own["pause_s"][0] / 1e9
    own["later_pause_gb_per_s"] = size / min(own["pause_s"][1:], default=own["pause_s"][0]) / 1e9
    own["resume_gb_per_s"] = size / min(own["resume_s"]) / 1e9
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    if dist.get_rank() == 0:
        store = "REVEILLE_STORE" in os.environ
        print(json.dumps({"name": name, "store": store, "bytes": size, "ranks": ranks}))
    dist.destroy_process_group()
    sys.exit(not all(rank["right"] for rank in ranks))


if __name__ == "__main__":
    main()
