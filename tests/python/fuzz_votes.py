# SPDX-License-Identifier: MIT
"""A fuzzer of the votes of a job: bytes decide who runs next, and what goes wrong.

    python fuzz_votes.py --seconds 60 [--seed N]      until then, or a fault: prints the input
    python fuzz_votes.py --input HEX                  that input alone, with what was done

An input makes a job of two to four ranks and a few calls. Ranks are threads that run one at a time:
at each call of the store the next bytes say which of them goes on. Time is the fuzzer's own, and
passes when all of them wait. A rank may be killed and started again, be gone for good, be late, miss
a call, be there twice, call something else, count another size of the world, be interrupted, find no
memory, or lose a call of its store, before or after the store has carried it out.

What holds then (`_job.py` says why):

- A round commits only if every rank has voted in it, for one call.
- Who moved in a round that was decided, moved as it was decided. Only a rank that its store failed, or
  that was killed or interrupted, may differ, and it says so.
- All who abort in a round, and say that all ranks know why, give one reason.
- No rank asks its store for what is not there: PyTorch's would wait for it.
- Once nothing goes wrong any more, all ranks move after a few calls.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import threading
import time
from typing import Any, Callable

from reveille import Forecast, _job
from reveille._job import COMMIT, Job, JobForecast
from reveille.errors import JobAborted, OutOfDeviceMemory

TIMEOUT_S = 4.0
CALLS = ("pause", "resume", "forecast", "together")
BLOW_COUNT = 4  # at most, in one input
BLOWS = ("fails", "fails after", "killed", "gone", "interrupted", "late", "no memory")
FORECAST = Forecast(True, 0, 1, 2, 0, 0, 1, 1)
CLEAN_CALLS = 3  # after which all must have moved where nothing went wrong
TWIN_CALLS = 4  # more where a rank was there twice, which shifts its rounds
STEPS_MAX = 20_000


class Killed(BaseException):
    """Unwinds the thread of a rank that is dead: nothing that it does on its way counts."""


class Input:
    """Bytes that decide. Behind the last of them: zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def pick(self, count: int) -> int:
        """A number below count."""
        byte = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return byte % count


