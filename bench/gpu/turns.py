# SPDX-License-Identifier: MIT
"""Two engines that each want the whole card take turns: seconds from a request for one to its first token.

usage: turns.py LIBRARY_DIR [--out FILE] [--gib SIZES] [--rounds N] [--sleepers N] [--seconds N] [--pairs] [--small]
  LIBRARY_DIR  has libreveille.so.0, libreveille-torch.so and _headers.py, or is a build folder
  --gib        GiB of weights of both engines, or of each: default 16,40,70:16 (a host of 128 GiB has no
               room for backups of 70 GiB twice)
  --rounds     there and back, of each way; default 2
  --sleepers   engines that sleep at once; default 8
  --seconds    what has not begun by then is left out, and named; default 480
  --pairs      sleep and pause alone
  --small      64 MiB of weights, for simulated GPUs, where times mean nothing

An engine is a process of PyTorch: weights with a host backup, a cache of what the card has left, and a graph that
computes a token from all of its weights. The one that schedules them has no CUDA, and reads NVML.

ways, a JSON line for each turn:
  sleep   reveille.sleep() of one, reveille.wake() of the other, the token
  pause   reveille.pause(), reveille.resume(): contexts and graphs of both stay on the card
  restart the one ends, and another is started; its weights are made and not read, so a real one takes longer
  driver  the driver's checkpoint of the awake process alone; one process off, then back; its cache has 1 GiB
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
from typing import Any

SOURCE = Path(__file__).resolve().parents[2]
MIB, GIB = 1 << 20, 1 << 30
SPARE = 4 * GIB  # of the card, for what the other leaves there in a pause
BEGUN = time.perf_counter()


# ---- An engine ----


class Engine:
    """What answers the scheduler's words, a line each."""

    def __init__(self, weights: int, width: int, cache: int | None) -> None:
        import reveille
        import torch

        self.reveille, self.torch = reveille, torch
        reveille.hook_mode()  # opens it before PyTorch takes memory
        torch.manual_seed(1)
        count = max(1, weights // (width * width * 2))
        with reveille.region("weights", backup="host"):
            self.weights = [
                torch.randn(width, width, device="cuda", dtype=torch.bfloat16) for _ in range(count)
            ]
        if cache is None:
            cache = torch.cuda.mem_get_info()[0] - SPARE
        piece = min(cache, GIB)
        with reveille.region("kv_cache"):
            self.cache = [
                torch.empty(piece, dtype=torch.uint8, device="cuda") for _ in range(cache // piece)
            ]
        self.x = torch.randn(8, width, device="cuda", dtype=torch.bfloat16)
        self.graph = self._capture()
        self.first = self.token()["token"]

    def _step(self) -> Any:
        y = self.x
        for weight in self.weights:
            y = self.torch.nn.functional.normalize(y @ weight, dim=1)
        return y.float().sum(0).argmax()

    def _capture(self) -> Any:
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), self.reveille.cuda_graph(graph, tag="graph", backup="host"):
            self.y = self._step()
        return graph

    def token(self) -> dict[str, Any]:
        self.y.fill_(-1)
        self.graph.replay()
        return {"token": int(self.y)}

    def sleep(self) -> None:
        self.reveille.sleep()

    def wake(self) -> None:
        self.reveille.wake()

    def pause(self) -> None:
        self.reveille.pause()

    def resume(self) -> None:
        self.reveille.resume()

    def off(self) -> None:
        self._driver("Lock", "Checkpoint")

    def on(self) -> None:
        self._driver("Restore", "Unlock")

    def _driver(self, *steps: str) -> None:
        for step in steps:
            answer = getattr(C.CDLL("libcuda.so.1"), f"cuCheckpointProcess{step}")(os.getpid(), None)
            if answer != 0:
                raise RuntimeError(f"cuCheckpointProcess{step} answered {answer}")

    def host(self) -> dict[str, int]:
        """Host memory of this process; what it shares with others is counted in parts."""
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return {"host_mib": int(line.split()[1]) >> 10}
        raise RuntimeError("no Pss")


def be_engine(weights: str, width: str, cache: str) -> None:
    """Answers on what was stdout: nothing that a library prints gets between."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    engine = Engine(int(weights), int(width), None if cache == "rest" else int(cache))
    answer(token=engine.first)
    for line in sys.stdin:
        begin = time.perf_counter()
        try:
            found = getattr(engine, line.strip())() or {}
        except Exception as error:
            answer(error=f"{type(error).__name__}: {error}")
            continue
        answer(s=round(time.perf_counter() - begin, 4), **found)
    os._exit(0)  # asleep or awake: an engine that ends says nothing more


# ---- The scheduler ----


class Failed(Exception):
    """An engine has died, or has refused a word."""


class Client:
    """An engine, as its scheduler sees it."""

    def __init__(self, settings: argparse.Namespace, weights: int, cache: str = "rest") -> None:
        self.began = time.perf_counter()
        width = 256 if settings.small else 8192
        arguments = [__file__, "--engine", str(weights), str(width), cache]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, *arguments], stdin=pipe, stdout=pipe, text=True, env=settings.environment
        )

    def ready(self) -> Client:
        self.token = self._answer("start")["token"]
        self.start_s = round(time.perf_counter() - self.began, 3)
        return self

    def ask(self, word: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._answer(word)

    def check_token(self) -> float:
        """Seconds of it. On a simulated GPU large tensors have no content."""
        answer = self.ask("token")
        if answer["token"] != self.token:
            raise Failed(f"token {answer['token']}, and {self.token} at the start")
        return answer["s"]

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self, word: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"{word}: the engine ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{word}: {answer['error']}")
        return answer


class Card:
    """What is in use on it, by NVML, beyond what was at the beginning."""

    class Memory(C.Structure):
        _fields_ = [(name, C.c_ulonglong) for name in ("total", "free", "used")]

    def __init__(self) -> None:
        self._nvml, self._card = C.CDLL("libnvidia-ml.so.1"), C.c_void_p()
        assert self._nvml.nvmlInit_v2() == 0
        assert self._nvml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(self._card)) == 0
        self._idle = 0
        self._idle = self._used()

    def _used(self) -> int:
        memory = self.Memory()
        assert self._nvml.nvmlDeviceGetMemoryInfo(self._card, C.byref(memory)) == 0
        return memory.used

    def used_mib(self) -> int:
        return (self._used() - self._idle) >> 20


def host_free_gib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / (1 << 20)
    raise Failed("no MemAvailable")


class Bench:
    def __init__(self, settings: argparse.Namespace) -> None:
        self.settings = settings
        self.card = Card()
        self.failed = False

    def tell(self, **facts: Any) -> None:
        line = json.dumps({"at_s": round(time.perf_counter() - BEGUN, 1), **facts})
        print(line, flush=True)
        if self.settings.out:
            with open(self.settings.out, "a", encoding="utf-8") as out:
                print(line, file=out)

    def part(self, name: str, seconds: int, function: Any, *arguments: Any) -> None:
        """Runs one, unless there is no time left for it."""
        if not self.settings.small and time.perf_counter() - BEGUN + seconds > self.settings.seconds:
            self.tell(part=name, left_out=f"takes {seconds} s")
            return
        try:
            function(*arguments)
        except (Failed, OSError) as error:
            self.failed = True
            self.tell(part=name, failed=str(error))

    # ---- Parts ----

    def pair(self, name: str, sizes: list[int]) -> None:
        """Two engines, all ways in which both stay alive."""
        engines = []
        for size in sizes:
            engine = Client(self.settings, size).ready()
            awake_mib = self.card.used_mib()
            slept = engine.ask("sleep")
            self.tell(
                part=name, weights_mib=size // MIB, start_s=engine.start_s, awake_mib=awake_mib, first_sleep_s=slept["s"],
                asleep_mib=self.card.used_mib(), host_free_gib=round(host_free_gib(), 1), host_mib=engine.ask("host")["host_mib"],
            )  # fmt: skip
            engines.append(engine)
        engines[0].ask("wake")
        self.turns(name, "sleep", (engines, "sleep", "wake"), first=0)
        engines[0].ask("pause")
        engines[1].ask("wake")
        self.turns(name, "pause", (engines, "pause", "resume"), first=1)
        for engine in engines:
            engine.end()

    def turns(self, name: str, way: str, how: tuple[list[Client], str, str], first: int) -> None:
        engines, off, on = how
        for _ in range(self.settings.rounds):
            for one in (first, 1 - first):
                self.turn(name, way, (engines[one], off), (engines[1 - one], on))

    def turn(self, name: str, way: str, one: tuple[Client, str], other: tuple[Client, str]) -> None:
        begin = time.perf_counter()
        off = one[0].ask(one[1])
        left_mib = self.card.used_mib()
        on = other[0].ask(other[1])
        token_s = other[0].check_token()
        self.tell(
            part=name, way=way, request_to_token_s=round(time.perf_counter() - begin, 3),
            off_s=off["s"], left_mib=left_mib, on_s=on["s"], token_s=token_s,
        )  # fmt: skip

    def restart(self, size: int) -> None:
        engine = Client(self.settings, size).ready()
        begin = time.perf_counter()
        engine.end()
        end_s, left_mib = time.perf_counter() - begin, self.card.used_mib()
        other = Client(self.settings, size).ready()
        token_s = other.check_token()
        self.tell(
            part="restart", way="restart", weights_mib=size // MIB, request_to_token_s=round(time.perf_counter() - begin, 3),
            off_s=round(end_s, 3), left_mib=left_mib, on_s=other.start_s, token_s=token_s,
        )  # fmt: skip
        other.end()

    def driver(self, size: int) -> None:
        """One process for both: what one takes to leave and another to come."""
        engine = Client(self.settings, size, cache=str(GIB)).ready()
        self.turn(f"driver{size // GIB}", "driver", (engine, "off"), (engine, "on"))
        engine.end()

    def sleepers(self, count: int) -> None:
        """All start at once, sleep one after the other, and the first wakes among them."""
        size, before_gib = 64 * MIB, host_free_gib()
        starting = [Client(self.settings, size, cache=str(64 * MIB)) for _ in range(count)]
        engines = [engine.ready() for engine in starting]
        awake_mib = self.card.used_mib()
        slept = [engine.ask("sleep")["s"] for engine in engines]
        asleep_mib, host_gib = self.card.used_mib(), before_gib - host_free_gib()
        host = [engine.ask("host")["host_mib"] for engine in engines]
        woke = engines[0].ask("wake")
        token_s = engines[0].check_token()
        self.tell(
            part="sleepers", count=count, weights_mib=size // MIB, awake_mib=awake_mib, asleep_mib=asleep_mib,
            slept_s=slept, host_mib_each=host, host_free_less_gib=round(host_gib, 2), wake_s=woke["s"], token_s=token_s,
        )  # fmt: skip
        for engine in engines:
            engine.end()


def sizes_of(text: str) -> list[tuple[str, list[int]]]:
    """"40" is two engines of 40 GiB, "70:16" one of each."""
    found = []
    for part in text.split(","):
        pair = [int(each) * GIB for each in part.split(":")]
        found.append((f"pair{part}", pair * 2 if len(pair) == 1 else pair))
    return found


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("libraries", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gib", default="16,40,70:16")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sleepers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--small", action="store_true")
    settings = parser.parse_args()
    settings.environment = {
        **os.environ,
        "RVL_LIBRARY_DIR": str(settings.libraries.resolve()),
        "PYTHONPATH": str(SOURCE / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return settings


def main() -> int:
    settings = read_arguments()
    bench = Bench(settings)
    small = 64 * MIB
    pairs = [("pair", [small, small])] if settings.small else sizes_of(settings.gib)
    for name, sizes in pairs:
        # A start, two first pauses which make host memory, and turns of some 10 s for 70 GiB.
        seconds = 30 + sum(sizes) // GIB * (1 + settings.rounds // 2)
        bench.part(name, seconds, bench.pair, name, sizes)
    if not settings.pairs:
        bench.part("restart", 30, bench.restart, pairs[0][1][0])
        bench.part("sleepers", 40, bench.sleepers, settings.sleepers)
    for size in sorted({max(sizes) for _, sizes in pairs} if not settings.pairs else ()):
        bench.part(f"driver{size // GIB}", 15 + size // GIB, bench.driver, size)
    bench.tell(part="end", failed=bench.failed)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        be_engine(*sys.argv[2:])
    sys.exit(main())
