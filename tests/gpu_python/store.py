# SPDX-License-Identifier: MIT
"""Processes of a node with the same content: host memory that they take, and rates, with a store or without.

    reveille store /tmp/store.sock &
    REVEILLE_STORE=/tmp/store.sock python -m torch.distributed.run --nproc-per-node 2 store.py NAME GIB [ROUNDS]

NAME is cuda, or sim for simulated devices, where times mean nothing. Ranks use the GPUs in turn, so one is enough.
Without REVEILLE_STORE every process keeps its own backup. Prints one line of JSON on rank 0.
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


def measure(memory: Cards | Simulated, rounds: int) -> dict[str, Any]:
    """Seconds of pauses and resumes of this rank, all ranks at once."""
    found: dict[str, Any] = {"pause_s": [], "resume_s": [], "right": True}
    before = at_node()
    for _ in range(rounds):
        memory.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        memory.pause(None)
        found["pause_s"].append(time.perf_counter() - begin)
        found["node_bytes"] = at_node() - before
        found["own_host_bytes"] = memory.host_bytes()
        found["stores"] = [vars(each) for each in reveille.metrics().stores]
        time.sleep(SETTLE_S)
        dist.barrier()
        begin = time.perf_counter()
        memory.resume(None, False)
        found["resume_s"].append(time.perf_counter() - begin)
        found["right"] = found["right"] and memory.is_right()
    return found


def main() -> None:
    name, size = sys.argv[1], int(float(sys.argv[2]) * 1024 * MIB)
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    dist.init_process_group("gloo")
    memory = Cards(size) if name == "cuda" else Simulated(size)
    own = measure(memory, rounds)
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
