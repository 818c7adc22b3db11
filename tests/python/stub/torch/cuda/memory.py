# SPDX-License-Identifier: MIT
"""The pluggable allocator of the stub, and its settings."""

import ctypes
import os

settings = {"expandable_segments": None}  # None: what the environment says


def _snapshot():
    value = settings["expandable_segments"]
    if value is None:
        said = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "").replace(" ", "")
        value = "expandable_segments:True" in said
    return {"allocator_settings": {"expandable_segments": value}}


class _Allocator:
    def __init__(self, malloc, free):
        self._malloc, self._free = malloc, free

    def malloc(self, size, device):
        return self._malloc(size, device, None)

    def free(self, address, size, device):
        self._free(address, size, device, None)


class CUDAPluggableAllocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        arguments = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self._malloc, self._free = getattr(library, malloc), getattr(library, free)
        self._malloc.restype, self._malloc.argtypes = ctypes.c_void_p, arguments
        self._free.restype, self._free.argtypes = None, [ctypes.c_void_p, *arguments]

    def allocator(self):
        return _Allocator(self._malloc, self._free)
