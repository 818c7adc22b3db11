# SPDX-License-Identifier: MIT
"""NCCL's communicators and a sleep: their memory goes before it, and comes back after the wake.

A communicator has memory of the other ranks open, and no process comes back to its GPU with that.
Once it is paused, the memory of other GPUs is closed. Host memory that ranks share stays open: NCCL
takes it where GPUs do not reach each other, from the driver (NCCL_CUMEM_HOST_ENABLE=1, its default)
or as files. A process with the first is lost as well; files come back. So the host memory that the
driver has mapped here is looked at before anything is done that cannot be undone
(bench/gpu/driver/checkpoint_ranks.py, docs/sleep.md).
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable

from ._communicators import COMMUNICATORS, NEEDED, TAG, Communicator, loaded
from ._job import Group, call_of, job_of, seconds
from ._scope import scope
from .errors import NotSupported, ReveilleError

LOGGER = logging.getLogger("reveille")
DRIVER = "libcuda.so.1"
MAPS = "/proc/self/maps"
MAPPED_BY_DRIVER = "/dev/nvidia"
DEVICE_LOCATION = 1  # CU_MEM_LOCATION_TYPE_DEVICE; those above it are host memory
_ASLEEP_WITH: list[int] = []  # communicators that sleep() has paused and wake() resumes


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location_id", ctypes.c_int),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


# ---- What forbids a sleep ----


def refuse(found: Sequence[Communicator]) -> None:
    """Raises NotSupported unless those that connect this process with others hold nothing of them.

    So they are paused, and share no host memory of the driver.
    """
    found = [each for each in found if each.size != 1]
    active = sum(each.state != "paused" for each in found)
    if active:
        raise NotSupported(
            f"{active} communicator{'s' if active > 1 else ''} of NCCL connect"
            f"{'' if active > 1 else 's'} this process with others, and no process with their "
            f"memory open comes back: {_remedy()}",
            tag=TAG,
        )
    if found and shares_host_memory():
        raise NotSupported(
            "NCCL shares host memory of the driver with other ranks, which stays open while its "
            "communicators are paused, and no process with that comes back: set "
            "NCCL_CUMEM_HOST_ENABLE=0 for all ranks, or destroy the communicators first",
            tag=TAG,
        )


def _remedy() -> str:
    destroy = "destroy them first (torch.distributed.destroy_process_group())"
    nccl = loaded()
    if nccl is None or not nccl.can_suspend:
        return f"{destroy}; with NCCL {NEEDED} and later a sleep with group= pauses them"
    return f'give group=, so that all ranks pause them, call pause("{TAG}") on all, or {destroy}'


def shares_host_memory() -> bool:
    """Whether host memory is mapped here that was made by the driver to be shared.

    Its properties tell, whichever process has made it. Other mappings have no allocation handle.
    """
    driver = _open_driver()
    return driver is not None and any(
        _is_shared_host_memory(driver, address) for address in _mapped_by_driver()
    )


def _open_driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(DRIVER)
    except OSError:
        return None


def _mapped_by_driver() -> Iterator[int]:
    for line in Path(MAPS).read_text().splitlines():
        words = line.split(None, 5)
        if len(words) > 5 and words[5].startswith(MAPPED_BY_DRIVER):
            yield int(words[0].partition("-")[0], 16)


def _is_shared_host_memory(driver: ctypes.CDLL, address: int) -> bool:
    handle, properties = ctypes.c_uint64(), AllocationProp()
    if driver.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(address)) != 0:
        return False
    known = driver.cuMemGetAllocationPropertiesFromHandle(ctypes.byref(properties), handle) == 0
    driver.cuMemRelease(handle)
    return known and properties.handle_types != 0 and properties.location_type > DEVICE_LOCATION


# ---- Pausing them for a sleep ----


@scope
def paused(group: Group | None, look: Callable[[], None], timeout: float) -> Iterator[None]:
    """All ranks of the group look and pause theirs, and resume them if what follows fails.

    Without a group nothing is done: NCCL waits for the other ranks.
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
    """Those that the sleep has paused, on all ranks.

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
    """A rank without any takes part in the vote all the same."""
    torch = sys.modules.get("torch")
    if pointers and torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    movement = COMMUNICATORS.begin(move, seconds(timeout), pointers)
    call = call_of(function, (TAG,))
    job_of(group).move(call, lambda prepared: look(), seconds(timeout), movement.together)


def _take_back(pointers: Sequence[int], group: Group, timeout: float) -> None:
    """What made the sleep fail is raised. That communicators stay paused is told beside it."""
    try:
        _move("resume", "sleep", pointers, group, timeout)
    except ReveilleError as error:
        LOGGER.warning("sleep: communicators of NCCL stay paused: %s", error)