class Member:
    """A process of one rank: its script, its blows, and what it saw."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.script: list[tuple[str, int] | None] = []  # call and size of the world; None: missed
        self.blows: dict[int, str] = {}  # by number of its calls of the store
        self.calls = 0
        self.dead = self.gone = self.no_memory = False
        self.round = 0  # that its last call of the store was about
        self.baton = threading.Semaphore(0)
        self.wakes_s: float | None = None  # it sleeps until then
        self.moved: str | None = None  # in its current call
        self.store: Store  # of its process, which remembers what it counted


class World:
    """Ranks, their store and their time: one of them runs."""

    def __init__(self, given: Input) -> None:
        self.given = given
        self.keys: dict[str, str] = {}
        self.now_s = 0.0
        self.steps = 0
        self.alive: list[Member] = []
        self.running: Member | None = None
        self.done = threading.Semaphore(0)
        self.log: list[tuple[Any, ...]] = []
        self.faults: list[str] = []
        self.decisions: dict[str, str] = {}  # by prefix of the round
        self.votes: dict[str, set[int]] = {}

    # ---- Time, in place of the module ----

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.running.wakes_s = self.now_s + seconds
        self.yield_turn()

    # ---- Turns ----

    def run(self, members: list[Member], body: Callable[[Member], None]) -> None:
        """The body of each of them, to its end."""
        def thread(member: Member) -> None:
            member.baton.acquire()
            try:
                body(member)
            except Killed:
                pass
            except BaseException as error:  # of the fuzzer
                self.faults.append(f"rank {member.rank}: {type(error).__name__}: {error}")
            self.alive.remove(member)
            self.pass_on()

        self.alive = list(members)
        threads = [threading.Thread(target=thread, args=(each,), daemon=True) for each in members]
        for each in threads:
            each.start()
        self.pass_on()
        self.done.acquire()
        for each in threads:
            each.join()

    def pass_on(self) -> None:
        """Wakes who runs next: one that the input picks of those that do not sleep."""
        if not self.alive:
            self.done.release()
            return
        awake = [each for each in self.alive if each.wakes_s is None or each.wakes_s <= self.now_s]
        if not awake:
            self.now_s = min(each.wakes_s for each in self.alive)
            awake = [each for each in self.alive if each.wakes_s <= self.now_s]
        choice = self.given.pick(256)
        stays = self.running in awake and choice % 2 == 0
        self.running = self.running if stays else awake[choice // 2 % len(awake)]
        self.running.wakes_s = None
        self.running.baton.release()

    def yield_turn(self) -> None:
        member = self.running
        self.steps += 1
        if self.steps > STEPS_MAX:
            member.dead = True
            if not self.faults:
                self.faults.append(f"no end after {STEPS_MAX} steps")
            raise Killed
        self.pass_on()
        member.baton.acquire()


class Store:
    """What one process has of the store."""

    def __init__(self, world: World, member: Member) -> None:
        self._world, self._member = world, member

    def _call(self, name: str, key: str, work: Callable[[], Any]) -> Any:
        world, member = self._world, self._member
        if member.dead:
            raise Killed
        world.yield_turn()
        member.calls += 1
        blow = member.blows.pop(member.calls, "")
        number = key.split("/")[1]
        member.round = int(number) if number.isdigit() else member.round
        kind = key.split("/")[2] if number.isdigit() else number
        world.log.append((member.rank, name, member.round, kind, blow))
        if blow in ("killed", "gone"):
            member.dead, member.gone = True, blow == "gone"
            raise Killed
        if blow == "interrupted":
            raise KeyboardInterrupt
        if blow == "fails":
            raise ConnectionError("lost before")
        if blow == "late":
            member.wakes_s = world.now_s + 3 * TIMEOUT_S
            world.yield_turn()
        member.no_memory |= blow == "no memory"
        answer = work()
        if blow == "fails after":
            raise ConnectionError("lost after")
        return answer

    def set(self, key: str, value: str) -> None:
        def work() -> None:
            self._world.keys[key] = value
            prefix, _, kind = key.rpartition("ready/")
            if prefix:
                self._world.votes.setdefault(prefix, set()).add(int(kind))

        self._call("set", key, work)

    def get(self, key: str) -> bytes:
        def work() -> bytes:
            if key not in self._world.keys:
                self._world.faults.append(f"rank {self._member.rank} waits for {key} forever")
                raise ConnectionError(f"{key} is not there")
            return self._world.keys[key].encode()

        return self._call("get", key, work)

    def check(self, keys: list[str]) -> bool:
        return self._call("check", keys[0], lambda: all(key in self._world.keys for key in keys))

    def add(self, key: str, amount: int) -> int:
        def work() -> int:
            count = int(self._world.keys.get(key, "0")) + amount
            self._world.keys[key] = str(count)
            return count

        return self._call("add", key, work)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        def work() -> bytes:
            found = self._world.keys.setdefault(key, desired) if expected == "" else ""
            if key.endswith("/decision"):
                self._decided(key[: -len("decision")], found)
            return found.encode()

        return self._call("compare_set", key, work)

    def delete_key(self, key: str) -> bool:
        return self._call("delete_key", key, lambda: self._world.keys.pop(key, None) is not None)

    def _decided(self, prefix: str, text: str) -> None:
        """Once for each round, and to commit only if all of its ranks have voted."""
        world = self._world
        if world.decisions.setdefault(prefix, text) != text:
            world.faults.append(f"{prefix} was decided twice")
        if text == COMMIT:
            size = json.loads(world.keys[f"{prefix}plan"])[1]
            voted = world.votes.get(prefix, set()) | said(world, prefix, size)
            if voted != set(range(size)):
                world.faults.append(f"{prefix} commits with the votes of {sorted(voted)} of {size}")


def said(world: World, prefix: str, size: int) -> set[int]:
    """Who has said something there: a forecast's vote."""
    return {rank for rank in range(size) if f"{prefix}said/{rank}" in world.keys}


