# SPDX-License-Identifier: MIT
"""Makes stages of torch.profiler.record_function's ranges, and of phases that RL frameworks time, as for NVTX ranges
(simcuda/driver/stages.c)."""

import contextlib
import ctypes
import functools
import os

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_PREFIX = os.environ.get("REVEILLE_STAGES", "")
_NAME_BYTES = 255  # docs/trace-format.md
# OpenRLHF times calls of these methods, and keeps the times under these names.
_OPENRLHF = {
    "BasePPOTrainer": {"ppo_train": "ppo_train", "broadcast_to_vllm": "broadcast"},
    "RemoteExperienceMaker": {"make_experience_batch": "make_experience"},
    "SamplesGenerator": {"generate_samples": "generation"},
}


def watch(profiler):
    """Called when torch.autograd.profiler was imported: torch.profiler has the same class."""
    _follow(profiler.record_function)


def watch_trl(profiling):
    """Called when trl.extras.profiling was imported: trainers name their phases with it (`GRPOTrainer.transformers.generate`)."""
    _follow(profiling.ProfilingContext)


def watch_skyrl(utils):
    """Called when skyrl.train.utils.utils was imported: its trainers time their phases with Timer (`skyrl.generate`)."""
    _follow(utils.Timer, lambda timer: f"skyrl.{timer.message}")


def watch_verl(profiling):
    """Called when a module of verl.utils.profiler was imported: its trainer times its phases with marked_timer (`verl.gen`)."""
    stage, timed = _stages(), profiling.marked_timer

    @contextlib.contextmanager
    def marked_timer(name, *args, **kwargs):
        with stage(f"verl.{name}"), timed(name, *args, **kwargs):
            yield

    profiling.marked_timer = marked_timer


def watch_slime(timing):
    """Called when slime.observability.timer was imported: phases begin and end by name (`slime.actor_train`)."""
    begin, end = _marks()
    started, ended, running = timing.Timer.start, timing.Timer.end, {}

    def start(self, name):
        started(self, name)  # raises if it is running
        running[name] = begin(f"slime.{name}")

    def stop(self, name):
        try:
            return ended(self, name)
        finally:
            end(running.pop(name, 0))

    timing.Timer.start, timing.Timer.end = start, stop


def watch_openrlhf(module):
    """Called when a module of openrlhf.trainer was imported (`openrlhf.generation`). Such a module also has classes of other modules."""
    for name, phases in _OPENRLHF.items():
        owner = getattr(module, name, None)
        for method, phase in phases.items() if getattr(owner, "__module__", None) == module.__name__ else ():
            _call_in_stage(owner, method, f"openrlhf.{phase}")


def _call_in_stage(owner, method, name):
    stage, called = _stages(), getattr(owner, method)

    @functools.wraps(called)
    def call(*args, **kwargs):
        with stage(name):
            return called(*args, **kwargs)

    setattr(owner, method, call)


def _stages():
    """Returns a function that makes a stage with a name, for as long as its context is open."""
    begin, end = _marks()

    @contextlib.contextmanager
    def stage(name):
        number = begin(name)
        try:
            yield
        finally:
            end(number)

    return stage


def _marks():
    """Returns two functions: one begins a range and returns its number, one ends the range with a number. 0: not a stage."""
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


def _follow(ranges, name_of=lambda each: each.name):
    """Follows a class of context managers, including asynchronous ones."""
    for begins, ends in ("__enter__", "__exit__"), ("__aenter__", "__aexit__"):
        if hasattr(ranges, begins):
            _follow_way(ranges, begins, ends, name_of)


def _follow_way(ranges, begins, ends, name_of):
    begin, end = _marks()
    entered, left = getattr(ranges, begins), getattr(ranges, ends)

    def enter(self):
        self._reveille_stage = begin(name_of(self))
        return entered(self)

    def leave(self, *error):
        try:
            return left(self, *error)
        finally:
            stage, self._reveille_stage = getattr(self, "_reveille_stage", 0), 0
            end(stage)

    setattr(ranges, begins, enter)
    setattr(ranges, ends, leave)
