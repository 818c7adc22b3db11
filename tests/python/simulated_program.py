# SPDX-License-Identifier: MIT
"""A program that uses CUDA's runtime by ctypes. With words, cudaMalloc of the first, bytes."""

import ctypes
import sys

LIBRARIES = "libcudart.so.13", "libcudart.so.12"


def runtime():
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise LookupError("no CUDA runtime")


def allocate(size, device=0, again=1):
    """Allocates on a device, and answers what is in use there."""
    cuda, addr = runtime(), ctypes.c_void_p()
    if cuda.cudaSetDevice(device) != 0:
        raise ValueError(f"no device {device}")
    for _ in range(again):
        if cuda.cudaMalloc(ctypes.byref(addr), ctypes.c_size_t(size)) != 0:
            raise MemoryError(f"{size} bytes")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


def round_trip(size):
    """What is read back of bytes that were copied to a device."""
    cuda, addr = runtime(), ctypes.c_void_p()
    sent = bytes(range(256)) * (size // 256)
    got = ctypes.create_string_buffer(size)
    cuda.cudaMalloc(ctypes.byref(addr), ctypes.c_size_t(size))
    cuda.cudaMemcpy(addr, sent, ctypes.c_size_t(size), 1)
    cuda.cudaMemcpy(got, addr, ctypes.c_size_t(size), 2)
    return got.raw == sent


def in_stages():
    """8 MiB, and 16 MiB in two stages of which one is within the other, after a flat one."""
    import reveille

    def hold(mib):
        addr = ctypes.c_void_p()
        assert runtime().cudaMalloc(ctypes.byref(addr), ctypes.c_size_t(mib << 20)) == 0
        return addr

    held = hold(8)
    reveille.stage("load")
    with reveille.stage("step"):
        with reveille.stage("forward"):
            more = hold(16)
            runtime().cudaFree(more)
        with reveille.stage("backward"):
            hold(2)
    reveille.stage("end")
    runtime().cudaFree(held)


if __name__ == "__main__":
    print("in use:", allocate(int(sys.argv[1])))
