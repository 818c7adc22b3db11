# SPDX-License-Identifier: MIT
"""Many ranks: every rank's every step fails in turn, and every rank is killed. Not part of CI.

    python job_sweep.py [RANKS [TIMEOUT_S [PARTS]]]      64, 8 s, and "failed killed" without them

`failed:36-63` is that part with the victims 36 to 63 alone. All ranks take part in every round.

Each round is one pause or resume of all ranks. In `failed` one rank's step fails: it has no memory,
its callback refuses, or one call of its store raises. In `killed` one rank is killed while it
prepares, before it votes, or when it has voted; it is started again for the next round. After each
round all ranks must have moved or none, all must have been told the same, and what they hold must
be what it was. Prints a line of JSON for each part. `others_late` are rounds in which a rank that
is not at fault did not answer in time, as happens on a machine with more work than cores: all abort
then, too.
"""

import ctypes
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import reveille
from job import MIB, FileStore, Member

STORE_CALLS = 7  # a move has so many, and more while it waits
STEPS = ["memory", "refusal", *(f"store {n}" for n in range(2, 2 + STORE_CALLS))]
MAY_BE_LATE = STEPS[-3:]  # for the rank that votes last they come after the decision
MOMENTS = ["preparing", "voting", "voted"]


class Faulty:
    """A store of which one call does something else, once."""

    def __init__(self, store):
        self._store = store
        self.calls, self.at, self.names, self.instead = 0, 0, (), None
        self.failed = ""

    def arm(self, at, instead, names=()):
        self.calls, self.at, self.names, self.instead, self.failed = 0, at, names, instead, ""

    def __getattr__(self, name):
        usual = getattr(self._store, name)

        def call(*arguments):
            self.calls += not self.names or name in self.names
            if self.instead is not None and self.calls == self.at:
                instead, self.instead, self.failed = self.instead, None, name
                instead(name)
            return usual(*arguments)

        return call


class Rank:
    """One process: its context, what it holds, and what went on."""

    def __init__(self, rank, folder, world_size, timeout_s):
        self.rank, self.timeout_s = rank, timeout_s
        self.store = Faulty(FileStore(folder))
        self.member = Member(rank, self.store, world_size)
        ctypes.memset(self.member.weights, rank + 1, 4 * MIB)

    def is_asleep(self):
        return self.member.states() == ["paused", "paused"]

    def is_whole(self):
        states = self.member.states()
        if states not in (["paused", "paused"], ["active", "active"]):
            return False
        if self.is_asleep():
            content = self.member.context.backup(self.member.weights)
        else:
            content = ctypes.string_at(self.member.weights, 4 * MIB)
        return content == bytes([self.rank + 1]) * (4 * MIB)

    def move(self, function):
        """What it was told, and whether what it holds is right."""
        asleep = self.is_asleep()
        try:
            do = getattr(self.member.context, function)
            do(group=self.member.job, group_timeout=self.timeout_s)
            told, moved = "moved", True
        except reveille.JobAborted as error:
            told, moved = str(error), False
        right = self.is_whole() and self.is_asleep() == (asleep != moved)
        return [told, right]

    def fail(self, step):
        """Arranges that this rank cannot do it."""
        def broken(name):
            raise OSError(f"{name}: the connection was closed")

        if step == "memory":
            self.member.context.external("neighbour", "58MiB")
        elif step == "refusal":
            def refuse(_tag):
                raise RuntimeError("the engine is in the middle of a request")

            self.member.context.tag("weights", before_unmap=refuse)
        else:
            self.store.arm(int(step.split()[1]), broken)

    def mend(self):
        self.member.context.external("neighbour", 0)
        self.member.context.tag("weights")
        self.store.arm(0, None)

    def die(self, moment):
        """Arranges that it is killed."""
        def kill(_name):
            os.kill(os.getpid(), signal.SIGKILL)

        if moment == "preparing":
            self.member.context.tag("weights", before_unmap=kill)
        elif moment == "voting":
            self.store.arm(1, kill, ("set",))
        else:
            self.store.arm(3, kill, ("add",))  # of the round, of the vote, and of who has left


