# SPDX-License-Identifier: MIT
"""Watches each pause and resume: counters, a log line, an NVTX range.

The core counts bytes in use and bytes copied. It does not know Python's calls: their tags, times
and exceptions. So we read the core's counters before and after each move (a pause or resume), and
attribute the difference to it. If moves overlap, the first one to end gets the difference since the
first one began, and the others continue from there. So the totals are exact, and no byte is counted
twice, but copied bytes may be attributed to the wrong move.

Watching never makes a move fail. Counters that cannot be read count as 0.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple

from ._job import call_of
from ._scope import scope
from ._sizes import format_size

LOGGER = logging.getLogger("reveille")  # at level INFO, which Python drops by default
ALL = "*"
VERBS = {"pause": "given up", "resume": "taken"}


class Reading(NamedTuple):
    """Counters of the core. The keys are a context and a tag, or a context and a device."""

    active_bytes: dict[Any, int]
    copied_bytes: dict[Any, int]
    filled_bytes: dict[Any, int]


Read = Callable[[], Reading]
Clock = Callable[[], int]
NOTHING = Reading({}, {}, {})


@dataclass(frozen=True)
class TransitionMetrics:
    """The successful calls of one operation with the same tags.

    Attributes:
        operation: "pause" or "resume"
        tags: sorted; ("*",) for a call without tags, which moves all
        count: the number of calls
        seconds: their time, including waits for devices and for other ranks
        bytes: device memory that was released or allocated
        copied_bytes: content that was copied to or from backups
        filled_bytes: content that came from other ranks (replicas)
    """

    operation: str
    tags: tuple[str, ...]
    count: int = 0
    seconds: float = 0.0
    bytes: int = 0
    copied_bytes: int = 0
    filled_bytes: int = 0

    @property
    def gb_per_s(self) -> float:
        """Copied and filled content over time, in 10^9 bytes per second."""
        content = self.copied_bytes + self.filled_bytes
        return content / self.seconds / 1e9 if self.seconds else 0.0

    def plus(self, other: TransitionMetrics) -> TransitionMetrics:
        """The sum of both."""
        return TransitionMetrics(
            self.operation,
            self.tags,
            self.count + other.count,
            self.seconds + other.seconds,
            self.bytes + other.bytes,
            self.copied_bytes + other.copied_bytes,
            self.filled_bytes + other.filled_bytes,
        )


@dataclass(frozen=True)
class FailureMetrics:
    """Calls of an operation that raised the same class of exception, named by error."""

    operation: str
    error: str
    count: int


class _Move:
    """A call in progress."""

    def __init__(self, operation: str, tags: Sequence[str], read: Read, clock: Clock) -> None:
        self.operation = operation
        names = sorted({str(tag) for tag in tags})  # the move itself refuses tags that are not text
        self.tags = tuple(names) or (ALL,)
        self.title = call_of(operation, names)
        self._read = read
        self._clock = clock
        self._start_ns = self._now_ns()
        self.before = NOTHING

    def _now_ns(self) -> int:
        try:
            return self._clock()
        except Exception:  # there is no open context: the move reports that
            return 0

    def read(self) -> Reading:
        """The counters now."""
        try:
            return self._read()
        except Exception:
            return NOTHING

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return max(0, self._now_ns() - self._start_ns) / 1e9

    def done(self, after: Reading) -> TransitionMetrics:
        """Its metrics: the bytes that it moved, and its time."""
        sign = -1 if self.operation == "pause" else 1
        return TransitionMetrics(
            self.operation,
            self.tags,
            count=1,
            seconds=self.seconds,
            bytes=max(0, sign * _growth(self.before.active_bytes, after.active_bytes)),
            copied_bytes=_growth(self.before.copied_bytes, after.copied_bytes),
            filled_bytes=_growth(self.before.filled_bytes, after.filled_bytes),
        )


def _growth(before: dict[Any, int], after: dict[Any, int]) -> int:
    return sum(value - before[key] for key, value in after.items() if key in before)


def _copy_common(values: Reading, into: Reading) -> None:
    for source, target in zip(values, into):
        target.update((key, source[key]) for key in source.keys() & target.keys())


class Moves:
    """The counters of this process. A forked child begins with none."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Resets all counters."""
        self._lock = threading.RLock()  # reentrant: a signal handler or finalizer may run while it is held
        self._running: set[_Move] = set()
        self._transitions: dict[tuple[str, tuple[str, ...]], TransitionMetrics] = {}
        self._failures: dict[tuple[str, str], int] = {}

    def transitions(self) -> tuple[TransitionMetrics, ...]:
        """Calls that succeeded."""
        with self._lock:
            return tuple(self._transitions.values())

    def failures(self) -> tuple[FailureMetrics, ...]:
        """Calls that raised."""
        with self._lock:
            return tuple(FailureMetrics(*key, count) for key, count in self._failures.items())

    @scope
    def watch(
        self,
        operation: str,
        tags: Sequence[str],
        read: Read,
        clock: Clock = time.monotonic_ns,
    ) -> Iterator[None]:
        """Watches the block, which is a pause or resume. read: reads the counters of its tags."""
        move = _Move(operation, tags, read, clock)
        end_range = _begin_range(f"reveille: {move.title}")
        try:
            self._begin(move)
            yield
            self._succeeded(move)
        except GeneratorExit:  # the block was never entered
            raise
        except BaseException as error:
            self._failed(move, error)
            raise
        finally:
            self._running.discard(move)
            end_range()

    def start(
        self,
        operation: str,
        tags: Sequence[str],
        read: Read,
        clock: Clock = time.monotonic_ns,
    ) -> Callable[[BaseException | None], None]:
        """Watches a move that ends later, on any thread.

        At its end call the returned function with the exception of the move, or None. The move has
        no NVTX range, since ranges belong to threads.
        """
        move = _Move(operation, tags, read, clock)
        self._begin(move)

        def end(error: BaseException | None) -> None:
            try:
                if error is None:
                    self._succeeded(move)
                else:
                    self._failed(move, error)
            finally:
                self._running.discard(move)

        return end

    def _begin(self, move: _Move) -> None:
        """Begins a move. Moves in progress share the reading from when the first began or one ended."""
        with self._lock:
            move.before = move.read()
            for other in self._running:
                _copy_common(other.before, move.before)
            self._running.add(move)

    def _succeeded(self, move: _Move) -> None:
        with self._lock:
            after = move.read()
            done = move.done(after)
            self._running.discard(move)
            for other in self._running:
                _copy_common(after, other.before)
            key = (done.operation, done.tags)
            self._transitions[key] = self._transitions.get(key, TransitionMetrics(*key)).plus(done)
        _log(
            "%s: %s %s, %s copied%s, %.3f s, %.1f GB/s",
            move.title,
            format_size(done.bytes),
            VERBS[move.operation],
            format_size(done.copied_bytes),
            f", {format_size(done.filled_bytes)} from other ranks" if done.filled_bytes else "",
            done.seconds,
            done.gb_per_s,
        )

    def _failed(self, move: _Move, error: BaseException) -> None:
        key = (move.operation, type(error).__name__)
        with self._lock:
            self._failures[key] = self._failures.get(key, 0) + 1
        _log("%s failed after %.3f s: %s: %s", move.title, move.seconds, key[1], error)


def _log(text: str, *arguments: Any) -> None:
    with contextlib.suppress(Exception):  # from a logging filter: the move is over, and its result stands
        LOGGER.info(text, *arguments)


# ---- NVTX ----


def _begin_range(name: str) -> Callable[[], object]:
    """Begins a range with PyTorch, if imported, or the package nvtx. Returns a function to end it."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None:
            torch.cuda.nvtx.range_push(name)
            return functools.partial(_quietly, torch.cuda.nvtx.range_pop)
        nvtx = _nvtx()
        if nvtx is not None:
            nvtx.push_range(name)
            return functools.partial(_quietly, nvtx.pop_range)
    except Exception:  # a build without CUDA
        pass
    return _no_range


def _quietly(end: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        end()


def _no_range() -> None:
    pass


@functools.cache
def _nvtx() -> Any:
    try:
        import nvtx
    except Exception:  # not installed, or for another Python
        return None
    return nvtx


MOVES = Moves()
os.register_at_fork(after_in_child=MOVES.forget)
