# SPDX-License-Identifier: MIT
"""Trains GPT-2 for three steps: `python gpt2.py [BATCH]`. It has nothing of Reveille in it."""

import sys

import torch
import transformers

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 8
model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    tokens = torch.randint(50257, (batch, 1024), device="cuda")
    with torch.profiler.record_function("stage:forward"):
        loss = model(tokens, labels=tokens).loss
    with torch.profiler.record_function("stage:backward"):
        loss.backward()
    with torch.profiler.record_function("stage:optimizer"):
        optimizer.step()
        optimizer.zero_grad()
