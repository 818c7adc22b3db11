# SPDX-License-Identifier: MIT
"""Qwen2.5-32B with random weights: its parameters, one rank's shard, and a decode step.

The trainer has every parameter on its own. The engine has the first rank's part of each, with
q, k, v and gate, up fused. There is one rank, so nothing is reduced over ranks, and positions come
in through the mask alone: the output means nothing, but it depends on every weight.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

CONTEXT = 256  # tokens that a generation may have


@dataclass(frozen=True)
class Shape:
    hidden: int = 5120
    layers: int = 64
    heads: int = 40
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 27648
    vocabulary: int = 152064

    def scaled(self, scale: float) -> Shape:
        """A model with about this part of the parameters: fewer layers, a smaller vocabulary."""
        vocabulary = max(256, int(self.vocabulary * scale) // 256 * 256)
        return replace(self, layers=max(1, round(self.layers * scale)), vocabulary=vocabulary)

    def parameters(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and sizes of all parameters."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "embed", (self.vocabulary, self.hidden)
        for layer in range(self.layers):
            for name, rows in (("q", q), ("k", kv), ("v", kv)):
                yield f"{layer}.{name}.weight", (rows, self.hidden)
                yield f"{layer}.{name}.bias", (rows,)
            yield f"{layer}.o.weight", (self.hidden, q)
            yield f"{layer}.gate.weight", (self.intermediate, self.hidden)
            yield f"{layer}.up.weight", (self.intermediate, self.hidden)
            yield f"{layer}.down.weight", (self.hidden, self.intermediate)
            yield f"{layer}.norm1", (self.hidden,)
            yield f"{layer}.norm2", (self.hidden,)
        yield "norm", (self.hidden,)
        yield "head", (self.vocabulary, self.hidden)

    def place(self, name: str, size: tuple[int, ...], tp: int) -> Place:
        """Where a rank keeps its part of a parameter."""
        parts = name.split(".")
        short = parts[1] if len(parts) > 1 else name
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        fused = {
            "q": ("qkv", 0),
            "k": ("qkv", q),
            "v": ("qkv", q + kv),
            "gate": ("gate_up", 0),
            "up": ("gate_up", self.intermediate),
        }
        whole = {"qkv": q + 2 * kv, "gate_up": 2 * self.intermediate}
        if short in fused:
            into, row = fused[short]
            target = ".".join([parts[0], into, *parts[2:]])
            rows = (whole[into] // tp, *size[1:])
            return Place(target, rows, row // tp, 0, size[0] // tp)
        if short in ("o", "down"):
            return Place(name, (size[0], size[1] // tp), 0, 1, size[1] // tp)
        length = size[0] // tp if short in ("embed", "head") else size[0]
        return Place(name, (length, *size[1:]), 0, 0, length)

    def shard(self, tp: int) -> dict[str, tuple[int, ...]]:
        """Names and sizes of a rank's tensors."""
        places = (self.place(name, size, tp) for name, size in self.parameters())
        return {place.name: place.size for place in places}

    def cache_bytes_of_a_token(self, tp: int) -> int:
        return 2 * 2 * self.layers * self.kv_heads // tp * self.head_dim


@dataclass(frozen=True)
class Place:
    """A rank's tensor, the row in it where a parameter begins, and which part of that it takes."""

    name: str
    size: tuple[int, ...]
    row: int
    dimension: int
    length: int

    def fill(self, tensors: dict[str, Any], parameter: Any) -> None:
        part = parameter.narrow(self.dimension, 0, self.length)
        tensors[self.name].narrow(0, self.row, part.shape[0]).copy_(part)


def random_parameter(name: str, size: tuple[int, ...], out: Any) -> Any:
    """Fills a tensor with what this parameter always is: every process makes the same."""
    import torch

    if "norm" in name:
        return out.fill_(1.0)
    generator = torch.Generator(device=out.device).manual_seed(zlib.crc32(name.encode()))
    return out.normal_(0.0, 0.02, generator=generator)


class Decoder:
    """One token a step, in tensors that stay where they are, so that a CUDA graph can do it."""

    def __init__(self, shape: Shape, tp: int, weights: dict[str, Any], cache: Any) -> None:
        import torch

        self.shape, self.tp, self.weights, self.cache = shape, tp, weights, cache
        self.token = torch.zeros(1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.places = torch.arange(CONTEXT, device="cuda")
        self.logits = torch.zeros(weights["head"].shape[0], dtype=torch.bfloat16, device="cuda")

    def begin(self) -> None:
        self.token.fill_(1)
        self.position.zero_()
        self.cache[:, :, :CONTEXT].zero_()

    def step(self) -> None:
        """Writes logits, the next token and the next position."""
        import torch.nn.functional as F

        w = self.weights
        x = w["embed"][self.token]
        for layer in range(self.shape.layers):
            x = x + self._attention(layer, self._norm(x, w[f"{layer}.norm1"]))
            h = self._norm(x, w[f"{layer}.norm2"])
            gate, up = F.linear(h, w[f"{layer}.gate_up.weight"]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, w[f"{layer}.down.weight"])
        self.logits.copy_(F.linear(self._norm(x, w["norm"]), w["head"])[0])
        self.token.copy_(self.logits.argmax(dim=0, keepdim=True))
        self.position.add_(1)

    def _norm(self, x: Any, weight: Any) -> Any:
        import torch.nn.functional as F

        return F.rms_norm(x, (self.shape.hidden,), weight, 1e-6)

    def _attention(self, layer: int, h: Any) -> Any:
        import torch
        import torch.nn.functional as F

        heads, kv = self.shape.heads // self.tp, self.shape.kv_heads // self.tp
        dim = self.shape.head_dim
        qkv = F.linear(h, self.weights[f"{layer}.qkv.weight"], self.weights[f"{layer}.qkv.bias"])
        q, k, v = qkv.split([heads * dim, kv * dim, kv * dim], dim=-1)
        keys, values = self.cache[layer, 0], self.cache[layer, 1]
        keys.index_copy_(0, self.position, k.view(1, kv, dim))
        values.index_copy_(0, self.position, v.view(1, kv, dim))
        scores = torch.einsum("kgd,tkd->kgt", q.view(kv, heads // kv, dim), keys[:CONTEXT])
        scores = scores.float().mul(dim**-0.5).masked_fill(self.places > self.position, -torch.inf)
        mixed = torch.einsum("kgt,tkd->kgd", scores.softmax(-1).to(h.dtype), values[:CONTEXT])
        return F.linear(mixed.reshape(1, heads * dim), self.weights[f"{layer}.o.weight"])
