# SPDX-License-Identifier: MIT
"""NCCL's communicators asleep: what is freed, how long it takes, and the same sums after it.

    python -m torch.distributed.run --nproc-per-node 2 communicators.py NAME [old]

With NCCL 2.29.7 or later. `old`: with an earlier one, which is refused, and nothing has changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import reveille
import torch
import torch.distributed as dist

from common import MIB, SIMULATED, Checks
from reveille._communicators import loaded

RANK = int(os.environ["RANK"])
CYCLES = int(os.environ.get("CYCLES", "5"))
TIMEOUT_S = 20.0
SLACK = 8 * MIB  # what the driver takes for itself between two readings
FIGURES: dict[str, Any] = {"rank": RANK}


def used() -> int:
    """Bytes in use on the device, of all processes."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def seen_by_smi() -> int | None:
    """The same as nvidia-smi sees it, in bytes; None if there is none."""
    try:
        uuid = f"GPU-{torch.cuda.get_device_properties(RANK).uuid}"
        ask = ["nvidia-smi", "-i", uuid, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        text = subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True).stdout
        return int(text.split()[0]) * MIB
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError):
        return None


def together() -> None:
    """All ranks are here. Not by NCCL, which may be asleep."""
    dist.barrier(group=CPU)


def move(what: Callable[..., None], *tags: str) -> float:
    """Seconds of a pause or resume of all ranks."""
    torch.cuda.synchronize()
    together()
    start = time.perf_counter()
    what(*tags, group=CPU, group_timeout=TIMEOUT_S)
    return round(time.perf_counter() - start, 4)


def summed(tensor: torch.Tensor, group: Any = None) -> torch.Tensor:
    """The sum over ranks of values that differ by rank and place."""
    ramp = torch.arange(tensor.numel(), device=tensor.device, dtype=tensor.dtype) % 251
    tensor.copy_(ramp.add_(RANK + 1))
    dist.all_reduce(tensor, group=group)
    return tensor


