# SPDX-License-Identifier: MIT
"""What cannot be copied, and what comes back from callbacks and odd names as it is."""

import copy
import pickle

import pytest
import reveille

MIB = 1 << 20


@pytest.fixture
def gpu():
    with reveille.Context("sim", devices="64MiB", memory="accounted") as context:
        yield context


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused_and_the_original_goes_on(gpu, way):
    gpu.alloc(2 * MIB, "weights")
    wake = gpu.resume("weights", wait=False)
    for each in (gpu, wake, gpu.record("x.rvt")):
        with pytest.raises(TypeError, match=r"a \w+ cannot be (copied|pickled): "):
            way(each)
    wake.wait()
    assert gpu.stats().tags["weights"].active_bytes == 2 * MIB


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_interruption_in_a_callback_is_raised_as_itself(gpu, raised):
    def interrupt(_tag):
        raise raised

    gpu.tag("weights", before_unmap=interrupt)
    gpu.alloc(2 * MIB, "weights")
    with pytest.raises(raised) as caught:
        gpu.pause("weights")
    assert type(caught.value.__cause__) is reveille.Vetoed
    assert gpu.stats().tags["weights"].active_bytes == 2 * MIB  # nothing has changed


def test_an_error_in_a_callback_is_the_cause_of_the_veto(gpu):
    def refuse(_tag):
        raise ValueError("not now")

    gpu.tag("weights", before_unmap=refuse)
    gpu.alloc(2 * MIB, "weights")
    with pytest.raises(reveille.Vetoed) as caught:
        gpu.pause("weights")
    assert str(caught.value.__cause__) == "not now"


def test_text_that_utf8_cannot_hold_is_refused(gpu):
    for call in (
        lambda: gpu.alloc(MIB, "\udcff"),
        lambda: gpu.pause("\udcff"),
        lambda: gpu.stage("\udcff"),
        lambda: gpu.external("\udcff", 1),
        lambda: reveille.pause("\udcff"),
        lambda: reveille.stage("\udcff"),
    ):
        with pytest.raises(reveille.InvalidArgument, match="UTF-8"):
            call()
