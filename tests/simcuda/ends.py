#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The verdict names the process that failed first, and how: ends.py COMMAND.

An empty package has PyTorch's name: the files for Python wait for its import.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

# A launcher ends the other ranks when one has failed, as torchrun does. They have memory by then.
LAUNCH = """
import os, signal, subprocess, sys, time
ranks = [subprocess.Popen([sys.executable, "-B", "rank.py"], env={**os.environ, "RANK": str(rank)}) for rank in range(2)]
while all(each.poll() is None for each in ranks):
    time.sleep(0.01)
for each in ranks:
    each.terminate()
sys.exit(1)
"""
RANK = """
import ctypes, os, pathlib, signal, sys, time
import torch
cuda = ctypes.CDLL("libcudart.so.13")
assert cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 20)) == 0
rank = os.environ["RANK"]
pathlib.Path("up" + rank).touch()
while not os.path.exists("up" + str(1 - int(rank))):
    time.sleep(0.01)
if rank == "0":
    time.sleep(60)
"""
# A controller without a GPU fails, and ends its worker on exit, as Ray's does.
CONTROLLER = """
import atexit, os, pathlib, subprocess, sys, time
import torch
worker = subprocess.Popen([sys.executable, "-B", "rank.py"], env={**os.environ, "RANK": "0"})
atexit.register(worker.kill)
pathlib.Path("up1").touch()
while not os.path.exists("up0"):
    time.sleep(0.01)
{end}
"""
ENDS_ENGINE = """
import ctypes, os, pathlib, subprocess, sys, time
import torch
assert ctypes.CDLL("libcudart.so.13").cudaFree(None) == 0
engine = subprocess.Popen([sys.executable, "-B", "rank.py"], env={**os.environ, "RANK": "0"})
pathlib.Path("up1").touch()
while not os.path.exists("up0"):
    time.sleep(0.01)
engine.terminate()
engine.wait()
raise ValueError("a shape is wrong")
"""
# A rank requests more than any GPU has, and leaves. The launcher ignores that, or tries with less.
ASKS = """
import ctypes, sys
import torch
cuda = ctypes.CDLL("libcudart.so.13")
sys.exit(cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(int(sys.argv[1]) << 30)))
"""
SWALLOWS = """
import subprocess, sys
import torch
for gib in {sizes}:
    subprocess.run([sys.executable, "-B", "asks.py", str(gib)])
"""


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def run(command, folder, program):
    for each in folder.glob("up*"):
        each.unlink()
    done = subprocess.run(
        [command, "run", "--device", "h100-80g", "--json", "--", sys.executable, "-B", "-c", program],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    said = json.loads(done.stdout)["verdict"]
    return done, said["text"], said.get("failed_first")


def main(command):
    command = os.path.abspath(command)
    python = pathlib.Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    ends = {
        "raise ValueError('no weights')": "ValueError: no weights",
        "sys.exit(3)": "exit status 3",
        "os._exit(4)": "exit status 4",
        "os.kill(os.getpid(), signal.SIGKILL)": None,
        "ctypes.CDLL(None)._exit(5)": None,
    }
    not_said = "killed, crashed, or left by _exit()"
    remote = '"Traceback of a worker:\\n  File a.py\\nValueError: of the config:\\n   no weights\\n"'
    controllers = {
        f"raise RuntimeError({remote})": "ValueError: of the config: no weights",
        f"try:\n    raise RuntimeError({remote})\nexcept RuntimeError:\n    sys.exit(1)": "ValueError: of the config: no weights",
        "sys.exit('no weights')": "exit status 1",
    }
    boxed = '"\\n====\\nrank.py FAILED\\n----\\nFailures:\\n  <NONE>\\n===="'  # as torchrun prints it
    controllers[f"raise ChildProcessError({boxed})"] = "ChildProcessError"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "torch.py").write_text("class version:\n    cuda = None\n")
        for end, how in ends.items():
            (folder / "rank.py").write_text(f"{RANK}\n{end}\n")
            done, text, first = run(command, folder, LAUNCH)
            check(done.returncode, 1, done.stderr)
            check(first, {"process": f"{python}[rank 1]", "stage": "run"} | ({"how": how} if how else {}), end)
            begin = f"no verdict: the command failed with exit status 1; {python}[rank 1] failed first, in run: {how or not_said}"
            check(text, begin, end)

        (folder / "rank.py").write_text(RANK)
        for end, how in controllers.items():
            done, text, first = run(command, folder, CONTROLLER.replace("{end}", end))
            check(done.returncode, 1, done.stderr)
            check(first, {"process": f"{python}[1]", "how": how, "stage": "run"}, "who failed, not who was ended because of it")

        # It ends an engine on purpose, and fails for another reason.
        (folder / "rank.py").write_text(RANK)
        done, text, first = run(command, folder, ENDS_ENGINE)
        check(first, {"process": f"{python}[rank 0]", "stage": "run"}, done.stderr)
        check(text.partition("; then ")[2], f"{python}[1], in run: ValueError: a shape is wrong", "what it failed by")

        # The process is the command, so its exit status is reported already, unlike an error.
        alone = "import torch, ctypes; assert ctypes.CDLL('libcudart.so.13').cudaFree(None) == 0; "
        check(run(command, folder, alone + "import sys; sys.exit(3)")[1], "no verdict: the command failed with exit status 3", "alone")
        done, text, first = run(command, folder, alone + "raise KeyError('a')")
        check(text, f"no verdict: the command failed with exit status 1; {python}[1] failed first, in run: KeyError: 'a'", "alone")
        check("KeyError: 'a'" in done.stderr, True, done.stderr)

        # A refusal that ended a process was not survived, whatever the command reports, unless another process replaces it.
        (folder / "asks.py").write_text(ASKS)
        done, text, _ = run(command, folder, SWALLOWS.format(sizes=(1, 100)))
        begin, _, end = text.partition(" with ")
        check((done.returncode, begin), (3, f"out of memory: {python}[2]/cudaMalloc asked for 100.0 GiB of device 0"), done.stderr)
        check(end.partition("; ")[2], "the process failed (exit status 2), and the command ended with exit status 0", text)
        done, text, _ = run(command, folder, SWALLOWS.format(sizes=(100, 1)))
        check((done.returncode, text.partition(", with ")[0]), (0, "fits after 1 refusal that the program survived"), done.stderr)

        # If the command ends well, all else does not matter.
        well = LAUNCH.replace("sys.exit(1)", "sys.exit(0)")
        (folder / "rank.py").write_text(f"{RANK}\nsys.exit(3)\n")
        done, text, first = run(command, folder, well)
        check((done.returncode, text.split(",")[0], first), (0, "fits", None), done.stderr)
    print("the first process that failed is named")


if __name__ == "__main__":
    main(*sys.argv[1:])
