# SPDX-License-Identifier: MIT
"""What the recorder sees of PyTorch's expandable segments, of NCCL and of NVTX, against the driver.

One process a card, two at most, each recorded into a file of its own. They mark stages by NVTX, and
note what the driver says is in use at the end of each. What a trace has taken and given back in a
stage must be what the driver's number has changed by.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import reveille
import torch
import torch.distributed
from reveille import _c

from common import MIB, NEARLY, Checks, near

PREFIX = "stage:"
TENSOR = 128 * MIB
STAGES = ("warm", "grown", "shrunk", "nccl_first", "nccl_second", "nccl_gone", "end")


# ---- A process that is recorded ----


class Work:
    """Its stages, and what the driver said at their ends."""

    def __init__(self, rank: int, ranks: int, folder: Path) -> None:
        self.rank, self.ranks, self.folder = rank, ranks, folder
        self.store = torch.distributed.FileStore(str(folder / "store"), ranks)
        self.used: dict[str, int] = {}
        torch.cuda.set_device(rank)

    def together(self, name: str) -> None:
        """Waits for the other process, which takes memory of its own card alone."""
        self.store.add(name, 1)
        while self.store.add(name, 0) < self.ranks:
            time.sleep(0.01)

    def stage(self, name: str) -> None:
        with torch.cuda.nvtx.range(PREFIX + name):
            pass

    def end_of(self, name: str) -> None:
        torch.cuda.synchronize()
        self.together(name + " done")  # the other process may still map memory of this card
        free, total = torch.cuda.mem_get_info()
        self.used[name] = total - free
        self.together(name)

    def warm(self) -> None:
        """The context and the first kernels, so that later stages have what they name alone."""
        self.given = torch.ones(1024, device="cuda")
        assert float((self.given + self.given).sum()) == 2048

    def grown(self) -> None:
        self.tensors = [torch.empty(TENSOR, dtype=torch.uint8, device="cuda") for _ in range(8)]

    def shrunk(self) -> None:
        del self.tensors[2:6]
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def nccl_first(self) -> None:
        """The first communicator also loads NCCL's kernels."""
        torch.distributed.init_process_group(
            "nccl", store=self.store, rank=self.rank, world_size=self.ranks
        )
        torch.distributed.all_reduce(self.given)

    def nccl_second(self) -> None:
        group = torch.distributed.new_group(list(range(self.ranks)))
        torch.distributed.all_reduce(self.given, group=group)

    def nccl_gone(self) -> None:
        torch.distributed.destroy_process_group()

    def run(self) -> None:
        for name in STAGES[:-1]:
            self.stage(name)
            getattr(self, name)()
            self.end_of(name)
        self.stage(STAGES[-1])  # at the end of the process all is given back
        facts = {
            "used": self.used,
            "pid": os.getpid(),
            "mode": reveille.hook_mode(),
            "expandable": any(each["is_expandable"] for each in torch.cuda.memory_snapshot()),
        }
        (self.folder / f"{self.rank}.facts").write_text(json.dumps(facts))


# ---- What is in a trace ----


class Trace:
    """Bytes taken less bytes given back in each stage, on the device where most of it is.

    What the driver is known to have taken for itself (streams, code) is among them.
    """

    def __init__(self, path: Path) -> None:
        self.stages: list[str] = []
        self.allocations: dict[str, int] = {}
        self._changes: dict[str, dict[str, int]] = {}
        live: dict[str, tuple[str, int]] = {}
        told: dict[tuple[str, str], int] = {}  # by device and cause
        stage = ""
        for line in path.read_text().splitlines():
            kind, *fields = line.split(" ")
            if kind == "stage":
                stage = fields[3]
                self.stages.append(stage)
            elif kind == "enter":  # a range of NVTX; the next one begins where it ends
                stage = fields[4]
                self.stages.append(stage)
            elif kind == "alloc":
                number, device, size = fields[3], fields[4], int(fields[5])
                live[number] = device, size
                self._add(device, stage, size)
                self.allocations[stage] = self.allocations.get(stage, 0) + 1
            elif kind == "free":
                device, size = live.pop(fields[3])
                self._add(device, stage, -size)
            elif kind == "external":  # what the driver took for itself, so far
                device, size, cause = fields[3], int(fields[4]), fields[5]
                self._add(device, stage, size - told.get((device, cause), 0))
                told[device, cause] = size
                if cause.startswith("nccl:"):
                    self.allocations[stage] = self.allocations.get(stage, 0) + 1
        moved = {d: sum(map(abs, changes.values())) for d, changes in self._changes.items()}
        self._device = max(moved, key=lambda device: moved[device], default="")

    def _add(self, device: str, stage: str, size: int) -> None:
        changes = self._changes.setdefault(device, {})
        changes[stage] = changes.get(stage, 0) + size

    def change(self, stage: str) -> int:
        return self._changes.get(self._device, {}).get(stage, 0)


