# SPDX-License-Identifier: MIT
"""Ranks of a job that sleep and wake as one, each with a card of its own: 0 bytes on all cards, and NCCL before and after.

    RANK=... WORLD_SIZE=... MASTER_ADDR=... MASTER_PORT=... asleep_ranks.py NAME [GIB] [CYCLES] [HOW]

The group that they meet by is gloo's, which needs no card. HOW:
  communicators  the sleep pauses NCCL's communicators (2.29.7 or newer), and the wake resumes them; at the end a rank is killed asleep
  destroyed      they are destroyed before, and made again after it (default; any NCCL)
  refused        an older NCCL, or one that goes through host memory of the driver (NCCL_P2P_DISABLE=1), keeps all awake
Prints a JSON line for each cycle on rank 0. On simulated GPUs times mean nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import reveille
import torch
import torch.distributed as dist

from common import MIB, SIMULATED, Checks

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TIMEOUT_S = 60.0
SLACK = 64 * MIB  # what the driver takes for itself between two readings
WATCHER = """
import ctypes as C, sys
class M(C.Structure): _fields_ = [(n, C.c_ulonglong) for n in ("total", "free", "used")]
nvml, cards = C.CDLL("libnvidia-ml.so.1"), []
assert nvml.nvmlInit_v2() == 0
for number in range(int(sys.argv[1])):
    cards.append(C.c_void_p())
    assert nvml.nvmlDeviceGetHandleByIndex_v2(number, C.byref(cards[-1])) == 0
for line in sys.stdin:
    memory = [M() for _ in cards]
    assert not any(nvml.nvmlDeviceGetMemoryInfo(c, C.byref(m)) for c, m in zip(cards, memory))
    print(*(m.used for m in memory), flush=True)
