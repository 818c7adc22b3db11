# SPDX-License-Identifier: MIT
"""What the programs on a GPU share: checks that are printed, and written down as JSON."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Callable

import torch

MIB = 1 << 20
SIMULATED = "REVEILLE_MACHINE" in os.environ  # under `reveille run`
NEARLY = 64 * MIB  # what the driver takes for itself between two readings


class Checks:
    """Named functions, run one after the other; what they raise is a failure and no more."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.results: list[dict[str, Any]] = []

    def run(self, name: str, function: Callable[[], None]) -> None:
        """Runs one, and prints PASS or FAIL."""
        try:
            function()
            why = ""
        except BaseException as error:
            traceback.print_exc()
            why = f"{type(error).__name__}: {error}"
        self.results.append({"name": f"{self.program}: {name}", "passed": not why, "why": why})
        print(f"{'FAIL' if why else 'PASS'}  {self.program}: {name} {why}", flush=True)

    def run_on_card(self, name: str, function: Callable[[], None], why: str) -> None:
        """Runs one that a simulated GPU cannot pass, and says why where it is left out."""
        if not SIMULATED:
            self.run(name, function)
            return
        print(f"SKIP  {self.program}: {name}: {why}", flush=True)

    def end(self) -> None:
        """Writes the results beside those of other programs, and ends the process."""
        out = Path(os.environ["OUT"])
        (out / f"{self.program}.json").write_text(json.dumps(self.results, indent=2) + "\n")
        sys.stdout.flush()
        sys.exit(0 if all(each["passed"] for each in self.results) else 1)


def used() -> int:
    """Bytes in use on the device, of all processes, without what PyTorch has idle."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


def near(measured: int, expected: int) -> None:
    """Raises unless the two are the same, except for what the driver takes."""
    assert abs(measured - expected) <= NEARLY, f"{measured / MIB} MiB, not {expected / MIB}"


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the content is the same. Large tensors of a simulated GPU have none."""
    return SIMULATED or torch.equal(one, other)


def random_bytes(size: int, seed: int) -> torch.Tensor:
    """On the GPU; the same for the same seed."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda", generator=generator)