class Recorded:
    """One process: its trace, and what it noted."""

    def __init__(self, rank: int, folder: Path) -> None:
        self.facts: dict[str, Any] = json.loads((folder / f"{rank}.facts").read_text())
        self.path = folder / f"{self.facts['pid']}.rvt"
        self.trace = Trace(self.path)

    def driver_change(self, stage: str) -> int:
        used = self.facts["used"]
        return int(used[stage] - used[STAGES[STAGES.index(stage) - 1]])

    def compare(self, stage: str) -> int:
        """The two changes, which must be the same except for what the driver takes for itself."""
        recorded, driver = self.trace.change(stage), self.driver_change(stage)
        print(f"      {stage}: {recorded / MIB:+.1f} MiB recorded, {driver / MIB:+.1f} MiB by the "
              f"driver, {self.trace.allocations.get(stage, 0)} allocations")  # fmt: skip
        near(driver, recorded)
        return recorded


class Comparison:
    """The checks of one process."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded

    def stages_by_nvtx(self) -> None:
        assert self.recorded.facts["mode"] == "preload", self.recorded.facts
        assert self.recorded.trace.stages == list(STAGES), self.recorded.trace.stages
        device = reveille.replay(self.recorded.path).devices[0]
        names = [stage.name for stage in device.stages]
        assert [name for name in names if name in STAGES] == list(STAGES), names
        assert device.fits, device.oom
        grown = device.stage("grown")
        if grown.read_bytes is not None and grown.predicted_bytes is not None:
            print(f"      grown: {grown.predicted_bytes / MIB:.1f} MiB predicted, "
                  f"{grown.read_bytes / MIB:.1f} MiB read")  # fmt: skip

    def expandable_segments(self) -> None:
        assert self.recorded.facts["expandable"], "PyTorch did not use them"
        near(self.recorded.compare("grown"), 8 * TENSOR)
        near(self.recorded.compare("shrunk"), -4 * TENSOR)

    def nccl(self) -> None:
        first = self.recorded.trace.change("nccl_first")
        driver = self.recorded.driver_change("nccl_first")
        print(f"      nccl_first, with its code: {first / MIB:+.1f} MiB recorded, "
              f"{driver / MIB:+.1f} MiB by the driver")  # fmt: skip
        assert self.recorded.trace.allocations.get("nccl_first", 0) > 0, "nothing was recorded"
        assert driver >= first - NEARLY, (driver, first)
        self.recorded.compare("nccl_second")
        assert self.recorded.trace.allocations.get("nccl_second", 0) > 0, "nothing was recorded"
        assert self.recorded.compare("nccl_gone") < 0


def processes(folder: Path, ranks: int) -> Sequence[subprocess.Popen[bytes]]:
    """Starts them under the recorder, as `reveille record --stages-nvtx` does."""
    preload = str(_c.hook_library_path("preload"))
    environment = {
        **os.environ,
        "RVL_RECORD": str(folder / "%p.rvt"),
        "RVL_RECORD_NVTX": PREFIX,
        "NVTX_INJECTION64_PATH": preload,
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "LD_PRELOAD": preload,
        "NCCL_SOCKET_IFNAME": os.environ.get("NCCL_SOCKET_IFNAME", "lo"),
        "NCCL_NVLS_ENABLE": os.environ.get("NCCL_NVLS_ENABLE", "0"),
    }
    command = [sys.executable, __file__, str(folder), str(ranks)]
    return [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(ranks)]


def run_recorded(folder: Path, ranks: int) -> None:
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    started = processes(folder, ranks)
    try:
        statuses = [each.wait(240) for each in started]
    finally:
        for each in started:
            each.kill()
    assert statuses == [0] * ranks, statuses


def main() -> None:
    checks, folder = Checks("recorded"), Path(os.environ["OUT"]) / "recorded"
    ranks = min(2, torch.cuda.device_count())
    checks.run("processes", lambda: run_recorded(folder, ranks))
    if checks.results[-1]["passed"]:
        for rank in range(ranks):
            comparison = Comparison(Recorded(rank, folder))
            checks.run(f"stages by NVTX, card {rank}", comparison.stages_by_nvtx)
            checks.run(f"expandable segments, card {rank}", comparison.expandable_segments)
            checks.run_on_card(
                f"NCCL, card {rank}", comparison.nccl, "NCCL's memory is made by no call of CUDA"
            )
    checks.end()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Work(int(sys.argv[3]), int(sys.argv[2]), Path(sys.argv[1])).run()
    else:
        main()
