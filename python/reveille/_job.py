# SPDX-License-Identifier: MIT
"""All ranks of a job or none: pause and resume in two phases, over a store that all ranks share.

Each rank prepares what can fail, and votes. One key of the store holds the decision, and the rank
that sets it first decides for all. The last rank to vote decides to commit. A rank that failed, or
that has waited too long, decides to abort, and gives the reason. Committing cannot fail, so no
second vote is needed.

Each call is a round (two rounds if the ranks also do something together). The store counts the
rounds of each rank. A rank may be late, or miss a call (because of an exception before it). The
others wait, and then give up on it. Its next call finds that round decided, but the store cannot
tell whether the rank is late or has missed the call. A late rank must raise what the others have
raised, since its next call matches theirs. So the rank raises this once. If its next call finds a
round in which the others gave up on it again, it is behind: it skips to the newest round
(`_Round.catch_up`), and logs it. These invariants hold, whatever the ranks do:

- A rank's count only rises. A rank votes only in the round that it has counted, at most once.
- A round commits only with the votes of all ranks, for the same call.
- A rank skips a round only if the others gave up on it there, and if it has raised for the round
  before. So it has not voted in the skipped round, which did not commit. It does not skip a round
  that was decided for another reason: then all ranks raise the same, however late one of them is.

The store is one of torch.distributed, or any object with its methods ``set``, ``get``, ``check``,
``add`` and ``compare_set``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import logging
import math
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Protocol, Union

from . import _c
from ._handle import Ended
from ._results import Forecast
from ._scope import scope
from ._sizes import whole
from ._unique import Unique
from .errors import Busy, InvalidArgument, JobAborted, ReveilleError, TimedOut

GROUP_TIMEOUT_S = 60.0
FIRST_WAIT_S = 0.0005
LONGEST_WAIT_S = 0.1
COMMIT = json.dumps({"commit": True})
LOGGER = logging.getLogger("reveille")
# Fields of an error that all ranks get.
FACTS = ("status", "op", "tag", "device", "requested_bytes", "free_bytes", "native_code",
         "native_name")  # fmt: skip


class Prepared(Ended):
    """A prepared transition. It is committed or aborted once, and aborted if it is dropped."""

    device_names: Callable[[], Mapping[int, str]] = dict

    def device_name(self, index: int) -> str:
        """The name of a device of its context, such as "cuda:0"."""
        return self.device_names()[index]

    def pieces(self) -> list[_c.Piece]:
        """The pieces of a resume in parts."""
        count = ctypes.c_size_t()
        self._call("rvl_transition_copy_pieces", None, 0, 0, ctypes.byref(count))
        found = (_c.Piece * count.value)()
        size = ctypes.sizeof(_c.Piece)
        self._call("rvl_transition_copy_pieces", found, size, count, ctypes.byref(count))
        return list(found)

    def load_next(self) -> int:
        """Waits for the next piece of this rank's part. Returns its number, or the count at the end."""
        piece = ctypes.c_size_t()
        self._call("rvl_transition_load_next", ctypes.byref(piece))
        return piece.value

    def fill(self, filled: Sequence[bool]) -> None:
        """Closes open pieces: keeps those that were filled correctly, and restores all others."""
        flags = (ctypes.c_bool * len(filled))(*filled)
        self._call("rvl_transition_fill", flags, len(filled))

    def commit(self) -> None:
        """Finishes the transition. Cannot fail."""
        self._end("rvl_transition_commit")

    def abort(self) -> None:
        """Restores the earlier state. Raises the device's error if that loses some memory."""
        self._end("rvl_transition_abort")

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            with contextlib.suppress(Exception):
                self.abort()


class Move(Protocol):
    """Something prepared. Either commit() or abort() ends it."""

    def commit(self) -> None:
        """Finishes the move. Cannot fail."""

    def abort(self) -> None:
        """Restores the earlier state."""


Prepare = Callable[[list[Move]], None]

