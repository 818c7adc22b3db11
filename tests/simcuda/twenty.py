#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether a program gives the same result in every simulated run: twenty.py COMMAND [--times N] [NAME]...

COMMAND is `reveille`. Runs programs of `ten` N times, and compares the output byte by byte. With --check, `reveille check` runs them N
times instead, against the baseline of a first run, and must pass each time. What a card may do differently must be on stderr. The exit
status is 1 if the table of stages or the verdict differs. The holders of a peak may differ if a stage begins or ends in a backward pass
(docs/run.md). Not part of the suite: twenty runs of eight ranks take an hour on 2 cores.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ten")


def torchrun(ranks, program, *words):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
            os.path.join(HERE, program), *words]


PROGRAMS = {  # GPUs, command
    "one": (1, [sys.executable, os.path.join(HERE, "train.py")]),
    "ddp1": (1, torchrun(1, "ddp.py")),
    "ddp2": (2, torchrun(2, "ddp.py")),
    "ddp4": (4, torchrun(4, "ddp.py")),
    "ddp8": (8, torchrun(8, "ddp.py")),
    "fsdp4": (4, torchrun(4, "fsdp.py")),
    "fsdp8": (8, torchrun(8, "fsdp.py")),
    "graphs": (1, [sys.executable, os.path.join(HERE, "graphs.py")]),
    "ray": (2, [sys.executable, os.path.join(HERE, "actors.py")]),
}
USUAL = "one", "ddp1", "ddp4", "ddp8", "fsdp4", "graphs"
SAID = {"ddp": "reveille: on a card DistributedDataParallel may free ", "gra": "reveille: on a card torch.compile may take more "}


def run(arguments, folder):
    """Runs in a separate folder, which also gets what torch.compile keeps."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "code"), "TRITON_CACHE_DIR": os.path.join(folder, "kernels")}
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def table_of(said):
    """Our part of the output: the program's own lines have losses and times."""
    lines = said.splitlines(keepends=True)
    begin = next((i for i, line in enumerate(lines) if line.startswith("device")), len(lines))
    return "".join(lines[begin:])


def stages_of(table):
    """The table of stages and the verdict, without the holders of each peak."""
    lines = table.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines) if line.startswith("at the peak of ")), len(lines))
    return "".join((*lines[:end], *lines[-1:]))


def runs(command, name, times, folder):
    gpus, words = PROGRAMS[name]
    seen = {}
    if name == "graphs":  # the first run compiles, the others find its code
        run([command, "run", "--", *words], folder)
    for _ in range(times):
        code, said, complained = run([command, "run", "--device", "h100-80g", "--gpus", str(gpus), "--stages", "stage:", "--", *words],
                                     folder)
        assert code == 0, (name, code, complained[-2000:])
        assert SAID.get(name[:3], "") in complained, (name, complained)
        table = table_of(said)
        seen[table] = seen.get(table, 0) + 1
    return seen


def checks(command, name, times, folder):
    gpus, words = PROGRAMS[name]
    file = {"schema": 1, "baseline": "memory.json", "tolerance_percent": 0,
            "checks": [{"name": name, "command": words, "gpus": gpus, "devices": "h100-80g", "stages_nvtx": "stage:"}]}
    with open(os.path.join(folder, "check.json"), "w", encoding="utf-8") as out:
        json.dump(file, out)
    seen = {}
    for turn in range(times + 1):
        code, said, complained = run([command, "check", *(["--update-baseline"] if turn == 0 else []), "check.json"], folder)
        assert code in (0, 3), (name, code, complained[-2000:])
        if turn > 0:
            seen[said] = seen.get(said, 0) + 1
            assert code == 0, (name, said)
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", type=os.path.abspath)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_intermixed_args()
    same = True
    for name in options.names or USUAL:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            seen = (checks if options.check else runs)(options.command, name, options.times, folder)
        stages = len({stages_of(table) for table in seen})
        print(f"{name}: {stages} tables of stages and {len(seen)} outputs in {options.times} runs, {time.monotonic() - begun:.0f} s",
              flush=True)
        same = same and stages == 1
        if len(seen) > 1:
            for table, count in sorted(seen.items(), key=lambda each: -each[1]):
                print(f"{count} times:\n{table}", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
