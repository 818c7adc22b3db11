# SPDX-License-Identifier: MIT
"""Finds its batch size by halving it after each out-of-memory error, as many trainers do."""

import torch
from gpt import GPT

model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)


def train(batch):
    with torch.autocast("cuda", torch.bfloat16):
        loss = model.loss(torch.randint(model.words, (batch, 1025), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


batch = 256
for step in range(3):
    while True:
        try:
            train(batch)
            break
        except torch.OutOfMemoryError:
            batch //= 2
            optimizer.zero_grad()
            torch.cuda.empty_cache()
    print(f"step {step}: batch {batch}", flush=True)
