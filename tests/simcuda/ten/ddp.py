# SPDX-License-Identifier: MIT
"""DDP on all ranks of torchrun, with stages from record_function."""

import os

import torch
import torch.distributed as dist
from gpt import GPT
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = DistributedDataParallel(GPT(layers=4, width=512, heads=8).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(4):
    tokens = torch.randint(model.module.words, (2, 513), device="cuda")
    with record_function("stage:forward"):
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    with record_function("stage:backward"):
        loss.backward()
    with record_function("stage:update"):
        optimizer.step()
        optimizer.zero_grad()
    del logits, loss
dist.destroy_process_group()
