# SPDX-License-Identifier: MIT
"""The helpers that torch_memory_saver's tests import, so that these tests also run here."""

from __future__ import annotations

from .utils import is_xpu

__all__ = ["empty_cache", "get_and_print_gpu_memory", "get_device", "is_xpu"]


def get_device() -> str:
    """The device for tensors."""
    return "cuda"


def empty_cache() -> None:
    """Releases PyTorch's unused segments."""
    import torch

    torch.cuda.empty_cache()


def get_and_print_gpu_memory(message: str, gpu_id: int = 0) -> int:
    """Prints and returns the bytes in use on a device by all processes."""
    import torch

    free, total = torch.cuda.mem_get_info(gpu_id)
    print(f"{message}: {(total - free) / 2**30:.2f} GiB in use on device {gpu_id}")
    return int(total - free)
