# SPDX-License-Identifier: MIT
"""Which public names of the package a run has used. One that was never used fails the run."""

import dataclasses
import functools
import inspect
import threading

import reveille
from reveille import errors

TORCH = {"region", "cuda_graph", "disable", "pause", "resume", "fits", "backup_of", "stage", "step",
         "ready", "record", "stats", "wait", "contexts", "sleep", "wake", "asleep", "set_disk_directory", "hook_mode", "configure_subprocess",
         "HookContext", "HookStats"}  # fmt: skip

# They start programs by the command, which is not here: tests/python/test_simulated.py.
COMMAND = {"simulated", "SimulatedGPUs", "SimulatedRun", "ProgramFailed"}


class Names:
    """Counts calls of functions and methods, and the classes of what they answer."""

    def __init__(self):
        self._lock = threading.Lock()
        self.calls = 0
        self.used = set()
        self.wanted = set(reveille.__all__) - COMMAND
        for name in reveille.__all__:
            value = getattr(reveille, name)
            if inspect.isfunction(value):
                setattr(reveille, name, self._counted(value, name))
        for name, value in list(vars(reveille.Context).items()):
            if not name.startswith("_"):
                self.wanted.add(f"Context.{name}")
                self._count_member(name, value)

    def _count_member(self, name, value):
        if isinstance(value, property):
            counted = property(self._counted(value.fget, f"Context.{name}"), doc=value.__doc__)
        else:
            counted = self._counted(value, f"Context.{name}")
        setattr(reveille.Context, name, counted)

    def _counted(self, function, name):
        @functools.wraps(function)
        def call(*arguments, **named):
            self.calls += 1  # of several threads: about as many
            self.used.add(name)
            try:
                answer = function(*arguments, **named)
            except reveille.ReveilleError as error:
                self.saw(error)
                raise
            self.saw(answer)
            return answer

        return call

    def saw(self, value):
        """Takes note of the class, and of those within."""
        kind = type(value)
        if getattr(reveille, kind.__name__, None) is kind:
            self.used.add(kind.__name__)
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                self.saw(getattr(value, field.name))
        elif isinstance(value, (tuple, list)):
            for each in value[:4]:
                self.saw(each)
        elif isinstance(value, dict):
            for each in list(value.values())[:4]:
                self.saw(each)

    def make_errors(self):
        """Every class of a status, also of those that no simulated device answers, and what needs other processes."""
        self.used.update(("Context", "Exchange", "Job", "ReveilleError"))
        self.saw(reveille.Transfer(4096, 4096, "sim:0", peer=1, sending=True))
        self.saw(reveille.JobAborted("why", rank=1))
        self.saw(reveille.StoreMetrics("no owner of a store is started", False, *[0] * 8))
        for status, kind in errors.BY_STATUS.items():
            error = errors.error_of(status, "why")
            assert type(error) is kind and error.status == status, error
            assert error.status_name.startswith("RVL_ERR_"), error.status_name
            self.saw(error)

    def missing(self, with_torch):
        """Names that were never used, sorted."""
        wanted = self.wanted if with_torch else self.wanted - TORCH
        return sorted(wanted - self.used)
