# SPDX-License-Identifier: MIT
"""The trainer: the whole model in bf16, which it sends to the engine through CUDA IPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import reveille

from model import Shape, random_parameter

BUCKET_ELEMENTS = 256 << 20

Entry = tuple[str, tuple[int, ...], int, int]  # name, size, begin and end in the bucket


class Trainer:
    """It takes no memory of the card before it loads, not even for a context."""

    def __init__(self, scale: float, weights_out: Any, in_region: bool = False) -> None:
        """in_region: the bucket is Reveille's memory, which is paused between two updates."""
        self.shape, self.weights_out = Shape().scaled(scale), weights_out
        self.in_region, self.bucket = in_region, None
        self.model: dict[str, Any] = {}

    def load(self) -> int:
        """Makes the training copy; answers its bytes."""
        import torch

        for name, size in self.shape.parameters():
            tensor = torch.empty(size, dtype=torch.bfloat16, device="cuda")
            self.model[name] = random_parameter(name, size, tensor)
        torch.cuda.synchronize()
        return sum(tensor.nbytes for tensor in self.model.values())

    def send_weights(self) -> int:
        """Packs parameters into one bucket at a time, and waits until the engine has copied it."""
        try:
            return self._send()
        except BaseException:
            self.weights_out.close()  # the engine must not wait for us
            raise

    def _buckets(self, room: int) -> Iterator[list[Entry]]:
        """What goes into one bucket after the other: names, sizes, begins and ends."""
        entries: list[Entry] = []
        used = 0
        for name, tensor in self.model.items():
            if used + tensor.numel() > room:
                yield entries
                entries, used = [], 0
            entries.append((name, tuple(tensor.shape), used, used + tensor.numel()))
            used += tensor.numel()
        yield entries

    def _make_bucket(self, room: int) -> Any:
        import torch

        if not self.in_region:
            return torch.empty(room, dtype=torch.bfloat16, device="cuda")
        if self.bucket is None:
            with reveille.region("bucket"):
                self.bucket = torch.empty(room, dtype=torch.bfloat16, device="cuda")
        else:
            reveille.resume("bucket")
        return self.bucket

    def _send(self) -> int:
        import torch

        sizes = [tensor.numel() for tensor in self.model.values()]
        room = max(max(sizes), min(BUCKET_ELEMENTS, sum(sizes)))
        bucket = self._make_bucket(room)
        count = 0
        for entries in self._buckets(room):
            for name, _size, begin, end in entries:
                bucket[begin:end].copy_(self.model[name].view(-1))
            torch.cuda.synchronize()
            self.weights_out.send((entries, bucket))
            self.weights_out.recv()
            count += 1
        self.weights_out.send(None)
        self.weights_out.recv()
        del bucket
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
        if self.in_region:
            reveille.pause("bucket")
        return count

    def free(self) -> None:
        """Gives the training copy up."""
        import torch

        self.model.clear()
        torch.cuda.synchronize()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
