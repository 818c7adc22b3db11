# SPDX-License-Identifier: MIT
"""A torch that is none: enough of it to run regions on the fake CUDA driver and runtime.

Memory of a device is memory of the process. Tensors are segments of a caching allocator, which
keeps freed ones for the pool that they came from, as PyTorch's does.
"""

import ctypes
import math

from . import cuda

__version__ = "2.11.0+stub"

_TYPES = {"uint8": ctypes.c_uint8, "int32": ctypes.c_int32, "float32": ctypes.c_float}


class dtype:
    def __init__(self, name):
        self.name = name
        self.c_type = _TYPES[name]
        self.itemsize = ctypes.sizeof(self.c_type)

    def __repr__(self):
        return f"torch.{self.name}"


def device(name):
    return name


uint8, int32, float32 = (dtype(name) for name in _TYPES)


class Tensor:
    def __init__(self, shape, dtype, device, memory, keep=None):
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = device
        self._memory = memory  # an address
        self._keep = keep  # what frees the memory with its last reference
        self.contiguous_here = True

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return self.dtype.itemsize

    def data_ptr(self):
        return self._memory

    def is_contiguous(self):
        return self.contiguous_here

    def view(self, shape):
        return Tensor(shape, self.dtype, self.device, self._memory, self._keep)

    def _values(self):
        return (self.dtype.c_type * self.numel()).from_address(self._memory)

    def tolist(self):
        return list(bytes(self._values()) if self.dtype is uint8 else self._values())

    def fill_(self, value):
        one = bytes(self.dtype.c_type(value))
        memory = one * min(self.numel(), 1 << 16)
        for at in range(0, self.numel() * len(one), len(memory)):
            size = min(len(memory), self.numel() * len(one) - at)
            ctypes.memmove(self._memory + at, memory, size)
        return self

    def clone(self):
        copy = empty(self.shape, dtype=self.dtype, device=self.device)
        ctypes.memmove(copy._memory, self._memory, self.numel() * self.element_size())
        return copy


def empty(shape, dtype=float32, device="cpu"):
    size = math.prod(shape) * dtype.itemsize
    if device == "cpu":
        buffer = ctypes.create_string_buffer(max(size, 1))
        return Tensor(shape, dtype, device, ctypes.addressof(buffer), buffer)
    block = cuda.allocate(size)
    return Tensor(shape, dtype, device, block.address, block)


def full(shape, value, dtype=float32, device="cpu"):
    return empty(shape, dtype, device).fill_(value)


def frombuffer(buffer, dtype):
    size = ctypes.sizeof(buffer)
    return Tensor((size // dtype.itemsize,), dtype, "cpu", ctypes.addressof(buffer), buffer)
