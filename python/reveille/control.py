# SPDX-License-Identifier: MIT
"""Lets `reveille sleep PID` and `reveille wake PID` move this process off its GPUs, and back.

It is off until you call open(), or until a region is first used with `REVEILLE_CONTROL=1` set. A
process must make no CUDA calls while it sleeps, and only its author knows when it makes none.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from . import _asleep, _c
from ._alias import VALUES
from .errors import Busy, InvalidArgument, ReveilleError, check

VARIABLE = "REVEILLE_CONTROL"

_called: Any = None  # keeps the function alive that C calls


def open(before: Callable[[str], None] | None = None) -> None:
    """Starts to listen, on a separate thread, for requests from processes of this user.

    A request does what sleep() or wake() does, including their refusals. A second call replaces
    `before`. A forked child does not listen.

    Args:
        before: called on that thread with "sleep" or "wake". An exception refuses the request with
            its message: raise one while your program serves its own requests
    """
    global _called

    def move(_user: Any, request: Any, why: Any) -> int:
        try:
            _move(request.contents, before)
        except ReveilleError as error:
            return _refuse(why, error, error.status or Busy.STATUS)
        except Exception as error:
            return _refuse(why, error, Busy.STATUS)
        return 0

    called = _c.ControlFunction(move)
    options = _c.ControlOptions(move=called)
    check(_c.core().rvl_control_open(ctypes.byref(options)), "cuda", _c.core())
    _called = called


def close() -> None:
    """Stops listening. Waits for a request in progress."""
    check(_c.core().rvl_control_close(), "cuda", _c.core())


def open_if_asked() -> None:
    """Calls open() if the environment asks for it."""
    value = os.environ.get(VARIABLE, "")
    if value not in VALUES:
        raise InvalidArgument(f"{VARIABLE}={value!r} is not understood: set it to 1, or to 0")
    if VALUES[value]:
        open()


def _move(request: Any, before: Callable[[str], None] | None) -> None:
    sleeps = request.verb == _c.CONTROL_SLEEP
    timeout = request.timeout_ns / 1e9
    if before is not None:
        before("sleep" if sleeps else "wake")
    if sleeps:
        _asleep.sleep(
            discard=bool(request.flags & _c.SLEEP_DISCARD),
            shared_events=bool(request.flags & _c.SLEEP_SHARED_EVENTS),
            timeout=timeout or 10.0,
        )
    else:
        _asleep.wake(paused=bool(request.flags & _c.WAKE_UP_PAUSED), timeout=timeout)


def _refuse(why: Any, error: Exception, status: int) -> int:
    text = (str(error) or type(error).__name__).encode()[: _c.CONTROL_WHY_BYTES - 1] + b"\0"
    ctypes.memmove(why, text, len(text))
    return status
