# SPDX-License-Identifier: MIT
"""The module that has torch_memory_saver's torch mode."""

from __future__ import annotations

from typing import Any

from .base import HookUtilBase


class HookUtilModeTorch(HookUtilBase):
    """The library that PyTorch's pools allocate from."""

    MODE = "torch"

    def __init__(self) -> None:
        from torch.cuda.memory import CUDAPluggableAllocator

        self.allocator = CUDAPluggableAllocator(
            self.get_path_binary(), "tms_torch_malloc", "tms_torch_free"
        )

    def get_allocator(self) -> Any:
        """The allocator for torch.cuda.MemPool."""
        return self.allocator.allocator()


__all__ = ["HookUtilModeTorch"]