class Meeting(Protocol):
    """What ranks know about each other while they do something together."""

    def arrive(self) -> None:
        """Tells the others that this rank has begun."""

    def is_decided(self) -> bool:
        """Whether the ranks have decided. They decide early if one refuses."""

    def share(self, text: str) -> list[str]:
        """Shares a text. Returns every rank's text, by rank; empty if a rank has refused."""

    def time_left(self) -> float:
        """Seconds until the ranks give up on a missing rank."""

    def tell_broken(self) -> None:
        """Tells the others that the exchange has failed here, so that they need not wait."""

    def is_broken(self) -> bool:
        """Whether a rank has called tell_broken(), or refused."""


Together = Callable[[list[Move], Meeting], None]


class JobForecast(NamedTuple):
    """The forecast of a resume on every rank. True if it fits on all."""

    ranks: tuple[Forecast, ...]

    def __bool__(self) -> bool:
        return all(self.ranks)

    @property
    def worst(self) -> int:
        """The rank with the least room."""
        room = [each.free_bytes - each.needed_bytes for each in self.ranks]
        return room.index(min(room))

    def __str__(self) -> str:
        return f"rank {self.worst} of {len(self.ranks)}: {self.ranks[self.worst]}"


class Job(Unique):
    """The ranks that move together: their store, and the rank of this process.

    All ranks must make the same calls in the same order. ``name`` keeps their keys apart from other
    keys in the store. Groups of different ranks that share a store need different names.
    """

    def __init__(self, store: Any, rank: int, world_size: int, *, name: str = "reveille") -> None:
        self.store = store
        self.rank = whole(rank, "rank")
        self.world_size = whole(world_size, "world_size")
        self.name = name
        if not 0 <= self.rank < self.world_size:
            raise InvalidArgument(f"rank must be from 0 to {world_size - 1}, not {rank}")
        missing = [
            each
            for each in ("set", "get", "check", "add", "compare_set")
            if not callable(getattr(store, each, None))
        ]
        if missing:
            raise InvalidArgument(
                f"a store needs {', '.join(missing)}, which {type(store).__name__} lacks: give a "
                "Store of torch.distributed, a process group, or a reveille.Job"
            )

    def __repr__(self) -> str:
        return f"<reveille.Job {self.name!r}: rank {self.rank} of {self.world_size}>"

    # ---- Moving together ----

    def _begin(self, what: str, timeout: float, last: bool = True) -> _Round:
        """Begins the next round. Raises JobAborted on this rank alone if the store fails to count it."""
        try:
            return _Round(self, what, timeout, last)
        except Exception as error:
            reason = f"its store failed: {type(error).__name__}: {error}"
            aborted = _Refusal(self.rank, reason, {}).exception(
                what, self.world_size, None, self.rank
            )
            aborted.agreed = False
            raise aborted from error

    def move(
        self, what: str, prepare: Prepare, timeout: float, together: Together | None = None
    ) -> None:
        """Prepares, and commits if all ranks have prepared. Otherwise aborts and raises JobAborted.

        together: work in which each rank waits for the others, so that no rank may begin it before
        all have prepared. After it all vote a second time. Calls of several threads take turns.
        """
        with _rounds_of(self).take_turn(what, timeout):
            self._move(what, prepare, timeout, together)

    def _move(
        self, what: str, prepare: Prepare, timeout: float, together: Together | None
    ) -> None:
        prepared: list[Move] = []
        cause: Exception | None = None
        agreed = True
        meeting = self._begin(what, timeout, last=together is None)
        try:
            meeting.catch_up()
            decision, cause = meeting.prepare(lambda: prepare(prepared))
            if decision is None and together is not None:
                before, meeting = meeting, _Round(self, what, timeout)
                before.leave()
                decision, cause = meeting.prepare_together(
                    functools.partial(together, prepared, meeting)
                )
            lost = _end(prepared, commit=decision is None)
        except Exception as error:  # from the store
            decision = meeting.give_up(f"its store failed: {type(error).__name__}: {error}")
            lost, cause, agreed = _end(prepared, commit=decision is None), error, False
        except BaseException as interruption:  # a decision that was made stands
            decision = meeting.give_up(f"interrupted: {type(interruption).__name__}")
            _end(prepared, commit=decision is None)
            raise
        meeting.leave()
        _rounds_of(self).given_up = decision is not None and self.rank in decision.late
        if decision is not None:
            aborted = decision.exception(what, self.world_size, lost, self.rank)
            aborted.agreed &= agreed
            raise aborted from (cause or lost)

    def forecast(self, what: str, own: Callable[[], Forecast], timeout: float) -> JobForecast:
        """The forecasts of all ranks, in their order."""
        with _rounds_of(self).take_turn(what, timeout):
            return self._forecast(what, own, timeout)

    def _forecast(self, what: str, own: Callable[[], Forecast], timeout: float) -> JobForecast:
        meeting = self._begin(what, timeout)
        try:
            meeting.catch_up()
            refusal, text = meeting.join(), ""
            if refusal is None:
                text = json.dumps(vars(own()))
            found = meeting.gather(refusal, text)
        except Exception as error:
            with contextlib.suppress(Exception):  # from the store: the caller raises the original error
                meeting.tell(_Refusal.of(self.rank, error))
            meeting.leave()
            raise
        meeting.leave()
        _rounds_of(self).given_up = isinstance(found, _Refusal) and self.rank in found.late
        if isinstance(found, _Refusal):
            raise found.exception(what, self.world_size, None, self.rank)
        return JobForecast(tuple(Forecast(**json.loads(each)) for each in found))


