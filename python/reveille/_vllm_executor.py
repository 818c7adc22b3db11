# SPDX-License-Identifier: MIT
"""A refusal of all ranks of an engine, in a form that vLLM's executor survives.

The executor calls all workers, and then reads their replies in the order of their ranks. At the
first failure it raises, and leaves the other replies unread. It would take them for replies to its
next calls, so the engine could not continue. Ranks that move together refuse together, with the
same message. So it is enough if the last rank reports the failure: all other replies are read by
then.

A worker must end its call with an exception in any case, since the code after it in vLLM assumes
that memory has moved. vLLM passes the exception on as the result of the call. From a result of
class AsyncModelRunnerOutput it takes the content, which is None here.
"""

from __future__ import annotations

from vllm.v1.outputs import AsyncModelRunnerOutput

from .errors import JobAborted


class ToldByTheLastRank(JobAborted, AsyncModelRunnerOutput):  # type: ignore[misc]
    """The exception that every rank except the last raises."""

    @classmethod
    def instead_of(cls, aborted: JobAborted) -> ToldByTheLastRank:
        """Makes one with the text and numbers of a JobAborted."""
        made = cls(str(aborted))
        made.__dict__.update(vars(aborted))
        return made

    def get_output(self) -> None:
        """The result that the executor reads from this rank: None."""

    def get_kv_connector_output(self) -> None:
        """None: no rank has such an output."""
