# SPDX-License-Identifier: MIT
"""The package's functions for the regions of this process. What they do is done by Saver."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from typing import Any, overload

from ._communicators import COMMUNICATORS, Communicator
from ._context import Path
from ._hooks import HookContext
from ._job import GROUP_TIMEOUT_S, Group, JobForecast, call_of, job_of, seconds
from ._process import SAVER, HookStats
from ._replicas import Links, Replicas, sharing_of
from ._results import Forecast
from ._sizes import name_bytes
from ._wake import Wake, order_of
from .errors import NotFound


def region(tag: str, backup: str = "none") -> contextlib.AbstractContextManager[None]:
    """Tags PyTorch's allocations on this thread within the ``with`` block.

    Args:
        tag: the name for pause() and resume()
        backup: where the content is kept while paused: "none", "host" or "disk"
    """
    return SAVER.region(tag, backup)


def cuda_graph(
    graph: Any,
    pool: Any = None,
    tag: str = "cuda_graph",
    backup: str = "none",
    stream: Any = None,
    capture_error_mode: str = "global",
) -> contextlib.AbstractContextManager[None]:
    """torch.cuda.graph(), with the graph's own memory in a region."""
    return SAVER.cuda_graph(
        graph, tag, backup, pool=pool, stream=stream, capture_error_mode=capture_error_mode
    )


def disable() -> contextlib.AbstractContextManager[None]:
    """Within a region: allocations in the ``with`` block are ordinary memory again."""
    return SAVER.disable()


def pause(*tags: str, group: Group | None = None, group_timeout: float = GROUP_TIMEOUT_S) -> None:
    """Pauses the tags, or all regions if you name none: releases memory and keeps addresses.

    Waits for the devices. Raises NotFound for a tag that no region ever had; then nothing has
    changed. Raises Busy while the stream is being captured. Each tag is a transaction.

    The tag "nccl" is the memory of NCCL's communicators. Every rank of a communicator must make the
    call. You must name this tag: a call without tags pauses only regions. Raises NotSupported if
    NCCL is older than 2.29.7; then nothing has changed.

    Args:
        group: a process group of torch.distributed or a Job: all its ranks pause all the tags, or
            none does and all raise JobAborted
        group_timeout: seconds for all ranks to prepare; after that no rank pauses. "nccl" waits
            this long for the other ranks even without a group
    """
    if group is None:
        SAVER.pause(tags, group_timeout)
    else:
        SAVER.move_together("pause", tags, group, group_timeout)


def resume(
    *tags: str,
    group: Group | None = None,
    group_timeout: float = GROUP_TIMEOUT_S,
    replicas: Replicas = False,
    wait: bool = True,
    order: Iterable[Any] = (),
) -> Wake | Links | None:
    """Resumes the tags at their old addresses, or all regions if you name none.

    Raises OutOfDeviceMemory with the bytes that are needed and free. Nothing is lost: free some
    memory and call it again. With several tags, first checks that they fit together. A group works
    as in pause().

    Args:
        replicas: the ranks of the group hold the same content in the same regions. Each restores a
            part of it over its own link, and gets the rest from the others, compared with its own
            backup. It restores what the others do not send. True exchanges through the process
            group; or give an Exchange. Returns Links, which say how much came from where
        wait: False returns a Wake while contents are still being copied, one after the other:
            ready() and wait() tell when each tensor has arrived. With a group, either all ranks
            have their memory then, or none does; each rank's contents arrive independently
        order: with wait=False, tensors or addresses in the order in which you first use them, such
            as model.parameters(); others follow in the order in which they were allocated
    """
    addresses = order_of(order, wait)
    if group is None or not wait:
        sharing_of(replicas, None, None, wait)  # refuses replicas
    if not wait and group is not None:
        return SAVER.start_together(tags, addresses, group, group_timeout)
    if not wait:
        return SAVER.start_resume(tags, addresses, group_timeout)
    if group is not None:
        return SAVER.move_together("resume", tags, group, group_timeout, replicas)
    SAVER.resume(tags, group_timeout)
    return None


