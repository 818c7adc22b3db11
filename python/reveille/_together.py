# SPDX-License-Identifier: MIT
"""torch_memory_saver's pause and resume for all ranks, if the environment asks for it.

A program of that package pauses and resumes each rank by itself, and has no argument that says
which ranks belong together. So all ranks of torch.distributed's world move together: the ranks of
one engine, or of one trainer. They make the same calls in the same order anyway, because of the
collectives in between.
"""

from __future__ import annotations

import os
import sys

from . import _asleep
from ._alias import VALUES
from ._engine import Engine, Ranks
from ._job import Move, call_of, job_of
from ._process import Saver
from .errors import InvalidArgument, NotFound

TOGETHER = "REVEILLE_TOGETHER"
COMMUNICATORS = "REVEILLE_COMMUNICATORS"
SLEEP = "REVEILLE_SLEEP"


def move(saver: Saver, function: str, tag: str | None) -> None:
    """Pauses or resumes a tag or all tags, here or on all ranks. Ignores tags of no region."""
    sleeps = _asked(SLEEP)
    if sleeps and function == "resume" and _asleep.asleep():
        _asleep.wake(paused=True)
    _move(saver, function, tag)
    if sleeps and function == "pause" and not _any_active(saver):
        _asleep.sleep()


def _any_active(saver: Saver) -> bool:
    return any(stats.active_bytes for stats in saver.tags().values())


def _move(saver: Saver, function: str, tag: str | None) -> None:
    with_communicators = _asked(COMMUNICATORS)
    if _asked(TOGETHER) or with_communicators:
        engine = Engine(_world, communicators=with_communicators, saver=saver)
        _move_together(saver, engine, function, tag)
    else:
        getattr(saver, function)([tag] if tag else [], ignore=(NotFound,))


def _move_together(saver: Saver, engine: Engine, function: str, tag: str | None) -> None:
    found = saver.tags()
    names = [each for each in found if tag in (None, each)]

    def prepare(prepared: list[Move]) -> None:
        if names:
            saver.refuse_capture(function)
            wanted = engine.with_communicators(names) if function == "resume" else names
            saver.prepare(function, wanted, prepared)

    def sleeps() -> bool:
        return not any(stats.active_bytes for each, stats in found.items() if each not in names)

    engine.move(function, names, call_of(function, [tag] if tag else []), prepare, sleeps)


def _asked(variable: str) -> bool:
    value = os.environ.get(variable, "")
    if value not in VALUES:
        raise InvalidArgument(f"{variable}={value!r} is not understood: set it to 1, or to 0")
    return VALUES[value]


def _world() -> Ranks | None:
    """All ranks of torch.distributed. None if it is not used, or has one rank."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    size = dist.get_world_size()
    return Ranks(job_of(dist.group.WORLD), range(size)) if size > 1 else None
