# SPDX-License-Identifier: MIT
"""pytest plugin: the fixture ``reveille_sim``, a simulated GPU, with assertions on memory peaks.

pytest finds it by itself once the package is installed. A marker describes the simulated GPU::

    @pytest.mark.reveille_sim(devices="80GiB")
    def test_step(reveille_sim):
        reveille_sim.stage("rollout")
        run_one_step(reveille_sim)
        reveille_sim.assert_peak("rollout", at_most="72GiB")

You can also use parameters with ``indirect``::

    @pytest.mark.parametrize("reveille_sim", ["h100-80g", "h200"], indirect=True)

A second marker runs a test as a separate program on simulated GPUs, as `reveille run` does::

    @pytest.mark.reveille_run(device="h200", gpus=2, budgets={"run": "60GiB"})
    def test_training_step():
        train(steps=1)  # with CUDA, in PyTorch for example
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ._context import Context
from ._results import StageStats
from ._simulated import MACHINE_VARIABLE, ProgramFailed, SimulatedRun, simulated
from ._sizes import Size, format_size, parse_size
from .errors import InvalidArgument, NotFound

MARKER = "reveille_sim"
RUN_MARKER = "reveille_run"


class SimulatedGPU(Context):
    """A Context on simulated devices, by default one h200 of accounted memory."""

    def __init__(self, **options: Any) -> None:
        if options.pop("backend", "sim") != "sim":
            raise InvalidArgument("reveille_sim simulates: leave the backend out")
        options.setdefault("memory", "accounted")
        super().__init__("sim", **options)

    def _worst(self, stage: str, device: int) -> StageStats:
        stages = [each for each in self.stats().stages if each.device == device]
        found = [each for each in stages if stage in (each.name, each.mark)]
        if not found:
            names = ", ".join(each.name for each in stages) or "none yet"
            raise NotFound(f'no stage "{stage}" on device {device}; there are: {names}')
        return max(found, key=lambda each: each.peak_bytes)

    def peak(self, stage: str, device: int = 0) -> int:
        """The peak of a stage in bytes; with the name of a mark, the highest of all its stages."""
        return self._worst(stage, device).peak_bytes

    def assert_peak(self, stage: str, at_most: Size, device: int = 0) -> None:
        """Fails and lists the holders if a stage's peak is above at_most.

        Args:
            stage: "rollout#2" for one of several, "rollout" for all stages with that mark
            at_most: bytes, or text such as "72GiB"
            device: number of the device
        """
        __tracebackhide__ = True
        worst, bound = self._worst(stage, device), parse_size(at_most)
        if worst.peak_bytes <= bound:
            return
        holders = "\n".join(f"  {holder}" for holder in self.holders(worst.name, device))
        raise AssertionError(
            f"stage {worst.name} reached {format_size(worst.peak_bytes)} on device {device}, "
            f"{format_size(worst.peak_bytes - bound)} above {format_size(bound)}; at its peak:\n"
            f"{holders}"
        )


def _given(request: pytest.FixtureRequest) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):  # the closest one wins
        if marker.args:
            options["devices"] = marker.args[0] if len(marker.args) == 1 else list(marker.args)
        options.update(marker.kwargs)
    parameter = getattr(request, "param", None)
    if parameter is not None:
        options.update(parameter if isinstance(parameter, dict) else {"devices": parameter})
    return options


@pytest.fixture
def reveille_sim(request: pytest.FixtureRequest) -> Iterator[SimulatedGPU]:
    """A simulated GPU for one test; its options come from the marker or from parameters."""
    with SimulatedGPU(**_given(request)) as gpu:
        yield gpu


# ---- Tests in a separate program ----


def _check_budgets(run: SimulatedRun) -> None:
    over = [stage for stage in run.stages if stage.over_budget]
    if not over:
        return
    lines = []
    for stage in over:
        peak = format_size(stage.peak_bytes)
        lines.append(f"stage {stage.name} reached {peak} on device {stage.device}; at its peak:")
        lines += [f"  {holder}" for holder in stage.holders]
    pytest.fail("over the budget:\n" + "\n".join(lines), pytrace=False)


# Runs the remaining arguments as a command, with its output in a file.
_SAYING = (
    "import subprocess as s, sys; "
    "sys.exit(s.call(sys.argv[2:], stdout=open(sys.argv[1], 'w'), stderr=s.STDOUT))"
)


def _run_there(item: pytest.Function, options: dict[str, Any]) -> None:
    """Runs only this test, in a separate pytest. The report shows whether it was skipped."""
    __tracebackhide__ = True
    config, name = item.config, item.nodeid.partition("::")[2]
    with tempfile.TemporaryDirectory(prefix="reveille-") as folder:
        report, said = Path(folder, "report.xml"), Path(folder, "said")
        words = ["-m", "pytest", "-p", "reveille.testing", "-p", "no:cacheprovider", "-q"]
        words += [f"--junitxml={report}", f"--rootdir={config.rootpath}"]
        if config.inipath is not None:
            words += ["-c", str(config.inipath)]
        words = ["-c", _SAYING, str(said), sys.executable, *words, f"{item.path}::{name}"]
        try:
            run = simulated(**options).run(sys.executable, *words)
        except ProgramFailed as error:
            text = said.read_text(errors="replace") if said.exists() else "it did not begin"
            pytest.fail(f"on simulated GPUs:\n{text}\n{error.verdict}", pytrace=False)
        for skipped in ElementTree.parse(report).iter("skipped"):
            pytest.skip(skipped.get("message") or "skipped on simulated GPUs")
    item.add_report_section("call", "verdict", f"{run.verdict}\n")
    _check_budgets(run)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Makes tests with the marker run on simulated GPUs, and get their fixtures there."""
    for item in items:
        marker = item.get_closest_marker(RUN_MARKER)
        here = os.environ.get(MACHINE_VARIABLE) or not isinstance(item, pytest.Function)
        if marker is None or here:
            continue
        if marker.args:
            raise pytest.UsageError(f"{item.nodeid}: {RUN_MARKER} takes names: device='h200'")
        item.fixturenames[:] = []
        item.runtest = _there(item, marker.kwargs)  # type: ignore[method-assign]


def _there(item: pytest.Function, options: dict[str, Any]) -> Any:
    return lambda: _run_there(item, options)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*devices, **options): options of the simulated GPU, those of reveille.Context",
    )
    config.addinivalue_line(
        "markers",
        f"{RUN_MARKER}(**options): run the test in a program of its own on simulated GPUs; "
        "options: those of reveille.simulated",
    )
