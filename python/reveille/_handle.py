# SPDX-License-Identifier: MIT
"""The C context behind a Context: closed once, never under a call that is running.

In C a call on a closed context is undefined, and so is closing under a running call. Python code
may do both from any thread. A signal handler may raise between any two of its steps, so a count of
the calls that run, or a lock, could be left behind. Nothing is counted here: a call runs while a
frame of Handle.run() is on the stack of a thread, and close() looks at the stacks.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import re
import sys
import threading
import time
import weakref
from types import FrameType
from typing import Any, Callable, TypeVar

from . import _c
from .errors import InvalidState, ReveilleError, check

BeforeUnmap = Callable[[str], None]
AfterMap = Callable[[str], None]
Log = Callable[[str, str], None]
Answer = TypeVar("Answer")

FIRST_WAIT_S = 0.0001
LONGEST_WAIT_S = 0.01


class Callbacks:
    """Functions that C calls: one of each kind for all tags. Finds the Python function by tag."""

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
            self._log(_c.LOG_LEVEL_NAMES[level], _c.some_text(message))

    def _before_unmap(self, _user: Any, tag: int) -> int:
        try:
            name, before, _after = self._of_tag.get(tag, ("", None, None))
            if before is not None:
                before(name)
        except BaseException as raised:  # KeyboardInterrupt vetoes, too, and is raised again
            self._thread.raised = raised
            return _c.ERR_VETOED
        return _c.OK

    def _after_map(self, _user: Any, tag: int) -> None:
        name, _before, after = self._of_tag.get(tag, ("", None, None))
        if after is not None:
            after(name)  # what it raises goes to sys.unraisablehook: it cannot undo the resume


class Handle:
    """Owns a C context. After fork the child's calls go straight to C, which refuses them."""

    def __init__(self, backend: str, callbacks: Callbacks, library: ctypes.CDLL) -> None:
        self.backend = backend
        self.callbacks = callbacks
        self.library = library
        self.ordinal: int | None = None
        self._pid = os.getpid()
        self._context = ctypes.c_void_p()
        self._to_close = {"context": self._context}
        self._live = ctypes.c_uint64()
        self._closing = False
        self.before_close: Callable[[], None] | None = None  # ends what would keep it open

    def open(self, options: _c.ContextOptions) -> None:
        """Opens it: from then on it is for close() or finish() to end."""
        check(
            self.library.rvl_context_open(
                self.backend.encode(), ctypes.byref(options), ctypes.byref(self._context)
            ),
            self.backend,
        )

    @property
    def identity(self) -> int:
        """The same for every handle of one C context."""
        return self._context.value or 0

    @property
    def closed(self) -> bool:
        """Whether the context is gone, or goes as soon as the calls that run have ended."""
        return self._closing

    def run(self, work: Callable[[ctypes.c_void_p], Answer]) -> Answer:
        """work(context), with the context kept open meanwhile.

        Once it is being closed, only what belongs to a call that runs already is let in.
        """
        if self._closing and not self._is_used_by(sys._getframe(1)):
            raise InvalidState("the context is closed: open another")
        return work(self._context)

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function of the C library that returns a status; raises what it says."""
        self.call_and_note([], function, *arguments)

    def call_and_note(self, statuses: list[int], function: str, *arguments: Any) -> None:
        """As call(). statuses gets what C returns, also if a signal handler raises just then."""
        entry = getattr(self.library, function)

        def work(context: ctypes.c_void_p) -> None:
            columns = [[each] for each in (context, *arguments)]
            statuses.extend(map(entry, *columns))  # one step for the interpreter
            try:
                check(statuses[-1], self.backend, self.library, self.ordinal)
            except ReveilleError as error:
                error.note_summary(self.summary(context, error.device))
                raise

        self.run(work)

    def summary(self, context: ctypes.c_void_p, device: int | None) -> str:
        """Who holds the memory of a device, by PyTorch's number of it; "" if that is unknown."""
        text = ctypes.create_string_buffer(_c.SUMMARY_BYTES)
        devices = range(self.library.rvl_device_count(context)) if device is not None else ()
        for index in devices:
            if self.library.rvl_device_get_summary(context, index, text, len(text)) != _c.OK:
                continue
            shown = _c.some_text(text.value)
            if self.ordinal is not None or re.match(rf"Reveille \S+ device {device}[ :]", shown):
                return shown + self._driver()
        return ""

    def _driver(self) -> str:
        """The version of the driver behind a CUDA context."""
        entry, number = ctypes.c_void_p(), ctypes.c_int()
        if self.backend != "cuda" or _c.OK != self.library.rvl_cuda_get_entry(
            b"cuDriverGetVersion", 2020, ctypes.byref(entry)
        ):
            return ""
        ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(entry.value)
        if ask(ctypes.byref(number)) != 0:
            return ""
        return f"; CUDA driver {number.value // 1000}.{number.value % 1000 // 10}"

    def ask(self, function: str, *arguments: Any) -> int:
        """Calls one that returns a number, and knows no errors."""
        self.call("rvl_device_get_info", 0, ctypes.byref(_c.DeviceInfo()))  # raises Forked
        entry = getattr(self.library, function)
        return int(self.run(lambda context: entry(context, *arguments)))

    # ---- Closing ----

    def _is_used_by(self, frame: FrameType | None) -> bool:
        """Whether a stack, from this frame down, has a call that uses the context."""
        while frame is not None:
            if frame.f_code in USERS and frame.f_locals.get("self") is self:
                return True
            frame = frame.f_back
        return False

    def _is_used_elsewhere(self) -> bool:
        own = threading.get_ident()
        stacks = sys._current_frames().items()
        return any(self._is_used_by(top) for thread, top in stacks if thread != own)

    def close(self, wait: bool = True) -> int:
        """Closes it, after the calls of other threads; how many allocations were still there.

        New calls are refused from now on. If this is interrupted, calling it again goes on.
        """
        if os.getpid() != self._pid:
            if "context" not in self._to_close:  # the parent had closed it
                return 0
            check(self.library.rvl_context_close(self._context, ctypes.byref(self._live)))
            return 0
        if self._is_used_by(sys._getframe(1)):
            raise InvalidState("a callback may only read statistics: close the context later")
        self._closing = True
        pause_s = FIRST_WAIT_S
        while self._is_used_elsewhere():
            if not wait:
                return 0
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_WAIT_S)
        return self._close_now()

    def _close_now(self) -> int:
        """Takes the context and closes it in one step for the interpreter: once, or not at all."""
        if self.before_close is not None:
            self.before_close()
        take = functools.partial(self._to_close.pop, "context", None)
        close, live = self.library.rvl_context_close, itertools.repeat(ctypes.byref(self._live))
        for status in list(map(close, iter(take, None), live)):
            check(status, self.backend)
            return self._live.value
        return 0  # somebody else did

    def finish(self, owner: weakref.ref[Any] | None = None) -> None:
        """At the end of the Context or of the process: closes it if that is possible.

        A call that runs has its Context on the stack. So without an owner none does, and nobody
        looks at the stacks: the garbage collector may have come here while somebody looks at them,
        and sys._current_frames() within itself would never end.
        """
        try:
            if owner is not None and owner() is None and os.getpid() == self._pid:
                self._closing = True
                self._close_now()
            else:
                self.close(wait=False)
        except Exception:  # nobody is left to be told
            pass


