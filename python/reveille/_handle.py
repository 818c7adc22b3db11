# SPDX-License-Identifier: MIT
"""The C context behind a Context: closed once, and never while a call is running.

In C, calling a closed context is undefined, and so is closing it during a call. Python code may do
both from any thread. A signal handler may raise between any two steps of the interpreter, so a
counter of running calls could stay wrong, and a lock could stay held. So nothing is counted here: a
call is running while a frame of Handle.run() is on the stack of a thread, and close() inspects the
stacks.
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
    """The functions that C calls, one of each kind for all tags. They look up the tag's function."""

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self._of_tag: dict[int, tuple[str, BeforeUnmap | None, AfterMap | None]] = {}
        self._thread = threading.local()
        self.log = _c.null_function(_c.LogFunction) if log is None else _c.LogFunction(self._write)
        self.before_unmap = _c.BeforeUnmapFunction(self._before_unmap)
        self.after_map = _c.AfterMapFunction(self._after_map)

    def set(self, tag: int, name: str, before: BeforeUnmap | None, after: AfterMap | None) -> None:
        """Sets the functions to call for a tag."""
        self._of_tag[tag] = (name, before, after)

    def take_veto(self) -> BaseException | None:
        """Returns and clears the exception of a callback in the call of this thread that just ended."""
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
        except BaseException as raised:  # KeyboardInterrupt also vetoes, and is raised again later
            self._thread.raised = raised
            return _c.ERR_VETOED
        return _c.OK

    def _after_map(self, _user: Any, tag: int) -> None:
        name, _before, after = self._of_tag.get(tag, ("", None, None))
        if after is not None:
            after(name)  # an exception goes to sys.unraisablehook: it cannot undo the resume


class Handle:
    """Owns a C context. After a fork the child's calls go directly to C, which refuses them."""

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
        self.before_close: Callable[[], None] | None = None  # ends wakes before the close

    def open(self, options: _c.ContextOptions) -> None:
        """Opens the context. close() or finish() ends it."""
        check(
            self.library.rvl_context_open(
                self.backend.encode(), ctypes.byref(options), ctypes.byref(self._context)
            ),
            self.backend,
        )

    @property
    def identity(self) -> int:
        """A number that is equal for all handles of one C context."""
        return self._context.value or 0

    @property
    def closed(self) -> bool:
        """Whether the context is closed, or closes as soon as running calls have ended."""
        return self._closing

    def run(self, work: Callable[[ctypes.c_void_p], Answer]) -> Answer:
        """Returns work(context), and keeps the context open during the call.

        Once the context is closing, only calls within a running call are allowed.
        """
        if self._closing and not self._is_used_by(sys._getframe(1)):
            raise InvalidState("the context is closed: open another")
        return work(self._context)

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a C function that returns a status. Raises the exception of an error status."""
        self.call_and_note([], function, *arguments)

    def call_and_note(self, statuses: list[int], function: str, *arguments: Any) -> None:
        """Like call(). Adds the status to statuses, even if a signal handler raises at that moment."""
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
        """Who holds the memory of a device, given by PyTorch's number. "" if that is unknown."""
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
        """Calls a C function that returns a number and has no errors."""
        self.call("rvl_device_get_info", 0, ctypes.byref(_c.DeviceInfo()))  # raises Forked
        entry = getattr(self.library, function)
        return int(self.run(lambda context: entry(context, *arguments)))

    # ---- Closing ----

    def _is_used_by(self, frame: FrameType | None) -> bool:
        """Whether a stack, from this frame outwards, has a call that uses the context."""
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
        """Closes the context after calls of other threads. Returns the number of allocations left.

        New calls are refused from now on. If this is interrupted, call it again to continue.
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
        """Takes and closes the context in one step of the interpreter: once, or not at all."""
        if self.before_close is not None:
            self.before_close()
        take = functools.partial(self._to_close.pop, "context", None)
        close, live = self.library.rvl_context_close, itertools.repeat(ctypes.byref(self._live))
        for status in list(map(close, iter(take, None), live)):
            check(status, self.backend)
            return self._live.value
        return 0  # another caller has closed it

    def finish(self, owner: weakref.ref[Any] | None = None) -> None:
        """Closes the context, if possible, at the end of the Context or of the process.

        A running call has its Context on the stack. So if the owner is gone, no call is running,
        and the stacks are not inspected: the garbage collector may run this during such an
        inspection, and sys._current_frames() within itself would never return.
        """
        try:
            if owner is not None and owner() is None and os.getpid() == self._pid:
                self._closing = True
                self._close_now()
            else:
                self.close(wait=False)
        except Exception:  # no caller is left to report it to
            pass


class Ended:
    """A C object that belongs to a context. A function ends and frees it, once."""

    def __init__(self, handle: Handle, function: str, *arguments: Any) -> None:
        self._library = handle.library
        self._backend = handle.backend
        self._pointer = ctypes.c_void_p()
        self._to_end = {"pointer": self._pointer}
        handle.call(function, *arguments, ctypes.byref(self._pointer))

    def _call(self, function: str, *arguments: Any) -> None:
        """Calls a function on the object, before its end."""
        check(getattr(self._library, function)(self._pointer, *arguments), self._backend)

    def _end(self, function: str) -> None:
        """Takes the pointer and ends the object in one step of the interpreter: once, or not at all."""
        take = functools.partial(self._to_end.pop, "pointer", None)
        for status in list(map(getattr(self._library, function), iter(take, None))):
            check(status, self._backend, self._library)


# A context is in use while one of these is on a stack.
USERS = (Handle.run.__code__, Handle._close_now.__code__)


class BorrowedHandle(Handle):
    """A context that belongs to a hook library, which never closes it.

    Its only device has number 0 in the context. PyTorch's number for it is the ordinal.
    """

    def __init__(self, library: ctypes.CDLL, context: ctypes.c_void_p, ordinal: int) -> None:
        super().__init__("cuda", Callbacks(None), library)
        self._context = context
        self.ordinal = ordinal

    def close(self, wait: bool = True) -> int:
        """Raises InvalidState."""
        raise InvalidState("this context belongs to the hook library, which never closes it")
