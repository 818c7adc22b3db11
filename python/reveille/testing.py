# SPDX-License-Identifier: MIT
"""pytest plugin: the fixture ``reveille_sim``, a simulated GPU, with assertions on memory peaks.

pytest finds it by itself once the package is installed. What is simulated is said by a marker::

    @pytest.mark.reveille_sim(devices="80GiB")
    def test_step(reveille_sim):
        reveille_sim.stage("rollout")
        run_one_step(reveille_sim)
        reveille_sim.assert_peak("rollout", at_most="72GiB")

or by parameters, with ``indirect``::

    @pytest.mark.parametrize("reveille_sim", ["h100-80g", "h200"], indirect=True)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ._context import Context
from ._results import StageStats
from ._sizes import Size, format_size, parse_size
from .errors import InvalidArgument, NotFound

MARKER = "reveille_sim"


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
        """Highest use in a stage in bytes; with the name of the mark, over all its stages."""
        return self._worst(stage, device).peak_bytes

    def assert_peak(self, stage: str, at_most: Size, device: int = 0) -> None:
        """Fails, and lists who held the memory, if a stage's peak is higher than at_most.

        Args:
            stage: "rollout#2" for one of several, "rollout" for all that were marked so
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


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*devices, **options): options of the simulated GPU, those of reveille.Context",
    )
