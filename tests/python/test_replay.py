# SPDX-License-Identifier: MIT
"""Replay from Python against the golden results of the traces, and broken traces."""

import json

import pytest
import reveille

GIB = 1 << 30

HEADER = """reveille-trace 1.0
clock boot=- mono_ns=0 wall_ns=0
device 0 profile=h200 capacity_bytes=150109880320 granularity_bytes=2097152
process engine pid=0
"""


def golden_trace(source):
    return source / "traces" / "qwen2.5-32b-tp2-h200.rvt"


def test_the_verdict_of_a_program_that_died(tmp_path):
    trace = tmp_path / "run.rvt"
    head = HEADER.replace("trace 1.0", "trace 1.2").replace("pid=0", "pid=7 refusals=yes")
    events = (
        "stage 1 engine 0 train\nalloc 2 engine 0 1 0 2097152 weights\n"
        "refuse 3 engine 0 0 4194304 2097152 kv at=train.py:23\n"
    )
    trace.write_text(head + events + "ended 4 engine 0 exit=1\nend 4\n")
    verdict = reveille.replay(trace).verdict
    assert (verdict.kind, verdict.refused_count) == ("out of memory", 1)
    assert (verdict.stage, verdict.where, verdict.requested_bytes) == ("train", "train.py:23", 4194304)
    assert str(verdict) == (
        "out of memory: engine/kv asked for 4.0 MiB of device 0 with 2.0 MiB free, in train, at "
        "train.py:23; the command failed with exit status 1"
    )
    assert not reveille.replay(trace).fits
    trace.write_text(head + events + "ended 4 engine 0 exit=0\nend 4\n")
    result = reveille.replay(trace)
    assert (result.verdict.kind, result.fits) == ("survived refusals", True)
    assert "2.0 MiB free, in train, at train.py:23" in str(result.verdict)


def test_replay_tells_every_stage(source):
    result = reveille.replay(golden_trace(source))
    device = result.devices[0]
    assert (result.fits, result.within_budgets, result.skipped_events) == (True, True, 0)
    assert (device.profile, device.peak_stage, device.oom) == ("h200", "kv_cache_awake", None)
    assert [stage.name for stage in device.stages] == [
        "asleep",
        "weights_awake",
        "training_copy_loaded",
        "training_copy_freed",
        "kv_cache_awake",
    ]
    golden = json.loads(result.json)["devices"][0]
    for stage, expected in zip(device.stages, golden["stages"]):
        for key in ("peak_bytes", "end_bytes", "free_at_peak_bytes"):
            assert getattr(stage, key) == expected[key]
        assert sum(holder.bytes for holder in stage.holders) == stage.peak_bytes
    assert str(device.stages[0].holders[0]) == "external/asleep 5.8 GiB"
    assert device.stage("weights_awake").measured_peak_bytes is None
    with pytest.raises(KeyError, match="no stage 'lunch'; there are asleep, "):
        device.stage("lunch")


def test_wake_together_does_not_fit(source):
    result = reveille.replay(golden_trace(source), wake="together")
    device = result.devices[0]
    assert not result.fits
    assert reveille.format_size(device.peak_bytes) == "192.7 GiB"
    assert device.oom.file == str(golden_trace(source))
    assert device.oom.line > 0
    assert device.oom.stage in [stage.name for stage in device.stages]
    assert device.oom.requested_bytes > device.oom.free_bytes


