#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One verdict, word for word, in every output: one_verdict.py COMMAND PROGRAM LIBRARIES SOURCE.

The programs run out of memory, fail for another reason, survive a refusal, and fit. A trace in an older format does not show whether a
request was refused.
"""
import html
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

PROGRAMS = {"out of memory: ": ("1GiB", ("malloc", "1073741824", "exit", "5")),
            "no verdict: the command failed with exit status 5": ("1GiB", ("malloc", "1", "exit", "5")),
            "fits after 1 refusal that the program survived": ("1GiB", ("malloc", "1073741824", "malloc", "1")),
            "tight: ": ("1GiB", ("malloc", "508559360")),
            "fits, with ": ("h200", ("malloc", "1"))}

CHECKS = ("check", "check --junit", "check --markdown")
# In the format of the first versions, which could not record a refused request.
OLDER = """reveille-trace 1.1
clock boot=- mono_ns=0 wall_ns=0
device 0 profile=- capacity_bytes=1073741824 granularity_bytes=2097152
process program pid=7
stage 1 program 0 run
alloc 2 program 0 1 0 524288000 weights
end 2
"""


def run(*words, **more):
    return subprocess.run([str(each) for each in words], capture_output=True, text=True, **more)


def last(done):
    return done.stdout.splitlines()[-1]


def markdown(text):
    return re.sub(r"\\(.)", r"\1", text)


def check(command, name, item):
    """What `reveille check` prints as text, as JUnit and as Markdown."""
    pathlib.Path(name).write_text(json.dumps({"schema": 1, "checks": [{"name": "it", **item}]}))
    done = run(command, "check", "--junit", "junit.xml", "--markdown=check.md", name)
    suite = ElementTree.parse("junit.xml").getroot()
    said = [each.get("value") for each in suite.iter("property") if each.get("name") == "verdict"]
    said += [part.get("message") for kind in ("failure", "error") for part in suite.iter(kind)]
    return done.stdout, "\n".join(said), markdown(pathlib.Path("check.md").read_text())


def outputs(command, program, libraries, source, device, words):
    """First the verdict on the terminal, then by name each output that must contain it."""
    ran = run(command, "run", "--device", device, "-o", "it.rvt", "--json=run.json", "--markdown=run.md", "--", program, *words)
    yield "run", last(ran)
    yield "run --json", json.loads(pathlib.Path("run.json").read_text())["verdict"]["text"]
    yield "run --markdown", markdown(pathlib.Path("run.md").read_text())
    for name, text in zip(CHECKS, check(command, "it.json", {"command": [program, *words], "devices": device})):
        yield f"{name} of a command", text
    yield from outputs_of_trace(command, libraries, source)


def outputs_of_trace(command, libraries, source):
    yield "replay", last(run(command, "replay", "it.rvt"))
    yield "replay --json", json.loads(run(command, "replay", "--json", "it.rvt").stdout)["verdict"]["text"]
    yield "report", last(run(command, "report", "it.rvt"))
    run(command, "report", "it.rvt", "-o", "it.html")
    yield "page", html.unescape(pathlib.Path("it.html").read_text())
    yield "compare", run(command, "compare", "it.rvt", "it.rvt").stdout
    for name, text in zip(CHECKS, check(command, "it.json", {"trace": "it.rvt"})):
        yield f"{name} of a trace", text
    python = run(sys.executable, "-B", "-c", "import reveille; print(reveille.replay('it.rvt').verdict)",
                 env={**os.environ, "RVL_LIBRARY_DIR": libraries, "PYTHONPATH": source + "/python"})
    assert python.returncode == 0, python.stderr
    yield "Python", python.stdout


def check_plan(command, verdict):
    """The plan of the trace. It recommends what fits with the headroom, and gives no answer if the run did not end well."""
    done = run(command, "plan", "it.rvt", "--sweep", "--json")
    if not verdict.startswith(("fits", "tight")):
        assert done.returncode == 2 and verdict in done.stderr, (verdict, done)
        return
    case, = json.loads(done.stdout)["cases"]
    assert case["fits"] == ("tight" if verdict.startswith("tight") else "yes"), (verdict, case)


def check_all(said):
    for name, text in said.items():
        assert said["replay"] in text, f"{name}: {text}\nwithout\n{said['replay']}"


def check_older(command, libraries, source):
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("it.rvt").write_text(OLDER)
        said = dict(outputs_of_trace(command, libraries, source))
        os.chdir("/")
    assert said["replay"] == "no refusals recorded: what was allocated fits, with 524.0 MiB to spare", said["replay"]
    check_all(said)


def main(command, program, libraries, source):
    check_older(command, libraries, source)
    for begins, (device, words) in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            said = dict(outputs(command, program, libraries, source, device, words))
            check_plan(command, said["run"])
            os.chdir("/")
        assert said["run"].startswith(begins), said["run"]
        check_all(said)


if __name__ == "__main__":
    main(*(os.path.abspath(each) for each in sys.argv[1:5]))
