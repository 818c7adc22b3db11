# SPDX-License-Identifier: MIT
"""A program of torch_memory_saver with a rank on each GPU: all ranks move, or none.

    REVEILLE_AS_TORCH_MEMORY_SAVER=1 REVEILLE_COMMUNICATORS=1 PYTHONPATH=python/reveille/alias:python:$PYTHONPATH
        torchrun --nproc-per-node 2 saver_ranks.py [CYCLES]

With REVEILLE_TOGETHER=1 alone, communicators keep their memory. A line of JSON from rank 0, and exit status 0 if
all held: what a pause gave back beside the regions' memory, content and sums after each resume, and that no rank
moves where one has no room.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch_memory_saver import torch_memory_saver as saver

MIB = 1 << 20
WEIGHTS, CACHE = 256 * MIB, 512 * MIB
SPARE = 64 * MIB
SIMULATED = "REVEILLE_MACHINE" in os.environ


def free():
    """Of this rank's device; each rank has one for itself."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def total(rank):
    """What an all-reduce of the ranks' numbers comes to."""
    number = torch.full((1,), float(rank + 1), device="cuda")
    dist.all_reduce(number)
    return number.item()


def refused_for_all(rank, world):
    """The last rank fills its device: a resume moves no rank, and succeeds once there is room again."""
    filler = None
    if rank == world - 1:
        filler = torch.empty(free() - SPARE, dtype=torch.uint8, device="cuda")
    try:
        saver.resume()
    except RuntimeError as error:
        said = f"{type(error).__name__}: {error}"
    else:
        said = ""
    del filler
    torch.cuda.empty_cache()
    return said


def main():
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    expected = world * (world + 1) / 2
    assert type(saver).__module__.startswith("reveille"), type(saver)
    saver.hook_mode = "torch"
    assert total(rank) == expected
    with saver.region(tag="weights", enable_cpu_backup=True):
        weights = torch.empty(WEIGHTS, dtype=torch.uint8, device="cuda").fill_(rank + 7)
    with saver.region(tag="kv_cache"):
        cache = torch.empty(CACHE, dtype=torch.uint8, device="cuda")
    where = [weights.data_ptr(), cache.data_ptr()]
    awake, beside, seconds = free(), [], {"pause": [], "resume": []}
    for cycle in range(cycles):
        begun = time.perf_counter()
        saver.pause()
        seconds["pause"].append(round(time.perf_counter() - begun, 4))
        beside.append((free() - awake - WEIGHTS - CACHE) / MIB)
        if cycle == 0:
            said = refused_for_all(rank, world)
            assert "rank" in said, f"rank {rank}: resumed without room, or said {said!r}"
        begun = time.perf_counter()
        saver.resume()
        seconds["resume"].append(round(time.perf_counter() - begun, 4))
        assert where == [weights.data_ptr(), cache.data_ptr()]
        assert SIMULATED or bool((weights == rank + 7).all()), "content differs"
        assert total(rank) == expected, "a sum differs"
    back = (awake - free()) / MIB
    found = [None] * world
    dist.all_gather_object(found, {"beside_mib": beside, "missing_mib": back, "seconds": seconds, "refused": said})
    if rank == 0:
        asked = os.environ.get("REVEILLE_COMMUNICATORS") == "1"
        print(json.dumps({"part": "saver_ranks", "communicators": asked, "nccl": torch.cuda.nccl.version(), "ranks": found}))
        for each in found:
            given = min(each["beside_mib"])
            assert (given >= 400) if asked else (abs(given) <= 64), f"beside the regions {given} MiB came back"
            assert each["missing_mib"] <= 64, each
    dist.destroy_process_group()


main()
