# SPDX-License-Identifier: MIT
"""A spatial transformer network: images are sampled at the points of a grid that the network finds, by cuDNN's spatial transformer.

Three steps, and a pass without gradients: spatial.py FOLDER
"""

import sys

import torch
import torch.nn.functional as F
from stages import Stages

BATCH, SIDE, CLASSES = 64, 128, 100


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.where = torch.nn.Sequential(
            *(torch.nn.Conv2d(3, 16, 7), torch.nn.MaxPool2d(4), torch.nn.ReLU()),
            *(torch.nn.Conv2d(16, 16, 5), torch.nn.AdaptiveAvgPool2d(4), torch.nn.ReLU(), torch.nn.Flatten()),
            torch.nn.Linear(256, 6),
        )
        self.what = torch.nn.Sequential(
            *(torch.nn.Conv2d(3, 64, 5), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten()),
            torch.nn.Linear(4096, CLASSES),
        )

    def forward(self, images, classes):
        grid = F.affine_grid(self.where(images).view(-1, 2, 3), list(images.shape), align_corners=True)
        return F.cross_entropy(self.what(F.grid_sample(images, grid, align_corners=True)), classes)


stages = Stages(sys.argv[1])
model = Model().cuda()
optimizer = torch.optim.Adam(model.parameters())
images = torch.randn(BATCH, 3, SIDE, SIDE, device="cuda")
classes = torch.randint(0, CLASSES, (BATCH,), device="cuda")
stages.end("loaded")
for step in range(3):
    loss = model(images, classes)
    stages.end(f"forward{step}")
    loss.backward()
    del loss
    stages.end(f"backward{step}")
    optimizer.step()
    optimizer.zero_grad()
    stages.end(f"step{step}")
with torch.no_grad():
    model(images, classes)
stages.end("evaluated")
