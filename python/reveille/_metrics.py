# SPDX-License-Identifier: MIT
"""What watches a process: one snapshot of all its contexts, and of what was moved.

Bytes are asked of the core when a snapshot is taken. What Python counts itself is in _watch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ._communicators import COMMUNICATORS, TAG
from ._context import OPEN_CONTEXTS, Context
from ._process import SAVER
from ._results import state_of
from ._watch import MOVES, FailureMetrics, TransitionMetrics
from .errors import Forked, InvalidState

GONE = (InvalidState, Forked)  # a context that was closed, or opened before a fork
Row = TypeVar("Row", "DeviceMetrics", "TagMetrics")


@dataclass(frozen=True)
class DeviceMetrics:
    """A device, over all contexts of this process on it.

    Attributes:
        device: its name as in errors: "cuda:0"
        used_bytes: in use, as far as Reveille knows, external_bytes included
        external_bytes: what no allocation explains
        host_backup_bytes, disk_backup_bytes: what backups hold
    """

    device: str
    used_bytes: int
    external_bytes: int
    host_backup_bytes: int
    disk_backup_bytes: int


@dataclass(frozen=True)
class TagMetrics:
    """A tag on a device. tag "" is what has none."""

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
class Metrics:
    """What Reveille holds in this process now, and what it has moved since the process began."""

    devices: tuple[DeviceMetrics, ...]
    tags: tuple[TagMetrics, ...]
    transitions: tuple[TransitionMetrics, ...]
    failures: tuple[FailureMetrics, ...]


def metrics() -> Metrics:
    """A snapshot of the regions and of every open Context of this process.

    Contexts that are closed, or were opened before a fork, are left out. Takes no memory and opens
    nothing; may be called from any thread.
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
        tuple(devices.values()), tuple(tags.values()), MOVES.transitions(), MOVES.failures()
    )


def _contexts() -> Iterator[Context]:
    for reference in OPEN_CONTEXTS.valuerefs():  # a list: other threads may open and drop some
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


def _add(rows: dict[Any, Row], key: Any, row: Row) -> None:
    """Adds its numbers to those of the row that is there."""
    there = rows.get(key)
    if there is not None:
        sums = {
            name: getattr(there, name) + value
            for name, value in vars(row).items()
            if isinstance(value, int)
        }
        row = dataclasses.replace(row, **sums)
    rows[key] = row
