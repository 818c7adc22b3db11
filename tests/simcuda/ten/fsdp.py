# SPDX-License-Identifier: MIT
"""FSDP2 on all ranks of torchrun: each block separately, then the model, with weights in bf16 for the passes."""

import os

import torch
import torch.distributed as dist
from gpt import GPT
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.profiler import record_function

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = GPT(layers=8, width=1024, heads=16).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for block in model.blocks:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(3):
    tokens = torch.randint(model.words, (4, 1025), device="cuda")
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
