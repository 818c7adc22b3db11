# SPDX-License-Identifier: MIT
"""A refusal of all ranks in vLLM's own worker and executor, without an engine and without a GPU.

Three workers answer a wake-up that all of them refuse, and then another call. If only the last rank reports the refusal, the second call
gets its own answers. If all ranks report it, the second call gets stale ones.
"""
import collections
import types

import reveille
from reveille._vllm_executor import ToldByTheLastRank
from vllm.v1.executor.multiproc_executor import MultiprocExecutor, WorkerProc

RANKS = 3
REFUSAL = "no rank has moved: rank 1 of 3 cannot wake_up()"


class Queue(collections.deque):
    """The part of vLLM's message queues that is used."""

    enqueue = collections.deque.append

    def dequeue(self, timeout=None):
        return self.popleft()


def worker(rank, told_once):
    def wake_up():
        aborted = reveille.JobAborted(REFUSAL, rank=1, reason="no room")
        raise ToldByTheLastRank.instead_of(aborted) if told_once and rank < RANKS - 1 else aborted

    made = object.__new__(WorkerProc)
    made.rank, made.use_async_scheduling, made.worker_response_mq = rank, False, Queue()
    made.worker = types.SimpleNamespace(wake_up=wake_up, state=lambda: rank)
    return made


def second_answer(told_once):
    """What the executor's next call returns."""
    workers = [worker(rank, told_once) for rank in range(RANKS)]
    for each in workers:
        each._execute_worker_rpc(("wake_up", (), {}, None))
        each._execute_worker_rpc(("state", (), {}, None))
    executor = object.__new__(MultiprocExecutor)
    executor.rpc_broadcast_mq, executor.is_failed = Queue(), False
    executor.response_mqs = [each.worker_response_mq for each in workers]
    executor.futures_queue, executor.shutdown_event = collections.deque(), None
    parallel = types.SimpleNamespace(enable_fault_tolerance=False)
    executor.vllm_config = types.SimpleNamespace(parallel_config=parallel)
    try:
        executor.collective_rpc("wake_up")
    except RuntimeError as error:
        assert REFUSAL in str(error), error
    else:
        raise AssertionError("the refusal was not told")
    try:
        return executor.collective_rpc("state")
    except RuntimeError as error:
        return str(error)


assert second_answer(told_once=True) == list(range(RANKS))
assert REFUSAL in second_answer(told_once=False), "vLLM reads all answers now: nothing needs to be told once"
print("all is as expected")
