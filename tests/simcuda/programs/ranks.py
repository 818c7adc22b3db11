# SPDX-License-Identifier: MIT
"""Training on all ranks: `ranks.py FOLDER ddp`, or `fsdp` for FSDP2 with layers in bf16."""

import os
import sys

import torch
import torch.distributed as dist
from llama import Llama, tokens
from stages import Stages
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

folder, how = sys.argv[1:]
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
stages = Stages(folder)
dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
with torch.device("cuda"):
    model = Llama(layers=8, width=2048, inner=5632, heads=16, kv_heads=4)
if how == "ddp":
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
else:
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=bf16)
    fully_shard(model, mp_policy=bf16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
torch.cuda.empty_cache()
stages.end("loaded")
for step, (batch, length) in enumerate(((4, 1024), (2, 3000), (6, 777))):
    with torch.autocast("cuda", torch.bfloat16, enabled=how == "ddp"):
        loss = model(tokens(batch, length))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    stages.end(f"step{step}")
with torch.no_grad():
    model(tokens(4, 1024))
stages.end("evaluated")
dist.destroy_process_group()
