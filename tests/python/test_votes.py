# SPDX-License-Identifier: MIT
"""The fuzzer of a job's votes: what it finds, that it finds what is planted, and what it reaches."""

import logging
import sys
import threading

import pytest
from fuzz_votes import Execution, Fuzzer
from reveille import _job

FLOOR_PERCENT = 90  # of the lines of a vote; 94.5 % are reached
# Faults that were found: a rank that is started again, and loses its first call, counted back.
FOUND = ["4eb39b34e84d3b7d5beebc9fcd0df398e826b862"]
PARTS = (_job._Round, _job._Rounds)
CALLS = (_job.Job._begin, _job.Job.move, _job.Job._move, _job.Job.forecast, _job.Job._forecast,
         _job._next_round, _job._end)  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def first_faults(executions, seed=1):
    """Of the first input that has some."""
    fuzzer = Fuzzer(seed)
    for _ in range(executions):
        execution = fuzzer.next()
        if execution.world.faults:
            return execution.world.faults
    return []


def test_no_fault_in_300_inputs():
    assert first_faults(300) == []


@pytest.mark.parametrize("data", FOUND)
def test_what_was_found_does_not_come_back(data):
    assert Execution(bytes.fromhex(data)).run().world.faults == []


class FromNothing(_job._Rounds):
    """Rounds of a process that does not ask what was counted before it."""

    def __init__(self):
        super().__init__()
        self.last = 0


def test_what_was_found_is_found(monkeypatch):
    monkeypatch.setattr(_job, "_Rounds", FromNothing)
    assert "reveille/3/ was decided twice" in Execution(bytes.fromhex(FOUND[0])).run().world.faults


def decide_again(self, text):
    self._job.store.set(self._prefix + "decision", text)
    return _job._decision(text)


def vote_twice(self, refusal):
    self._job.store.add(self._prefix + "ready", 1)
    return vote(self, refusal)


vote = _job._Round.vote
PLANTED = {
    "a rank decides what was decided": ("_decide", decide_again, "moved alone"),
    "a rank votes twice": ("vote", vote_twice, "commits with the votes of"),
    "ranks need not make the same call": ("join", lambda self: None, ""),
    "a store that fails is no reason": ("give_up", lambda self, reason: None, "moved alone"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(monkeypatch, name):
    function, instead, found = PLANTED[name]
    monkeypatch.setattr(_job._Round, function, instead)
    faults = first_faults(2000)
    assert any(found in each for each in faults), faults


def code_of(part):
    functions = vars(part).values() if isinstance(part, type) else [part]
    for each in functions:
        function = getattr(each, "__wrapped__", each)
        if hasattr(function, "__code__"):
            yield function.__code__


def lines_of(code):
    """With those of what is defined in it, without those of "def"."""
    found = {(code.co_filename, line) for _from, _to, line in code.co_lines() if line}
    found.discard((code.co_filename, code.co_firstlineno))
    for each in code.co_consts:
        if hasattr(each, "co_lines"):
            found |= lines_of(each)
    return found


@pytest.mark.skipif(not hasattr(Fuzzer.next.__code__, "co_lines"), reason="Python before 3.10")
def test_the_inputs_reach_the_votes():
    wanted, reached = set(), set()
    for part in (*PARTS, *CALLS):
        for code in code_of(part):
            wanted |= lines_of(code)

    def trace(frame, event, _argument):
        if frame.f_code.co_filename != _job.__file__:
            return None
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        assert first_faults(300) == []
    finally:
        sys.settrace(None)
        threading.settrace(None)
    missed = sorted(line for _file, line in wanted - reached)
    percent = 100 * len(wanted & reached) / len(wanted)
    assert percent >= FLOOR_PERCENT, f"{percent:.1f} % reached; not lines {missed}"
