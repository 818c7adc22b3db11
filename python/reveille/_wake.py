# SPDX-License-Identifier: MIT
"""A wake in order: resumes that continue while the program uses the memory that has arrived.

A Started is one resume in C, in one context. A Wake belongs to one resume(wait=False) and has one
Started in each context with the tags. With the ranks of a job, each is prepared first: a
PreparedStart. A Wake ends when the program waits for it, when its context is closed, or when it is
dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Callable

from . import _c
from ._handle import Ended, Handle
from ._options import address_of
from ._unique import Unique
from .errors import InvalidArgument, ReveilleError, TimedOut, check

FOREVER = (1 << 64) - 1
# The longest wait in C before Python can handle a signal.
SLICE_S = 0.1
# How ranks name such a resume in the call that they compare.
WITHOUT_WAIT = "wait=False"


class Started(Ended):
    """A started resume. It is finished once, at the latest when it is dropped."""

    def finish(self) -> None:
        """Waits until it has ended, and raises why it failed."""
        self._end("rvl_resume_finish")

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            with contextlib.suppress(Exception):
                self.finish()


class PreparedStart(Started):
    """A started resume that has its memory and waits for other ranks.

    It is committed or aborted once, and finished after a commit. If it is dropped before that, it
    is aborted.
    """

    def __init__(self, handle: Handle, *arguments: Any) -> None:
        self._commits: list[int] = []  # the status that C returned
        super().__init__(handle, "rvl_resume_start_prepare", *arguments)

    def commit(self) -> None:
        """Starts copying contents. Cannot fail."""
        if self._commits:
            return
        commit = self._library.rvl_resume_start_commit
        self._commits.extend(map(commit, self._to_end.values()))  # one step for the interpreter
        for status in self._commits:
            check(status, self._backend, self._library)

    def abort(self) -> None:
        """Releases the memory again. Raises the device's error if that loses some memory."""
        if _c.OK not in self._commits:
            self._end("rvl_resume_start_abort")

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.abort()
        super().__del__()


class Wake(Unique):
    """A resume in progress, as ``resume(..., wait=False)`` returns it."""

    def __init__(
        self, started: Sequence[Started], end: Callable[[BaseException | None], None]
    ) -> None:
        self._started = list(started)
        self._end: Callable[[BaseException | None], None] | None = end
        self._error: ReveilleError | None = None
        self._lock = threading.RLock()

    def add(self, *started: Started) -> None:
        """Adds parts."""
        self._started.extend(started)

    def fail(self, error: BaseException) -> None:
        """Ends the wake because a part could not be started. Waits for the started parts first."""
        end, self._end = self._end, None
        with contextlib.suppress(ReveilleError):
            self.wait()
        if end is not None:
            end(error)

    def wait(self) -> None:
        """Waits until everything has arrived. If something did not, raises the reason, each time."""
        with self._lock:
            while self._started:
                try:
                    self._started[-1].finish()
                except ReveilleError as error:
                    self._error = self._error or error
                self._started.pop()
            end, self._end = self._end, None
            if end is not None:
                end(self._error)
            if self._error is not None:
                raise self._error


class Wakes:
    """The wakes of an owner that have not been waited for. A forked child has none of them."""

    def __init__(self) -> None:
        self._wakes: list[Wake] = []
        self._pid = os.getpid()

    def add(self, wake: Wake) -> Wake:
        """Adds a wake, and returns it."""
        self._wakes.append(wake)
        return wake

    def wait(self) -> None:
        """Waits for all. Raises the first failure, once all have ended."""
        first: ReveilleError | None = None
        for wake in tuple(self._wakes) if os.getpid() == self._pid else ():
            try:
                wake.wait()
            except ReveilleError as error:
                first = first or error
            with contextlib.suppress(ValueError):  # another thread was first
                self._wakes.remove(wake)
        if first is not None:
            raise first

    def end(self) -> None:
        """Waits for all before their memory is freed. Failures do not matter then."""
        with contextlib.suppress(ReveilleError):
            self.wait()


def addresses_of(order: Iterable[Any]) -> Any:
    """The addresses of an order as a C array."""
    try:
        each_in_turn = iter(order)
    except TypeError:
        raise InvalidArgument(f"order must be tensors or addresses, not {order!r}") from None
    addresses = [address_of(each) for each in each_in_turn]
    return (ctypes.c_uint64 * len(addresses))(*addresses)


def order_of(order: Iterable[Any], wait: bool) -> Any:
    """The order of a resume. Raises InvalidArgument if there is an order and the resume waits."""
    addresses = addresses_of(order)
    if len(addresses) > 0 and wait:
        raise InvalidArgument("order is for wait=False: a resume that waits returns all at once")
    return addresses


def options_of(options: _c.ResumeOptions, order: Any) -> _c.ResumeOptions:
    """Sets the order in the options, and returns them."""
    options.order, options.order_count = order, len(order)
    return options


def has_arrived(handle: Handle, address: int) -> bool:
    """Whether an address of a context can be used."""
    try:
        handle.call("rvl_allocation_wait", address, 0)
    except TimedOut:
        return False
    return True


def await_arrival(handle: Handle, address: int, timeout: float | None) -> None:
    """Waits until an address can be used. timeout None: no limit."""
    left_s = math.inf if timeout is None else timeout
    while True:
        slice_s = min(left_s, SLICE_S)
        left_s -= slice_s
        try:
            return handle.call("rvl_allocation_wait", address, int(slice_s * 1e9))
        except TimedOut:
            if left_s <= 0:
                raise
