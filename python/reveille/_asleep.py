# SPDX-License-Identifier: MIT
"""The whole process off its GPUs, and back: all contexts and regions, then the driver's checkpoint.

What the driver could not bring back is looked for before anything moves: by libreveille where it
knows, and here where PyTorch does. With a group, all ranks sleep or none: each looks first, all
vote, and a rank that fails afterwards wakes those that sleep by then.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Sequence
from typing import Any

from . import _asleep_nccl, _c
from ._communicators import COMMUNICATORS
from ._job import GROUP_TIMEOUT_S, Group, Meeting, Move, call_of, job_of, move_alone, seconds
from ._options import nanoseconds
from ._process import SAVER
from .errors import Busy, InvalidState, NotSupported, check


def sleep(
    *,
    discard: bool = False,
    shared_events: bool = False,
    timeout: float = 10.0,
    group: Group | None = None,
    group_timeout: float = GROUP_TIMEOUT_S,
) -> None:
    """Takes the whole process off its GPUs: nothing of it is left there, not even its contexts.

    Pauses all regions and contexts, and has the driver take the rest. wake() brings all of it back:
    addresses, graphs and streams are as before. Make no call of CUDA meanwhile, in any thread: some
    wait, and some end the process.

    Raises Busy if memory of another process is open here, which the driver could not bring back;
    NotSupported if the driver is older than CUDA 12.8, nvidia-smi is not there, the process has managed
    memory, or a communicator of NCCL connects it with others that cannot be paused. Then nothing has
    changed.

    Args:
        discard: without contents
        shared_events: sleep although events of other processes are open here. PyTorch sends one
            with each tensor that it shares: say so when you have freed what others have shared
        timeout: seconds to wait for other threads' calls, and then for the GPUs
        group: a process group of torch.distributed or a Job: all its ranks sleep, or none does and
            all raise JobAborted. They pause NCCL's communicators first, which need no other rank;
            without a group these must be paused already
        group_timeout: seconds for all ranks to look whether they can
    """
    flags = _c.flags((discard, _c.SLEEP_DISCARD), (shared_events, _c.SLEEP_SHARED_EVENTS))
    options = _c.SleepOptions(flags=flags, timeout_ns=nanoseconds(timeout))

    def look_first() -> None:
        SAVER.refuse_capture("sleep")
        _release_what_is_unused()
        _refuse_tensors_of_others()

    def look() -> None:
        look_first()
        _asleep_nccl.refuse(COMMUNICATORS.all())
        _call("rvl_sleep_forecast", ctypes.byref(options), ctypes.byref(_c.Forecast()))

    with _asleep_nccl.paused(group, look_first, group_timeout):
        _move("sleep", look, _Step("rvl_sleep", options, _AWAKE), group, group_timeout)


def wake(
    *,
    paused: bool = False,
    timeout: float = 0.0,
    group: Group | None = None,
    group_timeout: float = GROUP_TIMEOUT_S,
) -> None:
    """Brings the process back to its GPUs, and resumes what sleep() has paused.

    Raises OutOfDeviceMemory, or TimedOut after a timeout, if there is no room: the process sleeps
    on. Raises DeviceLost if the driver could not bring it back, and never will.

    Args:
        paused: regions and contexts stay paused: resume() them as you need them
        timeout: seconds to wait for others to free memory
        group, group_timeout: all ranks wake, or none does, as in sleep(). Then they resume the
            communicators that sleep() has paused; where that fails, they are awake with these paused
    """
    flags = _c.flags((paused, _c.WAKE_UP_PAUSED))
    options = _c.WakeUpOptions(flags=flags, timeout_ns=nanoseconds(timeout))

    def look() -> None:
        if not asleep():
            raise InvalidState("the process is awake already")
        _call("rvl_wake_up_forecast", ctypes.byref(options), ctypes.byref(_c.Forecast()))

    _move("wake", look, _Step("rvl_wake_up", options, _ASLEEP), group, group_timeout)
    _asleep_nccl.resume(group, group_timeout)


def asleep() -> bool:
    """Whether this process sleeps."""
    return bool(_c.core().rvl_context_is_asleep(None))


# ---- Moving ----


def _call(function: str, *arguments: Any) -> None:
    check(getattr(_c.core(), function)(None, *arguments), "cuda", _c.core())


_AWAKE = ("rvl_wake_up", _c.WakeUpOptions())
_ASLEEP = ("rvl_sleep", _c.SleepOptions())


class _Step:
    """One call of this rank, and what takes it back if another rank fails."""

    def __init__(self, function: str, options: Any, back: tuple[str, Any]) -> None:
        self._function, self._options, self._back = function, options, back
        self._done = False

    def go(self) -> None:
        _call(self._function, ctypes.byref(self._options))
        self._done = True

    def commit(self) -> None:
        """It is done."""

    def abort(self) -> None:
        if self._done:
            _call(self._back[0], ctypes.byref(self._back[1]))


def _move(what: str, look: Any, step: _Step, group: Group | None, group_timeout: float) -> None:
    def prepare(prepared: list[Move]) -> None:
        look()
        prepared.append(step)

    def together(_prepared: list[Move], meeting: Meeting) -> None:
        meeting.arrive()
        step.go()

    if group is None:
        move_alone(prepare)
        step.go()
    else:
        job_of(group).move(call_of(what, ()), prepare, seconds(group_timeout), together)


# ---- What forbids it ----


def _release_what_is_unused() -> None:
    """The driver takes what is left slowly."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    gc.collect()
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()


def _refuse_tensors_of_others() -> None:
    """PyTorch knows what it has opened of others: nothing else in the process shows it."""
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    cache = getattr(reductions, "shared_cache", None)
    open_here = [
        key
        for key, storage in list((cache or {}).items())
        if isinstance(key, tuple) and not storage.expired()
    ]
    if open_here:
        raise Busy(
            f"{len(open_here)} tensors of other processes are open here (torch.multiprocessing), "
            "and no process with another's memory open comes back: free them first"
        )
