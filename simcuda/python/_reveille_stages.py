# SPDX-License-Identifier: MIT
"""Ranges of torch.profiler.record_function and of TRL's profiler as stages, as NVTX's are (simcuda/driver/stages.c)."""

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


def _follow(ranges):
    """A class of context managers with a name."""
    driver = ctypes.PyDLL(_DRIVER)
    begin, end = driver.rvli_simulated_enter, driver.rvli_simulated_leave
    begin.restype, begin.argtypes = ctypes.c_uint64, (ctypes.c_char_p,)
    end.restype, end.argtypes = None, (ctypes.c_uint64,)
    entered, left = ranges.__enter__, ranges.__exit__

    def enter(self):
        name = self.name[len(_PREFIX) :].encode("utf-8", "replace") if self.name.startswith(_PREFIX) else b""
        self._reveille_stage = begin(name) if 0 < len(name) <= _NAME_BYTES and b"\0" not in name else 0
        return entered(self)

    def leave(self, *error):
        try:
            return left(self, *error)
        finally:
            stage, self._reveille_stage = getattr(self, "_reveille_stage", 0), 0
            if stage:
                end(stage)

    ranges.__enter__, ranges.__exit__ = enter, leave
