#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a page of docs/guides/adopt as written, with its framework, on a simulated H200. Not part of the test suite.

    adopt.py PYTHON vllm|sglang      PYTHON is that of a virtual environment with the framework, and with this package

Writes the page's files. The page's `reveille run` must fit. A command with MODEL is a server: it gets a tiny model, and is told to sleep
and to wake up. Meanwhile, the page's check of each process must find our library, and must find it in no process of a server without the
switch. A line that ends in "# vLLM 0.24" is run with that version only. `pip install .` installs this tree.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests"))
import documents  # noqa: E402

# The requests that make a server sleep and wake up, and the page's switch, which is absent after the roll-back.
REQUESTS = {
    "vllm": ("/sleep?level=1", "/wake_up"),
    "sglang": ("/release_memory_occupation", "/resume_memory_occupation"),
}
SERVED = "--load-format dummy --port"
SWITCHES = {
    "vllm": r"REVEILLE_AS_CUMEM=1 | --sleep-mode-backend reveille",
    "sglang": r"REVEILLE_AS_TORCH_MEMORY_SAVER=1 ",
}
MAKE_MODEL = "import sys, verl_grpo as own; [each.save_pretrained(sys.argv[1]) for each in (own.config(), own.tokenizer())]"
VERSION = re.compile(r"# \w+ (\d+\.\d+)$")
PROGRAM_S, START_S, END_S = 900, 900, 60


def commands_of(page, version):
    """The page's commands that documents.py leaves out, for this version."""
    blocks = [each for each in page.blocks if each.kind == "sh" and each.mark == "not run"]
    for command in (each for block in blocks for each in block.commands()):
        only = VERSION.search(command.text)
        if only is None or version.startswith(only[1] + "."):
            yield command.text


def run_program(command, where, environment):
    done = subprocess.run(["bash", "-c", command], cwd=where, env=environment, capture_output=True, text=True,
                          timeout=PROGRAM_S, check=False)  # fmt: skip
    print(done.stdout, flush=True)
    if done.returncode or "\nfits, " not in done.stdout:
        sys.exit(f"{command}: exit status {done.returncode}\n{done.stderr}")


def answers(port, path, **options):
    """Whether the server's status is 200."""
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Content-Type": "application/json"}, **options)
        with urllib.request.urlopen(request, timeout=START_S) as reply:
            return reply.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def await_server(server, port, log):
    end = time.monotonic() + START_S
    while not answers(port, "/health"):
        if server.poll() is not None or time.monotonic() > end:
            sys.exit(f"the server has not started\n{log.read_text()[-8000:]}")
        time.sleep(1)


def own_alone(program, session):
    """A pgrep that sees the server's processes, but no other processes on this machine."""
    program.write_text(f'#!/bin/sh\nexec {shutil.which("pgrep")} --session {session} "$@"\n')
    program.chmod(0o755)


def end_server(server):
    """Ends the server and its processes, some of which may outlive it."""
    try:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended already


def run_server(command, look, framework, where, environment):
    """Starts a server, makes it sleep, and wakes it up. Returns what the page's check of its processes found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = command.split(" #")[0].replace(" MODEL ", f" {where / 'model'} ")
    own = ["reveille", "run", "--device", "h200", "--", "bash", "-c", f"{words} {SERVED} {port}"]
    log = where / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(own, cwd=where, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        await_server(server, port, log)
        for path in REQUESTS[framework]:
            assert answers(port, path, data=b"{}", method="POST"), f"{path} is refused\n{log.read_text()[-8000:]}"
            print("done:", path, flush=True)
        own_alone(where / ".bin/pgrep", server.pid)
        return subprocess.run(["bash", "-c", look], env=environment, capture_output=True, text=True, check=False).stdout.split()
    finally:
        end_server(server)


def run_both_ways(command, look, framework, where, environment):
    """The page's server has our library in each process that the page checks. Without the switch, no process has it."""
    began = time.monotonic()
    seen = run_server(command, look, framework, where, environment)
    assert seen and all(map(int, seen)), f"our library is not in each process: {seen}"
    print(f"our library, in each process: {' '.join(seen)}; {time.monotonic() - began:.0f} s", flush=True)
    plain = re.sub(SWITCHES[framework], "", command)
    assert plain != command, f"{command} has no switch"
    print("$", plain, flush=True)
    seen = run_server(plain, look, framework, where, environment)
    assert seen and not any(map(int, seen)), f"our library is in a process that was not switched: {seen}"
    print("rolled back, in each process:", *seen, flush=True)


def environment_of(where, python):
    """The environment of the page's reader: the commands of this virtual environment, and nothing that leads to this tree."""
    environment = documents.prepare(TREE, where, python.parent / "reveille", where, python)
    # No network. vLLM's own sampler, since FlashInfer's is compiled with nvcc. vLLM's sleep over HTTP needs developer mode.
    environment.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_SERVER_DEV_MODE="1")
    environment["PATH"] = environment["PATH"].replace(":", f":{python.parent}:", 1)
    environment["VIRTUAL_ENV"] = str(python.parents[1])
    for name in ("PYTHONPATH", "RVL_LIBRARY_DIR"):
        del environment[name]
    return environment


def main():
    python, framework = pathlib.Path(sys.argv[1]).absolute(), sys.argv[2]
    version = subprocess.run([python, "-c", f"import importlib.metadata as m; print(m.version('{framework}'))"],
                             capture_output=True, text=True, check=True).stdout  # fmt: skip
    page = documents.Page(TREE, f"docs/guides/adopt/{framework}.md")
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        environment = environment_of(where, python)
        subprocess.run([python, "-c", MAKE_MODEL, where / "model"], check=True,
                       env={**environment, "PYTHONPATH": str(TREE / "tests/frameworks")})  # fmt: skip
        # The excerpt lacks the model's class, which SGLang needs.
        config = {"architectures": ["Qwen2ForCausalLM"], **json.loads((where / "config.json").read_text())}
        (where / "config.json").write_text(json.dumps(config))
        for block in page.blocks:
            if block.mark == "file":
                (where / block.value).write_text("\n".join(block.lines) + "\n")
        commands = list(commands_of(page, version))
        look = next(each for each in commands if each.startswith("for pid "))
        for command in (each for each in commands if each != look):
            print("$", command, flush=True)
            if command.startswith("pip install ."):
                subprocess.run(["bash", "-c", command], cwd=TREE, env=environment, check=True, stdout=subprocess.DEVNULL)
            elif " -- python " in command:
                run_program(command, where, environment)
            elif " MODEL " in command:
                run_both_ways(command, look, framework, where, environment)
            else:
                sys.exit(f"no way to run it: {command}")
    print(f"PASS docs/guides/adopt/{framework}.md with {framework} {version}")


main()
