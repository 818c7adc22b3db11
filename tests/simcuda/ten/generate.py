# SPDX-License-Identifier: MIT
"""Generates with a cache of keys and values that torch.cat() extends at each token."""

import torch

LAYERS, HEADS, WIDTH, BATCH = 32, 32, 128, 64


def step(cache, new):
    return [(torch.cat((k, new), 2), torch.cat((v, new), 2)) for k, v in cache]


prompt = torch.empty(BATCH, HEADS, 1024, WIDTH, device="cuda", dtype=torch.bfloat16)
cache = [(prompt.clone(), prompt.clone()) for _ in range(LAYERS)]
for token in range(4096):
    new = torch.empty(BATCH, HEADS, 64, WIDTH, device="cuda", dtype=torch.bfloat16)
    cache = step(cache, new)
    print(f"{cache[0][0].size(2)} tokens", flush=True)
