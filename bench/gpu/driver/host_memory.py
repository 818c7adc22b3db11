# SPDX-License-Identifier: MIT
"""How fast host memory is made by so many threads, and pinned: a JSON line for each. Needs libcuda alone.

usage: host_memory.py [MIB]   of host memory, default 8192; a multiple of 64

Each thread brings in pieces of 8 MiB by madvise(MADV_POPULATE_WRITE), as a first pause does. Pinning is
cuMemHostRegister() in chunks of 64 MiB, by one thread and by two.
"""

import ctypes as C
import json
import os
import sys
import threading
import time

MIB = 1 << 20
SIZE = int((sys.argv + ["8192"])[1]) << 20
PIECE = 8 * MIB
CHUNK = 64 * MIB
HUGE, POPULATE = 14, 23  # MADV_HUGEPAGE, MADV_POPULATE_WRITE

libc = C.CDLL(None, use_errno=True)
libc.mmap.restype = C.c_void_p
libc.mmap.argtypes = [C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.c_int, C.c_long]
libc.madvise.argtypes = [C.c_void_p, C.c_size_t, C.c_int]
libc.munmap.argtypes = [C.c_void_p, C.c_size_t]
cuda = C.CDLL("libcuda.so.1")
cuda.cuMemHostRegister_v2.argtypes = [C.c_void_p, C.c_size_t, C.c_uint]
cuda.cuMemHostUnregister.argtypes = [C.c_void_p]


def need(good, what):
    if not good:
        sys.exit(f"{what}: errno {C.get_errno()}")


def share(count, pieces, work):
    """Seconds in which so many threads have done all pieces."""
    at = iter(pieces)
    lock = threading.Lock()

    def run():
        while True:
            with lock:
                piece = next(at, None)
            if piece is None:
                return
            work(piece)

    threads = [threading.Thread(target=run) for _ in range(count)]
    begin = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return time.perf_counter() - begin


context = C.c_void_p()
need(cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(C.byref(context), 0) == 0, "context")


def pin(at):
    cuda.cuCtxSetCurrent(context)
    need(cuda.cuMemHostRegister_v2(at, CHUNK, 1) == 0, "registering")


for threads in (2, 4, 8, 12, 16, 24, 32):
    if threads > (os.cpu_count() or 1):
        break
    for pinners in (1, 2):
        base = libc.mmap(None, SIZE + 2 * MIB, 3, 0x22, -1, 0)
        start = (base + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
        need(libc.madvise(start, SIZE, HUGE) == 0, "huge pages")
        made = share(threads, range(start, start + SIZE, PIECE), lambda at: libc.madvise(at, PIECE, POPULATE))
        pinned = share(pinners, range(start, start + SIZE, CHUNK), pin)
        print(json.dumps({"threads": threads, "pinners": pinners, "made_gb_per_s": round(SIZE / made / 1e9, 1),
                          "pinned_gb_per_s": round(SIZE / pinned / 1e9, 1)}), flush=True)  # fmt: skip
        for at in range(start, start + SIZE, CHUNK):
            cuda.cuMemHostUnregister(at)
        libc.munmap(base, SIZE + 2 * MIB)
