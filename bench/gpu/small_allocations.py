#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How cudaMalloc() lays small requests into pages, on a card: a JSON line for each size.

Needs a CUDA runtime (libcudart), by name or beside PyTorch. `used`: what cudaMemGetInfo() has less by;
`gap`: from one address to the next; `back`: what is missing after all were freed.
"""

import ctypes
import glob
import json
import os
import sys

SIZES = (1, 256, 257, 512, 513, 1000, 4096, 65536, 100000, 262144, 524288, 524289, 786432, 1048576,
         1048577, 1572864, 2097152, 2097153, 3145728, 4194305, 20971520)  # fmt: skip


def open_runtime():
    names = ["libcudart.so.13", "libcudart.so.12", "libcudart.so"]
    try:
        import torch

        beside = os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "**", "libcudart.so.*")
        names += glob.glob(beside, recursive=True)
    except ImportError:
        pass
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    sys.exit("no libcudart.so: install the CUDA runtime, or PyTorch's CUDA build")


def free_bytes(runtime):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) != 0:
        sys.exit("cudaMemGetInfo failed: is there a card?")
    return free.value


def measure(runtime, size, count):
    before = free_bytes(runtime)
    addresses = []
    for _ in range(count):
        pointer = ctypes.c_void_p()
        if runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) != 0:
            sys.exit(f"cudaMalloc of {size} bytes failed after {len(addresses)}")
        addresses.append(pointer.value)
    used = before - free_bytes(runtime)
    addresses.sort()
    gaps = sorted(after - at for at, after in zip(addresses, addresses[1:]))
    for address in addresses:
        runtime.cudaFree(ctypes.c_void_p(address))
    return {"size": size, "count": count, "used": used, "gap_least": gaps[0],
            "gap_median": gaps[len(gaps) // 2], "back": free_bytes(runtime) - before}  # fmt: skip


def main():
    runtime = open_runtime()
    runtime.cudaFree(None)
    for size in SIZES:
        print(json.dumps(measure(runtime, size, 64 if size <= 2097153 else 8)))


main()
