# SPDX-License-Identifier: MIT
"""`reveille sleep PID` and `reveille wake PID` for programs on simulated GPUs that listen, refuse, or do not listen.

usage: sleep_command.py COMMAND LIBRARIES SOURCE
"""

import os
import signal
import subprocess
import sys

PROGRAM = """
import os, sys, time
import reveille
from reveille import control
gpu = reveille.Context(backend="cuda")
gpu.alloc(4 << 20, tag="weights", backup="host")
busy = False

def before(verb):
    if busy:
        raise RuntimeError(f"3 requests are served, no {verb} now")

if "listen" in sys.argv[1:]:
    control.open(before)
print(os.getpid(), flush=True)
for line in sys.stdin:
    busy = line.strip() == "work"
    if line.strip() == "die":
        control.open(lambda verb: os.kill(os.getpid(), 9))
    if line.strip() == "close":
        control.close()
    print("asleep" if reveille.asleep() else "awake", flush=True)
"""


class Engine:
    def __init__(self, command, libraries, source, *arguments):
        environment = {**os.environ, "PYTHONPATH": f"{source}/python", "RVL_LIBRARY_DIR": libraries}
        run = [command, "run", "--device", "h100-80g", "--", sys.executable, "-B", "-c", PROGRAM, *arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(run, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)
        self.pid = int(self._process.stdout.readline())

    def say(self, word):
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self):
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.wait(60)


def main():
    command, libraries, source = sys.argv[1:4]

    def ask(verb, *arguments):
        done = subprocess.run([command, verb, *map(str, arguments)], capture_output=True, text=True, timeout=60)
        return done.returncode, (done.stdout + done.stderr).strip()

    def expect(found, status, *words):
        assert found[0] == status and all(word in found[1] for word in words), (found, status, words)

    engine = Engine(command, libraries, source, "listen")
    expect(ask("sleep", engine.pid), 0, f"process {engine.pid} is asleep after ")
    assert engine.say("state") == "asleep"
    expect(ask("sleep", engine.pid), 0, "is asleep already")
    expect(ask("wake", "--timeout", 5, engine.pid), 0, f"process {engine.pid} is awake after ")
    expect(ask("wake", engine.pid), 0, "is awake already")
    assert engine.say("work") == "awake"
    expect(ask("sleep", engine.pid), 3, f"process {engine.pid} refuses: 3 requests are served, no sleep now")
    assert engine.say("rest") == "awake"
    expect(ask("sleep", "--discard", engine.pid), 0, "is asleep after")
    expect(ask("wake", "--paused", engine.pid), 0, "is awake after")
    engine.say("close")
    expect(ask("sleep", engine.pid), 2, "does not listen", "REVEILLE_CONTROL=1")
    engine.say("die")
    expect(ask("sleep", engine.pid), 1, "ended on its way to sleep")
    engine.end()
    expect(ask("sleep", engine.pid), 2, "does not exist")

    deaf = Engine(command, libraries, source)
    expect(ask("wake", deaf.pid), 2, "does not listen")
    os.kill(deaf.pid, signal.SIGKILL)
    deaf.end()
    for words in ((), ("x",), ("0",), ("-1",), ("1", "2"), ("99999999999",)):
        expect(ask("sleep", *words), 2)
    print("slept, woke, refused, closed, died: each as it should be")


main()
