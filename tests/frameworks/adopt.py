#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a page of docs/guides/adopt as it stands, with its framework, on a simulated H200. Not part of the test suite.

    adopt.py REVEILLE LIBRARIES PYTHON vllm|sglang      PYTHON has the framework, and this package installed

Its files are written, and its `reveille run` must fit. A command with MODEL is a server: it gets a tiny model, and is
told to sleep and to wake up. Meanwhile the page's look at each process has to find our library. Where a line
ends in "# vLLM 0.24", only that version runs it. A program that the page does not show is left out, and named.
"""
import os
import pathlib
import re
import shlex
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

# How a server is told to sleep and to wake up.
REQUESTS = {
    "vllm": ("/sleep?level=1", "/wake_up"),
    "sglang": ("/release_memory_occupation", "/resume_memory_occupation"),
}
SERVED = ["--load-format", "dummy", "--port"]
MAKE_MODEL = "import sys, verl_grpo as own; [each.save_pretrained(sys.argv[1]) for each in (own.config(), own.tokenizer())]"
VERSION = re.compile(r"# \w+ (\d+\.\d+)$")
PROGRAM_S, START_S, END_S = 900, 900, 60


def commands_of(page, version):
    """What the page has of commands that documents.py leaves out, for this version."""
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
    """Whether the server says yes."""
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
    """A pgrep that sees the server's processes, and not those of others on this machine."""
    program.write_text(f'#!/bin/sh\nexec {shutil.which("pgrep")} --session {session} "$@"\n')
    program.chmod(0o755)


def run_server(command, look, requests, where, environment):
    """Starts it, sends it to sleep, wakes it up, and looks at its processes as the page does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = command.split(" #")[0].replace(" MODEL ", f" {where / 'model'} ")
    own = ["reveille", "run", "--device", "h200", "--", "bash", "-c", f"{words} {shlex.join(SERVED)} {port}"]
    log = where / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(own, cwd=where, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        await_server(server, port, log)
        for path in requests:
            assert answers(port, path, data=b"{}", method="POST"), f"{path} is refused\n{log.read_text()[-8000:]}"
            print("done:", path, flush=True)
        own_alone(where / ".bin/pgrep", server.pid)
        seen = subprocess.run(["bash", "-c", look], env=environment, capture_output=True, text=True, check=False).stdout.split()
        assert any(map(int, seen)), f"our library is in no process: {seen}"
        print("our library, in each process:", *seen)
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(END_S)


def main():
    reveille, libraries, python = (pathlib.Path(each).absolute() for each in sys.argv[1:4])
    framework = sys.argv[4]
    version = subprocess.run([python, "-c", f"import importlib.metadata as m; print(m.version('{framework}'))"],
                             capture_output=True, text=True, check=True).stdout  # fmt: skip
    page = documents.Page(TREE, f"docs/guides/adopt/{framework}.md")
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        environment = documents.prepare(TREE, where, reveille.resolve(), libraries, python)
        # No network; vLLM's own sampler, since FlashInfer's is compiled by nvcc; its sleep over HTTP is for developers.
        environment.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_SERVER_DEV_MODE="1")
        environment["PATH"] = environment["PATH"].replace(":", f":{python.parent}:", 1)
        subprocess.run([python, "-c", MAKE_MODEL, where / "model"], check=True,
                       env={**environment, "PYTHONPATH": str(TREE / "tests/frameworks")})  # fmt: skip
        for block in page.blocks:
            if block.mark == "file":
                (where / block.value).write_text("\n".join(block.lines) + "\n")
        commands = list(commands_of(page, version))
        look = next(each for each in commands if each.startswith("for pid "))
        for command in (each for each in commands if each != look):
            print("$", command, flush=True)
            program = re.search(r" -- python (\S+)", command)
            if program and not (where / program[1]).exists():
                print(f"left out: the page does not show {program[1]}")
            elif program:
                run_program(command, where, environment)
            elif " MODEL " in command:
                run_server(command, look, REQUESTS[framework], where, environment)
    print(f"PASS docs/guides/adopt/{framework}.md with {framework} {version}")


main()
