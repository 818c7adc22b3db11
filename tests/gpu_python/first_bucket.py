# SPDX-License-Identifier: MIT
"""How often DDP's first bucket, which has the size of all gradients, is still there in the second forward pass.

    RANK=... WORLD_SIZE=... MASTER_ADDR=... MASTER_PORT=... first_bucket.py NAME [RUNS] [LAYERS] [WIDTH] [TOKENS]

PyTorch's NCCL group holds what it reduces until its watchdog has seen the reduction done, which looks every 100 ms, and then until the
next collective. DDP makes its buckets again before the second forward pass: an old one that is still held then stays until the backward
pass. Each run wraps the same model again and takes three steps. It is read when the second forward pass begins: what is allocated there
less the same of the third one is the old bucket, or nothing. Runs go in turns with three ways to wait in between, as programs do.
Prints a JSON line for each way on rank 0.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from typing import Any

import torch
import torch._dynamo  # DDP imports it, at a time when other threads may
import torch.distributed as dist

WATCHDOG_S = 0.25  # it looks every 0.1
WAYS = {
    "nothing waits": lambda loss: None,
    "loss.item() after the backward pass": lambda loss: loss.item(),
    "torch.cuda.synchronize() after the step": None,
}


class Block(torch.nn.Module):
    """Two products, four times as wide between them, as in a layer of a language model."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def forget_the_run_before() -> None:
    """Its buckets go with the objects around it, once the watchdog has seen its last reduction and another one has come."""
    gc.collect()
    torch.cuda.synchronize()
    time.sleep(WATCHDOG_S)
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def one_run(model: torch.nn.Module, x: torch.Tensor, way: str) -> dict[str, Any]:
    """What is allocated when each forward pass begins, and when that is."""
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
    begun: list[int] = []
    at: list[float] = []

    def look(*_: Any) -> None:
        begun.append(torch.cuda.memory_allocated())
        at.append(time.perf_counter())

    handle = model.register_forward_pre_hook(look)
    backward_s = []
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        loss = wrapped(x).float().square().mean()
        loss.backward()
        if WAYS[way] is not None:
            WAYS[way](loss)
        backward_s.append(time.perf_counter())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if WAYS[way] is None:
            torch.cuda.synchronize()
        del loss
    torch.cuda.synchronize()
    handle.remove()
    return {
        "held": begun[1] - begun[2],
        "gap_s": at[1] - backward_s[0],
        "step_s": at[2] - at[1],
        "peak": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
    }


def main() -> None:
    name = sys.argv[1]
    runs, layers, width, tokens = (int(x) for x in (sys.argv[2:] + ["20", "9", "4096", "4096"][len(sys.argv) - 2 :]))
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    model = torch.nn.Sequential(*(Block(width) for _ in range(layers))).to("cuda", torch.bfloat16)
    gradients = sum(p.numel() * p.element_size() for p in model.parameters())
    x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            forget_the_run_before()
            found[way].append(one_run(model, x, way))
    for way, each in found.items():
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, each)
        if rank == 0:
            late = [[run["held"] >= gradients // 2 for run in own] for own in ranks]
            print(
                json.dumps(
                    {
                        "part": "first_bucket",
                        "name": name,
                        "way": way,
                        "runs": len(each),
                        "late": [sum(own) for own in late],
                        "late_on_all": sum(all(of) for of in zip(*late)),
                        "gradient_bytes": gradients,
                        "held_bytes": sorted({run["held"] for own in ranks for run in own}),
                        "gap_s": [round(run["gap_s"], 4) for run in ranks[0]],
                        "step_s": round(min(run["step_s"] for run in ranks[0]), 4),
                        "peak_late": max((r["peak"] for o, l in zip(ranks, late) for r, y in zip(o, l) if y), default=None),
                        "peak_early": max((r["peak"] for o, l in zip(ranks, late) for r, y in zip(o, l) if not y), default=None),
                        "reserved": max(r["reserved"] for o in ranks for r in o),
                    }
                ),
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
