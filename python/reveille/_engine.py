# SPDX-License-Identifier: MIT
"""The ranks of an engine, which pause and resume their memory together, with their communicators.

Communicators sleep while all memory of the engine sleeps, on every rank: they are paused with the
last pause, and resumed with the first resume. Work in between, such as an update of weights that
are awake, may need them.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Collection, Sequence
from typing import Callable, NamedTuple

from ._communicators import COMMUNICATORS, TAG
from ._job import Job, Meeting, Move, Prepare, move_alone
from ._process import SAVER, Saver

RANKS_TIMEOUT_S = 300.0  # for the slowest rank of an engine to copy its weights


class Ranks(NamedTuple):
    """The ranks that move together: as a job, and as ranks of torch.distributed's world."""

    job: Job
    world: Collection[int] = ()


class Engine:
    """Moves what its ranks have prepared.

    Args:
        ranks: returns the ranks, or None if there is only one
        communicators: whether communicators that connect only these ranks sleep, too
        saver: the regions of the process
    """

    def __init__(
        self,
        ranks: Callable[[], Ranks | None] = lambda: None,
        *,
        communicators: bool = False,
        saver: Saver = SAVER,
    ) -> None:
        self._ranks = ranks
        self.moves_communicators = communicators
        self._saver = saver

    @property
    def job(self) -> Job | None:
        """The job of all its ranks; None if there is only one rank."""
        ranks = self._ranks()
        return None if ranks is None else ranks.job

    @property
    def is_last(self) -> bool:
        """Whether this is its last rank."""
        ranks = self._ranks()
        return ranks is None or ranks.job.rank == ranks.job.world_size - 1

    def with_communicators(self, names: Sequence[str]) -> list[str]:
        """The tags of a resume, and "nccl" if the resume also resumes communicators."""
        ranks = self._ranks() if self.moves_communicators else None
        ours = () if ranks is None else COMMUNICATORS.of_ranks(ranks.world)
        return [*names, *([TAG] if any(map(COMMUNICATORS.is_paused, ours)) else ())]

    def move(
        self,
        function: str,
        names: Sequence[str],
        what: str,
        prepare: Prepare,
        sleeps: Callable[[], bool] = lambda: False,
    ) -> None:
        """Moves all ranks, or none and raises the reason.

        Args:
            function: "pause" or "resume"
            names: the tags that move on this rank
            what: the call, which all ranks must make
            prepare: prepares this rank's part
            sleeps: whether all memory of the engine sleeps after a pause of these tags
        """
        ranks = self._ranks()
        watched = self._saver.watched(function, names) if names else contextlib.nullcontext()
        with watched:  # a rank without such tags still votes
            if ranks is None:
                move_alone(prepare)
            elif not self.moves_communicators:
                ranks.job.move(what, prepare, RANKS_TIMEOUT_S)
            else:
                pointers = COMMUNICATORS.of_ranks(ranks.world)
                wants = bool(names) if function == "resume" else sleeps()
                ranks.job.move(
                    what,
                    functools.partial(_prepare, function, pointers, prepare),
                    RANKS_TIMEOUT_S,
                    functools.partial(_together, function, pointers, wants),
                )


def _prepare(
    function: str, pointers: Sequence[int], prepare: Prepare, prepared: list[Move]
) -> None:
    """Refuses communicators that cannot be paused, before memory moves."""
    if pointers and function == "pause":
        COMMUNICATORS.require()
    prepare(prepared)


def _together(
    function: str, pointers: Sequence[int], wants: bool, prepared: list[Move], meeting: Meeting
) -> None:
    """Moves communicators if the memory of all ranks allows it."""
    meeting.arrive()
    said = [json.loads(each) for each in meeting.share(json.dumps(wants))]
    if said and (all(said) if function == "pause" else any(said)):
        COMMUNICATORS.begin(function, meeting.time_left(), pointers).together(prepared, meeting)
