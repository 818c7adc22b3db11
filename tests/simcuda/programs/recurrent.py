# SPDX-License-Identifier: MIT
"""Three steps of a language model of recurrent layers, and a pass without gradients: recurrent.py FOLDER lstm|gru."""

import sys

import torch
import torch.nn.functional as F
from stages import Stages

LAYERS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
WORDS, WIDTH, BATCH, STEPS = 8192, 1024, 64, 256


class Model(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.forwards = layer(WIDTH, WIDTH, num_layers=3, dropout=0.1, batch_first=True)
        self.both = layer(WIDTH, WIDTH // 2, num_layers=2, bidirectional=True, batch_first=True)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        hidden, _ = self.forwards(self.embedding(tokens))
        hidden, _ = self.both(hidden)
        return F.cross_entropy(self.head(hidden[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


stages = Stages(sys.argv[1])
model = Model(LAYERS[sys.argv[2]]).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
tokens = torch.randint(0, WORDS, (BATCH, STEPS), device="cuda")
stages.end("loaded")
for step in range(3):
    loss = model(tokens)
    stages.end(f"forward{step}")
    loss.backward()
    del loss
    stages.end(f"backward{step}")
    optimizer.step()
    optimizer.zero_grad()
    stages.end(f"step{step}")
with torch.no_grad():
    model(tokens)
stages.end("evaluated")
with torch.autocast("cuda", torch.bfloat16):
    model(tokens).backward()
stages.end("bf16")
