#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Phases that RL frameworks time are stages: phases.py COMMAND.

verl itself runs in tests/frameworks/verl.sh. Here, packages have only what verl, SkyRL, slime and OpenRLHF use for timing. Phases of
verl's controller, which has no GPU, are stages of its workers' devices: a worker allocates at its command.
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MIB = 1 << 20
TIMER = """
import contextlib

@contextlib.contextmanager
def marked_timer(name, timing_raw, color=None, domain=None, category=None):
    yield
    timing_raw[name] = timing_raw.get(name, 0) + 1
"""
# What a process with a GPU times: modules of a framework, the code that uses them, and the peaks of the stages in MiB.
OWN = {
    "skyrl": (
        {
            "skyrl/train/utils/utils.py": """
class Timer:
    def __init__(self, message):
        self.message = message

    def __enter__(self):
        return self

    def __exit__(self, *error):
        done.append(self.message)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        done.append(self.message)

done = []
"""
        },
        """
import asyncio
from skyrl.train.utils import utils

async def step():
    async with utils.Timer("generate"):
        take(32)
    with utils.Timer("train"):
        take(64)

asyncio.run(step())
assert utils.done == ["generate", "train"], utils.done
""",
        {"generate": 32, "train": 96},
    ),
    "slime": (
        {
            "slime/observability/timer.py": """
class Timer:
    running = []

    def start(self, name):
        self.running.append(name)

    def end(self, name):
        self.running.remove(name)
"""
        },
        """
from slime.observability.timer import Timer

Timer().start("train")
take(32)
Timer().start("log_probs")
take(64)
Timer().end("train")
take(128)
Timer().end("log_probs")
take(256)
assert Timer.running == []
""",
        {"train": 96, "log_probs": 224},
    ),
    "openrlhf": (
        {
            "openrlhf/trainer/ppo_utils/samples_generator.py": """
class SamplesGenerator:
    def generate_samples(self, take, size):
        take(size)
        return size
""",
            "openrlhf/trainer/ppo_trainer.py": """
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

class BasePPOTrainer:
    def ppo_train(self, take, size):
        take(size)
        return self

    def broadcast_to_vllm(self):
        raise RuntimeError("no engine")
""",
        },
        """
from openrlhf.trainer.ppo_trainer import BasePPOTrainer, SamplesGenerator

assert SamplesGenerator().generate_samples(take, size=32) == 32
trainer = BasePPOTrainer()
assert trainer.ppo_train(take, 64) is trainer
try:
    trainer.broadcast_to_vllm()
except RuntimeError:
    take(128)
""",
        {"generation": 32, "ppo_train": 96, "broadcast": 96},
    ),
}
TAKE = """
import ctypes, os
runtime = ctypes.CDLL(os.environ["RUNTIME"])

def take(mib):
    assert runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(mib << 20)) == 0

assert runtime.cudaFree(None) == 0
"""
PHASES = {"gen": 32, "old_log_prob": 0, "update_actor": 96, "update_weights": -96}  # MiB that the worker allocates


def worker():
    runtime = ctypes.CDLL(os.environ["RUNTIME"])
    pointers = {}
    for line in sys.stdin:
        size = int(line)
        if size > 0:
            pointers[size] = ctypes.c_void_p()
            assert runtime.cudaMalloc(ctypes.byref(pointers[size]), ctypes.c_size_t(size * MIB)) == 0
        elif size < 0:
            assert runtime.cudaFree(pointers.pop(-size)) == 0
        else:
            assert runtime.cudaFree(None) == 0
        print("done", flush=True)


def controller(dies):
    from verl.utils.profiler.performance import marked_timer

    hired = subprocess.Popen([sys.executable, __file__, "worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(size):
        print(size, file=hired.stdin, flush=True)
        assert hired.stdout.readline() == "done\n"

    ask(0)
    runtime, count = ctypes.CDLL(os.environ["RUNTIME"]), ctypes.c_int()
    assert runtime.cudaGetDeviceCount(ctypes.byref(count)) == 0 and count.value == 1  # as torch.cuda.is_available() does
    timing = {}
    with marked_timer("step", timing):
        for name, size in PHASES.items():
            with marked_timer(name, timing, color="red"):
                ask(size)
                if name == dies:
                    raise RuntimeError("a worker is gone")
    assert timing == dict.fromkeys((*PHASES, "step"), 1), timing
    hired.stdin.close()
    assert hired.wait() == 0


def run(command, folder, prefix, *words):
    environment = dict(os.environ, RUNTIME="libcudart.so.13", PYTHONPATH=str(folder))
    shown = folder / "run.json"
    done = subprocess.run(
        [command, "run", "--device", "h100-80g", "--stages", f"{prefix}.", f"--json={shown}", "--", sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
    )
    result = json.loads(shown.read_text())
    (device,) = result["devices"]
    return done, {each["name"]: each["peak_bytes"] for each in device["stages"]}, result["verdict"]["text"]


def write(folder, modules):
    for name, text in modules.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for package in list(path.relative_to(folder).parents)[:-1]:
            (folder / package / "__init__.py").touch()


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def of_its_own(command, framework):
    modules, program, peaks = OWN[framework]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder, modules)
        done, stages, _ = run(command, folder, framework, "-c", TAKE + program)
        check(done.returncode, 0, done.stderr)
        check(set(peaks) <= stages.keys(), True, stages)
        first = next(iter(peaks))
        before = stages[first] - peaks[first] * MIB
        check({each: (stages[each] - before) // MIB for each in peaks}, peaks, f"peaks of {framework}'s phases")


def of_workers(command):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder, {"verl/utils/profiler/performance.py": TIMER})

        done, stages, verdict = run(command, folder, "verl", __file__, "controller")
        check(done.returncode, 0, done.stderr)
        bare = stages["old_log_prob"] - 32 * MIB
        peaks = {"gen": 32, "old_log_prob": 32, "step": 128, "update_actor": 128, "update_weights": 128}
        check({each: (stages.get(each, 0) - bare) // MIB for each in peaks}, peaks, "peaks of verl's phases")
        check(verdict.startswith("fits, with "), True, verdict)

        done, stages, verdict = run(command, folder, "verl", __file__, "controller", "old_log_prob")
        check(done.returncode, 1, done.stderr)
        check({"gen", "old_log_prob", "step"} <= set(stages) and "update_actor" not in stages, True, stages)
        failed = "no verdict: the command failed with exit status 1; "
        check(re.sub(r"\S+\[\d+\]", "NAME[N]", verdict), failed + "NAME[N] failed first, in outside: exit status 1", "the verdict of a job that failed")
        # Marks alone do not count as using a GPU.
        inside = "from verl.utils.profiler.performance import marked_timer\nwith marked_timer('gen', {}): pass"
        done = subprocess.run(
            [command, "run", "--stages", "verl.", "--", sys.executable, "-c", inside],
            env=dict(os.environ, PYTHONPATH=str(folder)),
            capture_output=True,
            text=True,
        )
        check(done.returncode, 2, done.stderr)
        check("no process of the command has used CUDA" in done.stderr, True, done.stderr)


def main(command):
    of_workers(command)
    for framework in OWN:
        of_its_own(command, framework)
    print(f"phases of verl are stages of its worker's device, and those of {', '.join(OWN)} of the process's own")


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker()
    elif sys.argv[1] == "controller":
        controller(sys.argv[2] if len(sys.argv) > 2 else None)
    else:
        main(*sys.argv[1:])
