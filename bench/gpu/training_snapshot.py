#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records a PyTorch memory snapshot of a million entries, for bench/compare_memory_viz.py.

usage: training_snapshot.py OUT.pickle [--entries N] [--frames] [--random]

By default a small transformer is trained on batches of changing shapes; --random allocates and frees tensors of random
sizes instead, some thousands at a time, which is harder on an allocator than any training. --frames keeps Python stacks.
Needs a GPU and PyTorch.
"""
import argparse
import random

import torch

STAGES = 8
WORDS, WIDTH, LAYERS = 8000, 256, 8
ENTRIES_PER_TENSOR = 3  # alloc, free_requested, free_completed
LIVE_MAX = 3000


class Training:
    """A language model as small as its layers are many."""

    def __init__(self):
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        layers = torch.nn.TransformerEncoder(layer, LAYERS)
        self.model = torch.nn.Sequential(torch.nn.Embedding(WORDS, WIDTH), layers, torch.nn.Linear(WIDTH, WORDS)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self):
        words = torch.randint(0, WORDS, (random.randint(2, 6), random.randint(50, 400)), device="cuda")
        loss = torch.nn.functional.cross_entropy(self.model(words).flatten(0, 1), words.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class RandomSizes:
    def __init__(self):
        self.live = []

    def step(self):
        if len(self.live) > LIVE_MAX or (self.live and random.random() < 0.4):
            self.live[random.randrange(len(self.live))] = self.live[-1]
            self.live.pop()
        else:
            size = random.choice([512, 4 << 10, 70 << 10, 300 << 10, 1 << 20, 3 << 20, 12 << 20])
            self.live.append(torch.empty(size + 512 * random.randrange(100), dtype=torch.uint8, device="cuda"))


def allocations():
    return torch.cuda.memory_stats().get("allocation.all.allocated", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--frames", action="store_true")
    parser.add_argument("--random", action="store_true")
    options = parser.parse_args()
    random.seed(1)
    context = "all" if options.frames else None
    torch.cuda.memory._record_memory_history(max_entries=4 * options.entries, context=context, stacks="python")
    work = RandomSizes() if options.random else Training()
    begin = allocations()
    for stage in range(STAGES):
        with torch.profiler.record_function(f"stage:{stage}"):
            while ENTRIES_PER_TENSOR * (allocations() - begin) < (stage + 1) * options.entries // STAGES:
                work.step()
    torch.cuda.memory._dump_snapshot(options.out)


if __name__ == "__main__":
    main()