# ---- A rank ----

class Move:
    """What a rank has prepared."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def _end(self, how: str) -> None:
        if self._member.moved is not None:
            raise AssertionError("a move ended twice")
        self._member.moved = how

    def commit(self) -> None:
        self._end("commit")

    def abort(self) -> None:
        self._end("abort")


def call(job: Job, member: Member, kind: str) -> JobForecast | None:
    """One call of all ranks."""
    def prepare(prepared: list[Any]) -> None:
        if member.no_memory:
            member.no_memory = False
            raise OutOfDeviceMemory("no room")
        prepared.append(Move(member))

    def together(_prepared: list[Any], meeting: Any) -> None:
        meeting.arrive()
        if len(set(meeting.share("same"))) > 1:
            raise AssertionError("what is said differs")

    if kind == "forecast":
        return job.forecast("fits()", lambda: FORECAST, TIMEOUT_S)
    return job.move(f"{kind}()", prepare, TIMEOUT_S, together if kind == "together" else None)


class Execution:
    """One input: ranks that go wrong, and then those of them that go right again."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        given = Input(data)
        self.world = World(given)
        self.size = 2 + given.pick(3)
        self.members = [Member(rank, self.size) for rank in range(self.size)]
        self.outcomes: list[tuple[int, int, str, str, bool]] = []  # rank, round, how, why, agreed
        script = [(CALLS[given.pick(4)], self.size) for _ in range(1 + given.pick(4))]
        for member in self.members:
            member.script = list(script)
        self.patience = CLEAN_CALLS
        for _ in range(given.pick(BLOW_COUNT + 1)):
            self._strike(given)

    def _strike(self, given: Input) -> None:
        """Something that goes wrong: a round that a rank which comes back hears of by itself."""
        self.patience += 1
        kind = given.pick(len(BLOWS) + 4)
        member = self.members[given.pick(len(self.members))]
        call = given.pick(len(member.script))
        if kind < len(BLOWS):
            member.blows[1 + given.pick(48)] = BLOWS[kind]
        elif kind == len(BLOWS):  # missed
            member.script[call] = None
        elif kind == len(BLOWS) + 1:  # something else
            member.script[call] = (CALLS[given.pick(4)], self.size)
        elif kind == len(BLOWS) + 2:  # another size of the world
            member.script[call] = (CALLS[given.pick(4)], self.size + 1)
        else:  # a rank that is there twice
            twin = Member(member.rank, self.size)
            twin.script = list(member.script)
            self.members.append(twin)
            self.patience += TWIN_CALLS

    def run(self) -> Execution:
        """Until its end. world.faults: what did not hold."""
        own, _job.time = _job.time, self.world
        try:
            self.world.run(self.members, self._go_wrong)
            if not self.world.faults:
                self.world.run(self.members[: self.size], self._go_right)
        finally:
            _job.time = own
        self._compare()
        return self

    def _go_wrong(self, member: Member) -> None:
        member.store = Store(self.world, member)
        for each in member.script:
            if each is None:
                continue
            kind, size = each
            try:
                self._call(Job(member.store, member.rank, size), member, kind)
            except Killed:
                if member.gone:
                    return
                member.dead = False
                member.store = Store(self.world, member)  # it is started again

    def _go_right(self, member: Member) -> None:
        """The same process, or one that was started again: it calls until it moves."""
        store = Store(self.world, member) if member.gone else member.store
        member.dead = member.gone = member.no_memory = False
        member.blows.clear()
        for _ in range(self.patience):
            if self._call(Job(store, member.rank, self.size), member, "clean"):
                return
        self.world.faults.append(f"rank {member.rank} has not moved in {self.patience} calls")

    def _call(self, job: Job, member: Member, kind: str) -> bool:
        """One call, and how it ended: "commit", "abort", or "said" where nothing moves."""
        member.moved, why, agreed = None, "", True
        try:
            call(job, member, kind)
            moved = True
        except JobAborted as aborted:
            moved, why, agreed = False, f"{aborted.rank}: {aborted.reason}", aborted.agreed
        except KeyboardInterrupt:
            moved, agreed = member.moved == "commit", False
        except ConnectionError:  # of the store: a forecast raises it as it is
            moved, agreed = member.moved == "commit", False
            if kind != "forecast":
                raise
        if moved and kind != "forecast" and member.moved != "commit":
            self.world.faults.append(f"rank {member.rank} moved without a move")
        if not moved and member.moved == "commit" and agreed:
            self.world.faults.append(f"rank {member.rank} moved, and says that none has")
        how = "commit" if moved else "abort"
        self.outcomes.append((member.rank, member.round, how, why, agreed))
        return moved

    def _compare(self) -> None:
        """What ranks say of a round with what was decided there."""
        reasons: dict[int, set[str]] = {}
        for rank, number, how, why, agreed in self.outcomes:
            decision = self.world.decisions.get(f"reveille/{number}/")
            commits = decision == COMMIT
            if agreed and decision is not None and commits != (how == "commit"):
                self.world.faults.append(f"round {number}: rank {rank} {how}s against {decision}")
            if how == "commit" and not commits:
                self.world.faults.append(f"round {number}: rank {rank} moved alone")
            if how == "abort" and agreed:
                reasons.setdefault(number, set()).add(why)
        for number, found in reasons.items():
            if len(found) > 1:
                self.world.faults.append(f"round {number}: {len(found)} reasons: {sorted(found)}")

    def features(self) -> set[tuple[Any, ...]]:
        """What ranks did in a row, three calls of the store at a time."""
        steps = [(name, kind, blow) for _rank, name, _round, kind, blow in self.world.log]
        return set(zip(steps, steps[1:], steps[2:])) | {each[2:4] for each in self.outcomes}


