# SPDX-License-Identifier: MIT
"""Programs on simulated GPUs: `reveille run` in Python."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any, Callable, Union

from . import _command
from ._replay import headroom_of, replay
from ._results import Replay, ReplayStage, Verdict
from ._sizes import Size, parse_size
from .errors import InvalidArgument, InvalidState, NotFound

MACHINE_VARIABLE = "REVEILLE_MACHINE"  # set in programs that run on a machine
Program = Union[str, "os.PathLike[str]", Callable[..., Any]]
_OVER_BUDGET = 3
# `reveille run` prints its table to the program's stdout, so the program gets another stdout.
_TO_STDOUT = (
    "import os, sys; os.dup2(int(sys.argv[1]), 1); os.close(int(sys.argv[1])); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True)
class SimulatedRun:
    """The result of a program on simulated GPUs. value: the value that a function returned."""

    value: Any
    replay: Replay

    @property
    def verdict(self) -> Verdict:
        """Whether it fits: the last line of `reveille run`."""
        return self.replay.verdict

    @property
    def stages(self) -> tuple[ReplayStage, ...]:
        """The stages of all devices, in order."""
        return tuple(stage for device in self.replay.devices for stage in device.stages)

    def stage(self, name: str, device: int = 0) -> ReplayStage:
        """The first stage of this name on a device."""
        return self.replay.devices[device].stage(name)


class ProgramFailed(subprocess.CalledProcessError):
    """The program has failed. verdict: the verdict of `reveille run`, such as out of memory."""

    def __init__(self, status: int, words: list[str], verdict: Verdict) -> None:
        super().__init__(status, words)
        self.verdict = verdict

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.verdict}"


def find_command() -> str:
    """The command in the package, or the one in PATH."""
    found = str(_command.PROGRAM) if _command.PROGRAM.exists() else shutil.which("reveille")
    if found is None:
        raise NotFound("there is no command `reveille`: install the package, or add it to PATH")
    return found


class SimulatedGPUs:
    """Simulated GPUs to run programs on; each run gets new ones. See simulated()."""

    def __init__(
        self,
        options: list[str],
        budgets: Mapping[str, Size],
        headroom: Size | None,
        timeout: float | None,
    ):
        self._options, self._budgets, self._timeout = options, budgets, timeout
        self._headroom = headroom

    def run(self, program: Program, *args: Any, **kwargs: Any) -> SimulatedRun:
        """Runs a function, a script or a command there, and waits for its end.

        A function is called in a new Python process, which imports its module. The function, its
        arguments and its result must be picklable. Its exceptions are raised here. A name that ends
        with .py is a script; any other name is a command. Both take positional arguments only.

        Raises:
            ProgramFailed, a subprocess.CalledProcessError: the program has failed; verdict says
                whether memory was the cause
            subprocess.TimeoutExpired
            InvalidArgument: there are no such GPUs, or the command is not found (stderr says why)
            InvalidState: this process is itself on simulated GPUs
        """
        if os.environ.get(MACHINE_VARIABLE):
            raise InvalidState("this process is on simulated GPUs already")
        with tempfile.TemporaryDirectory(prefix="reveille-") as folder:
            if callable(program):
                return self._call(Path(folder), program, args, kwargs)
            if kwargs:
                raise InvalidArgument("a script or a command takes words, and no names")
            words = [os.fspath(program), *map(str, args)]
            if words[0].endswith(".py"):
                words.insert(0, sys.executable)
            return SimulatedRun(None, self._start(Path(folder), words))

    def _call(self, folder: Path, function: Any, args: Any, kwargs: Any) -> SimulatedRun:
        given, answer = folder / "given", folder / "answer"
        prepared = spawn.get_preparation_data("reveille")
        for each in ("authkey", "start_method", "log_to_stderr", "log_level", "name"):
            prepared.pop(each, None)
        given.write_bytes(pickle.dumps(prepared) + pickle.dumps((function, args, kwargs)))
        words = [sys.executable, "-m", "reveille._simulated_call", str(given), str(answer)]
        try:
            replayed = self._start(folder, words)
        except subprocess.CalledProcessError:
            if answer.exists():
                raise pickle.loads(answer.read_bytes())[1] from None
            raise
        return SimulatedRun(pickle.loads(answer.read_bytes())[1], replayed)

    def _start(self, folder: Path, words: list[str]) -> Replay:
        """Runs the program with this process's stdout. The table of `reveille run` is discarded."""
        if shutil.which(words[0]) is None:
            raise InvalidArgument(f"{words[0]} is not found")
        trace, out = folder / "run.rvt", os.dup(1)
        through = [sys.executable, "-c", _TO_STDOUT, str(out)]
        options = [*self._options, "--no-gpu-ok", "-o", str(trace)]
        command = [find_command(), "run", *options, "--", *through, *words]
        try:
            done = subprocess.run(
                command, stdout=subprocess.DEVNULL, pass_fds=(out,), timeout=self._timeout
            )
        finally:
            os.close(out)
        if not trace.exists():
            raise InvalidArgument("`reveille run` has refused these GPUs: see stderr")
        replayed = replay(trace, budgets=self._budgets, headroom=self._headroom)
        over = done.returncode == _OVER_BUDGET and not replayed.within_budgets
        if done.returncode != 0 and not over:
            raise ProgramFailed(done.returncode, words, replayed.verdict)
        return replayed


def simulated(
    device: Size = "h200",
    gpus: int = 1,
    *,
    host_memory: Size | None = None,
    keep_contents: Size | None = None,
    stages: str | None = None,
    stages_nvtx: str | None = None,
    budgets: Mapping[str, Size] | None = None,
    headroom: Size | None = None,
    timeout: float | None = None,
) -> SimulatedGPUs:
    """Simulated GPUs for programs that use CUDA: `reveille run` in Python.

    Args:
        device: a profile ("h200") or a size ("80GiB")
        gpus: the number of GPUs
        host_memory: how much host memory all processes together may use: pinned, registered, and
            large tensors of PyTorch; None: no limit
        keep_contents: the largest copy to a GPU that keeps its content; None: 1 MiB
        stages: NVTX and torch.profiler.record_function ranges with this prefix are stages;
            None: one stage, "run", beside those of reveille.stage()
        stages_nvtx: the older name of stages
        budgets: upper bounds on the peaks of stages; the result says whether they were kept
        headroom: the memory that should stay free on each device: a part ("5%"), a size or 0. With
            less, the verdict is "tight"; None: 3 %
        timeout: seconds that a run may take
    """
    headroom_of(headroom)  # so that a wrong value raises before a run
    options = ["--device", str(device), "--gpus", str(gpus)]
    for name, size in (("--host-memory", host_memory), ("--keep-contents", keep_contents)):
        if size is not None:
            bytes_ = parse_size(size)
            options += [name, f"{bytes_}B" if bytes_ else "0"]
    if stages is not None and stages_nvtx is not None:
        raise InvalidArgument("stages_nvtx is the older name of stages: leave it out")
    prefix = stages if stages is not None else stages_nvtx
    if prefix is not None:
        options += ["--stages", prefix]
    return SimulatedGPUs(options, budgets or {}, headroom, timeout)
