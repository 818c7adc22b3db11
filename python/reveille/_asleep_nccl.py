# SPDX-License-Identifier: MIT
"""NCCL's communicators and a sleep: they are paused before the sleep, and resumed after the wake.

A communicator has memory of other ranks mapped, and a process cannot return to its GPU with that.
The library decides when a process with communicators may sleep (hooks/nccl/asleep.h). This module
finds them, and pauses and resumes them on all ranks of a group.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Callable

from . import _c
from ._communicators import COMMUNICATORS, TAG, Communicator, loaded
from ._job import Group, call_of, job_of, seconds
from ._scope import scope
from .errors import NotSupported, ReveilleError, check

LOGGER = logging.getLogger("reveille")
_ASLEEP_WITH: list[int] = []  # communicators that sleep() has paused and wake() resumes

# ---- What forbids a sleep ----


def refuse(found: Sequence[Communicator]) -> None:
    """Raises NotSupported if a communicator holds memory of other processes.

    The rule is in the library, but the library does not know PyTorch's communicators. So they are
    passed to it.
    """
    if not found:
        return
    library = _c.core()
    if not hasattr(library, "rvl_communicator_check_sleep"):
        raise NotSupported(
            "the process has communicators of NCCL, and this Reveille was built without CUDA: build it where "
            "CUDA's headers are, or install its wheel"
        )
    array = (_c.Communicator * len(found))(*map(_described, found))
    check(library.rvl_communicator_check_sleep(array, len(found)), "cuda", library)


def _described(each: Communicator) -> _c.Communicator:
    return _c.Communicator(
        comm=each.pointer,
        device=each.device,
        rank=each.rank,
        rank_count=each.size,
        state=_c.STATE_NAMES.index(each.state),
        size_bytes=each.bytes or 0,
        kept_bytes=each.kept_bytes or 0,
        can_pause=each.bytes is not None,
    )


# ---- Pausing them for a sleep ----


@scope
def paused(group: Group | None, look: Callable[[], None], timeout: float) -> Iterator[None]:
    """Calls look() and pauses communicators on all ranks; resumes them if the block fails.

    Does nothing without a group, since NCCL waits for the other ranks.
    """
    if group is None:
        yield
        return
    pointers = _active()
    _move("pause", "sleep", pointers, group, timeout, look)
    try:
        yield
    except BaseException:
        _take_back(pointers, group, timeout)
        raise
    _ASLEEP_WITH.extend(pointers)


def resume(group: Group | None, timeout: float) -> None:
    """Resumes the communicators that sleep() has paused, on all ranks.

    If it fails, they stay paused: resume("nccl") tries again.
    """
    pointers = [each for each in _ASLEEP_WITH if COMMUNICATORS.is_paused(each)]
    if group is not None:
        _ASLEEP_WITH.clear()
        _move("resume", "wake", pointers, group, timeout)
    elif pointers:
        LOGGER.warning(
            "wake: NCCL's communicators stay paused (%d), since wake() has no group=: call "
            'resume("%s", group=...) on all ranks',
            len(pointers),
            TAG,
        )


def _active() -> list[int]:
    nccl = loaded()
    if nccl is None or not nccl.can_suspend:
        return []
    known = COMMUNICATORS.all()
    return [each.pointer for each in known if each.size != 1 and each.state == "active"]


def _move(
    move: str,
    function: str,
    pointers: Sequence[int],
    group: Group,
    timeout: float,
    look: Callable[[], None] = lambda: None,
) -> None:
    """A rank without communicators still takes part in the vote."""
    torch = sys.modules.get("torch")
    if pointers and torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    movement = COMMUNICATORS.begin(move, seconds(timeout), pointers)
    call = call_of(function, (TAG,))
    job_of(group).move(call, lambda prepared: look(), seconds(timeout), movement.together)


def _take_back(pointers: Sequence[int], group: Group, timeout: float) -> None:
    """Only logs a failure, since the caller raises the reason why the sleep failed."""
    try:
        _move("resume", "sleep", pointers, group, timeout)
    except ReveilleError as error:
        LOGGER.warning("sleep: communicators of NCCL stay paused: %s", error)
