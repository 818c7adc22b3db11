# SPDX-License-Identifier: MIT
"""Takes the whole process off its GPUs and back: contexts, regions, and the driver's checkpoint.

Before anything moves, we look for state that the driver could not restore: libreveille looks where
it knows about it, and this module where PyTorch does. With a group, all ranks sleep or none: each
rank looks first, all vote, and if a rank fails afterwards, the ranks that already sleep are woken.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

from . import _asleep_nccl, _c
from ._communicators import COMMUNICATORS
from ._job import GROUP_TIMEOUT_S, Group, Meeting, Move, call_of, job_of, move_alone, seconds
from ._options import nanoseconds
from ._process import SAVER
from .errors import Busy, InvalidState, check


def sleep(
    *,
    discard: bool = False,
    shared_events: bool = False,
    timeout: float = 10.0,
    group: Group | None = None,
    group_timeout: float = GROUP_TIMEOUT_S,
) -> None:
    """Takes the whole process off its GPUs: nothing is left there, not even its contexts.

    Pauses all regions and contexts, and has the driver checkpoint the rest. wake() restores all of
    it: addresses, graphs and streams are as before. Make no CUDA calls in between, in any thread:
    some wait, and some end the process.

    Raises Busy if this process has opened memory of another process, which the driver could not
    restore. Raises NotSupported if the driver is older than CUDA 12.8, if nvidia-smi is missing, if
    the process has managed memory, or if a communicator of NCCL that cannot be paused connects it
    with other processes. In all these cases nothing has changed.

    Args:
        discard: do not keep contents
        shared_events: sleep although this process has opened events of other processes. PyTorch
            sends one with each tensor that it shares. Pass True once you have freed those tensors
        timeout: seconds to wait for other threads' calls, and then for the GPUs
        group: a process group of torch.distributed or a Job: all its ranks sleep, or none does and
            all raise JobAborted. They first pause NCCL's communicators, which must not include
            ranks outside the group. Without a group, communicators must be paused already
        group_timeout: seconds for all ranks to check whether they can sleep
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

    Raises OutOfDeviceMemory, or TimedOut after a timeout, if there is no room. The process then
    stays asleep. Raises DeviceLost if the driver could not restore the process, and never will.

    Args:
        paused: leave regions and contexts paused; resume() them as you need them
        timeout: seconds to wait for other processes to free memory
        group, group_timeout: all ranks wake, or none does, as in sleep(). Then they resume the
            communicators that sleep() has paused. If that fails, the ranks are awake and these
            communicators stay paused
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
    """One call of this rank, and the call that undoes it if another rank fails."""

    def __init__(self, function: str, options: Any, back: tuple[str, Any]) -> None:
        self._function, self._options, self._back = function, options, back
        self._done = False

    def go(self) -> None:
        _call(self._function, ctypes.byref(self._options))
        self._done = True

    def commit(self) -> None:
        """Nothing is left to do."""

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
    """Frees PyTorch's unused memory first, since the driver's checkpoint copies slowly."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    gc.collect()
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()


def _refuse_tensors_of_others() -> None:
    """Asks PyTorch, since nothing else shows which tensors of other processes are open here."""
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
