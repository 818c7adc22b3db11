# SPDX-License-Identifier: MIT
"""Metrics of a process: a snapshot of all its contexts and of its pauses and resumes.

Bytes are read from the core when a snapshot is taken. Python's own counters are in _watch.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from . import _c
from ._communicators import COMMUNICATORS, TAG
from ._context import OPEN_CONTEXTS, Context
from ._process import SAVER
from ._results import state_of
from ._watch import MOVES, FailureMetrics, TransitionMetrics
from .errors import Forked, InvalidState

GONE = (InvalidState, Forked)  # the context was closed, or was opened before a fork
Row = TypeVar("Row", "DeviceMetrics", "TagMetrics")


@dataclass(frozen=True)
class DeviceMetrics:
    """A device, summed over all contexts of this process on it.

    Attributes:
        device: its name as in errors: "cuda:0"
        used_bytes: bytes in use as far as Reveille knows, including external_bytes
        external_bytes: bytes in use that no allocation explains
        host_backup_bytes, disk_backup_bytes: bytes that backups hold
    """

    device: str
    used_bytes: int
    external_bytes: int
    host_backup_bytes: int
    disk_backup_bytes: int


@dataclass(frozen=True)
class TagMetrics:
    """A tag on a device. The tag "" stands for memory without a tag."""

    device: str
    tag: str
    active_bytes: int
    paused_bytes: int
    host_backup_bytes: int

    @property
    def state(self) -> str:
        """ "active", "paused", "mixed" if part of it is paused, or "empty"."""
        return state_of(self.active_bytes, self.paused_bytes)


@dataclass(frozen=True)
class StoreMetrics:
    """The node's store at a path (docs/store.md), and what this process has in it.

    Attributes:
        path: of its socket
        answers: whether it replies; if not, the numbers of the node are 0
        budget_bytes: host memory that all processes may use together; 0: no limit
        kept_bytes: host memory of all segments, each counted once
        shared_bytes: the part of it that more than one user has
        referenced_bytes: host memory that all users would need without a store
        refused_bytes, refused_count: requests without room, since the store was started
        own_bytes: bytes of this process's backups in the store
        own_found_bytes: the part of own_bytes that was in the store already
    """

    path: str
    answers: bool
    budget_bytes: int
    kept_bytes: int
    shared_bytes: int
    referenced_bytes: int
    refused_bytes: int
    refused_count: int
    own_bytes: int
    own_found_bytes: int


@dataclass(frozen=True)
class Metrics:
    """What Reveille holds in this process now, and its transitions since the process began."""

    devices: tuple[DeviceMetrics, ...]
    tags: tuple[TagMetrics, ...]
    transitions: tuple[TransitionMetrics, ...]
    failures: tuple[FailureMetrics, ...]
    stores: tuple[StoreMetrics, ...] = ()


def metrics() -> Metrics:
    """A snapshot of the regions and of every open Context of this process.

    Leaves out contexts that are closed or that were opened before a fork. Allocates no device
    memory and opens no context. You may call it from any thread.
    """
    devices: dict[Any, DeviceMetrics] = {}
    tags: dict[Any, TagMetrics] = {}
    for context in _contexts():
        try:
            of_devices, of_tags = list(_devices(context)), list(_tags(context))
        except GONE:
            continue
        for device in of_devices:
            _add(devices, device.device, device)
        for tag in of_tags:
            _add(tags, (tag.device, tag.tag), tag)
    for tag in _communicators():
        _add(tags, (tag.device, tag.tag), tag)
    return Metrics(
        tuple(devices.values()),
        tuple(tags.values()),
        MOVES.transitions(),
        MOVES.failures(),
        tuple(_stores()),
    )


def _contexts() -> Iterator[Context]:
    for reference in OPEN_CONTEXTS.valuerefs():  # a list, since other threads may open and drop contexts
        context = reference()
        if context is not None:
            yield context
    try:
        yield from SAVER.contexts_in_use()
    except GONE:
        return


def _devices(context: Context) -> Iterator[DeviceMetrics]:
    for index, name in context._device_names():
        stats = context._device_counters(index)
        yield DeviceMetrics(
            name,
            stats.used_bytes,
            stats.external_bytes,
            stats.host_backup_bytes,
            stats.disk_backup_bytes,
        )


def _tags(context: Context) -> Iterator[TagMetrics]:
    for tag in context._groups():
        for index, name in context._device_names():
            stats = context._tag_stats(tag, index)
            yield TagMetrics(
                name, tag, stats.active_bytes, stats.paused_bytes, stats.host_backup_bytes
            )


def _communicators() -> Iterator[TagMetrics]:
    try:
        for device, stats in COMMUNICATORS.stats().items():
            yield TagMetrics(f"cuda:{device}", TAG, stats.active_bytes, stats.paused_bytes, 0)
    except InvalidState:  # NCCL has been shut down
        return


def _stores() -> Iterator[StoreMetrics]:
    """The metrics of each store that a context uses."""
    own: dict[str, tuple[int, int]] = {}
    for context in _contexts():
        if context._store_path is None:
            continue
        try:
            memory = context._host_memory()
        except GONE:
            continue
        kept, found = own.get(context._store_path, (0, 0))
        if memory is not None:
            kept, found = kept + memory.store_bytes, found + memory.store_found_bytes
        own[context._store_path] = kept, found
    for path, (kept, found) in own.items():
        node = _c.StoreStats()
        answers = _c.core().rvl_store_get_stats(os.fsencode(path), ctypes.byref(node)) == 0
        yield StoreMetrics(
            path,
            answers,
            node.budget_bytes,
            node.kept_bytes,
            node.shared_bytes,
            node.referenced_bytes,
            node.refused_bytes,
            node.refused_count,
            kept,
            found,
        )


def _add(rows: dict[Any, Row], key: Any, row: Row) -> None:
    """Adds a row, or adds its numbers to the row with this key."""
    there = rows.get(key)
    if there is not None:
        sums = {
            name: getattr(there, name) + value
            for name, value in vars(row).items()
            if isinstance(value, int)
        }
        row = dataclasses.replace(row, **sums)
    rows[key] = row
