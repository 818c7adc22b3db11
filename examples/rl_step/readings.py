# SPDX-License-Identifier: MIT
"""Bytes in use on the card, of all processes: by the driver, and by NVML where it is there."""

from __future__ import annotations

import ctypes


class NvmlMemory(ctypes.Structure):
    """nvmlMemory_v2_t; used is without what the driver keeps for itself."""

    _fields_ = [
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    ]


def _nvml(uuid: str) -> dict[str, int]:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}
    device = ctypes.c_void_p()
    memory = NvmlMemory(version=ctypes.sizeof(NvmlMemory) | 2 << 24)
    if (
        nvml.nvmlInit_v2()
        or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device))
        or nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory))
    ):
        return {}
    return {"nvml_used_bytes": memory.used, "nvml_reserved_bytes": memory.reserved}


def read() -> dict[str, int]:
    """Of the current device."""
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", "")
    return {
        "used_bytes": total - free,
        "free_bytes": free,
        **_nvml(f"GPU-{uuid}"),
    }
