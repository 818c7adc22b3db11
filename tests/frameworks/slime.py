#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the job of docs/guides/adopt/slime.md as written, on two simulated H200s, with slime's own launcher. Not part of the test suite.

    slime.py REVEILLE PYTHON WHEEL SLIME     PYTHON has PyTorch and Ray with its dashboard; SLIME is a checkout of slime

slime needs builds of Megatron and SGLang that no registry has. So slime_train.py replaces its train.py: it uses slime's placement,
launcher and base class, with its own trainer. Ray installs the wheel through the page's env.yaml. While the trainers sleep, the page's
check of the processes must find our library in them. PYTHON should not belong to a virtual environment, since Ray would copy all of it:
a path in PYTHONPATH is enough.
"""
import json
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

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests"))
import documents  # noqa: E402

JOB_S, END_S, GIB = 900, 60, 1 << 30
# Sums of the driver's figures: contexts and streams of a process, without the 8 GiB.
ASLEEP, AWAKE = 8 * GIB, 64 << 20


def page_of(wheel):
    """The page's env.yaml with the wheel's path, its job, and its check of the processes."""
    page = documents.Page(TREE, "docs/guides/adopt/slime.md")
    yaml = next(each.lines for each in page.blocks if each.lines[0] == "# env.yaml")
    commands = [each.text for block in page.blocks if block.mark == "not run" for each in block.commands()]
    job = next(each for each in commands if each.startswith("ray job submit "))
    look = next(each for each in commands if each.startswith("for pid "))
    assert "/shared/" in yaml[1], yaml
    return re.sub(r"/shared/[^]]*", str(wheel), "\n".join(yaml)) + "\n", job, look


def write_programs(where, python, yaml):
    (where / "env.yaml").write_text(yaml)
    shutil.copy(TREE / "tests/frameworks/slime_train.py", where / "train.py")
    programs = where / "bin"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n')
    (programs / "ray").write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} -m ray.scripts.scripts "$@"\n')
    for each in programs.iterdir():
        each.chmod(0o755)


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


# Other users may run Ray on this machine. This cluster has its own ports and folder, and is ended through its process.
CLUSTER = """
ray start --head --block --num-cpus=8 --port={port} --dashboard-port={dashboard} --temp-dir=$PWD/ray --disable-usage-stats >ray.log 2>&1 &
until python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:{dashboard}/api/version')" 2>/dev/null; do
    kill -0 $! || exit 1
    sleep 1
done
{job} >job.log 2>&1
status=$?
kill $!
wait $!
exit $status
"""


def logs(where):
    return "".join(path.read_text()[-6000:] for path in sorted(where.glob("*.log")))


def own_alone(paths, where):
    """Of the maps files that the check has found, those with a library of this run's environment."""
    for path in map(pathlib.Path, paths):
        if f"{where}/ray/" in path.read_text():
            yield path


def run_job(reveille, job, look, where, environment):
    """Runs the job. Returns what the page's check of the processes found while the trainers slept."""
    port, dashboard = free_ports(2)
    own = {**environment, "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}"}
    line = CLUSTER.format(job=job, port=port, dashboard=dashboard)
    with (where / "run.log").open("w") as log:
        words = [reveille, "run", "--gpus", "2", "--device", "h200", "--", "bash", "-c", line]
        whole = subprocess.Popen(words, cwd=where, env=own, stdout=log, stderr=log, start_new_session=True)
    try:
        end = time.monotonic() + JOB_S
        while not (where / "asleep").exists():
            if whole.poll() is not None or time.monotonic() > end:
                sys.exit(f"the trainers did not sleep\n{logs(where)}")
            time.sleep(0.5)
        seen = subprocess.run(["bash", "-c", look], capture_output=True, text=True, check=False).stdout.split()
        seen = list(own_alone(seen, where))
        (where / "seen").touch()
        if whole.wait(JOB_S):
            sys.exit(f"the job failed\n{logs(where)}")
        return seen
    finally:
        if whole.poll() is None:
            os.killpg(whole.pid, signal.SIGTERM)
            whole.wait(END_S)


def check(said):
    for rank in said["ranks"]:
        assert rank["preloaded"].startswith(rank["ours"]), f"slime preloads {rank['preloaded']}, not a file of {rank['ours']}"
        assert rank["preloaded"].endswith("torch_memory_saver_hook_mode_preload.abi3.so"), rank
        assert rank["interesting"] and rank["numbers"] == [7.0, 11.0, 13.0], rank
        assert not rank["backup of what is awake"] and rank["beside"] == 1 << 20, rank
    for before, asleep, after in zip(said["awake"], said["asleep"], said["awake again"]):
        assert asleep - before >= ASLEEP, f"{before} bytes were free, {asleep} asleep"
        assert abs(after - before) <= AWAKE, f"{before} bytes were free, {after} after it"
    assert sorted(rank["rank"] for rank in said["ranks"]) == [0, 1]


def main():
    reveille, python, wheel, slime = (pathlib.Path(each).absolute() for each in sys.argv[1:5])
    yaml, job, look = page_of(wheel)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        write_programs(where, python, yaml)
        path = ":".join([str(slime), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "PATH": f"{where / 'bin'}:{os.environ['PATH']}", "SLIME_SAID": folder, "WANDB_MODE": "disabled"}  # fmt: skip
        seen = run_job(reveille, job, look, where, environment)
        said = json.loads((where / "slime_train.json").read_text())
    print(f"$ {job}")
    check(said)
    print(f"free on each GPU: {said['awake']}, asleep {said['asleep']}, awake again {said['awake again']}")
    assert len(seen) >= 2, f"our library is in too few processes: {seen}"
    print(f"our library is in {len(seen)} processes")
    print(f"PASS docs/guides/adopt/slime.md, {time.monotonic() - began:.0f} s")


main()
