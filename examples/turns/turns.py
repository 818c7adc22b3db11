#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two engines on one card take turns, and a scheduler hands the card on.

    python turns.py                                 on a card with a driver of CUDA 12.8 or newer
    reveille run --device h100-80g -- python turns.py --small

An engine is a process of PyTorch with weights and a captured graph. It lets others have it sleep,
except while it serves. The scheduler has no CUDA: before it hands a request on, it runs
`reveille sleep PID` for the engine that is awake, and `reveille wake PID` for the other. The one
that sleeps has nothing on the card, and its graph is as before when it wakes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time


def be_engine(layers: int, width: int) -> None:
    """Prints its process, then a token for each line."""
    import reveille
    import torch
    from reveille import control

    serving = False

    def before(verb: str) -> None:
        if serving:
            raise RuntimeError("a request is being served")

    with reveille.region("weights", backup="host"):
        weights = [torch.randn(width, width, device="cuda") for _ in range(layers)]
    x = torch.ones(1, width, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.nn.functional.normalize(x @ weights[0])  # cuBLAS starts outside the graph
    torch.cuda.synchronize()
    with torch.no_grad(), reveille.cuda_graph(graph, tag="graph", backup="host"):
        y = x
        for weight in weights:
            y = torch.nn.functional.normalize(y @ weight)
        token = y.argmax()
    control.open(before)
    print(os.getpid(), flush=True)
    for _ in sys.stdin:
        serving = True
        graph.replay()
        print(int(token), flush=True)
        serving = False


class Engine:
    def __init__(self, layers: int, width: int) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--engine", str(layers), str(width)],
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        self.pid = self._read()

    def token(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("next\n")
        self._process.stdin.flush()
        return self._read()

    def move(self, verb: str) -> None:
        subprocess.run(["reveille", verb, self.pid], check=True)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="64 MiB of weights instead of 16 GiB")
    parser.add_argument("--turns", type=int, default=4)
    settings = parser.parse_args()
    layers, width = (16, 1024) if settings.small else (64, 8192)

    engines = []
    for _ in range(2):
        engines.append(Engine(layers, width))
        print(f"engine {engines[-1].pid}: token {engines[-1].token()}", flush=True)
        engines[-1].move("sleep")
    awake: Engine | None = None
    for turn in range(settings.turns):
        wanted = engines[turn % 2]
        begin = time.perf_counter()
        if awake is not None:
            awake.move("sleep")
        wanted.move("wake")
        token = wanted.token()
        awake = wanted
        seconds = time.perf_counter() - begin
        print(f"engine {wanted.pid}: token {token}, {seconds:.2f} s after the request", flush=True)
    for engine in engines:
        engine.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        be_engine(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
