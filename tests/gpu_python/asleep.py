# SPDX-License-Identifier: MIT
"""A process that sleeps with nothing on the card: first that it is right, then how long each part takes.

usage: asleep.py MODE [CYCLES [GIB...]]   MODE: torch or preload; GIB: sizes of weights to time
Another process, without CUDA, reads what NVML says of the card. On simulated GPUs times mean nothing.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import reveille
import torch

from common import MIB, SIMULATED, Checks, random_bytes, same

GIB = 1 << 30
WATCHER = """
import ctypes as C, sys
class M(C.Structure): _fields_ = [(n, C.c_ulonglong) for n in ("total", "free", "used")]
nvml, card, memory = C.CDLL("libnvidia-ml.so.1"), C.c_void_p(), M()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(card)) == 0
for line in sys.stdin:
    assert nvml.nvmlDeviceGetMemoryInfo(card, C.byref(memory)) == 0
    print(memory.used, flush=True)
"""


class Card:
    """What another process sees in use on the card, beyond what was in use before this one came."""

    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        pipe = subprocess.PIPE
        self._watcher = subprocess.Popen(
            [sys.executable, "-S", "-c", WATCHER],
            stdin=pipe,
            stdout=pipe,
            text=True,
            env=environment,
        )
        self._idle = 0
        self._idle = self.used()

    def used(self) -> int:
        assert self._watcher.stdin is not None and self._watcher.stdout is not None
        self._watcher.stdin.write("\n")
        self._watcher.stdin.flush()
        return int(self._watcher.stdout.readline()) - self._idle

    def end(self) -> None:
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait()


CARD = Card()  # before CUDA begins in this process


def resident() -> int:
    """Bytes of host memory that this process has, pinned memory counted."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


class Model:
    """Weights with a backup, a cache without one, and a graph on both."""

    def __init__(self, layers: int, width: int) -> None:
        with reveille.region("weights", backup="host"):
            self.weights = [torch.randn(width, width, device="cuda") for _ in range(layers)]
        with reveille.region("kv_cache"):
            self.cache = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
        self.plain = random_bytes(8 * MIB, 3)  # in no region: the driver brings it back
        self.x = torch.randn(8, width, device="cuda")
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(2):
                self._walk()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), reveille.cuda_graph(self.graph, tag="graph", backup="host"):
            self.y = self._walk()
        self.wanted = self.output()
        self.kept = self.plain.clone()

    def _walk(self) -> torch.Tensor:
        y = self.x
        for weight in self.weights:
            y = torch.tanh(y @ weight * 0.01)
        return y

    def output(self) -> torch.Tensor:
        self.y.zero_()
        self.graph.replay()
        torch.cuda.synchronize()
        return self.y.clone()


def cycles(checks: Checks, count: int) -> None:
    model = Model(8, 1024)
    sizes: list[int] = []
    sleeps: list[float] = []
    wakes: list[float] = []

    def go() -> None:
        for number in range(count):
            addresses = [weight.data_ptr() for weight in model.weights]
            begin = time.perf_counter()
            reveille.sleep()
            middle = time.perf_counter()
            assert reveille.asleep()
            left = CARD.used()
            assert left <= 0, f"cycle {number}: {left / MIB} MiB on the card"
            again = time.perf_counter()
            reveille.wake()
            sleeps.append(middle - begin)
            wakes.append(time.perf_counter() - again)
            assert [weight.data_ptr() for weight in model.weights] == addresses
            assert same(model.output(), model.wanted), f"cycle {number}: another output"
            assert same(model.plain, model.kept), f"cycle {number}: memory outside regions"
            sizes.append(resident())

    checks.run(f"{count} cycles, nothing on the card, the same output of a graph", go)

    def flat() -> None:
        settled, last = sizes[len(sizes) // 5], sizes[-1]
        print(
            f"host memory after cycle {len(sizes) // 5 + 1}: {settled / MIB:.0f} MiB, "
            f"after the last: {last / MIB:.0f} MiB"
        )
        assert last - settled <= 32 * MIB, f"{(last - settled) / MIB} MiB more"

    checks.run("host memory stays as it is", flat)
    if sleeps:
        tell(
            "cycles",
            count=count,
            sleep_s=statistics.median(sleeps),
            wake_s=statistics.median(wakes),
            slowest_sleep_s=max(sleeps),
            slowest_wake_s=max(wakes),
        )


def refused(checks: Checks) -> None:
    def meanwhile() -> None:
        reveille.sleep()
        try:
            reveille.sleep()
            raise AssertionError("slept twice")
        except reveille.InvalidState:
            pass
        try:
            reveille.pause()
            raise AssertionError("paused asleep")
        except reveille.InvalidState as error:
            assert "asleep" in str(error)
        finally:
            reveille.wake()

    def managed() -> None:
        """Last: on a card no process sleeps any more that ever had managed memory."""
        cuda, at = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
        assert cuda.cuMemAllocManaged(ctypes.byref(at), ctypes.c_size_t(MIB), 1) == 0
        try:
            reveille.sleep()
            raise AssertionError("slept with managed memory")
        except reveille.NotSupported as error:
            assert "managed memory" in str(error), error
        assert cuda.cuMemFree_v2(at) == 0
        assert not reveille.asleep()
        assert SIMULATED or torch.ones(4, device="cuda").sum().item() == 4

    checks.run("calls are refused while it sleeps", meanwhile)
    checks.run("managed memory is refused, and no harm done", managed)


def partly_paused(checks: Checks) -> None:
    def go() -> None:
        with reveille.Context("cuda") as gpu:
            used = gpu.alloc(64 * MIB, "weights", backup="host")
            unused = gpu.alloc(64 * MIB, "weights", backup="host", paused=True)
            for _ in range(2):
                reveille.sleep()
                reveille.wake()
                states = [gpu.allocation(each).state for each in (used, unused)]
                assert states == ["active", "paused"], states
            gpu.resume("weights")
            assert gpu.allocation(unused).state == "active"

    checks.run("what was paused of a tag before stays paused", go)


# ---- Times ----


def tell(what: str, **facts: object) -> None:
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in facts.items()}
    print("FACT " + json.dumps({"what": what, **rounded}), flush=True)


