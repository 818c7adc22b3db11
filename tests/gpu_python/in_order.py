# SPDX-License-Identifier: MIT
"""A wake in order: the first layer's graph replays while the last layers are on their way."""

from __future__ import annotations

import json
import os
import sys
import time

import reveille
import torch

from common import MIB, SIMULATED, Checks, random_bytes, same

LAYERS = 8 if SIMULATED else 64
SIZE = 64 * MIB if SIMULATED else 256 * MIB


class Engine:
    """Layers of one tag, and a graph for each that sums it up."""

    def __init__(self) -> None:
        self.sums = torch.zeros(LAYERS, dtype=torch.int64, device="cuda")
        self.graphs = [torch.cuda.CUDAGraph() for _ in range(LAYERS)]
        self.layers = []
        for i in range(LAYERS):
            content = random_bytes(SIZE, i)
            with reveille.region("weights", backup="host"):
                self.layers.append(torch.empty_like(content))
            self.layers[i].copy_(content)
            self._capture(i)
        self.expected = self.sums.clone()

    def _sum_up(self, i: int) -> None:
        self.sums[i : i + 1].copy_(self.layers[i].view(torch.int64).sum(dim=0, keepdim=True))

    def _capture(self, i: int) -> None:
        self._sum_up(i)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graphs[i]):
            self._sum_up(i)

    def run(self, i: int) -> None:
        """torch.cuda.synchronize() would wait for the copies of other layers, too."""
        self.graphs[i].replay()
        torch.cuda.current_stream().synchronize()

    def wake_at_once(self) -> dict[str, float]:
        """Until the first layer has run, after all has arrived."""
        begin = time.perf_counter()
        reveille.resume("weights")
        whole = time.perf_counter()
        self.run(LAYERS - 1)
        return {"first_s": time.perf_counter() - begin, "whole_s": whole - begin}

    def wake_in_order(self) -> dict[str, float]:
        """Until the first layer has run, in the opposite order of allocation."""
        begin = time.perf_counter()
        wake = reveille.resume("weights", wait=False, order=reversed(self.layers))
        reveille.wait(self.layers[-1])
        self.run(LAYERS - 1)
        first = time.perf_counter()
        missing = sum(not reveille.ready(layer) for layer in self.layers)
        for i in reversed(range(LAYERS - 1)):
            reveille.wait(self.layers[i])
            self.run(i)
        layers = time.perf_counter()
        wake.wait()
        return {"first_s": first - begin, "missing": missing, "layers_s": layers - begin,
                "whole_s": time.perf_counter() - begin}  # fmt: skip


def cycle(engine: Engine, way: str) -> None:
    reveille.pause("weights")
    engine.sums.zero_()
    torch.cuda.synchronize()
    time.sleep(0.3)  # the driver clears what was released
    found = engine.wake_at_once() if way == "at_once" else engine.wake_in_order()
    print(json.dumps({"way": way, "bytes": LAYERS * SIZE, **found}), flush=True)
    for i in range(LAYERS):
        engine.run(i)
    assert same(engine.sums, engine.expected)
    assert SIMULATED or way == "at_once" or found["missing"] > 0, "the first ran after the last had come"


def main() -> None:
    checks = Checks("in_order")
    engine = Engine()
    for number in range(3):
        for way in ("at_once", "in_order"):
            checks.run(f"{way} {number}", lambda way=way: cycle(engine, way))  # type: ignore[misc]
    for i, layer in enumerate(engine.layers):
        assert same(layer, random_bytes(SIZE, i)), f"layer {i}"
    checks.end()


if __name__ == "__main__":
    os.environ.setdefault("OUT", ".")
    sys.exit(main())
