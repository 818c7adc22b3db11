# SPDX-License-Identifier: MIT
"""What makes the driver's calls for blocks slower in a resume than alone: a JSON line for each way. Needs libcuda alone.

usage: block_calls.py [WORKS]   how many of the four, from the last

Blocks lie in one range, or apart in a range each. Calls go by kind (all creates, all maps, ...) or by block. Before them
nobody calls the driver for `rest_s` seconds. Medians without the first round, in ms.
"""

import ctypes as C
import json
import statistics
import sys
import time

from memory_calls import MIB, access, cuda, kind, need, reserve

WORKS = ((90, 22 * MIB), (80, 118 * MIB), (48, 448 * MIB), (1, 9216 * MIB))[-int((sys.argv + ["4"])[1]) :]
ROUNDS = 3


def backed(ranges, size, by_block):
    """Handles, and seconds of creates, maps, accesses."""
    handles, took = [C.c_ulonglong() for _ in ranges], [0.0, 0.0, 0.0]
    clock = time.perf_counter
    order = [[i] for i in range(len(ranges))] if by_block else [list(range(len(ranges)))]
    begin = clock()
    for some in order:
        a = clock()
        for i in some:
            need(cuda.cuMemCreate(C.byref(handles[i]), size, C.byref(kind), 0))
        b = clock()
        for i in some:
            need(cuda.cuMemMap(ranges[i], size, 0, handles[i], 0))
        c = clock()
        for i in some:
            need(cuda.cuMemSetAccess(ranges[i], size, C.byref(access), 1))
        d = clock()
        took = [t + s for t, s in zip(took, (b - a, c - b, d - c))]
    return handles, clock() - begin, took


def taken_down(ranges, size, handles, by_block):
    clock = time.perf_counter
    unmaps = releases = 0.0
    order = [[i] for i in range(len(ranges))] if by_block else [list(range(len(ranges)))]
    begin = clock()
    for some in order:
        a = clock()
        for i in some:
            need(cuda.cuMemUnmap(ranges[i], size))
        b = clock()
        for i in some:
            need(cuda.cuMemRelease(handles[i]))
        unmaps, releases = unmaps + b - a, releases + clock() - b
    return clock() - begin, [unmaps, releases]


for count, size in WORKS:
    for apart in (False, True):
        base = 0 if apart else reserve(count * size)
        ranges = [reserve(size) if apart else base + i * size for i in range(count)]
        for by_block in (False, True):
            for rest in (0.02, 0.4):
                rows = []
                for _ in range(ROUNDS):
                    time.sleep(rest)
                    handles, up, parts = backed(ranges, size, by_block)
                    time.sleep(rest)
                    down, down_parts = taken_down(ranges, size, handles, by_block)
                    rows.append([up, *parts, down, *down_parts])
                ms = [round(statistics.median(column) * 1e3, 3) for column in zip(*rows[1:])]
                names = ("up", "create", "map", "access", "down", "unmap", "release")
                print(json.dumps({"count": count, "mib": size // MIB, "apart": apart, "by_block": by_block,
                                  "rest_s": rest, **dict(zip(names, ms))}), flush=True)  # fmt: skip
        for at in ranges if apart else [base]:
            need(cuda.cuMemAddressFree(at, size if apart else count * size))
