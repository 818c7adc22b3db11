# SPDX-License-Identifier: MIT
"""Programs of bench/gpu/driver that no other test runs, once and in small on simulated GPUs: they end well, and print enough facts.

usage: driver_scripts.py COMMAND FOLDER CALL_TIMES      FOLDER is bench/gpu/driver

Programs that need nvcc (run.sh, code in .cu) are left for a card. Programs with PyTorch run if it is installed.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

# Words, the minimum number of lines of JSON, and the content of one of them.
PROGRAMS = [
    (["contexts.py"], 15, {"part": "contexts", "act": "idle", "nvml": 0}),
    (["managed_left.py", str(16 << 20)], 1, {"part": "managed left", "bytes": 16 << 20}),
    (["host_memory.py", "256"], 2, {"threads": 2, "pinners": 1}),
    (["block_calls.py", "1"], 8, {"count": 1, "mib": 9216, "apart": True}),
    (["range_calls.py", "40"], 20, {"count": 40, "threads": 4, "together": 64}),
    (["sticky.py"], 400, {"part": "sticky", "failure": "store@16"}),
    (["probe.py", "ctx_driver"], 4, {"part": "ctx_driver", "what": "primary context", "result": 0}),
    (["probe.py", "copies"], 4, {"part": "copies", "what": "primary context", "result": 0}),
    (["nccl.py", "default"], 10, {"part": "nccl default", "rank": 1, "what": "context"}),
]
OF_PYTORCH = [(["steps.py", "first", "add"], 3, {"what": "context"})]


def said_by(command, words, cards):
    run = [command, "run", "--gpus", str(cards), "--device", "h100-80g", "--", *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, (words, done.returncode, done.stderr[-2000:])
    return done.stdout


def check(name, text, least, wanted):
    facts = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert len(facts) >= least, f"{name}: {len(facts)} lines"
    assert any(wanted.items() <= fact.items() for fact in facts), f"{name}: none has {wanted}: {facts[:3]}"
    print(f"{name}: {len(facts)} lines")


def main():
    command, folder, call_times = sys.argv[1:4]
    for words, least, wanted in PROGRAMS + (OF_PYTORCH if importlib.util.find_spec("torch") else []):
        cards = 2 if words[0] == "nccl.py" else 1
        program = [sys.executable, "-B", os.path.join(folder, words[0]), *words[1:]]
        if words[0] == "host_memory.py" and (os.cpu_count() or 1) < 2:
            continue  # its threads need two processors or more
        check(" ".join(words), said_by(command, program, cards), least, wanted)
    with tempfile.TemporaryDirectory() as place:
        said_by(command, [call_times, os.path.join(place, "out.jsonl")], 1)
        with open(os.path.join(place, "out.jsonl"), encoding="utf-8") as file:
            check("call_times", file.read(), 500, {})
    code = subprocess.run([sys.executable, os.path.join(folder, "gen.py"), "4", "1", "0"], capture_output=True, text=True, check=True)
    assert code.stdout.count(".entry") == 4, code.stdout[:300]
    for script in ("run.sh", "run2.sh", "common.sh"):
        subprocess.run(["bash", "-n", os.path.join(folder, script)], check=True)


main()
