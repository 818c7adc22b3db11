# SPDX-License-Identifier: MIT
"""Stages that a program marks with stage(). As ``with`` blocks they nest."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
import threading
from typing import Any, Callable

from ._simulated import MACHINE_VARIABLE

_DRIVER = "libcuda.so.1"  # the simulated one under `reveille run`
ANNOTATION = "stage:"  # the prefix that marks stages for `reveille snapshot` by default

# A receiver of stages: begin(name) returns the argument for end().
Begin = Callable[[bytes], Any]
End = Callable[[Any], None]


def _machine() -> tuple[Begin, End] | None:
    """The receiver of `reveille run`, or None."""
    if not os.environ.get(MACHINE_VARIABLE):
        return None
    driver = ctypes.CDLL(_DRIVER)
    begin, end = driver.rvli_simulated_enter, driver.rvli_simulated_leave
    begin.restype, begin.argtypes = ctypes.c_uint64, (ctypes.c_char_p,)
    end.restype, end.argtypes = None, (ctypes.c_uint64,)
    return begin, end


def _annotate(name: bytes) -> Any:
    """A range of PyTorch's profiler, for its history of memory; None without PyTorch."""
    profiler = getattr(sys.modules.get("torch"), "profiler", None)
    if profiler is None:
        return None
    annotation = profiler.record_function(ANNOTATION + os.fsdecode(name))
    annotation.__enter__()
    return annotation


class Stage(contextlib.AbstractContextManager[None]):
    """A stage that has begun. It ends with its ``with`` block, or where the next stage begins."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.is_block = False
        self._ends: list[tuple[End, Any]] = []

    def tell(self, begin: Begin, end: End) -> None:
        """Reports the begin to a receiver, and later the end."""
        self._ends.append((end, begin(self.name)))

    def end(self) -> None:
        while self._ends:
            end, begun = self._ends.pop()
            end(begun)

    def __enter__(self) -> None:
        self.is_block = True

    def __exit__(self, *_: Any) -> None:
        STAGES.leave(self)


class Stages(threading.local):
    """The open stages of this thread, innermost last. All but possibly the last are blocks."""

    def __init__(self) -> None:
        self._open: list[Stage] = []

    def begin(self, name: bytes, recorder: Any, mark: Callable[[bytes], None]) -> Stage:
        """Begins a stage.

        Args:
            recorder: the hook library's Recorder, or None
            mark: marks the stage in contexts, where stages do not nest
        """
        if self._open and not self._open[-1].is_block:
            self._open.pop().end()
        stage = Stage(name)
        machine = _machine()
        if machine is not None:
            stage.tell(*machine)
        else:
            stage.tell(_annotate, lambda made: made and made.__exit__(None, None, None))
        if recorder is not None:
            stage.tell(recorder.enter, recorder.leave)
        mark(name)
        stage.tell(lambda _: None, lambda _: self._mark_outer(mark))
        self._open.append(stage)
        return stage

    def _mark_outer(self, mark: Callable[[bytes], None]) -> None:
        """Marks the outer stage again after a block, since contexts have one stage at a time."""
        if self._open:
            mark(self._open[-1].name)

    def leave(self, stage: Stage) -> None:
        """Ends a block, and an open stage within it."""
        while stage in self._open:
            self._open.pop().end()


class Recorder:
    """The hook library's recorder. NVTX ranges have numbers from 2^32 on."""

    _numbers = itertools.count(1)

    def __init__(self, hook: Any) -> None:
        self._hook = hook

    def enter(self, name: bytes) -> int:
        number = next(self._numbers)
        self._hook.check(self._hook.core.rvl_hooks_begin(number, name))
        return number

    def leave(self, number: int) -> None:
        self._hook.check(self._hook.core.rvl_hooks_end(number))


STAGES = Stages()