def timed(function) -> float:  # noqa: ANN001
    torch.cuda.synchronize() if not reveille.asleep() else None
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def parts(gib: int, rounds: int) -> None:
    """Each part by itself, and the whole in one call."""
    with reveille.region(f"big{gib}", backup="host"):
        big = [torch.empty(GIB // 4, dtype=torch.uint8, device="cuda") for _ in range(gib * 4)]
    for tensor in big:
        tensor.fill_(7)
    for number in range(rounds):
        awake = CARD.used()
        pause_s = timed(reveille.pause)
        torch.cuda.empty_cache()
        paused = CARD.used()
        off_s = timed(reveille.sleep)
        asleep = CARD.used()
        back_s = timed(lambda: reveille.wake(paused=True))
        resume_s = timed(reveille.resume)
        sleep_s = timed(reveille.sleep)
        nothing = CARD.used()
        wake_s = timed(reveille.wake)
        tell(
            "parts",
            gib=gib,
            round=number,
            awake_mib=awake // MIB,
            paused_mib=paused // MIB,
            asleep_mib=asleep // MIB,
            nothing_mib=nothing // MIB,
            pause_s=pause_s,
            off_s=off_s,
            back_s=back_s,
            resume_s=resume_s,
            sleep_s=sleep_s,
            wake_s=wake_s,
        )
    assert all(bool((tensor == 7).all()) for tensor in big[:4]) or SIMULATED
    del big
    gc.collect()
    torch.cuda.empty_cache()


def alone(gib: int) -> None:
    """The driver's checkpoint of the process as it is: no pause before."""
    cuda, me = ctypes.CDLL("libcuda.so.1"), os.getpid()
    plain = torch.empty(gib * GIB, dtype=torch.uint8, device="cuda")
    plain.fill_(7)
    torch.cuda.synchronize()
    seconds = {}
    for name in ("Lock", "Checkpoint", "Restore", "Unlock"):
        begin = time.perf_counter()
        answer = getattr(cuda, f"cuCheckpointProcess{name}")(me, None)
        seconds[name.lower() + "_s"] = time.perf_counter() - begin
        assert answer == 0, (name, answer)
    tell("driver alone", gib=gib, **seconds)


def main() -> None:
    mode, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    sizes = [int(each) for each in sys.argv[3:]]
    reveille.hook_mode()  # opens it
    checks = Checks(f"asleep_{mode}")
    checks.run("the hook is the one that was asked for", lambda: _is(mode))
    cycles(checks, count)
    for gib in sizes:
        checks.run(f"{gib} GiB in parts", lambda gib=gib: parts(gib, 3))
    if len(sizes) > 1:
        checks.run(f"the driver alone, {sizes[1]} GiB", lambda: alone(sizes[1]))
    partly_paused(checks)
    refused(checks)
    CARD.end()
    checks.end()


def _is(mode: str) -> None:
    assert reveille.hook_mode() == mode, reveille.hook_mode()


main()
