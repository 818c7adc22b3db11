# SPDX-License-Identifier: MIT
"""Steps of models and plans from Python: the same numbers as the commands print, and refusals."""

import json
import subprocess

import pytest
import reveille
from conftest import SOURCE
from reveille._command import PROGRAM

CONFIG = SOURCE / "tests/data/configs/qwen2.5-7b.json"
TRACE = SOURCE / "traces/qwen2.5-7b-fsdp8-v3.rvt"
GIB = 1 << 30


@pytest.fixture
def command():
    """What the package's command prints."""
    if not PROGRAM.exists():
        pytest.skip("the package has no command")

    def run(*words):
        return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout

    return run


def test_settings_are_those_of_the_command(command):
    settings = {each.name: each for each in reveille.settings()}
    assert settings["tp"] == reveille.Setting(
        "tp", "Engine", "N", "a whole number from 1 to 4096", "1", "tensor parallel"
    )
    assert settings["recompute"].values is None
    shown = command("model", "--help")
    for name in settings:
        assert f"--{name}" in shown, name


def test_a_step_is_that_of_the_command(command, tmp_path):
    settings = {"tp": 2, "train": "fsdp:8", "recompute": True, "mem_fraction": 0.8}
    step = reveille.model(
        CONFIG, device="h100-80g", given={"cuda_graph": "2.5GiB"}, output=tmp_path / "a.rvt", **settings
    )
    words = "--device h100-80g --given cuda_graph=2.5GiB --tp 2 --train fsdp:8 --recompute --mem-fraction 0.8"
    command("model", CONFIG, "-o", tmp_path / "b.rvt", *words.split())
    made, commanded = ((tmp_path / name).read_text().splitlines() for name in ("a.rvt", "b.rvt"))
    assert [line for line in made if line[0] != "#"] == [line for line in commanded if line[0] != "#"]
    replayed = json.loads(command("replay", "--json", tmp_path / "b.rvt"))
    assert json.loads(step.replay.json)["devices"][0]["stages"] == replayed["devices"][0]["stages"]
    assert (step.type, step.parameter_count, step.fits) == ("qwen2", 7615616512, True)
    assert step.term("cuda_graph") == reveille.Term("cuda_graph", 5 * GIB // 2, 1, "none")
    assert step.term("trainer_context").doubt == "assumed"
    assert step.term("engine_nccl") == reveille.Term("engine_nccl", 0, 0, "left out")
    assert step.term("dequantised").bytes == 0
    assert step.token_count > 0


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        ({"tp": 0}, "tp", "tp: expected a whole number from 1 to 4096"),
        ({"recompute": True}, "recompute", "recompute: changes nothing with 'train' none"),
        ({"micro_batch": 2}, "micro-batch", "micro-batch: changes nothing with 'train' none"),
        ({"tp": 8}, "num_attention_heads", "num_attention_heads: 28 does not divide by tp = 8"),
        ({"train": "ddp", "lora": 8, "adapter_dtype": "fp8"}, "adapter-dtype", "expected fp32 or bf16"),
        ({"given": {"cache": 1}}, "", "given: no such term: 'cache'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, key, message):
    with pytest.raises(reveille.InvalidArgument, match=message) as caught:
        reveille.model(CONFIG, **settings)
    assert caught.value.key == key


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(reveille.NotFound, match="tpp: no such setting of a step"):
        reveille.model(CONFIG, tpp=2)
    with pytest.raises(reveille.InputOutputError):
        reveille.model(tmp_path / "none.json")
    with pytest.raises(reveille.InputOutputError):
        reveille.plan(tmp_path / "none.rvt")
    with pytest.raises(reveille.InvalidArgument, match="tag: nothing is allocated under the tag kv; there are"):
        reveille.plan(TRACE, "kv")
    with pytest.raises(reveille.InvalidArgument, match="num_attention_heads"):
        reveille.plan_model(CONFIG, tp=8)


def test_a_step_that_does_not_fit_is_no_error():
    step = reveille.model(CONFIG, device="16GiB", given={"kv_cache": "9GiB"})
    assert (step.fits, step.replay.verdict.kind) == (False, "out of memory")


def test_plans_are_those_of_the_command(command):
    found = reveille.plan(TRACE, "kv_cache", device="h100-80g", headroom="5%")
    said = json.loads(command("plan", TRACE, "--max", "kv_cache", "--device", "h100-80g", "--headroom", "5%", "--json"))
    assert found.fits
    assert (found.largest_bytes, found.traced_bytes) == (said["largest_bytes"], said["traced_bytes"])
    assert (found.stage, found.peak_bytes) == (said["binding"]["stage"], said["binding"]["peak_bytes"])
    found = reveille.plan_model(CONFIG, "kv_cache", tp=2, train="fsdp:8")
    words = ("--model", CONFIG, "--max", "kv_cache", "--tp", "2", "--train", "fsdp:8", "--json")
    said = json.loads(command("plan", *words))
    assert (found.largest_bytes, found.mem_fraction) == (said["largest_bytes"], said["mem_fraction"])
    assert found.gpu_count == 8


def test_plans_say_what_does_not_fit():
    found = reveille.plan(TRACE, device="16GiB")
    assert (found.state, found.fits, found.mem_fraction) == ("does not fit", False, None)
    assert found.peak_bytes > found.capacity_bytes
    found = reveille.plan_model(CONFIG, device="l4", headroom=0, given={"kv_cache": "1GiB"})
    assert found.state in ("fits", "does not fit")
    small = reveille.plan_model(CONFIG, device="8GiB")
    assert small.state == "does not fit"
    assert "no room for a KV cache" in small.why
