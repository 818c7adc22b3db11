# SPDX-License-Identifier: MIT
"""The first pause with a host backup, and later ones: GB/s by how the host memory is made.

usage: first_pause.py LIBRARY_DIR [--out FILE] [--gib SIZES] [--ways WAYS] [--rounds N] [--small]
  LIBRARY_DIR  has libreveille.so.0 and _headers.py, or is a build folder
  --gib        GiB of the tag, each in a process of its own; default 16,40
  --ways       of usual (made by the pause), ahead, pageable (not registered), pageable-ahead; default: all
  --rounds     processes of each size and way, by turns; default 3
  --small      64 MiB in blocks of 1 MiB, for simulated GPUs, where times mean nothing

A JSON line for each process: `way`, `made_s` (until the memory had been made: the process's resident size has grown
by the tag's), GB/s of the first and the second pause and of the resumes behind them, and of one copy of 1 GiB of
pinned memory each way, which is the link. Blocks of 1 GiB; each has a number of its own, which is compared after both.
"""

from __future__ import annotations

import argparse
import ctypes as C
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

SOURCE = Path(__file__).resolve().parents[2]
MIB, GIB = 1 << 20, 1 << 30
READY_S = 120.0
WAYS = "usual", "ahead", "pageable", "pageable-ahead"


class Driver:
    """Calls of the driver; each must succeed."""

    def __init__(self) -> None:
        self._library = C.CDLL("libcuda.so.1")

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status != 0:
                raise SystemExit(f"{name}: the driver returned {status}")

        return call


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def link_gbps(driver: Driver, device: int, size: int) -> dict[str, float]:
    """The best of three copies each way."""
    host = C.c_void_p()
    driver.cuMemAllocHost_v2(C.byref(host), C.c_size_t(size))
    ways = {
        "link_down": lambda: driver.cuMemcpyDtoH_v2(host, C.c_uint64(device), C.c_size_t(size)),
        "link_up": lambda: driver.cuMemcpyHtoD_v2(C.c_uint64(device), host, C.c_size_t(size)),
    }
    found = {name: round(size / min(seconds(way) for _ in range(3)) / 1e9, 2) for name, way in ways.items()}
    driver.cuMemFreeHost(host)
    return found


def measure(size: int, way: str) -> dict[str, Any]:
    import reveille

    ahead, pageable = way.endswith("ahead"), way.startswith("pageable")
    driver, block = Driver(), GIB if size >= GIB else MIB
    before = resident_bytes()
    context = reveille.Context("cuda", devices=[0], host_ahead=ahead, host_pageable=pageable)
    blocks = [context.alloc(block, "weights", backup="host") for _ in range(size // block)]
    current = C.c_void_p()
    driver.cuDevicePrimaryCtxRetain(C.byref(current), 0)
    driver.cuCtxSetCurrent(current)

    def words() -> list[int]:
        """The last of each block."""
        found = C.c_uint32()
        read = []
        for at in blocks:
            driver.cuMemcpyDtoH_v2(C.byref(found), C.c_uint64(at + block - 4), C.c_size_t(4))
            read.append(found.value)
        return read

    for number, at in enumerate(blocks):
        driver.cuMemsetD32_v2(C.c_uint64(at), C.c_uint32(number + 1), C.c_size_t(block // 4))
    driver.cuCtxSynchronize()
    begun = time.perf_counter()
    while ahead and resident_bytes() - before < size and time.perf_counter() - begun < READY_S:
        time.sleep(0.01)
    result: dict[str, Any] = {"gib": round(size / GIB, 3), "way": way}
    result["made_s"] = round(time.perf_counter() - begun, 2)
    for name in ("first", "second"):
        result[f"{name}_pause"] = round(size / seconds(lambda: context.pause("weights")) / 1e9, 2)
        result[f"{name}_resume"] = round(size / seconds(lambda: context.resume("weights")) / 1e9, 2)
        if words() != list(range(1, len(blocks) + 1)):
            raise SystemExit(f"the content is not what it was after the {name} pause")
    return {**result, **link_gbps(driver, blocks[0], block)}


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("library")
    parser.add_argument("--out")
    parser.add_argument("--gib", default="16,40")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.ways.split(",")) - set(WAYS):
        parser.error(f"{', '.join(unknown)}: the ways are {', '.join(WAYS)}")
    if options.one:
        size, way = options.one.split(",")
        print(json.dumps(measure(int(size), way)))
        return
    sizes = [64 * MIB] if options.small else [int(each) * GIB for each in options.gib.split(",")]
    environment = dict(os.environ, RVL_LIBRARY_DIR=options.library, PYTHONPATH=str(SOURCE / "python"))
    lines = []
    for size in sizes:
        for _ in range(options.rounds):
            for way in options.ways.split(","):
                command = [sys.executable, __file__, options.library, "--one", f"{size},{way}"]
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                if done.returncode != 0:
                    raise SystemExit(f"{size / GIB:g} GiB, {way}: {done.stdout}{done.stderr}")
                lines.append(done.stdout.strip())
                print(lines[-1], flush=True)
    if options.out:
        Path(options.out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
