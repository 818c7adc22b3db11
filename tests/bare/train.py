# SPDX-License-Identifier: MIT
"""Trains a small network for three steps: products, a convolution and attention."""

import torch

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 3, padding=1),
    torch.nn.Flatten(2),
    torch.nn.TransformerEncoderLayer(1024, 8, batch_first=True),
    torch.nn.Linear(1024, 10),
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(torch.randn(16, 3, 32, 32, device="cuda")).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"3 steps on {torch.cuda.get_device_name()}, peak {torch.cuda.max_memory_reserved()} bytes reserved")
