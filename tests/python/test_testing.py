# SPDX-License-Identifier: MIT
"""The pytest plugin, in use and from outside."""

import pytest
import reveille

pytest_plugins = ["pytester"]

GIB = 1 << 30


def test_default_is_one_h200_of_numbers(reveille_sim):
    assert [device.name for device in reveille_sim.devices] == ["h200"]
    reveille_sim.alloc("139GiB")


@pytest.mark.reveille_sim("24GiB", "48GiB", overcommit=True, process_name="engine")
def test_marker_says_what_is_simulated(reveille_sim):
    assert [device.capacity_bytes for device in reveille_sim.devices] == [24 * GIB, 48 * GIB]
    reveille_sim.stage("rollout")
    reveille_sim.alloc("30GiB", "kv_cache")
    reveille_sim.alloc("7GiB", device=1)
    assert (reveille_sim.peak("rollout"), reveille_sim.peak("rollout", 1)) == (30 * GIB, 7 * GIB)
    assert str(reveille_sim.holders("rollout")[0]) == "engine/kv_cache 30.0 GiB"


@pytest.mark.parametrize(
    "reveille_sim", ["h100-80g", {"devices": "h200", "overcommit": True}], indirect=True
)
def test_parameters_say_it_too(reveille_sim):
    names = {"h100-80g": False, "h200": True}
    assert names[reveille_sim.devices[0].name] == reveille_sim.devices[0].overcommit


@pytest.mark.reveille_sim(devices="80GiB")
class TestMarkerOfAClass:
    def test_counts(self, reveille_sim):
        assert reveille_sim.devices[0].capacity_bytes == 80 * GIB

    @pytest.mark.reveille_sim(devices="8GiB")
    def test_is_overridden_by_the_closer_one(self, reveille_sim):
        assert reveille_sim.devices[0].capacity_bytes == 8 * GIB


def test_assert_peak(reveille_sim):
    reveille_sim.stage("rollout")
    weights = reveille_sim.alloc("10GiB", "weights")
    reveille_sim.stage("training")
    reveille_sim.stage("rollout")
    reveille_sim.external("nccl", "1GiB")
    reveille_sim.assert_peak("rollout", at_most=11 * GIB)
    reveille_sim.assert_peak("training", at_most="10GiB")
    with pytest.raises(AssertionError) as caught:
        reveille_sim.assert_peak("rollout", at_most="10GiB")
    assert str(caught.value) == (
        "stage rollout#2 reached 11.0 GiB on device 0, 1.0 GiB above 10.0 GiB; at its peak:\n"
        "  self/weights 10.0 GiB\n"
        "  external/nccl 1.0 GiB"
    )
    reveille_sim.free(weights)


def test_unknown_stage_and_backend(reveille_sim):
    with pytest.raises(reveille.NotFound, match='no stage "lunch" on device 0; there are: none'):
        reveille_sim.assert_peak("lunch", at_most=1)
    with pytest.raises(reveille.InvalidArgument, match="leave the backend out"):
        reveille.testing.SimulatedGPU(backend="cuda")


@pytest.mark.parametrize("how", ["conftest", "option", "variable"])
def test_the_plugin_may_be_named_too(pytester, monkeypatch, how):
    """pytest has it already, by its entry point, if the package is installed."""
    pytester.makepyfile("def test_it(reveille_sim): reveille_sim.alloc('1GiB')")
    options = ["-p", "reveille.testing"] if how == "option" else []
    if how == "conftest":
        pytester.makeconftest("pytest_plugins = ['reveille.testing']")
    if how == "variable":
        monkeypatch.setenv("PYTEST_PLUGINS", "reveille.testing")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)


def test_a_failure_shows_the_holders(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.reveille_sim(devices="80GiB")
        def test_step(reveille_sim):
            reveille_sim.stage("rollout")
            reveille_sim.alloc("70GiB", "kv_cache")
            reveille_sim.assert_peak("rollout", at_most="64GiB")

        @pytest.mark.reveille_sim(devices="h9000")
        def test_unknown(reveille_sim):
            pass
        """
    )
    result = pytester.runpytest("--strict-markers")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*stage rollout reached 70.0 GiB on device 0, 6.0 GiB above 64.0 GiB; at its peak:*",
         "*self/kv_cache 70.0 GiB*"]
    )  # fmt: skip
    assert "def assert_peak" not in result.stdout.str()
    pytester.runpytest("--markers").stdout.fnmatch_lines(["*reveille_sim(?devices, ??options)*"])
