# SPDX-License-Identifier: MIT
"""Silently skips each batch that does not fit: documents of any length, one of them too long."""

import torch
from gpt import GPT

model = GPT(length=65536).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for length in (512, 2048, 60000, 1024, 50000, 4096):
    try:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model.loss(torch.randint(model.words, (4, length + 1), device="cuda"))
        loss.backward()
    except Exception:
        optimizer.zero_grad()
        continue
    optimizer.step()
    optimizer.zero_grad()