def test_device_and_budgets(source):
    path = golden_trace(source)
    budgets = {"asleep": "5GiB", "weights_awake": 100 * GIB}
    result = reveille.replay([path], device="80GiB", budgets=budgets)
    device = result.devices[0]
    assert (device.profile, device.capacity_bytes) == (None, 80 * GIB)
    assert (result.fits, result.within_budgets) == (False, False)
    assert [s.name for s in device.stages if s.over_budget] == ["asleep"]
    assert reveille.replay(path, device=200 * GIB).devices[0].capacity_bytes == 200 * GIB


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wake": "late"}, "wake must be one of staged, together, not 'late'"),
        ({"budgets": {"lunch": 1}}, "lunch"),
        ({"budgets": {"asleep": -1}}, "from 0 to"),
        ({"device": "1 parsec"}, "parsec|profile"),
        ({"conductor": "nobody"}, "nobody"),
        ({"conductor": "a\0"}, "NUL"),
    ],
)
def test_bad_options(source, options, message):
    with pytest.raises((reveille.InvalidArgument, reveille.NotFound), match=message):
        reveille.replay(golden_trace(source), **options)


def test_no_file_and_no_files(tmp_path):
    with pytest.raises(reveille.InputOutputError) as caught:
        reveille.replay(tmp_path / "missing.rvt")
    assert "missing.rvt" in str(caught.value)
    with pytest.raises(reveille.InvalidArgument):
        reveille.replay([])


def test_readings_beside_the_model(tmp_path):
    path = tmp_path / "read.rvt"
    mib = 1 << 20
    path.write_text(
        HEADER + f"stage 1 engine 0 a\n"
        f"alloc 2 engine 0 1 0 {100 * mib} weights\n"
        f"sample 3 engine 0 0 {400 * mib}\n"
        f"stage 4 engine 0 b\n"
        f"alloc 5 engine 0 2 0 {100 * mib} weights\n"
        f"sample 6 engine 0 0 {100 * mib}\n"
        f"sample 7 engine 0 0 {600 * mib}\n"
        "end 7\n"
    )
    device = reveille.replay(path).devices[0]
    first, second = device.stage("a"), device.stage("b")
    assert (first.read_bytes, first.predicted_bytes) == (None, None)  # its sample is the first
    assert (second.read_bytes, second.predicted_bytes) == (600 * mib, 500 * mib)
    assert (second.measured_peak_bytes, second.measured_end_bytes) == (None, None)


def test_corrupt_trace_tells_the_place(tmp_path):
    path = tmp_path / "broken.rvt"
    path.write_text(HEADER + "alloc 1 engine 0 1 0 minus weights\nend\n")
    with pytest.raises(reveille.CorruptTrace) as caught:
        reveille.replay(path)
    error = caught.value
    assert (error.file, error.line, error.column) == (str(path), 5, 22)
    assert str(error).startswith(f"{path}:5:22: ")
    assert error.status_name == "RVL_ERR_CORRUPT_TRACE"


def test_trace_that_breaks_off(tmp_path):
    path = tmp_path / "cut.rvt"
    path.write_text(HEADER + "alloc 1 engine 0 1 0 2097152 weights\nalloc 2 engi")
    with pytest.raises(reveille.CorruptTrace):
        reveille.replay(path)
    assert reveille.replay(path, partial=True).devices[0].peak_bytes == 2097152


def test_newer_major_version(source):
    with pytest.raises(reveille.VersionMismatch):
        reveille.replay(source / "tests" / "corpus" / "trace" / "newer-major.rvt")


@pytest.mark.parametrize(
    ("paths", "options", "message"),
    [
        (None, {}, "paths must be a trace or several, not None"),
        (5, {}, "paths must be a trace or several, not 5"),
        ([], {}, "paths is empty: name at least one trace"),
        ("x.rvt", {"budgets": ["60GiB"]}, "budgets must be stages and sizes"),
        ("x.rvt", {"budgets": {"train": "60 GiB"}}, '"60 GiB"'),
    ],
)
def test_bad_arguments_are_refused(paths, options, message):
    with pytest.raises(reveille.InvalidArgument, match=message):
        reveille.replay(paths, **options)


def test_a_device_without_a_unit_is_refused(source):
    for device in ("80", 80):
        with pytest.raises(reveille.InvalidArgument, match="write the unit, such as 80GiB"):
            reveille.replay(golden_trace(source), device=device)


def test_a_path_may_be_bytes(source):
    assert reveille.replay(bytes(golden_trace(source))).fits