def move_alone(prepare: Prepare) -> None:
    """Like Job.move() without other ranks: moves everything that is prepared, or nothing."""
    prepared: list[Move] = []
    try:
        prepare(prepared)
    except BaseException:
        _end(prepared, commit=False)
        raise
    lost = _end(prepared, commit=True)
    if lost is not None:
        raise lost


Group = Union[Job, Any]


def call_of(function: str, tags: Sequence[str], *options: str) -> str:
    """The text of a call, which ranks compare and which messages show."""
    return f"{function}({', '.join((*map(json.dumps, sorted(set(tags))), *options))})"


def seconds(timeout: float) -> float:
    """Checks a group_timeout."""
    if not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise InvalidArgument(f"group_timeout must be seconds above 0, not {timeout!r}")
    return float(timeout)


def job_of(group: Group) -> Job:
    """The Job of a ``group`` argument: a Job, or a process group or mesh of torch.distributed."""
    if isinstance(group, Job):
        return group
    if hasattr(group, "get_group") and not hasattr(group, "rank"):  # a DeviceMesh
        group = group.get_group()
    try:
        import torch.distributed as dist
        from torch.distributed import distributed_c10d as c10d

        store, name = c10d._get_default_store(), dist.get_process_group_ranks(group)
        return Job(
            store,
            dist.get_rank(group),
            dist.get_world_size(group),
            name="reveille/" + "-".join(map(str, name)),
        )
    except (ImportError, ValueError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"group must be a process group of torch.distributed or a reveille.Job, not {group!r}"
        ) from error


# ---- One round ----

class _Rounds:
    """One rank of a job in this process: the store's count of its rounds, and the thread in turn."""

    def __init__(self) -> None:
        self.last: int | None = None  # None: not read yet; an earlier process may have counted
        self.unsure = 0  # rounds after `last` that the store may or may not have counted
        self.given_up = False  # whether the others gave up on this rank in its last call
        self.turn = threading.Lock()
        self.thread: int | None = None  # the thread that has the turn

    @scope
    def take_turn(self, what: str, timeout: float) -> Iterator[None]:
        """Lets one call run at a time, so that the keys of a rank's rounds are in order."""
        if self.thread == threading.get_ident():
            raise Busy(f"{what} within a move of the same group, as in a callback: call it after")
        taken = False
        try:
            taken = self.turn.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
            if not taken:
                raise Busy(f"{what}: another thread's call of the same group went on for {timeout:g} s")
            self.thread = threading.get_ident()
            yield
        finally:
            if taken:
                self.thread = None
                self.turn.release()


