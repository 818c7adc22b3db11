# SPDX-License-Identifier: MIT
"""Finds the NCCL communicators of this process and their ranks.

PyTorch has one in each process group that was used. vLLM and SGLang also create their own, one for
each of their parallel groups, which only their modules know.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

# Modules of engines with groups that have their own communicators.
ENGINES = ("vllm.distributed.parallel_state", "sglang.srt.distributed.parallel_state")


class Found(NamedTuple):
    """A communicator, and the ranks of torch.distributed's world that it connects."""

    pointer: int
    ranks: frozenset[int]


def find_all(library: Any) -> Iterator[Found]:
    """All communicators that exist. library: the NCCL with the functions to call for them."""
    yield from _of_process_groups()
    for own in own_communicators():
        if _library_of(own) == _handle(library):
            yield Found(own.communicator.comm.value, own.ranks)


def _of_process_groups() -> Iterator[Found]:
    torch, c10d = map(sys.modules.get, ("torch", "torch.distributed.distributed_c10d"))
    world = getattr(c10d, "_world", None)
    ranks_of = getattr(world, "pg_group_ranks", {})
    for group in list(getattr(world, "pg_map", ())):
        with contextlib.suppress(RuntimeError, AttributeError, TypeError):  # not NCCL
            pointer = group._get_backend(torch.device("cuda"))._comm_ptr()
            if pointer:
                yield Found(pointer, frozenset(ranks_of.get(group, ())))


class Own(NamedTuple):
    """An engine's object around a communicator (PyNcclCommunicator), and its ranks."""

    communicator: Any
    ranks: frozenset[int]


def own_communicators() -> Iterator[Own]:
    """The communicators that vLLM and SGLang have created, each once."""
    seen: set[int] = set()
    for name in ENGINES:
        for reference in list(getattr(sys.modules.get(name), "_groups", {}).values()):
            group = reference()
            holder = getattr(group, "device_communicator", None) or group
            found = getattr(holder, "pynccl_comm", None)
            pointer = getattr(getattr(found, "comm", None), "value", None)
            if pointer and pointer not in seen:
                seen.add(pointer)
                yield Own(found, frozenset(group.ranks))


def _handle(library: Any) -> Any:
    return getattr(library, "_handle", None)


def _library_of(own: Own) -> Any:
    """The NCCL of an engine's communicator. It may be another file than PyTorch's."""
    return _handle(getattr(getattr(own.communicator, "nccl", None), "lib", None))
