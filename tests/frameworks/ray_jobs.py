#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ray jobs on a simulated node, and what `reveille run` reports about them: ray_jobs.py REVEILLE [CASE]...

This Python needs Ray and PyTorch. Actors of a placement group see one GPU each. An actor that ends and restarts has freed its memory. An
actor that dies, or takes too much, ends the job, even if `ray start` has started the cluster. Figures are compared. The last case ends
every cluster on the machine, as `ray stop` does.
"""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

GIB = 1 << 30
JOB = str(pathlib.Path(__file__).with_name("ray_job.py"))
OUT_OF_MEMORY = "/cudaMalloc asked for 100.0 GiB of device "


def run(reveille, gpus, *words):
    """Returns the exit status, what the actors report, and the result of `reveille run`."""
    with tempfile.TemporaryDirectory() as folder:
        shown = os.path.join(folder, "run.json")
        command = [reveille, "run", "--device", "l4", "--gpus", str(gpus), f"--json={shown}", "--", *words]
        given = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=600, check=False)
        said = [json.loads(line.removeprefix("said ")) for line in done.stdout.splitlines() if line.startswith("said ")]
        with open(shown, encoding="utf-8") as file:
            return done.returncode, said, json.load(file)


def job(case):
    return sys.executable, JOB, case


def in_a_cluster(case):
    """As on a node: first the cluster, then a job that joins it."""
    ray = shutil.which("ray", path=os.path.dirname(sys.executable))
    start = f"{ray} start --head --include-dashboard=false --num-cpus 8 >/dev/null"
    return "bash", "-c", f"{start} && {shlex.join(job(case))} auto; status=$?; {ray} stop >/dev/null; exit $status"


def peaks(shown):
    return [device["peak_bytes"] for device in shown["devices"]]


def place(reveille):
    status, said, shown = run(reveille, 4, *job("place"))
    assert status == 0 and shown["verdict"]["text"].startswith("fits, with "), shown["verdict"]
    actors = [(int(gpu), most) for gpu, most in said[0]]
    assert sorted(gpu for gpu, _ in actors) == [0, 1, 2, 3], said
    got = peaks(shown)
    rest = {got[gpu] - most for gpu, most in actors}
    assert [most for _, most in actors] == [GIB, 2 * GIB, 3 * GIB, 4 * GIB] and len(rest) == 1 and rest.pop() < GIB, (said, got)


def restart(reveille):
    status, said, shown = run(reveille, 1, *job("restart"))
    assert status == 0 and said == [["0", GIB]], (status, said)
    assert 2 * GIB < peaks(shown)[0] < 3 * GIB, peaks(shown)  # the peak of its first life, not the sum of both


def dies(reveille, case, how):
    status, said, shown = run(reveille, 2, *job(case))
    assert (status, said) == (1, []), (status, said)
    first = shown["verdict"]["failed_first"]
    assert first["process"].startswith("ray::Holder[") and first.get("how") == how, shown["verdict"]
    assert shown["verdict"]["text"].startswith("no verdict: the command failed with exit status 1; ray::Holder["), shown["verdict"]


def memory(reveille, words=job("memory")):
    status, said, shown = run(reveille, 2, *words)
    assert (status, said) == (1, []), (status, said)
    text = shown["verdict"]["text"]
    assert text.startswith("out of memory: ray::Holder") and OUT_OF_MEMORY in text and "ray_job.py:" in text, text


CASES = {
    "place": place,
    "restart": restart,
    "killed": lambda reveille: dies(reveille, "killed", None),
    "exits": lambda reveille: dies(reveille, "exits", "exit status 7"),
    "memory": memory,
    "cluster": lambda reveille: memory(reveille, in_a_cluster("memory")),
}


def main():
    for name in sys.argv[2:] or CASES:
        CASES[name](os.path.abspath(sys.argv[1]))
        print(f"{name}: ok", flush=True)


if __name__ == "__main__":
    main()
