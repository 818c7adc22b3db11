# SPDX-License-Identifier: MIT
"""Replicas on several cards: the rate of one link, of all together, and that both bring the same.

    python -m torch.distributed.run --nproc-per-node 2 links.py NAME GIB [ROUNDS]

NAME is cuda, or sim for simulated devices and gloo, where times mean nothing. Prints one line of JSON on rank 0.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

import reveille
import torch
import torch.distributed as dist
from reveille import _process, _replicas

MIB = 1 << 20
LARGE_BYTES = 256 * MIB
STRIDE_BYTES = 4096
SETTLE_S = 0.3  # the driver clears what was released; in a run a stage lies between


class Cards:
    """Weights in regions of PyTorch."""

    def __init__(self, size: int) -> None:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        self.tensors = []
        random = torch.Generator(device="cuda").manual_seed(7)
        with reveille.region("weights", backup="host"):
            for at in range(0, size, LARGE_BYTES):
                tensor = torch.empty(min(LARGE_BYTES, size - at), dtype=torch.uint8, device="cuda")
                self.tensors.append(tensor.random_(generator=random))
        self.sums = self._sums()

    def _sums(self) -> list[int]:
        return [int(each.view(torch.int64).sum()) for each in self.tensors]

    def pause(self, group: Any) -> None:
        reveille.pause("weights", group=group)

    def resume(self, group: Any, replicas: bool) -> Any:
        return reveille.resume("weights", group=group, replicas=replicas)

    def is_right(self) -> bool:
        return self._sums() == self.sums

    @staticmethod
    def synchronize() -> None:
        torch.cuda.synchronize()

    @staticmethod
    def host_bytes() -> int:
        return sum(each.host_backup_bytes for each in reveille.stats().devices)


class Simulated:
    """The same in a context on a simulated device: its memory is host memory."""

    def __init__(self, size: int) -> None:
        store = os.environ.get("REVEILLE_STORE")  # which regions look up by themselves
        self.context = reveille.Context("sim", devices=f"{2 * size}", store=store)
        self.addresses = {}
        for at in range(0, size, LARGE_BYTES):
            each = min(LARGE_BYTES, size - at)
            self.addresses[self.context.alloc(each, "weights", backup="host")] = each
        for index, (address, each) in enumerate(self.addresses.items()):
            for at in range(0, each, STRIDE_BYTES):
                ctypes.memset(address + at, (at // STRIDE_BYTES * 7) % 251, STRIDE_BYTES)
                ctypes.c_uint64.from_address(address + at).value = index << 32 | at
        self.before = self._content()

    def _content(self) -> list[int]:
        return [hash(ctypes.string_at(at, size)) for at, size in self.addresses.items()]

    def pause(self, group: Any) -> None:
        self.context.pause("weights", group=group)

    def resume(self, group: Any, replicas: bool) -> Any:
        return self.context.resume("weights", group=group, replicas=replicas)

    def is_right(self) -> bool:
        return self._content() == self.before

    @staticmethod
    def synchronize() -> None:
        pass

    def host_bytes(self) -> int:
        return self.context.stats().devices[0].host_backup_bytes


class Parts:
    """Where the seconds of a wake of replicas go on this rank: what it calls is timed, and goes on as it was.

    "load" waits for this rank's own link, "exchange" for the other ranks; "first_exchange" is the first of these, which no later
    step of the link hides. "fill" compares what came. "before" is all up to their first vote, of which "prepare" takes memory, and
    "after" is the second vote and the commit.
    """

    TIMED = {"load": (_replicas.Sharing, "_load"), "exchange": (_replicas.TorchExchange, "run"), "fill": (_replicas.Sharing, "_fill"),
             "together": (_replicas.Sharing, "together"), "prepare": (_process.Saver, "prepare")}  # fmt: skip

    def __init__(self) -> None:
        self._calls: dict[str, list[tuple[float, float]]] = {}
        for part, (owner, name) in self.TIMED.items():
            setattr(owner, name, self._timed(part, getattr(owner, name), isinstance(vars(owner)[name], staticmethod)))

    def _timed(self, part: str, function: Any, static: bool) -> Any:
        def go(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self._calls.setdefault(part, []).append((begin, time.perf_counter()))

        return staticmethod(go) if static else go

    def forget(self) -> None:
        """Of calls before."""
        self._calls = {}

    def take(self, begin: float, end: float) -> dict[str, float]:
        """Of the wake that began and ended then."""
        spans, self._calls = self._calls, {}
        if "together" not in spans:
            return {}
        found = {part: sum(e - b for b, e in each) for part, each in spans.items()}
        first, last = spans["together"][0]
        exchanges = spans.get("exchange", [(0.0, 0.0)])
        return found | {
            "before": first - begin,
            "after": end - last,
            "first_exchange": exchanges[0][1] - exchanges[0][0],
            "steps": float(len(exchanges)),
        }


PARTS = Parts()


def measure(memory: Cards | Simulated, rounds: int, replicas: bool) -> dict[str, Any]:
    """Seconds of each wake-up, on this rank."""
    found: dict[str, Any] = {"seconds": [], "parts": [], "right": True}
    for _ in range(rounds):
        memory.pause(dist.group.WORLD)
        found["host_bytes"] = memory.host_bytes()
        memory.synchronize()
        time.sleep(SETTLE_S)
        dist.barrier()
        PARTS.forget()
        begin = time.perf_counter()
        links = memory.resume(dist.group.WORLD, replicas)
        end = time.perf_counter()
        found["seconds"].append(end - begin)
        found["parts"].append(PARTS.take(begin, end))
        found["right"] = found["right"] and memory.is_right()
        if links is not None:
            found["links"] = vars(links)
    return found


def one_after_the_other(memory: Cards | Simulated, rounds: int) -> dict[str, Any]:
    """Each rank by itself: the rate of one link, with nobody beside it."""
    found: dict[str, Any] = {"seconds": [], "right": True}
    for _ in range(rounds):
        memory.pause(dist.group.WORLD)
        time.sleep(SETTLE_S)
        for turn in range(dist.get_world_size()):
            dist.barrier()
            if turn == dist.get_rank():
                begin = time.perf_counter()
                memory.resume(None, False)
                found["seconds"].append(time.perf_counter() - begin)
        dist.barrier()
        found["right"] = found["right"] and memory.is_right()
    return found


def main() -> None:
    name, size = sys.argv[1], int(float(sys.argv[2]) * 1024 * MIB)
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    dist.init_process_group("nccl" if name == "cuda" else "gloo")
    memory = Cards(size) if name == "cuda" else Simulated(size)
    memory.synchronize()
    dist.barrier()
    own = {
        "one_link": one_after_the_other(memory, rounds),
        "each_alone": measure(memory, rounds, False),
        "replicas": measure(memory, rounds, True),
    }
    for each in own.values():
        each["gb_per_s"] = size / min(each["seconds"]) / 1e9
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    if dist.get_rank() == 0:
        ratio = min(r["replicas"]["gb_per_s"] / r["one_link"]["gb_per_s"] for r in ranks)
        print(json.dumps({"name": name, "bytes": size, "ratio": ratio, "ranks": ranks}))
    right = all(part["right"] for rank in ranks for part in rank.values())
    shared = all(rank["replicas"]["links"]["filled_bytes"] > 0 for rank in ranks)
    dist.destroy_process_group()
    sys.exit(not (right and shared))


if __name__ == "__main__":
    main()
