#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a driver does about released memory: the time of the first cuMemCreate after blocks were
released, by how many bytes and how long ago, and of a copy to the new block.

    bench/gpu/reclaim.py

Prints a line for each case: GiB released, seconds of rest, then milliseconds of create and copy of
1800 MiB, twice. Needs libcuda.so.1 and 110 GiB of a GPU.
"""
import ctypes
import time

GIB = 1 << 30
BLOCK = 1800 << 20
U64, SIZE = ctypes.c_uint64, ctypes.c_size_t
cuda = ctypes.CDLL("libcuda.so.1")


class Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", ctypes.c_int * 2),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = [("location", ctypes.c_int * 2), ("flags", ctypes.c_int)]


def need(result, what):
    if result != 0:
        raise SystemExit(f"{what}: CUresult {result}")


def timed(what, call, *words):
    begin = time.perf_counter()
    need(call(*words), what)
    return (time.perf_counter() - begin) * 1e3


def make(size):
    handle, addr = U64(), U64()
    where = Properties(type=1, location=(1, 0))
    access = Access(location=(1, 0), flags=3)
    create_ms = timed("cuMemCreate", cuda.cuMemCreate, ctypes.byref(handle), SIZE(size),
                      ctypes.byref(where), U64(0))
    need(cuda.cuMemAddressReserve(ctypes.byref(addr), SIZE(size), SIZE(0), U64(0), U64(0)), "reserve")
    need(cuda.cuMemMap(addr, SIZE(size), SIZE(0), handle, U64(0)), "map")
    need(cuda.cuMemSetAccess(addr, SIZE(size), ctypes.byref(access), SIZE(1)), "access")
    return (handle, addr, size), create_ms


def release(block):
    handle, addr, size = block
    need(cuda.cuMemUnmap(addr, SIZE(size)), "unmap")
    need(cuda.cuMemRelease(handle), "release")
    need(cuda.cuMemAddressFree(addr, SIZE(size)), "address")


def main():
    context, host = ctypes.c_void_p(), ctypes.c_void_p()
    need(cuda.cuInit(0), "cuInit")
    need(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "context")
    need(cuda.cuCtxSetCurrent(context), "context")
    need(cuda.cuMemHostAlloc(ctypes.byref(host), SIZE(2 * GIB), 0), "host memory")
    for released_gib in (10, 50, 100):
        for rest_s in (0, 0.1, 0.5, 2):
            for block in [make(released_gib * GIB // 5)[0] for _ in range(5)]:
                release(block)
            time.sleep(rest_s)
            blocks, shown = [], []
            for _ in range(2):
                block, create_ms = make(BLOCK)
                copy_ms = timed("copy", cuda.cuMemcpyHtoD_v2, block[1], host, SIZE(BLOCK))
                shown.append(f"{create_ms:6.2f} {copy_ms:6.1f}")
                blocks.append(block)
            print(f"{released_gib:4} {rest_s:4}   " + "   ".join(shown), flush=True)
            for block in blocks:
                release(block)


main()