# ---- The fuzzer ----

def mutate(data: bytes, chance: random.Random) -> bytes:
    """Some bytes are others, move, go or come."""
    found = bytearray(data)
    for _ in range(1 + chance.randrange(4)):
        at, kind = chance.randrange(len(found) + 1), chance.randrange(4)
        if kind == 0 and at < len(found):
            found[at] = chance.randrange(256)
        elif kind == 1:
            found[at:at] = chance.randbytes(1 + chance.randrange(8))
        elif kind == 2:
            del found[at : at + 1 + chance.randrange(8)]
        else:
            found[at:] = chance.randbytes(chance.randrange(200))
    return bytes(found)


class Fuzzer:
    """Inputs that did something new are kept, and changed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kept: list[bytes] = [b""]
        self.seen: set[tuple[Any, ...]] = set()
        self.count = 0

    def next(self) -> Execution:
        """One more input. Its faults are the caller's."""
        if self.count % 4 == 0:
            data = self.chance.randbytes(self.chance.randrange(300))
        else:
            data = mutate(self.chance.choice(self.kept), self.chance)
        self.count += 1
        execution = Execution(data).run()
        new = execution.features() - self.seen
        if new:
            self.seen |= new
            self.kept.append(data)
        return execution


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs (default: 1)")
    parser.add_argument("--input", help="that input alone, in hexadecimal digits")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    if options.input is not None:
        execution = Execution(bytes.fromhex(options.input)).run()
        for each in (*execution.world.log, *execution.outcomes, *execution.world.faults):
            print(each)
        return bool(execution.world.faults)
    fuzzer, end = Fuzzer(options.seed), time.monotonic() + options.seconds
    while time.monotonic() < end:
        execution = fuzzer.next()
        if execution.world.faults:
            print(f"--input {execution.data.hex()}", *execution.world.faults, sep="\n")
            return 1
    print(f"{fuzzer.count} executions, {len(fuzzer.kept)} kept, {len(fuzzer.seen)} features, no fault")
    return 0


if __name__ == "__main__":
    sys.exit(main())
