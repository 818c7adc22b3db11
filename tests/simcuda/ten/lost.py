# SPDX-License-Identifier: MIT
"""Two ranks, one of which is killed in its third step, as by the host's out-of-memory killer."""

import os
import signal

import torch
import torch.distributed as dist
from gpt import GPT
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = DistributedDataParallel(GPT(layers=2, width=256, heads=4).cuda())
for step in range(5):
    if step == 2 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    model(torch.randint(1000, (2, 256), device="cuda")).float().square().mean().backward()
    torch.cuda.synchronize()
dist.destroy_process_group()
