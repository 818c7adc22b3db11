# SPDX-License-Identifier: MIT
"""Ranges of torch.profiler.record_function, and phases of TRL and verl, as stages, as NVTX's are (simcuda/driver/stages.c)."""

import contextlib
import ctypes
import os

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_PREFIX = os.environ.get("REVEILLE_STAGES", "")
_NAME_BYTES = 255  # docs/trace-format.md


def watch(profiler):
    """torch.autograd.profiler was imported: torch.profiler has the same class."""
    _follow(profiler.record_function)


def watch_trl(profiling):
    """trl.extras.profiling was imported: trainers name their phases by it (`GRPOTrainer.transformers.generate`)."""
    _follow(profiling.ProfilingContext)


def watch_verl(profiling):
    """A module of verl.utils.profiler was imported: its trainer times its phases by marked_timer (`verl.gen`)."""
    begin, end = _marks()
    timed = profiling.marked_timer

    @contextlib.contextmanager
    def marked_timer(name, *args, **kwargs):
        stage = begin(f"verl.{name}")
        try:
            with timed(name, *args, **kwargs):
                yield
        finally:
            end(stage)

    profiling.marked_timer = marked_timer


def _marks():
    """What begins a range and answers its number, and what ends the range of a number. 0: it is no stage."""
    driver = ctypes.PyDLL(_DRIVER)
    enter, leave = driver.rvli_simulated_enter, driver.rvli_simulated_leave
    enter.restype, enter.argtypes = ctypes.c_uint64, (ctypes.c_char_p,)
    leave.restype, leave.argtypes = None, (ctypes.c_uint64,)

    def begin(range_name):
        name = range_name[len(_PREFIX) :].encode("utf-8", "replace") if range_name.startswith(_PREFIX) else b""
        return enter(name) if 0 < len(name) <= _NAME_BYTES and b"\0" not in name else 0

    def end(stage):
        if stage:
            leave(stage)

    return begin, end


def _follow(ranges):
    """A class of context managers with a name."""
    begin, end = _marks()
    entered, left = ranges.__enter__, ranges.__exit__

    def enter(self):
        self._reveille_stage = begin(self.name)
        return entered(self)

    def leave(self, *error):
        try:
            return left(self, *error)
        finally:
            stage, self._reveille_stage = getattr(self, "_reveille_stage", 0), 0
            end(stage)

    ranges.__enter__, ranges.__exit__ = enter, leave
