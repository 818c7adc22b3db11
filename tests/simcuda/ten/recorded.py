# SPDX-License-Identifier: MIT
"""Records PyTorch's history with its defaults (stacks of all languages), and dumps it: `recorded.py OUT.pickle`."""

import sys

import torch
from gpt import GPT

torch.cuda.memory._record_memory_history()
model = GPT(layers=4, width=512, heads=8).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for _ in range(3):
    model.loss(torch.randint(model.words, (8, 513), device="cuda")).backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.memory._dump_snapshot(sys.argv[1])
