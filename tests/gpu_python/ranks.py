# SPDX-License-Identifier: MIT
"""The ranks of a job, each with a card of its own: all move or none, and collectives after it.

    python -m torch.distributed.run --nproc-per-node 2 ranks.py NAME
"""

from __future__ import annotations

import os
import sys
import time

import reveille
import torch
import torch.distributed as dist

from common import MIB, Checks, near, random_bytes

SIZE = 1024 * MIB
RANK = int(os.environ["RANK"])
LAYERS = 16
LATE_S = 3.0


def used() -> int:
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def refused(error: reveille.JobAborted, rank: int) -> None:
    assert error.rank == rank, error
    assert f"rank {rank}" in str(error), error


def one_without_room_keeps_all_asleep() -> None:
    """The last rank has no room: nobody resumes. Once it has, the same call succeeds on all."""
    last = dist.get_world_size() - 1
    with reveille.region("asleep", backup="host"):
        tensor = random_bytes(SIZE, RANK)
    before = used()
    reveille.pause("asleep", group=dist.group.WORLD)
    near(before - used(), SIZE)
    taken = None
    if RANK == last:
        taken = torch.empty(torch.cuda.mem_get_info()[0] - SIZE // 2, dtype=torch.uint8, device="cuda")
    asleep = used()
    assert not reveille.fits("asleep", group=dist.group.WORLD)
    try:
        reveille.resume("asleep", group=dist.group.WORLD)
    except reveille.JobAborted as error:
        refused(error, last)
        assert error.requested_bytes >= SIZE > error.free_bytes > 0, vars(error)
    else:
        raise AssertionError("nothing was refused")
    near(used(), asleep)
    del taken
    torch.cuda.empty_cache()
    dist.barrier()
    reveille.resume("asleep", group=dist.group.WORLD)
    near(used(), before)
    assert torch.equal(tensor, random_bytes(SIZE, RANK))


def one_that_is_late_keeps_all_awake() -> None:
    """The first rank comes after the others' time: nobody pauses, content and memory are there."""
    with reveille.region("late", backup="host"):
        tensor = random_bytes(SIZE, RANK)
    before = used()
    dist.barrier()
    torch.cuda.synchronize()
    if RANK == 0:
        time.sleep(LATE_S)
    try:
        reveille.pause("late", group=dist.group.WORLD, group_timeout=LATE_S / 3)
    except reveille.JobAborted as error:
        assert "0" in str(error), error
    else:
        raise AssertionError("nobody was late")
    near(used(), before)
    assert torch.equal(tensor, random_bytes(SIZE, RANK))
    dist.barrier()
    reveille.pause("late", group=dist.group.WORLD)
    reveille.resume("late", group=dist.group.WORLD)
    assert torch.equal(tensor, random_bytes(SIZE, RANK))


def all_wake_in_order_or_none() -> None:
    """The last rank has no room: nobody starts. Then all do, from the last layer to the first."""
    last = dist.get_world_size() - 1
    with reveille.region("layers", backup="host"):
        layers = [random_bytes(SIZE // LAYERS, LAYERS * RANK + i) for i in range(LAYERS)]
    torch.cuda.empty_cache()
    before = used()
    reveille.pause("layers", group=dist.group.WORLD)
    taken = None
    if RANK == last:
        taken = torch.empty(torch.cuda.mem_get_info()[0] - SIZE // 2, dtype=torch.uint8, device="cuda")
    asleep = used()
    order = list(reversed(layers))
    try:
        reveille.resume("layers", wait=False, order=order, group=dist.group.WORLD)
    except reveille.JobAborted as error:
        refused(error, last)
        assert error.requested_bytes >= SIZE > error.free_bytes > 0, vars(error)
    else:
        raise AssertionError("nothing was refused")
    near(used(), asleep)
    del taken
    torch.cuda.empty_cache()
    dist.barrier()
    torch.cuda.synchronize()
    begin_s = time.perf_counter()
    wake = reveille.resume("layers", wait=False, order=order, group=dist.group.WORLD)
    started_s = time.perf_counter() - begin_s
    reveille.wait(order[0])
    first_s = time.perf_counter() - begin_s
    left = sum(not reveille.ready(each) for each in order)
    wake.wait()
    whole_s = time.perf_counter() - begin_s
    print(
        f"rank {RANK}: started after {1e3 * started_s:.1f} ms, first layer {1e3 * first_s:.1f} ms, "
        f"all {1e3 * whole_s:.1f} ms; {left} of {LAYERS} layers on their way at the first",
        flush=True,
    )
    near(used(), before)
    for i, layer in enumerate(layers):
        assert torch.equal(layer, random_bytes(SIZE // LAYERS, LAYERS * RANK + i)), i
    sums = torch.ones(1, device="cuda")
    dist.all_reduce(sums)
    assert sums.item() == dist.get_world_size()


def collectives_after_a_cycle() -> None:
    """Sums over ranks on region memory, at once and from a captured graph, before and after."""
    world = dist.get_world_size()
    with reveille.region("summed"):
        tensor = torch.zeros(16 * MIB, dtype=torch.float32, device="cuda")
    expected = world * (world + 1) / 2

    def eager() -> None:
        tensor.fill_(RANK + 1)
        dist.all_reduce(tensor)
        assert tensor.unique().tolist() == [expected], tensor.unique()

    eager()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)

    def captured() -> None:
        tensor.fill_(RANK + 1)
        graph.replay()  # noqa: F821 (deleted at the end)
        torch.cuda.synchronize()
        assert tensor.unique().tolist() == [expected], tensor.unique()

    captured()
    for _ in range(3):
        reveille.pause("summed", group=dist.group.WORLD)
        reveille.resume("summed", group=dist.group.WORLD)
        captured()
        eager()
    del graph


if __name__ == "__main__":
    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl", device_id=torch.device("cuda", RANK))
    dist.all_reduce(torch.zeros(1, device="cuda"))
    checks = Checks(f"{sys.argv[1]}_{RANK}")
    checks.run("one without room keeps all asleep", one_without_room_keeps_all_asleep)
    checks.run("one that is late keeps all awake", one_that_is_late_keeps_all_awake)
    checks.run("all wake in order or none", all_wake_in_order_or_none)
    checks.run("collectives after a cycle", collectives_after_a_cycle)
    torch.cuda.synchronize()
    dist.destroy_process_group()
    checks.end()
