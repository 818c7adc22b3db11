# SPDX-License-Identifier: MIT
"""Training on texts of every length: the next step cannot reuse the segments of a step."""

import sys

import torch
from llama import Llama, tokens
from stages import Stages

stages = Stages(sys.argv[1])
with torch.device("cuda"):
    model = Llama(layers=8, width=2048, inner=5632, heads=16, kv_heads=4).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
stages.end("loaded")
for step, length in enumerate((700, 1900, 1234, 3333, 2048, 4001)):
    model(tokens(4, length)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    stages.end(f"step{step}")
torch.cuda.empty_cache()
stages.end("emptied")