def ready(tensor: Any) -> bool:
    """Whether a tensor can be used. False while resume(..., wait=False) is still restoring it.

    A tensor outside of regions is ready. Raises InvalidState if the tensor is paused and no resume
    is restoring it.
    """
    return SAVER.ready(tensor)


def wait(tensor: Any = None, timeout: float | None = None) -> None:
    """Waits until a tensor can be used; without one, for every resume(..., wait=False).

    You can use a tensor that has arrived on every stream, and replay graphs that use it. Raises
    InvalidState if the tensor is paused and no resume is restoring it, and TimedOut after a timeout
    in seconds. Without a tensor, raises the reason why something did not arrive. What had arrived
    stays. The rest is paused, and a second resume() continues with it.
    """
    SAVER.wait(tensor, timeout)


@overload
def fits(*tags: str, order: Iterable[Any] = ...) -> Forecast: ...


@overload
def fits(
    *tags: str, order: Iterable[Any] = ..., group: Group, group_timeout: float = ...
) -> JobForecast: ...


def fits(
    *tags: str,
    order: Iterable[Any] = (),
    group: Group | None = None,
    group_timeout: float = GROUP_TIMEOUT_S,
) -> Forecast | JobForecast:
    """Whether resume() with these tags would fit now, and by how much. Changes nothing.

    Args:
        order: tensors or addresses in the order in which they are restored, as in resume(). It
            affects time_ns, which is the time of a resume that waits for everything
        group, group_timeout: whether it would fit on every rank, each in its own order
    """
    own = functools.partial(SAVER.fits, tags, order)
    if group is None:
        return own()
    return job_of(group).forecast(call_of("fits", tags), own, seconds(group_timeout))


def communicators() -> tuple[Communicator, ...]:
    """The NCCL communicators in this process that the tag "nccl" pauses and resumes.

    Those of PyTorch's process groups are known automatically once they have been used.
    """
    return COMMUNICATORS.all()


def add_communicator(pointer: int) -> None:
    """Adds a communicator that the program has created itself to the tag "nccl".

    Args:
        pointer: the ncclComm_t, as a number. Remove it before you destroy the communicator
    """
    COMMUNICATORS.add(pointer)


def remove_communicator(pointer: int) -> None:
    """Removes a communicator from the tag "nccl" that add_communicator() has added."""
    COMMUNICATORS.remove(pointer)


def backup_of(tensor: Any) -> Any:
    """The content of a paused tensor's host backup, as a new tensor on the CPU.

    Raises NotFound if nothing is backed up there in host memory.
    """
    found = SAVER.backup(tensor)
    if found is None:
        raise NotFound(
            "no backup of this tensor is in host memory: it must come from a "
            'region(..., backup="host") that is paused'
        )
    return found


def stage(name: str) -> contextlib.AbstractContextManager[None]:
    """Begins a stage: under `reveille run` and `record`, in stats(), and in PyTorch's history.

    The stage ends when this thread begins the next one. As a ``with`` block it ends with the block.
    Such stages nest: the peak of the outer stage includes those of inner ones. In stats() there is
    one stage at a time.
    """
    return SAVER.stage(name_bytes(name, "a stage"))


def step() -> None:
    """Begins a step: one round of the run."""
    SAVER.step()


def record(path: Path) -> contextlib.AbstractContextManager[None]:
    """Records what regions do within the ``with`` block, as a trace for replay().

    Records the current device, and the devices that regions have used so far. `reveille record`
    records everything that the program allocates.
    """
    return SAVER.record(path)


def stats() -> HookStats:
    """What regions use, by device and by tag."""
    return SAVER.stats()


def contexts() -> tuple[HookContext, ...]:
    """The contexts that regions allocate in: one for each device, and one for its disk backups."""
    return tuple(SAVER.hook.contexts())


def set_disk_directory(directory: Path) -> None:
    """Sets the directory for disk backups from now on. Creates it if it is missing."""
    SAVER.set_disk_directory(directory)


def hook_mode() -> str:
    """ "preload" or "torch": how this process uses the hook library."""
    return SAVER.hook.mode
