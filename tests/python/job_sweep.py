# SPDX-License-Identifier: MIT
"""Many ranks: every rank's every step fails in turn, and every rank is killed. Not part of CI.

    python job_sweep.py [RANKS [TIMEOUT_S [PARTS]]]      64, 8 s, and "failed killed" without them
    python job_sweep.py 6 2 killed --store tcp --seconds 600

--store: that of the tests (files), or of PyTorch: `tcp` or `torch-file`. --seconds: again and again,
and one line for all of it.

`failed:36-63` is that part with the victims 36 to 63 alone. All ranks take part in every round.

Each round is one pause or resume of all ranks. In `failed` one rank's step fails: it has no memory,
its callback refuses, or one call of its store raises. In `killed` one rank is killed while it
prepares, before it votes, as it decides, as it hears what was decided, or when it has voted; it is
started again for the next round. After each
round all ranks must have moved or none, all must have been told the same, and what they hold must
be what it was. Prints a line of JSON for each part. `others_late` are rounds in which a rank that
is not at fault did not answer in time, as happens on a machine with more work than cores: all abort
then, too.
"""

import argparse
import collections
import ctypes
import datetime
import functools
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import reveille
from job import MIB, FileStore, Member

LATE = re.compile(r"\. This is rank \d+: it comes after that.*", re.DOTALL)  # said to a rank that comes late
STORE_CALLS = 7  # a move has so many, and more while it waits
STEPS = ["memory", "refusal", *(f"store {n}" for n in range(2, 2 + STORE_CALLS))]
MAY_BE_LATE = STEPS[-3:]  # for the rank that votes last they come after the decision
MOMENTS = ["preparing", "voting", "voted", "deciding", "told"]
SERVERS = []  # processes that hold a store
MAY_LIVE = ["deciding", "told"]  # one rank decides, and the others are told


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

    def __init__(self, rank, store, world_size, timeout_s):
        self.rank, self.timeout_s = rank, timeout_s
        self.store = Faulty(store)
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
        elif moment == "deciding":
            self.store.arm(2, kill, ("compare_set",))  # of the plan, and of the decision
        elif moment == "told":
            self.store.arm(1, kill, ("get",))
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


def killing(this, size, victims, first_moment=0):
    """Those of `killed`."""
    for victim in victims:
        moment = MOMENTS[(first_moment + victim) % len(MOMENTS)]
        if this.rank == victim:
            this.die(moment)
        yield [victim, moment, "pause", *this.move("pause")]
        this.mend()
        if this.is_asleep():  # the one that was killed had voted: it begins awake
            this.member.context.resume()


def torch_store(name, folder, size):
    """What each rank opens its store with."""
    from torch import distributed as dist

    patience = datetime.timedelta(seconds=60)
    if name == "torch-file":
        return lambda: dist.FileStore(str(folder / "all"), size)
    ends = os.pipe()
    server = os.fork()  # its threads are in nobody's way when ranks are forked
    if server == 0:
        held = dist.TCPStore("127.0.0.1", 0, None, True, patience, False)
        os.write(ends[1], str(held.port).encode())
        while os.getppid() != 1:
            time.sleep(1)
        os._exit(0)
    port = int(os.read(ends[0], 16))
    SERVERS.append(server)

    def connect():
        return dist.TCPStore("127.0.0.1", port, None, False, patience, False)

    return connect


def start(body, rank, open_store, size, timeout_s, out, victims):
    child = os.fork()
    if child == 0:
        try:
            with out.open("a", buffering=1) as file:
                for answer in body(Rank(rank, open_store(), size, timeout_s), size, victims):
                    file.write(json.dumps(answer) + "\n")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def run(body, size, timeout_s, victims, store="files"):
    """The answers of every rank by round, and how many were killed."""
    killed = 0
    with tempfile.TemporaryDirectory() as work:
        folder, out = Path(work, "store"), Path(work, "out")
        folder.mkdir()
        out.mkdir()
        if store == "files":
            open_store = lambda: FileStore(folder)  # noqa: E731
        else:
            open_store = torch_store(store, folder, size)

        def begin(rank, left):
            return start(body, rank, open_store, size, timeout_s, out / str(rank), left)

        ranks = {begin(rank, victims): rank for rank in range(size)}
        while ranks:
            child, status = os.wait()
            assert child in ranks, "the server of the store has ended"
            rank = ranks.pop(child)
            if os.WIFSIGNALED(status):
                killed += 1
                ranks[begin(rank, range(rank + 1, victims.stop))] = rank
            else:
                assert os.WEXITSTATUS(status) == 0, f"rank {rank} failed: see above"
        for server in SERVERS:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
        SERVERS.clear()
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
        told = {LATE.sub("", each[0]) for each in answers}
        dead = killed_parts and step != ""
        alive = (size - dead, size) if step in MAY_LIVE else (size - dead,)
        if len(answers) not in alive or len(told) != 1 or not all(each[1] for each in answers):
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


def sweep(name, victims, size, timeout_s, store, turn):
    """One part, once."""
    body, limit_s = (failing, 60.0) if name == "failed" else (killing, timeout_s)
    if name == "killed":
        body = functools.partial(killing, first_moment=turn)
    found, killed = run(body, size, limit_s, victims, store)
    return {"killed": killed, **check(found, size, name == "killed")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("size", type=int, nargs="?", default=64)
    parser.add_argument("timeout_s", type=float, nargs="?", default=8.0)
    parser.add_argument("parts", nargs="*", default=["failed", "killed"])
    parser.add_argument("--store", choices=("files", "tcp", "torch-file"), default="files")
    parser.add_argument("--seconds", type=float, default=0.0)
    asked = parser.parse_args()
    failed = False
    for part in asked.parts:
        begin, total, faults = time.monotonic(), collections.Counter(), []
        name, victims = victims_of(part, asked.size)
        for turn in itertools.count():
            result = sweep(name, victims, asked.size, asked.timeout_s, asked.store, turn)
            faults += result.pop("faults")
            total.update(result)
            if time.monotonic() - begin >= asked.seconds:
                break
        line = {"part": part, "store": asked.store, "ranks": asked.size, **total, "faults": faults}
        print(json.dumps({**line, "seconds": round(time.monotonic() - begin)}), flush=True)
        failed = failed or bool(faults)
    sys.exit(failed)


if __name__ == "__main__":
    main()