# By the store's id, job and rank. The id of a freed store may be reused.
_ROUNDS: dict[tuple[int, str, int], tuple[Callable[[], Any], _Rounds]] = {}
_ROUNDS_LOCK = threading.Lock()


def _reference(store: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(store)
    except TypeError:  # keeps the store alive
        return lambda: store


def _rounds_of(job: Job) -> _Rounds:
    key = (id(job.store), job.name, job.rank)
    with _ROUNDS_LOCK:
        for gone in [each for each, (store, _rounds) in _ROUNDS.items() if store() is None]:
            del _ROUNDS[gone]
        if key not in _ROUNDS:
            _ROUNDS[key] = (_reference(job.store), _Rounds())
        return _ROUNDS[key][1]


def _next_round(job: Job) -> int:
    """The number of the next round. The store counts it, so that the count outlives this process.

    Call it in this thread's turn. If the store fails, it may still have counted. The others have
    finished that round, so this rank must skip it, too: the next call checks the count and corrects
    it.
    """
    key, rounds = f"{job.name}/rounds/{job.rank}", _rounds_of(job)
    unsure = rounds.unsure
    rounds.unsure = unsure + 1
    if rounds.last is None:
        rounds.last = int(job.store.add(key, 0))
    missed = rounds.last + unsure - int(job.store.add(key, 0)) if unsure else 0
    rounds.last = int(job.store.add(key, 1 + max(missed, 0)))
    rounds.unsure = 0
    return rounds.last


class _Refusal(NamedTuple):
    """Why a job aborts: the rank that cannot move, its reason and numbers, and the missing ranks."""

    rank: int
    reason: str
    facts: dict[str, Any]
    late: Sequence[int] = ()

    @classmethod
    def of(cls, rank: int, error: Exception) -> _Refusal:
        if not isinstance(error, ReveilleError):
            return cls(rank, f"{type(error).__name__}: {error}", {})
        return cls(rank, error.message, {name: getattr(error, name) for name in FACTS})

    def exception(
        self, what: str, size: int, lost: ReveilleError | None, own: int
    ) -> JobAborted:
        """The exception that rank `own` raises."""
        who = f"rank {self.rank} of {size} cannot {what}" if self.rank >= 0 else what
        message = f"no rank has moved: {who}: {self.reason}"
        if own in self.late:
            message += (
                f". This is rank {own}: it comes after that, or has missed that call (an exception "
                "before it?). Its next call goes with the next of the others"
            )
        if lost is not None:
            message += f"; and this rank could not undo all that it had prepared: {lost}"
        agreed = lost is None and self.facts.get("status") != TimedOut.STATUS
        return JobAborted(message, rank=self.rank, reason=self.reason, agreed=agreed, **self.facts)


def _end(prepared: Sequence[Move], *, commit: bool) -> ReveilleError | None:
    """Commits or aborts all. Returns the first exception of an abort, or None."""
    lost: ReveilleError | None = None
    for each in reversed(prepared):
        try:
            if commit:
                each.commit()
            else:
                each.abort()
        except ReveilleError as error:
            lost = lost or error
    return lost


class _Round:
    """One call of all ranks. Its keys in the store begin with the number of the round."""

    def __init__(self, job: Job, what: str, timeout: float, last: bool = True) -> None:
        self._job = job
        self._what = what
        self._timeout = timeout
        self._last = last
        self._deadline = time.monotonic() + timeout
        self._enter(_next_round(job))

    def _enter(self, number: int) -> None:
        self._number = number
        self._prefix = self._prefix_of(number)

    def _prefix_of(self, number: int) -> str:
        return f"{self._job.name}/{number}/"

    def catch_up(self) -> None:
        """Skips to the call that the others are in, if they also gave up on this rank in its last one."""
        first = self._number
        if not _rounds_of(self._job).given_up:
            return
        while self._was_given_up(self._number) and self._goes_on(self._number + 1):
            self.leave()
            self._enter(_next_round(self._job))
        missed = self._number - first
        if missed:
            LOGGER.warning(
                "rank %d of %d comes to %s, and has missed %s of its group: it was given up there",
                self._job.rank, self._job.world_size, self._what,
                "the call before it" if missed == 1 else f"{missed} calls before it",
            )  # fmt: skip

    def _was_given_up(self, number: int) -> bool:
        """Whether that round was aborted because this rank was missing."""
        key = f"{self._prefix_of(number)}decision"
        if not self._job.store.check([key]):
            return False
        decision = _decision(_text(self._job.store.get(key)))
        return decision is not None and self._job.rank in decision.late

    def _goes_on(self, number: int) -> bool:
        """Whether others are in that round with the same call, or gave up on this rank there again."""
        key = f"{self._prefix_of(number)}plan"
        if not self._job.store.check([key]):
            return False
        same = _text(self._job.store.get(key)) == self._plan()
        return self._was_given_up(number) or (same and not self._was_decided(number))

    def _was_decided(self, number: int) -> bool:
        return bool(self._job.store.check([f"{self._prefix_of(number)}decision"]))

    def _plan(self) -> str:
        return json.dumps([self._what, self._job.world_size])

    def join(self) -> _Refusal | None:
        """Checks that this rank makes the same call as the first rank. Returns a refusal if not."""
        own = self._plan()
        first = self._compare_set("plan", own)
        if first == own:
            return None
        what, size = json.loads(first)
        return _Refusal(
            self._job.rank,
            f"it calls {self._what} in a group of {self._job.world_size}, and another rank {what} "
            f"in a group of {size}: all ranks must make the same call",
            {"status": InvalidArgument.STATUS},
        )

    def prepare(self, work: Callable[[], None]) -> tuple[_Refusal | None, Exception | None]:
        """Joins, works and votes. Returns the decision, and the exception of this rank's work."""
        refusal, cause = self.join(), None
        if refusal is None:
            try:
                work()
            except Exception as error:
                refusal, cause = _Refusal.of(self._job.rank, error), error
        return self.vote(refusal), cause

    def prepare_together(
        self, work: Callable[[], None]
    ) -> tuple[_Refusal | None, Exception | None]:
        """Like prepare(). If the work has timed out because a rank never came, names that rank."""

        def waiting() -> None:
            try:
                work()
            except TimedOut as error:
                late = self._late("here/")
                if late.rank < 0:
                    raise
                self.tell(late)
                raise TimedOut(late.reason) from error

        return self.prepare(waiting)

    def arrive(self) -> None:
        """Tells the others that this rank has begun the common work."""
        self._set(f"here/{self._job.rank}", "1")

    def is_decided(self) -> bool:
        """Whether a rank has refused, or all have voted."""
        return self._is_there("decision")

    def share(self, text: str) -> list[str]:
        """Shares a text, and returns every rank's. Raises TimedOut and names ranks that are missing."""
        ranks = range(self._job.world_size)
        self._set(f"said/{self._job.rank}", text)
        keys = [f"{self._prefix}said/{rank}" for rank in ranks]
        if self._wait(lambda: self._job.store.check(keys) or self.is_decided()):
            return [] if self.is_decided() else [self._get(f"said/{rank}") for rank in ranks]
        late = self._late("said/")
        self.tell(late)
        raise TimedOut(late.reason)

    def time_left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._deadline - time.monotonic())

    def tell_broken(self) -> None:
        """Sets the key that is_broken() of the others checks."""
        self._set("broken", "1")

    def is_broken(self) -> bool:
        """Whether a rank has called tell_broken(), or refused."""
        return self._is_there("broken") or self.is_decided()

    def vote(self, refusal: _Refusal | None) -> _Refusal | None:
        """Votes. Returns the decision: None means commit."""
        if refusal is not None:
            return self.tell(refusal)
        self._set(f"ready/{self._job.rank}", "1")
        if self._job.store.add(self._prefix + "ready", 1) == self._job.world_size:
            return self._decide(COMMIT)
        if self._wait(self.is_decided):
            return _decision(self._get("decision"))
        return self.tell(self._late("ready/"))

    def gather(self, refusal: _Refusal | None, text: str) -> list[str] | _Refusal:
        """Returns every rank's text, or the refusal of one of them."""
        if refusal is not None:
            return self.tell(refusal) or refusal
        self._set(f"said/{self._job.rank}", text)
        if self._job.store.add(self._prefix + "ready", 1) == self._job.world_size:
            self._decide(COMMIT)
        elif not self._wait(self.is_decided):
            self.tell(self._late("said/"))
        decision = _decision(self._get("decision"))
        if decision is not None:
            return decision
        return [self._get(f"said/{rank}") for rank in range(self._job.world_size)]

    def tell(self, refusal: _Refusal) -> _Refusal | None:
        """Decides to abort, unless there is a decision already. Returns the decision."""
        return self._decide(json.dumps(refusal._asdict()))

    def give_up(self, reason: str) -> _Refusal | None:
        """Like tell(), for a rank that cannot continue. If the store fails, the rank aborts alone."""
        refusal = _Refusal(self._job.rank, reason, {})
        try:
            decision = self.tell(refusal)
        except Exception:
            return refusal
        return refusal if decision is None and not self._last else decision

    def leave(self) -> None:
        """Leaves the round. The last rank to leave removes the keys."""
        store, size = self._job.store, self._job.world_size
        with contextlib.suppress(Exception):  # leftover keys only use memory
            if store.add(self._prefix + "left", 1) == size:
                kinds = ("here", "ready", "said")
                ranks = [f"{kind}/{rank}" for kind in kinds for rank in range(size)]
                for key in itertools.chain(("plan", "ready", "decision", "broken", "left"), ranks):
                    store.delete_key(self._prefix + key)

    # ---- The store ----

    def _decide(self, text: str) -> _Refusal | None:
        return _decision(self._compare_set("decision", text))

    def _compare_set(self, key: str, text: str) -> str:
        """Sets a key unless it exists. Returns its value afterwards."""
        found = self._job.store.compare_set(self._prefix + key, "", text)
        return _text(found)

    def _set(self, key: str, text: str) -> None:
        self._job.store.set(self._prefix + key, text)

    def _get(self, key: str) -> str:
        return _text(self._job.store.get(self._prefix + key))

    def _is_there(self, key: str) -> bool:
        return bool(self._job.store.check([self._prefix + key]))

    def _wait(self, came: Callable[[], bool]) -> bool:
        """Polls, so that Ctrl-C gets through. False: the deadline has passed."""
        pause_s = FIRST_WAIT_S
        while not came():
            if time.monotonic() >= self._deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_WAIT_S)
        return True

    def _late(self, kind: str) -> _Refusal:
        ranks = range(self._job.world_size)
        late = [rank for rank in ranks if not self._is_there(f"{kind}{rank}")]
        others = f" ({len(late)} ranks did not: {late[:16]})" if len(late) > 1 else ""
        reason = f"it did not answer within {self._timeout:g} s{others}: it is late, stuck or dead"
        if not late and kind != "here/":
            reason = (
                "all ranks were ready, and the last of them did not say so within "
                f"{self._timeout:g} s: it is stuck or dead"
            )
        facts = {"status": TimedOut.STATUS}
        return _Refusal(late[0] if late else -1, reason, facts, late)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _decision(text: str) -> _Refusal | None:
    return None if text == COMMIT else _Refusal(**json.loads(text))