def check_sum(tensor: torch.Tensor) -> None:
    """Whether it is the sum of what all ranks brought."""
    if SIMULATED:
        return  # collectives carry no content there
    ranks = dist.get_world_size()
    ramp = torch.arange(tensor.numel(), device=tensor.device, dtype=tensor.dtype) % 251
    expected = ramp.mul_(ranks).add_(ranks * (ranks + 1) // 2)
    assert torch.equal(tensor, expected), (tensor - expected).abs().max()


def small() -> torch.Tensor:
    return torch.empty(1024, dtype=torch.float32, device="cuda")


def large() -> torch.Tensor:
    return torch.empty(64 * MIB // 4, dtype=torch.float32, device="cuda")


def a_cycle() -> None:
    """What is freed while asleep, as the driver and nvidia-smi see it; sums right after it."""
    tensors = [small(), large()]
    for tensor in tensors:
        check_sum(summed(tensor))
    known = reveille.communicators()
    assert known and all(each.state == "active" for each in known), known
    FIGURES["communicators"] = [vars(each) | {"pointer": 0} for each in known]
    promised = sum(each.bytes or 0 for each in known)
    before, smi_before = used(), seen_by_smi()
    pause_s = move(reveille.pause, "nccl")
    asleep, smi_asleep = used(), seen_by_smi()
    together()
    assert all(each.state == "paused" for each in reveille.communicators())
    resume_s = move(reveille.resume, "nccl")
    for tensor in tensors:
        check_sum(summed(tensor))
    after = used()
    FIGURES["cycle"] = {
        "promised": promised,
        "freed": before - asleep,
        "smi_freed": smi_before - smi_asleep if smi_before and smi_asleep else None,
        "left_after": after - before,
        "pause_s": pause_s,
        "resume_s": resume_s,
    }
    assert abs(before - asleep - promised) <= SLACK, FIGURES["cycle"]
    assert abs(after - before) <= SLACK, FIGURES["cycle"]


def many_cycles() -> None:
    """Seconds of each, and nothing is left behind."""
    tensor = small()
    seconds = []
    before = used()
    for _ in range(CYCLES):
        seconds.append([move(reveille.pause, "nccl"), move(reveille.resume, "nccl")])
        check_sum(summed(tensor))
    FIGURES["seconds"] = seconds
    assert used() - before <= SLACK, used() - before


def several_communicators() -> None:
    """Those of further groups, of all-to-all and of sends, too."""
    groups = [dist.new_group(list(range(dist.get_world_size()))) for _ in range(3)]
    ranks = dist.get_world_size()
    tensor, other = large(), large()
    for group in groups:
        check_sum(summed(tensor, group))
        dist.all_to_all_single(other, tensor, group=group)
    peer = (RANK + 1) % ranks
    work = [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, other, (RANK - 1) % ranks)]
    for each in dist.batch_isend_irecv(work):
        each.wait()
    known = reveille.communicators()
    promised = sum(each.bytes or 0 for each in known)
    before = used()
    pause_s = move(reveille.pause, "nccl")
    freed = before - used()
    together()
    resume_s = move(reveille.resume, "nccl")
    for group in (None, *groups):
        check_sum(summed(tensor, group))
    FIGURES["several"] = {
        "communicators": len(known),
        "promised": promised,
        "freed": freed,
        "pause_s": pause_s,
        "resume_s": resume_s,
    }
    assert len(known) >= 1 + len(groups), known
    assert abs(freed - promised) <= SLACK, FIGURES["several"]


def captured() -> None:
    """A graph with a collective replays after the cycle, on the same addresses."""
    tensor = large()
    ramp = torch.arange(tensor.numel(), device="cuda", dtype=tensor.dtype) % 251 + RANK + 1
    check_sum(summed(tensor))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.copy_(ramp)
        dist.all_reduce(tensor)
    for cycle in range(3):
        graph.replay()
        torch.cuda.synchronize()
        check_sum(tensor)
        if cycle < 2:
            move(reveille.pause, "nccl")
            move(reveille.resume, "nccl")
            tensor.zero_()
    del graph


def registered() -> None:
    """The same on memory that NCCL allocated and has registered, at once and captured."""
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        tensor = large()
    backend.register_mem_pool(pool)
    ramp = torch.arange(tensor.numel(), device="cuda", dtype=tensor.dtype) % 251 + RANK + 1
    check_sum(summed(tensor))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.copy_(ramp)
        dist.all_reduce(tensor)
    graph.replay()
    check_sum(tensor)
    for _ in range(2):
        move(reveille.pause, "nccl")
        move(reveille.resume, "nccl")
        check_sum(summed(tensor))
        tensor.zero_()
        graph.replay()
        torch.cuda.synchronize()
        check_sum(tensor)
    del graph
    backend.deregister_mem_pool(pool)


def with_a_region() -> None:
    """In one move with memory of a region, on which ranks sum right after it."""
    with reveille.region("weights", backup="host"):
        tensor = large()
    check_sum(summed(tensor))
    kept = tensor.clone()
    before = used()
    move(reveille.pause, "weights", "nccl")
    freed = before - used()
    promised = sum(each.bytes or 0 for each in reveille.communicators())
    together()
    move(reveille.resume, "weights", "nccl")
    assert SIMULATED or torch.equal(tensor, kept)  # no content there
    check_sum(summed(tensor))
    FIGURES["with_a_region"] = {"freed": freed, "nccl": promised, "region": 64 * MIB}
    assert abs(freed - promised - 64 * MIB) <= SLACK, FIGURES["with_a_region"]


def no_room() -> None:
    """The last rank has no room: all stay asleep, and the same call succeeds when it has."""
    last = dist.get_world_size() - 1
    tensor = small()
    torch.cuda.empty_cache()
    move(reveille.pause, "nccl")
    asleep = used()
    taken = None
    if RANK == last:
        free = torch.cuda.mem_get_info()[0]
        taken = torch.empty(free - 32 * MIB, dtype=torch.uint8, device="cuda")
    full = used()
    try:
        reveille.resume("nccl", group=CPU, group_timeout=TIMEOUT_S)
    except reveille.JobAborted as error:
        assert error.rank == last, error
        assert error.requested_bytes > error.free_bytes, vars(error)
        FIGURES["no_room"] = str(error)
    else:
        raise AssertionError("nothing was refused")
    assert used() == full
    assert all(each.state == "paused" for each in reveille.communicators())
    del taken
    torch.cuda.empty_cache()
    assert abs(used() - asleep) <= SLACK
    move(reveille.resume, "nccl")
    check_sum(summed(tensor))


def refused() -> None:
    """An NCCL that cannot says so on every rank, with the version needed; nothing has changed."""
    tensor = large()
    check_sum(summed(tensor))
    before = used()
    try:
        reveille.pause("nccl")
    except reveille.NotSupported as error:
        assert reveille.communicators() and "2.29.7" in str(error), error
        FIGURES["refused"] = str(error)
    else:
        raise AssertionError("nothing was refused")
    try:
        reveille.pause("nccl", group=CPU, group_timeout=TIMEOUT_S)
    except reveille.JobAborted as error:
        FIGURES["refused_job"] = str(error)
    else:
        raise AssertionError("nothing was refused")
    assert used() == before
    check_sum(summed(tensor))


def destroyed_asleep() -> None:
    """A group that is destroyed asleep is gone; the others wake."""
    group = dist.new_group(list(range(dist.get_world_size())))
    tensor = small()
    check_sum(summed(tensor, group))
    count = len(reveille.communicators())
    move(reveille.pause, "nccl")
    dist.destroy_process_group(group)
    assert len(reveille.communicators()) == count - 1
    move(reveille.resume, "nccl")
    check_sum(summed(tensor))


if __name__ == "__main__":
    torch.cuda.set_device(RANK)
    empty = used()
    dist.init_process_group("nccl", device_id=torch.device("cuda", RANK))
    CPU = dist.new_group(list(range(dist.get_world_size())), backend="gloo")
    check_sum(summed(small()))
    torch.cuda.synchronize()
    FIGURES["nccl"] = loaded().version
    FIGURES["taken_by_first"] = used() - empty
    checks = Checks(f"{sys.argv[1]}_{RANK}")
    tests = [a_cycle, many_cycles, several_communicators, captured, registered, with_a_region]
    tests += [no_room, destroyed_asleep]  # the last one may hang in NCCL
    chosen = os.environ.get("TESTS", "").split()
    tests = [test for test in tests if not chosen or test.__name__ in chosen]
    for test in [refused] if "old" in sys.argv[2:] else tests:
        run = checks.run if test is not registered else checks.run_on_card
        why = ("the simulated NCCL allocates nothing for PyTorch",) if test is registered else ()
        run(test.__name__.replace("_", " "), test, *why)
        Path(os.environ["OUT"], f"{sys.argv[1]}_{RANK}.figures.json").write_text(
            json.dumps(FIGURES, indent=1) + "\n"
        )
    checks.end()
