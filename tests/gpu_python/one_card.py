# SPDX-License-Identifier: MIT
"""Two ranks on one card, by gloo: a wake in order that both begin or none, and moves together.

    python -m torch.distributed.run --nproc-per-node 2 one_card.py [MIB_OF_A_LAYER]

Prints a JSON line for each rank: what was refused, and when the first layer and all were there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import reveille
import torch
import torch.distributed as dist

from common import MIB

LAYERS = 16


class Rank:
    def __init__(self, layer_bytes: int) -> None:
        self.rank, self.size = dist.get_rank(), layer_bytes
        with reveille.region("weights", backup="host"):
            self.layers = [self._layer(i) for i in range(LAYERS)]
        self.where = [each.data_ptr() for each in self.layers]
        self.held = reveille.stats().tags["weights"].active_bytes

    def _value(self, i: int) -> int:
        return LAYERS * self.rank + i

    def _layer(self, i: int) -> Any:
        return torch.full((self.size,), self._value(i), dtype=torch.uint8, device="cuda")

    def check(self) -> None:
        """Content and addresses are as they were."""
        assert [each.data_ptr() for each in self.layers] == self.where
        for i, each in enumerate(self.layers):
            assert bool((each == self._value(i)).all()), f"layer {i}"

    def pause(self) -> None:
        reveille.pause("weights", group=dist.group.WORLD)
        assert self.paused_bytes() == self.held
        torch.cuda.empty_cache()
        dist.barrier()

    @staticmethod
    def paused_bytes() -> int:
        return reveille.stats().tags["weights"].paused_bytes

    def start(self) -> Any:
        """From the last layer on."""
        order = list(reversed(self.layers))
        return reveille.resume("weights", wait=False, order=order, group=dist.group.WORLD)

    def refused(self) -> str:
        """Rank 0 leaves room for half of a rank's layers: no rank begins."""
        room = self.held // 2
        free = torch.cuda.mem_get_info()[0]
        neighbour = (
            torch.empty(free - room, dtype=torch.uint8, device="cuda") if self.rank == 0 else None
        )
        dist.barrier()
        try:
            self.start()
        except reveille.JobAborted as error:
            why = str(error)
        assert why.startswith("no rank has moved: rank ") and " free on cuda:0" in why, why
        assert self.paused_bytes() == self.held
        dist.barrier()
        del neighbour
        torch.cuda.empty_cache()
        dist.barrier()
        return why

    def wake(self) -> dict[str, Any]:
        """Milliseconds from the call on, and how many layers came after the first was there."""
        begin = time.perf_counter()
        wake = self.start()
        times = [time.perf_counter()]
        reveille.wait(self.layers[-1])
        times.append(time.perf_counter())
        missing = sum(not reveille.ready(each) for each in self.layers)
        wake.wait()
        times.append(time.perf_counter())
        started, first, all_ = (1e3 * (each - begin) for each in times)
        self.check()
        return {"started_ms": started, "first_ms": first, "all_ms": all_, "missing": missing}

    def move_as_torch_memory_saver(self) -> None:
        """Its pause and resume, on both ranks or none."""
        from reveille.torch_memory_saver import torch_memory_saver

        os.environ["REVEILLE_TOGETHER"] = "1"
        torch_memory_saver.pause("weights")
        assert self.paused_bytes() == self.held
        torch_memory_saver.resume()
        self.check()


def main() -> None:
    dist.init_process_group("gloo")
    rank = Rank(int(sys.argv[1] if len(sys.argv) > 1 else 512) * MIB)
    rank.pause()
    said: dict[str, Any] = {"rank": rank.rank, "layer_bytes": rank.size, "refused": rank.refused()}
    said["wakes"] = []
    for _ in range(2):
        said["wakes"].append(rank.wake())
        rank.pause()
    reveille.resume("weights", group=dist.group.WORLD)
    rank.check()
    rank.move_as_torch_memory_saver()
    print(json.dumps(said), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
