# SPDX-License-Identifier: MIT
"""Trains the GPT on one GPU: `train.py --batch 8`. A batch that is too large ends it."""

import argparse

import torch
from gpt import GPT

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--steps", type=int, default=3)
options = parser.parse_args()

model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(options.steps):
    tokens = torch.randint(model.words, (options.batch, 1025), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model.loss(tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}", flush=True)
