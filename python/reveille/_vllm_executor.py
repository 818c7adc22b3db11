# SPDX-License-Identifier: MIT
"""A refusal of all ranks of an engine, as vLLM's executor takes it.

The executor asks all workers, and then reads their answers in the order of their ranks. At the first
failure it raises and leaves the others unread. They would be taken for the answers to its next calls,
so the engine could not go on. Ranks that move together refuse together, with the same message. So
it is enough if the last rank tells: all answers are read by then.

A worker ends its call by an exception in any case, since what follows in vLLM's code is for memory
that has moved. It hands the exception on as what the call has answered. vLLM asks an answer of the
class AsyncModelRunnerOutput for its content, which here is nothing.
"""

from __future__ import annotations

from vllm.v1.outputs import AsyncModelRunnerOutput

from .errors import JobAborted


class ToldByTheLastRank(JobAborted, AsyncModelRunnerOutput):  # type: ignore[misc]
    """What a rank before the last raises."""

    @classmethod
    def instead_of(cls, aborted: JobAborted) -> ToldByTheLastRank:
        """The same text and numbers."""
        made = cls(str(aborted))
        made.__dict__.update(vars(aborted))
        return made

    def get_output(self) -> None:
        """What the executor reads of this rank."""

    def get_kv_connector_output(self) -> None:
        """No rank has any."""
