#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/rl_step on a simulated H200, compared with the card: torch_step.py REVEILLE PYTHON [OUT].

PYTHON has PyTorch's CUDA build (torch.sh installs one). REVEILLE is in a build tree with cuBLAS's header. Runs the step at full scale,
in stages and with --together, compares the driver's figures at the end of each stage with a card's (traces/recorded, bench/results), and
prints the tables of docs/fidelity/programs.md. Fails if a stage differs by more than 0.5 %, or if the step itself fails. It needs no
host memory, since nothing is backed up.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BOUND = 0.005
TREE = Path(__file__).resolve().parents[2]
RUNS = {
    "staged": ([], "traces/recorded/qwen2.5-32b-step.readings.json"),
    "together": (["--together"], "bench/results/2026-11-21-h200/rl_step_together.json"),
}


def run(reveille: Path, python: str, out: Path, options: list[str]) -> dict:
    """The step's own result."""
    environment = {
        **os.environ,
        "RVL_LIBRARY_DIR": str(reveille.parent.parent),
        "PYTHONPATH": str(TREE / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    step = TREE / "examples/rl_step/rl_step.py"
    subprocess.run([reveille, "run", "--device", "h200", "-o", out / "run.rvt", "--", python, step, "-o", out,
                    *options], env=environment, check=True, timeout=600)  # fmt: skip
    return json.loads((out / "result.json").read_text())


def compare(card: dict, simulated: dict) -> int:
    """Prints a table. Returns the number of figures that differ."""
    off = 0
    print("| end of stage | card | simulated | difference |\n| --- | --- | --- | --- |")
    for theirs, ours in zip(card["stages"], simulated["stages"], strict=True):
        assert theirs["stage"] == ours["stage"], (theirs, ours)
        expected, got = theirs["used_bytes"], ours["used_bytes"]
        part = got / expected - 1
        off += abs(part) > BOUND
        print(f"| {theirs['stage']} | {expected} | {got} | {part * 100:+.3f} % "
              f"({(got - expected) / (1 << 20):+.0f} MiB) |")  # fmt: skip
        assert ours["nvml_used_bytes"] == got, "NVML and the driver differ"
    print(f"| KV cache | {card['cache_bytes']} | {simulated['cache_bytes']} | "
          f"{(simulated['cache_bytes'] / card['cache_bytes'] - 1) * 100:+.3f} % |")  # fmt: skip
    for name in ("requested_bytes", "free_bytes") if card["out_of_memory"] else ():
        expected, got = card["out_of_memory"][name], simulated["out_of_memory"][name]
        off += abs(got / expected - 1) > BOUND
        print(f"| OutOfDeviceMemory, {name} | {expected} | {got} | {(got / expected - 1) * 100:+.3f} % |")
    return off


def main() -> None:
    reveille, python = Path(sys.argv[1]).resolve(), sys.argv[2]
    off = 0
    with tempfile.TemporaryDirectory() as made:
        out = Path(sys.argv[3] if len(sys.argv) > 3 else made).resolve()
        for name, (options, card) in RUNS.items():
            (out / name).mkdir(parents=True, exist_ok=True)
            simulated = run(reveille, python, out / name, options)
            assert simulated["passed"], simulated["checks"]
            print(f"\n{name}:\n")
            off += compare(json.loads((TREE / card).read_text()), simulated)
    print(f"\n{off} figures are off by more than {BOUND * 100} %")
    sys.exit(1 if off else 0)


main()
