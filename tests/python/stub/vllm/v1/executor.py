# SPDX-License-Identifier: MIT
"""Workers that are processes. As vLLM's executor does, this one stops at the first that fails."""

import multiprocessing

from .outputs import AsyncModelRunnerOutput

forked = multiprocessing.get_context("fork")
TIMEOUT_S = 60


class Executor:
    """make(rank) makes the worker, in its process."""

    def __init__(self, ranks, make):
        self._pipes = []
        for rank in range(ranks):
            ours, theirs = forked.Pipe()
            forked.Process(target=_work, args=(theirs, make, rank), daemon=True).start()
            self._pipes.append(ours)

    def collective_rpc(self, method, *args):
        for pipe in self._pipes:
            pipe.send((method, args))
        answers = []
        for pipe in self._pipes:
            assert pipe.poll(TIMEOUT_S), f"{method} is not answered"
            succeeded, answer = pipe.recv()
            if not succeeded:
                raise RuntimeError(f"Worker failed with error '{answer}'")
            answers.append(answer)
        return answers


def _work(pipe, make, rank):
    worker = make(rank)
    while True:
        method, args = pipe.recv()
        try:
            answer = getattr(worker, method)(*args)
        except Exception as error:
            answer = error
        if isinstance(answer, AsyncModelRunnerOutput):
            answer = answer.get_output()
        pipe.send((False, str(answer)) if isinstance(answer, Exception) else (True, answer))
