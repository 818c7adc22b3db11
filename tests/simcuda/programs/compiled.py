# SPDX-License-Identifier: MIT
"""A training step with torch.compile: model, loss, backward pass and optimizer."""

import sys

import torch
from llama import Llama, tokens
from stages import Stages

stages = Stages(sys.argv[1])
with torch.device("cuda"):
    model = Llama(layers=4, width=1024, inner=4096, heads=16, kv_heads=4).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loss = torch.compile(model, dynamic=False)
update = torch.compile(optimizer.step)
stages.end("loaded")
for step in range(3):
    loss(tokens(8, 1024)).backward()
    stages.end(f"backward{step}")
    update()
    optimizer.zero_grad(set_to_none=True)
    stages.end(f"step{step}")
with torch.no_grad():
    loss(tokens(8, 1024))
stages.end("evaluated")
