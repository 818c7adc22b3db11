# SPDX-License-Identifier: MIT
"""What small blocks cost if one call is for many of them, and if threads share the calls: a JSON line for each way.

usage: range_calls.py [BLOCKS]
2000 blocks, in one range or apart. `together` of them get access by one call, and are unmapped by one call. With
several threads a part is the sum over them. Needs libcuda alone. Medians without the first round, in ms.
"""

import ctypes as C
import json
import statistics
import sys
import threading
import time

from memory_calls import MIB, Location, Property, access, context, cuda, need, reserve

COUNT = int((sys.argv + ["2000"])[1])
ROUNDS = 5


def measure(size, together, threads, rdma, apart=False):
    kind = Property(1, 0, Location(1, 0), None, 0, rdma, 0)
    base = 0 if apart else reserve(COUNT * size)
    ranges = [reserve(size) if apart else base + i * size for i in range(COUNT)]
    handles = [C.c_ulonglong() for _ in ranges]
    clock = time.perf_counter

    def up(first, last, parts):
        need(cuda.cuCtxSetCurrent(context))
        for at in range(first, last, together):
            end = min(at + together, last)
            a = clock()
            for i in range(at, end):
                need(cuda.cuMemCreate(C.byref(handles[i]), size, C.byref(kind), 0))
            b = clock()
            for i in range(at, end):
                need(cuda.cuMemMap(ranges[i], size, 0, handles[i], 0))
            c = clock()
            need(cuda.cuMemSetAccess(ranges[at], (end - at) * size, C.byref(access), 1))
            d = clock()
            parts["create"] += b - a
            parts["map"] += c - b
            parts["access"] += d - c

    def down(first, last, parts):
        need(cuda.cuCtxSetCurrent(context))
        for at in range(first, last, together):
            end = min(at + together, last)
            a = clock()
            need(cuda.cuMemUnmap(ranges[at], (end - at) * size))
            b = clock()
            for i in range(at, end):
                need(cuda.cuMemRelease(handles[i]))
            parts["unmap"] += b - a
            parts["release"] += clock() - b

    def run(work, names):
        """Seconds, and for each name those of all threads."""
        share = COUNT // threads
        ends = [*range(share, share * threads, share), COUNT]
        parts = [dict.fromkeys(names, 0.0) for _ in ends]
        those = [threading.Thread(target=work, args=(k * share, ends[k], parts[k])) for k in range(threads)]
        begin = clock()
        for each in those:
            each.start()
        for each in those:
            each.join()
        took = clock() - begin
        return [took, *(sum(each[name] for each in parts) for name in names)]

    rows = []
    for _ in range(ROUNDS):
        time.sleep(0.1)
        ups = run(up, ("create", "map", "access"))
        time.sleep(0.1)
        rows.append(ups + run(down, ("unmap", "release")))
    ms = [round(statistics.median(column) * 1e3, 2) for column in zip(*rows[1:])]
    names = ("up", "create", "map", "access", "down", "unmap", "release")
    print(json.dumps({"count": COUNT, "mib": size // MIB, "together": together, "threads": threads, "rdma": rdma,
                      "apart": apart, **dict(zip(names, ms))}), flush=True)  # fmt: skip
    for at in ranges if apart else [base]:
        need(cuda.cuMemAddressFree(at, size if apart else COUNT * size))


measure(2 * MIB, 1, 1, 1, apart=True)
for rdma in (1, 0):
    for together in (1, 4, 16, 64, 500, 2000):
        measure(2 * MIB, together, 1, rdma)
for threads in (2, 4):
    measure(2 * MIB, 1, threads, 1)
    measure(2 * MIB, 64, threads, 1)
for together in (1, 16, 500):
    measure(20 * MIB, together, 1, 1)
