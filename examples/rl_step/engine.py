# SPDX-License-Identifier: MIT
"""The inference engine: one rank's weights, a KV cache, and a decode step captured as a graph."""

from __future__ import annotations

import hashlib
from typing import Any

import reveille

import readings
from model import Decoder, Shape, random_parameter

H200_BYTES = 150109880320
TOKENS = 32


class Engine:
    """What it holds lies in three regions: "weights", "kv_cache" and "cuda_graph"."""

    def __init__(self, scale: float, tp: int, mem_fraction: float, weights_in: Any) -> None:
        self.shape, self.tp, self.scale = Shape().scaled(scale), tp, scale
        self.mem_fraction, self.weights_in = mem_fraction, weights_in

    def start(self) -> dict[str, Any]:
        """Loads, captures, and answers what it generates."""
        import torch

        torch.cuda.init()
        self.ballast = self._ballast(torch)
        free_before = torch.cuda.mem_get_info()[0]
        with reveille.region("weights"):
            self.weights = {
                name: torch.empty(size, dtype=torch.bfloat16, device="cuda")
                for name, size in self.shape.shard(self.tp).items()
            }
        for name, size in self.shape.parameters():
            whole = torch.empty(size, dtype=torch.bfloat16, device="cuda")
            place = self.shape.place(name, size, self.tp)
            place.fill(self.weights, random_parameter(name, size, whole))
            del whole
        torch.cuda.empty_cache()
        cache_bytes = torch.cuda.mem_get_info()[0] - int((1 - self.mem_fraction) * free_before)
        tokens = cache_bytes // self.shape.cache_bytes_of_a_token(self.tp)
        kv_heads, dim = self.shape.kv_heads // self.tp, self.shape.head_dim
        with reveille.region("kv_cache"):
            cache = torch.empty(
                (self.shape.layers, 2, tokens, kv_heads, dim), dtype=torch.bfloat16, device="cuda"
            )
        self.decoder = Decoder(self.shape, self.tp, self.weights, cache)
        self._capture(torch)
        return {"device": torch.cuda.get_device_name(), "cache_bytes": cache.nbytes}

    def _ballast(self, torch: Any) -> Any:
        """A part of an H200 is what a scaled run may use: the rest of the card is taken away."""
        free = torch.cuda.mem_get_info()[0]
        if free < 0.9 * self.scale * H200_BYTES:
            fits = free / H200_BYTES
            raise MemoryError(f"{free >> 30} GiB are free: take --scale {fits:.2f} or less")
        too_much = free - int(self.scale * H200_BYTES)
        if self.scale == 1 or too_much <= 0:
            return None
        return torch.empty(too_much, dtype=torch.uint8, device="cuda")

    def _capture(self, torch: Any) -> None:
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(side):
            self.decoder.begin()
            self.decoder.step()
        side.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), reveille.cuda_graph(self.graph):
            self.decoder.step()
        torch.cuda.empty_cache()

    def generate(self) -> dict[str, Any]:
        """The tokens, and a digest of the last logits."""
        import torch

        self.decoder.begin()
        tokens = []
        for _ in range(TOKENS):
            self.graph.replay()
            tokens.append(self.decoder.token.item())
        logits = bytes(self.decoder.logits.view(torch.uint8).cpu().tolist())
        return {"tokens": tokens, "logits": hashlib.sha256(logits).hexdigest()}

    def receive_weights(self) -> int:
        """Copies its part of what the trainer sends, bucket by bucket; answers the bytes."""
        try:
            return self._receive()
        except BaseException:
            self.weights_in.close()  # the trainer must not wait for us
            raise

    def _receive(self) -> int:
        import torch

        total = 0
        while (message := self.weights_in.recv()) is not None:
            entries, bucket = message
            for name, size, begin, end in entries:
                self.shape.place(name, size, self.tp).fill(
                    self.weights, bucket[begin:end].view(size)
                )
                total += 2 * (end - begin)
            torch.cuda.synchronize()
            del message, bucket
            self.weights_in.send("copied")
        torch.cuda.ipc_collect()
        self.weights_in.send("let go of")
        return total

    # ---- Reveille ----

    def stage(self, name: str) -> None:
        reveille.stage(name)

    def step(self) -> None:
        reveille.step()

    def pause(self, *tags: str) -> None:
        reveille.pause(*tags)

    def resume(self, *tags: str) -> None:
        reveille.resume(*tags)

    def bytes_of(self, tag: str) -> int:
        """Bytes that a resume of the tag needs."""
        return reveille.fits(tag).needed_bytes

    def read(self) -> dict[str, int]:
        """What the driver says of the whole card."""
        return readings.read()
