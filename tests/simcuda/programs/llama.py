# SPDX-License-Identifier: MIT
"""A model like Llama in plain PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.size, self.groups = width // heads, heads // kv_heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x, turn):
        batch, length, width = x.shape

        def heads(y):
            return y.view(batch, length, -1, self.size).transpose(1, 2)

        q, k, v = rotate(heads(self.q(x)), turn), rotate(heads(self.k(x)), turn), heads(self.v(x))
        k, v = k.repeat_interleave(self.groups, 1), v.repeat_interleave(self.groups, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, inner, heads, kv_heads):
        super().__init__()
        self.attention = Attention(width, heads, kv_heads)
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, turn):
        x = x + self.attention(self.before(x), turn)
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers=16, width=2048, inner=8192, heads=32, kv_heads=8, words=128256):
        super().__init__()
        self.size = width // heads
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, inner, heads, kv_heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        """The loss of predicting each token from the previous ones."""
        x = self.embed(tokens)
        turn = turns(tokens.shape[1], self.size, x)
        for layer in self.layers:
            x = layer(x, turn)
        said = self.head(self.norm(x)).float()
        return F.cross_entropy(said[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def turns(length, size, like):
    """Cosines and sines of rotary positions."""
    rate = 10000.0 ** (-torch.arange(0, size, 2, device=like.device, dtype=torch.float32) / size)
    angle = torch.arange(length, device=like.device, dtype=torch.float32)[:, None] * rate
    angle = torch.cat((angle, angle), -1)
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def rotate(x, turn):
    left, right = x.chunk(2, -1)
    return x * turn[0] + torch.cat((-right, left), -1) * turn[1]


def tokens(batch, length, words=128256):
    return torch.randint(words, (batch, length), device="cuda")
