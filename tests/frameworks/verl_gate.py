#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the check of examples/ci/verl N times, and then with a setting with which the wake-up runs out of memory.

    verl_gate.py REVEILLE [--times N] [--gpus N] [--wake FRACTION]

It works on a copy, in the environment that tests/frameworks/verl.sh has made (REVEILLE_VERL). Every run must print exactly what the
first printed. Then gpu_memory_utilization is raised to FRACTION, and the check must fail with the stage, the rank and the holder.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/ci/verl"


def check(reveille, folder, *words):
    environment = pathlib.Path(os.environ.get("REVEILLE_VERL", pathlib.Path.home() / ".cache/reveille-verl"))
    given = {**os.environ, "REVEILLE": reveille, "PYTHON": str(environment / "bin/python")}
    begun = time.monotonic()
    done = subprocess.run([reveille, "check", *words, "memory.toml"], cwd=folder, env=given, capture_output=True, text=True, check=False)
    print(f"{' '.join(words) or 'check'}: exit status {done.returncode}, {time.monotonic() - begun:.0f} s", flush=True)
    return done.returncode, done.stdout, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reveille", type=os.path.abspath)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--wake", type=float, default=0.962, help="the engine starts with it, and does not wake beside the optimizer (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made) / "gate"
        shutil.copytree(EXAMPLE, folder)
        checks = folder / "memory.toml"
        text = re.sub(r"^gpus = 8", f"gpus = {options.gpus}", checks.read_text(), flags=re.M)
        checks.write_text(text.replace("--gpus 8 --tp 4", f"--gpus {options.gpus} --tp {min(options.gpus, 4)}"))
        code, first, complained = check(options.reveille, folder, "--update-baseline")
        assert code == 0, first + complained
        print(first, flush=True)
        different = 0
        for _ in range(options.times):
            code, said, complained = check(options.reveille, folder)
            if (code, said) != (0, first):
                different += 1
                print(said, complained[-2000:], flush=True)
        print(f"{options.times - different} of {options.times} runs print what the first did", flush=True)
        settings = folder / "settings.txt"
        settings.write_text(re.sub(r"(gpu_memory_utilization)=\S+", rf"\1={options.wake}", settings.read_text()))
        code, said, complained = check(options.reveille, folder)
        print(said, complained[-2000:], flush=True)
        assert code == 3 and re.search(r"out of memory: \S+ asked for .* of device \d+ with .* free, in update_weights", said), code
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
