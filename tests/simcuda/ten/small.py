# SPDX-License-Identifier: MIT
"""A loop of small tensors, as samplers and schedulers have: `small.py [TURNS]`."""

import sys

import torch

logits = torch.randn(8, 64, device="cuda")
done = torch.zeros(8, dtype=torch.bool, device="cuda")
tokens = torch.zeros(8, dtype=torch.long, device="cuda")
for turn in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000):
    scores = logits / 0.7 + turn
    tokens = torch.where(done, tokens, scores.argmax(-1))
    done = done | (tokens == 3)
    if turn % 100 == 99 and bool(done.all()):
        done.zero_()