class Ended:
    """Something of C's that belongs to a context, and is ended once by a function that frees it."""

    def __init__(self, handle: Handle, function: str, *arguments: Any) -> None:
        self._library = handle.library
        self._backend = handle.backend
        self._pointer = ctypes.c_void_p()
        self._to_end = {"pointer": self._pointer}
        handle.call(function, *arguments, ctypes.byref(self._pointer))

    def _call(self, function: str, *arguments: Any) -> None:
        """Calls a function with what is not ended yet."""
        check(getattr(self._library, function)(self._pointer, *arguments), self._backend)

    def _end(self, function: str) -> None:
        """Takes the pointer and ends it in one step for the interpreter: once, or not at all."""
        take = functools.partial(self._to_end.pop, "pointer", None)
        for status in list(map(getattr(self._library, function), iter(take, None))):
            check(status, self._backend, self._library)


# A context is used while one of these is on a stack.
USERS = (Handle.run.__code__, Handle._close_now.__code__)


class BorrowedHandle(Handle):
    """A context that belongs to a hook library, which never closes it.

    Its only device has number 0 in the context. In PyTorch it has another number, the ordinal.
    """

    def __init__(self, library: ctypes.CDLL, context: ctypes.c_void_p, ordinal: int) -> None:
        super().__init__("cuda", Callbacks(None), library)
        self._context = context
        self.ordinal = ordinal

    def close(self, wait: bool = True) -> int:
        """Raises InvalidState."""
        raise InvalidState("this context belongs to the hook library, which never closes it")
