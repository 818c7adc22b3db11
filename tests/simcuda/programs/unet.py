# SPDX-License-Identifier: MIT
"""Three steps of a UNet, channels last and in bf16 autocast, and a pass without gradients: unet.py FOLDER."""

import sys

import torch
import torch.nn.functional as F
from stages import Stages

WIDTHS = 64, 128, 256, 512
BATCH, SIDE = 16, 192


class Block(torch.nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, before, width):
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.GroupNorm(8, before), torch.nn.GroupNorm(8, width)])
        self.convolutions = torch.nn.ModuleList(
            [torch.nn.Conv2d(before, width, 3, padding=1), torch.nn.Conv2d(width, width, 3, padding=1)]
        )
        self.shortcut = torch.nn.Conv2d(before, width, 1) if before != width else torch.nn.Identity()

    def forward(self, x):
        hidden = x
        for norm, convolution in zip(self.norms, self.convolutions):
            hidden = convolution(F.silu(norm(hidden)))
        return hidden + self.shortcut(x)


class UNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, WIDTHS[0], 3, padding=1)
        self.down = torch.nn.ModuleList(Block(before, width) for before, width in zip((WIDTHS[0], *WIDTHS), WIDTHS))
        self.halve = torch.nn.ModuleList(torch.nn.Conv2d(width, width, 3, stride=2, padding=1) for width in WIDTHS)
        self.middle = Block(WIDTHS[-1], WIDTHS[-1])
        back = WIDTHS[::-1]
        self.widen = torch.nn.ModuleList(
            torch.nn.ConvTranspose2d(before, width, 2, stride=2) for before, width in zip((back[0], *back), back)
        )
        self.up = torch.nn.ModuleList(Block(2 * width, width) for width in back)
        self.last = torch.nn.Conv2d(WIDTHS[0], 3, 3, padding=1)

    def forward(self, x):
        x, left = self.first(x), []
        for block, halve in zip(self.down, self.halve):
            x = block(x)
            left.append(x)
            x = halve(x)
        x = self.middle(x)
        for widen, block in zip(self.widen, self.up):
            x = block(torch.cat([widen(x), left.pop()], 1))
        return self.last(x)


stages = Stages(sys.argv[1])
model = UNet().cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
images = torch.randn(BATCH, 3, SIDE, SIDE, device="cuda").to(memory_format=torch.channels_last)
stages.end("loaded")
for step in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.mse_loss(model(images), images)
    stages.end(f"forward{step}")
    loss.backward()
    del loss
    stages.end(f"backward{step}")
    optimizer.step()
    optimizer.zero_grad()
    stages.end(f"step{step}")
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
    model(images)
stages.end("evaluated")
