# SPDX-License-Identifier: MIT
"""Memory peaks as tests: with the package installed, pytest finds the fixture by itself."""

from pathlib import Path

import pytest

import reveille

TRACE = Path(__file__).parents[2] / "traces" / "qwen2.5-7b-fsdp8-v3.rvt"


def wake(gpu, weights, cache):
    """The code under test: an engine that wakes in stages."""
    gpu.stage("update")
    gpu.alloc(weights, "weights")
    gpu.stage("rollout")
    gpu.alloc(cache, "kv_cache")


@pytest.mark.reveille_sim(devices="h100-80g")
def test_wakes_within_the_device(reveille_sim):
    wake(reveille_sim, weights="16GiB", cache="50GiB")
    reveille_sim.assert_peak("update", at_most="16GiB")
    reveille_sim.assert_peak("rollout", at_most="66GiB")


def test_recorded_step_stays_within_its_budget():
    result = reveille.replay(TRACE, budgets={"train": "60GiB", "rollout": "110GiB"})
    assert result.devices[0].fits
    assert result.devices[0].within_budgets
