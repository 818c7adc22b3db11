# SPDX-License-Identifier: MIT
"""Sleep and wake-up of an engine: all its tags in one transition, with or without their content.

An engine decides only when it goes to sleep which tags keep their content. So all its allocations
have a backup policy, and a pause discards the content of the other tags. A sleep or wake-up is one
transaction: if any part of it fails, on any rank of the engine, everything stays as it was.

The engine's tags have a prefix, so that the program's own regions are never put to sleep with it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Collection, Sequence
from typing import Callable

from ._engine import Engine
from ._job import Move
from ._process import SAVER, Saver
from ._results import TagStats

LOGGER = logging.getLogger("reveille")
GRAPHS = "cudagraph"


class SleepAllocator:
    """The memory of one engine in this process.

    Args:
        prefix: the prefix of its tags' names, also in metrics() and stats()
        engine: its ranks, which sleep and wake together
        saver: the regions of the process
    """

    def __init__(self, prefix: str, engine: Engine, saver: Saver = SAVER) -> None:
        self._prefix = prefix
        self._engine = engine
        self._saver = saver

    # ---- Allocating ----

    def use_memory_pool(self, tag: str) -> contextlib.AbstractContextManager[None]:
        """Tags PyTorch's allocations on this thread within the block."""
        return self._saver.region(self._prefix + tag, "host", own_pool=True)

    def cudagraph_pool(self) -> contextlib.AbstractContextManager[tuple[int, int]]:
        """Yields the id of the pool for graphs that are captured within the block."""
        return self._saver.graph_pool(self._prefix + GRAPHS, "host")

    def release_pools(self) -> None:
        """Releases memory that no tensor and no graph uses. You may call it repeatedly."""
        self._saver.release_graph_pool(self._prefix + GRAPHS)
        _release_what_is_unused()

    # ---- Sleeping ----

    def sleep(self, keep: Collection[str], begin: Callable[[], None] = lambda: None) -> None:
        """Puts all tags to sleep: those in keep with their content, the others without.

        begin: called first on this rank. If it raises, no rank moves.
        """
        found = self.tags()
        self._say_conflicts(found, lambda tag: tag in keep, "sleep")
        kept = [tag for tag in found if tag in keep]
        discarded = [tag for tag in found if tag not in keep]
        self._pause(f"sleep({sorted(keep)})", kept, discarded, begin)

    def discard(self, tags: Collection[str], begin: Callable[[], None] = lambda: None) -> None:
        """Puts these tags to sleep without their content. begin: as in sleep()."""
        found = {tag: stats for tag, stats in self.tags().items() if tag in tags}
        self._say_conflicts(found, lambda _tag: False, "discard")
        self._pause(f"discard({sorted(tags)})", [], list(found), begin)

    def wake_up(self, wanted: Callable[[str], bool], what: str) -> None:
        """Wakes the wanted tags. what: the call, which all ranks must make."""
        _empty_cache()  # memory that was freed while asleep need not wake up
        asleep = [tag for tag, stats in self.tags().items() if stats.paused_bytes and wanted(tag)]
        names = self._names(asleep)

        def prepare(prepared: list[Move]) -> None:
            if names:
                self._saver.refuse_capture("wake_up")
                moving = self._engine.with_communicators(names)
                if not self._saver.fits(moving):
                    _release_what_is_unused()  # takes a tenth of a second, so only if it may help
                self._saver.prepare("resume", moving, prepared)

        self._engine.move("resume", names, what, prepare)

    def _pause(
        self,
        what: str,
        kept: Sequence[str],
        discarded: Sequence[str],
        begin: Callable[[], None],
    ) -> None:
        parts = [(self._names(kept), False), (self._names(discarded), True)]
        moving = [*kept, *discarded]

        def prepare(prepared: list[Move]) -> None:
            begin()
            _release_what_is_unused()  # so that no unused memory is copied
            for names, discard in parts:
                if names:
                    self._saver.refuse_capture("sleep")
                    self._saver.prepare("pause", names, prepared, discard=discard)

        self._engine.move(
            "pause", self._names(moving), what, prepare, lambda: self._sleeps_after(moving)
        )

    def _sleeps_after(self, moving: Collection[str]) -> bool:
        """Whether none of its memory is awake once these tags are paused."""
        return not any(
            stats.active_bytes for tag, stats in self.tags().items() if tag not in moving
        )

    # ---- Asking ----

    @property
    def asleep(self) -> bool:
        """Whether any of its memory is asleep."""
        return any(stats.paused_bytes for stats in self.tags().values())

    def get_current_usage(self) -> int:
        """Bytes of all its allocations, both awake and asleep."""
        return sum(each.active_bytes + each.paused_bytes for each in self.tags().values())

    def tags(self) -> dict[str, TagStats]:
        """Counters of each tag, by the engine's name for the tag."""
        return {
            name[len(self._prefix) :]: stats
            for name, stats in self._saver.tags().items()
            if name.startswith(self._prefix)
        }

    def _names(self, tags: Sequence[str]) -> list[str]:
        return [self._prefix + tag for tag in tags]

    def _say_conflicts(
        self, found: dict[str, TagStats], keeps: Callable[[str], bool], what: str
    ) -> None:
        """Warns that tags which already sleep stay as they are, with or without their content."""
        for tag, stats in found.items():
            if stats.paused_bytes and keeps(tag) != bool(stats.host_backup_bytes):
                LOGGER.warning(
                    '%s: "%s" is asleep already, %s its content, and stays so: wake it up first',
                    what,
                    tag,
                    "with" if stats.host_backup_bytes else "without",
                )


def _release_what_is_unused() -> None:
    gc.collect()
    _empty_cache()


def _empty_cache() -> None:
    import torch

    torch.cuda.empty_cache()
