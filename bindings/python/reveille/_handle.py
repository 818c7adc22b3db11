# SPDX-License-Identifier: MIT
"""The C context behind a Context: closed once, never under a call that is running.

In C a call on a closed context is undefined, and so is closing under a running call. Python code
may do both from any thread, so this class counts the calls and makes either an exception.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Callable, TypeVar

from . import _c
from .errors import InvalidState, check

BeforeUnmap = Callable[[str], None]
AfterMap = Callable[[str], None]
Log = Callable[[str, str], None]
Answer = TypeVar("Answer")


class Callbacks:
    """What C calls: one function a kind for all tags, which finds the Python function by tag."""

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self._of_tag: dict[int, tuple[str, BeforeUnmap | None, AfterMap | None]] = {}
        self._thread = threading.local()
        self.log = _c.null_function(_c.LogFunction) if log is None else _c.LogFunction(self._write)
        self.before_unmap = _c.BeforeUnmapFunction(self._before_unmap)
        self.after_map = _c.AfterMapFunction(self._after_map)

    def set(self, tag: int, name: str, before: BeforeUnmap | None, after: AfterMap | None) -> None:
        """From now on these are called for the tag."""
        self._of_tag[tag] = (name, before, after)

    def take_veto(self) -> BaseException | None:
        """What a callback of this thread raised during the call that has just ended."""
        raised: BaseException | None = getattr(self._thread, "raised", None)
        self._thread.raised = None
        return raised

    def _write(self, _user: Any, level: int, message: bytes) -> None:
        if self._log is not None:
            self._log(_c.LOG_LEVELS[level], _c.some_text(message))

    def _before_unmap(self, _user: Any, tag: int) -> int:
        name, before, _after = self._of_tag.get(tag, ("", None, None))
        try:
            if before is not None:
                before(name)
        except BaseException as raised:  # KeyboardInterrupt vetoes too
            self._thread.raised = raised
            return _c.ERR_VETOED
        return _c.OK

    def _after_map(self, _user: Any, tag: int) -> None:
        name, _before, after = self._of_tag.get(tag, ("", None, None))
        if after is not None:
            after(name)  # what it raises goes to sys.unraisablehook: it cannot undo the resume


class Handle:
    """Owns a C context. After fork the child's calls go straight to C, which refuses them."""

    def __init__(self, backend: str, options: _c.ContextOptions, callbacks: Callbacks) -> None:
        self._prepare(backend, callbacks, _c.core())
        check(
            _c.core().rvl_context_open(
                backend.encode(), ctypes.byref(options), ctypes.byref(self._context)
            ),
            backend,
        )

    def _prepare(self, backend: str, callbacks: Callbacks, library: ctypes.CDLL) -> None:
        self.backend = backend
        self.callbacks = callbacks
        self.library = library
        self.ordinal: int | None = None
        self._pid = os.getpid()
        self._idle = threading.Condition()
        self._calls = 0
        self._own = threading.local()
        self._context = ctypes.c_void_p()

    @property
    def closed(self) -> bool:
        """Whether the context is gone."""
        return not self._context

    def _check_open(self) -> None:
        if not self._context:
            raise InvalidState("the context is closed: open another")

    def _begin(self) -> None:
        with self._idle:
            self._check_open()
            self._calls += 1
        self._own.depth = getattr(self._own, "depth", 0) + 1

    def _end(self) -> None:
        self._own.depth -= 1
        with self._idle:
            self._calls -= 1
            if self._calls == 0:
                self._idle.notify_all()

    def run(self, work: Callable[[ctypes.c_void_p], Answer]) -> Answer:
        """work(context), with the context kept open meanwhile."""
        if os.getpid() != self._pid:  # the lock may be held by a thread that is not here
            self._check_open()
            return work(self._context)
        self._begin()
        try:
            return work(self._context)
        finally:
            self._end()

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function of the C library that returns a status; raises what it says."""
        entry = getattr(self.library, function)

        def work(context: ctypes.c_void_p) -> None:
            check(entry(context, *arguments), self.backend, self.library, self.ordinal)

        self.run(work)

    def ask(self, function: str, *arguments: Any) -> int:
        """Calls one that returns a number, and knows no errors."""
        self.call("rvl_device_get_info", 0, ctypes.byref(_c.DeviceInfo()))  # raises Forked
        entry = getattr(self.library, function)
        return int(self.run(lambda context: entry(context, *arguments)))

    def close(self, wait: bool = True) -> int:
        """Closes it, after the calls of other threads; how many allocations were still there."""
        live = ctypes.c_uint64()
        if os.getpid() != self._pid:
            check(_c.core().rvl_context_close(self._context, ctypes.byref(live)))
            return 0
        if getattr(self._own, "depth", 0) > 0:
            raise InvalidState("a callback may only read statistics: close the context later")
        with self._idle:
            while self._calls > 0 and wait:
                self._idle.wait()
            if self._calls > 0:
                return 0
            context, self._context = self._context, ctypes.c_void_p()
        if context:
            check(_c.core().rvl_context_close(context, ctypes.byref(live)), self.backend)
        return live.value

    def finish(self) -> None:
        """At the end of the Context or of the process: closes it if that is possible."""
        try:
            self.close(wait=False)
        except Exception:  # nobody is left to be told
            pass


class BorrowedHandle(Handle):
    """A context that belongs to a hook library, which never closes it.

    Its only device has the number 0 in it, and another one, the ordinal, in PyTorch.
    """

    def __init__(self, library: ctypes.CDLL, context: ctypes.c_void_p, ordinal: int) -> None:
        self._prepare("cuda", Callbacks(None), library)
        self._context = context
        self.ordinal = ordinal

    def close(self, wait: bool = True) -> int:
        """Raises InvalidState."""
        raise InvalidState("this context belongs to the hook library, which never closes it")
