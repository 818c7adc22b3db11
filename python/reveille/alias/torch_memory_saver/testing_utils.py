# SPDX-License-Identifier: MIT
"""What the tests of torch_memory_saver take from it, so that they run here too."""

from __future__ import annotations

from .utils import is_xpu

__all__ = ["empty_cache", "get_and_print_gpu_memory", "get_device", "is_xpu"]


def get_device() -> str:
    """Where tensors are made."""
    return "cuda"


def empty_cache() -> None:
    """Gives PyTorch's unused segments back."""
    import torch

    torch.cuda.empty_cache()


def get_and_print_gpu_memory(message: str, gpu_id: int = 0) -> int:
    """Bytes in use on a device, of all processes."""
    import torch

    free, total = torch.cuda.mem_get_info(gpu_id)
    print(f"{message}: {(total - free) / 2**30:.2f} GiB in use on device {gpu_id}")
    return int(total - free)
