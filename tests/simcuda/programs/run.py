# SPDX-License-Identifier: MIT
"""Runs the programs in this folder on real or simulated GPUs, and writes what they measured to one file.

run.py OUT.json                     on two real GPUs, in parallel if a program needs only one
run.py OUT.json --under COMMAND     on simulated GPUs: COMMAND is build/torch/cli/reveille

For each program, it also writes its CPU time, and the time of a fixed piece of work on this machine (cost.py). With STAGES_BLOCKING=1, a
program on a card sleeps while it waits, so that its CPU time does not include waiting.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

RUNNING = []
HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, "../../data/configs")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
OFFLINE = {"HF_HUB_OFFLINE": "1"}
# Name: number of GPUs, arguments for Python, arguments after the folder, environment.
PROGRAMS = {
    "compiled": (1, ["compiled.py"], [], {}),
    "lora": (1, ["lora.py"], [], {}),
    "lengths": (1, ["lengths.py"], [], {}),
    "expandable": (1, ["lengths.py"], [], EXPANDABLE),
    "retry": (1, ["retry.py"], [], {}),
    "retry_expandable": (1, ["retry.py"], [], EXPANDABLE),
    "ddp": (2, [*TORCHRUN, "ranks.py"], ["ddp"], {}),
    "fsdp": (2, [*TORCHRUN, "ranks.py"], ["fsdp"], {}),
    "lstm": (1, ["recurrent.py"], ["lstm"], {}),
    "gru": (1, ["recurrent.py"], ["gru"], {}),
    "spatial": (1, ["spatial.py"], [], {}),
    "unet": (1, ["unet.py"], [], {}),
    "grpo": (1, ["grpo.py"], [f"{CONFIGS}/qwen2.5-0.5b.json", "bfloat16"], OFFLINE),
    "grpo_llama": (1, ["grpo.py"], [f"{CONFIGS}/llama-3.2-1b.json", "float32"], OFFLINE),
}
NEED_TRL = ("grpo", "grpo_llama")  # run only if they are named, or if TRL is installed


def visible():
    """CUDA's numbers of the GPUs that may be used."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[:2]


def work_seconds():
    """CPU time of a fixed piece of Python work: a measure of this machine's speed."""

    def once():
        begun, kept, total = time.thread_time(), {}, 0
        for i in range(1_000_000):
            kept[i & 1023] = i
            total += kept.get(i * 7 & 1023, i)
        return time.thread_time() - begun

    return min(once() for _ in range(5))


def start(line, environment, said_path, timeout):
    """Runs a command. Returns its exit status, its CPU time with its children's, and its output. Processes that it has started end with it."""
    with open(said_path, "wb") as said:
        process = subprocess.Popen(
            line, cwd=HERE, env=environment, stdout=said, stderr=said, start_new_session=True
        )
    RUNNING.append(process)
    slow = threading.Timer(timeout, os.killpg, (process.pid, signal.SIGKILL))
    slow.start()
    _, status, used = os.wait4(process.pid, 0)
    late = not slow.is_alive()
    slow.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    end(process)
    ended = "too slow" if late else process.returncode
    with open(said_path, encoding="utf-8", errors="replace") as said:
        return ended, used.ru_utime + used.ru_stime, said.read()


def end(process):
    """Ends a command and the processes that it has left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()  # even if it was reaped already


def end_all(_number, _frame):
    for process in RUNNING:
        end(process)
    os._exit(1)  # earlier measurements are in the file


def run(name, options, gpus):
    """What a program measured, by rank, how it ended, and its output."""
    count, words, more, environment = PROGRAMS[name]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, *words, folder, *more]
        environment = {
            **os.environ,
            **environment,
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "compiled"),
            "TRITON_CACHE_DIR": os.path.join(folder, "kernels"),
        }
        if options.under:
            line = [
                options.under,
                "run",
                "--device",
                options.device,
                "--gpus",
                str(count),
                "--",
                *line,
            ]
        else:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        ended, cpu_seconds, said = start(line, environment, os.path.join(folder, "said"), options.timeout)
        ranks = []
        for rank in range(count):
            path = os.path.join(folder, f"{rank}.json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    ranks.append(json.load(file))
    row = {
        "ended": ended,
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(cpu_seconds, 2),
        "work_seconds": round(options.work_seconds, 4),
        "ranks": ranks,
    }
    if ended != 0:
        row["said"] = said[-4000:]
    print(f"{name}: ended {ended} after {row['seconds']} s", flush=True)
    return name, row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out")
    parser.add_argument("--under", type=os.path.abspath)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--only", action="append", choices=sorted(PROGRAMS))
    parser.add_argument("--timeout", type=float, default=400)
    options = parser.parse_args()
    options.work_seconds = work_seconds()
    signal.signal(signal.SIGTERM, end_all)
    without_trl = not importlib.util.find_spec("trl")
    asked = options.only or [name for name in PROGRAMS if not (without_trl and name in NEED_TRL)]
    lanes = [[gpu] for gpu in visible()] if not options.under else [[]]
    results = []

    def save():
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(dict(sorted(results)), file, indent=1)

    for name in asked:
        if PROGRAMS[name][0] > 1:
            results.append(run(name, options, visible()))
            save()
    free = list(lanes)

    def alone(name):
        lane = free.pop()
        try:
            return run(name, options, lane)
        finally:
            free.append(lane)

    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        asked_alone = [pool.submit(alone, name) for name in asked if PROGRAMS[name][0] == 1]
        for done in concurrent.futures.as_completed(asked_alone):
            results.append(done.result())
            save()
    return any(row["ended"] != 0 for _, row in results)


if __name__ == "__main__":
    sys.exit(main())
