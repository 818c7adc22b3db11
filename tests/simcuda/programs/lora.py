# SPDX-License-Identifier: MIT
"""LoRA: a frozen model of 1.5 B parameters in bf16, with adapters of rank 16."""

import sys

import torch
from llama import Llama, tokens
from stages import Stages
from torch import nn

RANK = 16


class Adapted(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen
        self.down = nn.Parameter(torch.randn(RANK, frozen.in_features, device="cuda") / RANK)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, RANK, device="cuda"))

    def forward(self, x):
        return self.frozen(x) + (x.float() @ self.down.T @ self.up.T).to(x.dtype)

    @torch.no_grad()
    def merge(self):
        self.frozen.weight += (self.up @ self.down).to(self.frozen.weight.dtype)
        return self.frozen


stages = Stages(sys.argv[1])
with torch.device("cuda"):
    model = Llama().bfloat16().requires_grad_(False)
stages.end("loaded")
for layer in model.layers:
    for name in "qkvo":
        setattr(layer.attention, name, Adapted(getattr(layer.attention, name)))
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4)
for step, (batch, length) in enumerate(((4, 1024), (2, 3000), (6, 777))):
    model(tokens(batch, length)).backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    stages.end(f"step{step}")
del optimizer, trained
for layer in model.layers:
    for name in "qkvo":
        setattr(layer.attention, name, getattr(layer.attention, name).merge())
torch.cuda.empty_cache()
stages.end("merged")
with torch.no_grad():
    model(tokens(8, 2048))
stages.end("evaluated")
