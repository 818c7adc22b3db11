# SPDX-License-Identifier: MIT
"""A compiled training step with CUDA graphs: torch.compile(mode="reduce-overhead")."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
run = torch.compile(model, mode="reduce-overhead")
for _ in range(6):
    torch.compiler.cudagraph_mark_step_begin()
    run(torch.randn(1024, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
