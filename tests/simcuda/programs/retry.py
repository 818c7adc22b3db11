# SPDX-License-Identifier: MIT
"""Halves batches that do not fit, and tries again. Which batches failed is a fact."""

import gc
import sys

import torch
from llama import Llama, tokens
from stages import Stages

LENGTH = 1024
stages = Stages(sys.argv[1])
failed = stages.facts["failed"] = []
with torch.device("cuda"):
    model = Llama(layers=2).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
stages.end("loaded")


def train(batch):
    """Whether a batch of this many texts fits."""
    try:
        model(tokens(batch, LENGTH)).backward()
        optimizer.step()
    except torch.cuda.OutOfMemoryError:
        return False
    finally:
        optimizer.zero_grad(set_to_none=True)
    return True


for size in (48, 200, 64, 96, 112, 104, 100, 96, 92, 88, 84, 80, 76, 72, 68, 128):
    batch = size
    while not train(batch):
        failed.append([size, batch])
        gc.collect()
        torch.cuda.empty_cache()
        batch //= 2
    stages.end(f"batch{len(stages.rows) - 2}of{size}")