def function_of(step):
    return "resume" if step == "memory" else "pause"


def failing(this, size, victims):
    """The answers of one rank in all rounds of `failed`."""
    for victim in victims:
        for step in STEPS:
            function = "resume" if this.is_asleep() else "pause"
            if step in ("memory", "refusal") and function != function_of(step):
                yield [victim, "", function, *this.move(function)]
                function = function_of(step)
            if this.rank == victim:
                this.fail(step)
            yield [victim, step, function, *this.move(function)]
            if this.rank == victim:
                this.mend()


def killing(this, size, victims):
    """Those of `killed`."""
    for victim in victims:
        moment = MOMENTS[victim % len(MOMENTS)]
        if this.rank == victim:
            this.die(moment)
        yield [victim, moment, "pause", *this.move("pause")]
        if this.is_asleep():  # the one that was killed had voted: it begins awake
            this.member.context.resume()


def start(body, rank, folder, size, timeout_s, out, victims):
    child = os.fork()
    if child == 0:
        try:
            with out.open("a", buffering=1) as file:
                for answer in body(Rank(rank, folder, size, timeout_s), size, victims):
                    file.write(json.dumps(answer) + "\n")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def run(body, size, timeout_s, victims):
    """The answers of every rank by round, and how many were killed."""
    killed = 0
    with tempfile.TemporaryDirectory() as work:
        folder, out = Path(work, "store"), Path(work, "out")
        folder.mkdir()
        out.mkdir()

        def begin(rank, left):
            return start(body, rank, folder, size, timeout_s, out / str(rank), left)

        ranks = {begin(rank, victims): rank for rank in range(size)}
        while ranks:
            child, status = os.wait()
            rank = ranks.pop(child)
            if os.WIFSIGNALED(status):
                killed += 1
                ranks[begin(rank, range(rank + 1, victims.stop))] = rank
            else:
                assert os.WEXITSTATUS(status) == 0, f"rank {rank} failed: see above"
        found = {}
        for path in out.iterdir():
            for victim, step, function, told, right in map(json.loads, path.open()):
                found.setdefault((victim, step, function), []).append((told, right))
    return found, killed


def _names(victim, size, told):
    """Whether a rank was told of the one at fault, or that all have moved."""
    return told == "moved" or f"rank {victim} of {size} " in told or "all ranks were ready" in told


def check(found, size, killed_parts):
    """Counts, and what went wrong."""
    counts = {"rounds": len(found), "aborted": 0, "moved": 0, "others_late": 0}
    faults = []
    for (victim, step, function), answers in sorted(found.items()):
        told = {each[0] for each in answers}
        dead = killed_parts and step != ""
        if len(answers) != size - dead or len(told) != 1 or not all(each[1] for each in answers):
            faults.append([victim, step, function, sorted(told), len(answers)])
        counts["moved" if told == {"moved"} else "aborted"] += 1
        if not killed_parts and step not in MAY_BE_LATE and (step == "") != (told == {"moved"}):
            faults.append([victim, step, function, "a step that fails must abort, and only that"])
        if any(not _names(victim, size, each) for each in told):
            if all("did not answer within" in each for each in told):
                counts["others_late"] += 1
            else:
                faults.append([victim, step, function, sorted(told)])
    return {**counts, "faults": faults}


def victims_of(part, size):
    """The name of a part, and the ranks that it fails in turn."""
    name, _, some = part.partition(":")
    first, _, last = (some or f"0-{size - 1}").partition("-")
    return name, range(int(first), int(last) + 1)


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    timeout_s = float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
    failed = False
    for part in sys.argv[3:] or ["failed", "killed"]:
        begin = time.monotonic()
        name, victims = victims_of(part, size)
        body, limit_s = (failing, 60.0) if name == "failed" else (killing, timeout_s)
        found, killed = run(body, size, limit_s, victims)
        result = check(found, size, name == "killed")
        seconds = round(time.monotonic() - begin)
        line = {"part": part, "ranks": size, "killed": killed, **result, "seconds": seconds}
        print(json.dumps(line), flush=True)
        failed = failed or bool(result["faults"])
    sys.exit(failed)


if __name__ == "__main__":
    main()