"""


class Cards:
    """What another process sees in use on every card, beyond what was in use before the ranks came."""

    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        words, pipe = [sys.executable, "-S", "-c", WATCHER, str(WORLD)], subprocess.PIPE
        self._watcher = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment)
        self._idle = [0] * WORLD
        self._idle = self.used()

    def used(self) -> list[int]:
        assert self._watcher.stdin is not None and self._watcher.stdout is not None
        self._watcher.stdin.write("\n")
        self._watcher.stdin.flush()
        now = map(int, self._watcher.stdout.readline().split())
        return [used - idle for used, idle in zip(now, self._idle)]


class Model:
    """Weights with a backup, a cache without one, and a graph on the weights."""

    def __init__(self, gib: float) -> None:
        with reveille.region("weights", backup="host"):
            count = max(1, int(gib * 1024 * MIB) // (64 * MIB))
            self.weights = [torch.full((16 * MIB,), float(RANK + i), device="cuda") for i in range(count)]
        with reveille.region("kv_cache"):
            self.cache = torch.empty(1024 * MIB, dtype=torch.uint8, device="cuda")
        self.out = torch.zeros(1024, device="cuda")
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with reveille.cuda_graph(self.graph, tag="graph", backup="host"):
            for weight in self.weights[:8]:
                self.out += weight[:1024]

    def check(self) -> None:
        self.out.zero_()
        self.graph.replay()
        torch.cuda.synchronize()
        wanted = float(sum(RANK + i for i in range(min(8, len(self.weights)))))
        assert SIMULATED or bool((self.out == wanted).all()), self.out[:4]
        for number, weight in enumerate(self.weights):
            assert SIMULATED or float(weight[-1]) == RANK + number, number


class Nccl:
    """A group of NCCL that is destroyed and made again, and a collective in a graph."""

    def __init__(self) -> None:
        self.make()

    def make(self) -> float:
        begin = time.perf_counter()
        self.group = dist.new_group(list(range(WORLD)), backend="nccl")
        self.tensor = torch.empty(16 * MIB, device="cuda")
        self.reduce()
        return time.perf_counter() - begin

    def reduce(self) -> None:
        self.tensor.fill_(RANK + 1.0)
        dist.all_reduce(self.tensor, group=self.group)
        torch.cuda.synchronize()
        wanted = WORLD * (WORLD + 1) / 2
        assert SIMULATED or bool((self.tensor == wanted).all()), self.tensor[:4]

    def capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            dist.all_reduce(self.tensor, group=self.group)

    def replay(self) -> None:
        self.tensor.fill_(RANK + 1.0)
        self.graph.replay()
        torch.cuda.synchronize()
        wanted = WORLD * (WORLD + 1) / 2
        assert SIMULATED or bool((self.tensor == wanted).all()), self.tensor[:4]

    def destroy(self) -> float:
        begin = time.perf_counter()
        dist.destroy_process_group(self.group)
        del self.group, self.tensor
        torch.cuda.empty_cache()
        return time.perf_counter() - begin


def together() -> None:
    dist.barrier()


def timed(function: Any, *arguments: Any, **options: Any) -> float:
    together()
    begin = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - begin


def all_seconds(own: dict[str, float]) -> dict[str, list[float]]:
    """Of every rank, by part."""
    found: list[Any] = [None] * WORLD
    dist.all_gather_object(found, own)
    return {part: [round(each[part], 4) for each in found] for part in own}


def say(**facts: Any) -> None:
    if RANK == 0:
        print(json.dumps({"part": "asleep_ranks", "name": sys.argv[1], **facts}), flush=True)


def asleep_and_back(cards: Cards, number: int, model: Model, seconds: dict[str, float], **facts: Any) -> dict[str, float]:
    """One sleep and wake of all, with what is on the cards before, meanwhile and after it."""
    together()
    awake = cards.used()
    seconds["sleep"] = timed(reveille.sleep, group=dist.group.WORLD, group_timeout=TIMEOUT_S)
    together()
    asleep = cards.used()
    seconds["wake"] = timed(reveille.wake, group=dist.group.WORLD, group_timeout=TIMEOUT_S)
    together()
    back = cards.used()
    model.check()
    say(cycle=number, awake_mib=[each // MIB for each in awake], asleep_bytes=asleep, back_mib=[each // MIB for each in back], **facts)
    assert all(each <= 0 for each in asleep), f"{asleep} bytes on the cards"
    return seconds


def cycles(cards: Cards, model: Model, nccl: Nccl, count: int) -> None:
    for number in range(count):
        seconds = {"destroy": nccl.destroy()}
        asleep_and_back(cards, number, model, seconds)
        seconds["make"] = nccl.make()
        say(cycle=number, seconds=all_seconds(seconds))


def refused(cards: Cards, model: Model, nccl: Nccl) -> None:
    """All ranks say no, with the reason, and nothing has changed."""
    together()
    before = cards.used()
    try:
        reveille.sleep(group=dist.group.WORLD, group_timeout=TIMEOUT_S)
    except reveille.JobAborted as error:
        assert "comes back: " in str(error), error
        say(refused=str(error))
    else:
        raise AssertionError("slept with a communicator")
    together()
    assert all(now <= then + SLACK for now, then in zip(cards.used(), before)), (cards.used(), before)
    model.check()
    nccl.reduce()


def with_communicators(cards: Cards, model: Model, nccl: Nccl, count: int) -> None:
    """The sleep pauses communicators, and the wake resumes them: a graph with a collective replays."""
    nccl.capture()
    nccl.replay()
    for number in range(count):
        seconds = asleep_and_back(cards, number, model, {}, communicators=True)
        nccl.reduce()
        nccl.replay()
        say(cycle=number, communicators=True, seconds=all_seconds(seconds))


def killed_asleep(cards: Cards, model: Model, nccl: Nccl) -> None:
    """Last of all: the last rank is killed while all sleep. The others hear of it, and wake by themselves."""
    reveille.sleep(group=dist.group.WORLD, group_timeout=TIMEOUT_S)
    together()
    if RANK == WORLD - 1:
        os._exit(0)  # as abrupt as a kill, and no failure
    begin = time.perf_counter()
    try:
        reveille.wake(group=dist.group.WORLD, group_timeout=5)
    except reveille.JobAborted as error:
        say(killed_asleep=str(error).splitlines()[0], seconds=round(time.perf_counter() - begin, 3))
    else:
        raise AssertionError("woke with a rank that is dead")
    reveille.wake()
    model.check()
    assert [each.state for each in reveille.communicators()] == ["paused"]


def main() -> None:
    gib = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    cards = Cards()  # before CUDA begins in this process
    dist.init_process_group("gloo")
    together()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model, nccl = Model(gib), Nccl()
    checks = Checks(f"{sys.argv[1]}_{RANK}")
    how = sys.argv[4] if len(sys.argv) > 4 else "destroyed"
    if how == "communicators":
        checks.run("asleep with communicators", lambda: with_communicators(cards, model, nccl, count))
        checks.run("one is killed asleep", lambda: killed_asleep(cards, model, nccl))
    elif how == "refused":
        checks.run("refused with a communicator", lambda: refused(cards, model, nccl))
    else:
        checks.run(f"{count} cycles, communicators destroyed", lambda: cycles(cards, model, nccl, count))
    try:
        checks.end()
    except SystemExit as end:
        os._exit(int(str(end.code)))  # with a group that waits for who is dead


if __name__ == "__main__":
    main()
