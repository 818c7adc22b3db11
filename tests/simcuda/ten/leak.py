# SPDX-License-Identifier: MIT
"""A loop with a common leak: the sum of losses keeps every step's graph."""

import torch
from gpt import GPT

model = GPT(layers=4, width=512, heads=8).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
total = torch.zeros((), device="cuda")
for step in range(200):
    loss = model.loss(torch.randint(model.words, (4, 513), device="cuda"))
    (loss / 2).backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    total = total + loss  # should be loss.detach()
    if step % 10 == 0:
        print(f"step {step}", flush=True)
