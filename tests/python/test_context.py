# SPDX-License-Identifier: MIT
"""Context on simulated devices: what calls do, and what they answer."""

import ctypes
import gc
import math
import json
import pathlib
import pickle
import sys
import traceback
import weakref

import pytest
import reveille
from reveille import _c, _options

MIB, GIB = 1 << 20, 1 << 30
H200 = 150109880320


@pytest.fixture
def gpu():
    with reveille.Context("sim") as context:
        yield context


@pytest.fixture
def small():
    """80 GiB of numbers."""
    with reveille.Context("sim", devices="80GiB", memory="accounted") as context:
        yield context


class Tensor:
    """What the package uses of torch.Tensor."""

    def __init__(self, address, count, size):
        self.address, self.count, self.size = address, count, size

    def data_ptr(self):
        return self.address

    def numel(self):
        return self.count

    def element_size(self):
        return self.size


# ---- Opening and closing ----


def test_default_device_is_an_h200(gpu):
    assert gpu.backend == "sim"
    assert gpu.devices == (
        reveille.Device(
            index=0,
            name="h200",
            capacity_bytes=H200,
            granularity_bytes=2 * MIB,
            simulated=True,
            overcommit=False,
        ),
    )
    assert gpu.memory() == (H200, H200)
    assert gpu.clock_ns == 0
    assert repr(gpu) == "<reveille.Context sim open>"


def test_several_devices_by_name_and_size():
    with reveille.Context(devices=["h100-80g", "24GiB", 8 * GIB], overcommit=True) as gpu:
        assert [device.capacity_bytes for device in gpu.devices[1:]] == [24 * GIB, 8 * GIB]
        assert gpu.devices[0].name == "h100-80g"
        assert all(device.overcommit for device in gpu.devices)


def test_close_counts_what_was_left(gpu):
    gpu.alloc(MIB)
    gpu.alloc(MIB, "weights")
    assert gpu.close() == 2
    assert gpu.closed
    assert gpu.close() == 0
    assert repr(gpu) == "<reveille.Context sim closed>"
    for call in (gpu.memory, gpu.step, gpu.pause, gpu.stats, lambda: gpu.alloc(1)):
        with pytest.raises(reveille.InvalidState, match="closed: open another"):
            call()


def test_last_reference_closes():
    gpu = reveille.Context()
    handle, gone = gpu._handle, weakref.ref(gpu)
    del gpu
    gc.collect()
    assert gone() is None
    assert handle.closed


def test_poison_fills_fresh_memory():
    with reveille.Context(poison=0x5C) as gpu:
        assert ctypes.string_at(gpu.alloc(1), 4) == b"\x5c" * 4


def test_poison_of_a_tag_fills_what_comes_back_without_its_content():
    with reveille.Context() as gpu:
        gpu.tag("engine", poison=True)
        weights, cache = gpu.alloc(8, tag="engine", backup="host"), gpu.alloc(8, tag="engine")
        ctypes.memmove(weights, b"weights!", 8)
        gpu.pause("engine")
        gpu.resume("engine")
        assert ctypes.string_at(weights, 8) == b"weights!"
        assert math.isnan(ctypes.c_double.from_address(cache).value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "paper"}, "memory must be one of backed, accounted, not 'paper'"),
        ({"devices": []}, "devices is empty"),
        ({"devices": True}, "must be a whole number, not True"),
        ({"devices": -1}, "from 0 to"),
        ({"devices": 80.5}, "devices must be one device or several, not 80.5"),
        ({"poison": 1.5}, "poison must be a whole number, not 1.5"),
        ({"poison": 256}, "poison"),
        ({"keep_bytes": "much"}, "size"),
        ({"process_name": "a\0b"}, "must not contain a NUL"),
        ({"backend": "cuda", "poison": 1}, "for backend 'sim' alone"),
        ({"backend": "cuda", "devices": "h200"}, "devices of cuda are numbers, not 'h200'"),
        ({"backend": "cuda", "devices": ()}, "devices is empty"),
        ({"backend": "cuda", "host_keep": "most"}, "host_keep must be one of all, bytes, none"),
        ({"backend": 3}, "backend must be a str, not 3"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(reveille.InvalidArgument, match=message):
        reveille.Context(**options)


def test_unknown_backend_and_device():
    with pytest.raises(reveille.NoBackend) as caught:
        reveille.Context("rocm")
    assert caught.value.status_name == "RVL_ERR_NO_BACKEND"
    with pytest.raises(reveille.NotFound, match='"h9000"'):
        reveille.Context(devices="h9000")


@pytest.mark.parametrize("devices", ["80", 80, 2, [2]])
def test_a_device_without_a_unit_is_refused(devices):
    with pytest.raises(reveille.InvalidArgument, match='write the unit, such as 80GiB: "[82]0?"'):
        reveille.Context(devices=devices)
    with pytest.raises(reveille.InvalidArgument, match="write the unit"):
        reveille.profile("0.5MiB")


def test_a_timeout_of_ages_is_taken():
    with reveille.Context("sim", memory="accounted") as gpu:
        gpu.alloc("1GiB", "weights")
        gpu.pause("weights")
        gpu.resume("weights", timeout=1e300)
        assert gpu.stats().devices[0].used_bytes == GIB


# ---- Allocations ----


def test_allocation_tells_everything(gpu):
    address = gpu.alloc("3MiB", "weights", backup="host")
    found = gpu.allocation(address + 4 * MIB - 1)
    assert found == reveille.Allocation(
        addr=address,
        size_bytes=4 * MIB,
        id=1,
        tag="weights",
        device=0,
        backup="host",
        state="active",
        access=(0,),
        backup_bytes=0,
    )
    gpu.pause("weights")
    assert gpu.allocation(address).state == "paused"
    assert gpu.allocation(address).backup_bytes == 4 * MIB
    gpu.free(address)
    with pytest.raises(reveille.NotFound):
        gpu.allocation(address)


def test_allocations_come_in_order_of_address(small):
    addresses = [small.alloc(GIB), small.alloc(GIB, "b", paused=True), small.alloc(GIB, "a")]
    found = list(small.allocations())
    assert [each.addr for each in found] == sorted(addresses)
    assert {each.tag: each.state for each in found} == {"": "active", "b": "paused", "a": "active"}
    assert small.memory() == (78 * GIB, 80 * GIB)
    assert small.tags == ("b", "a")


def test_access_of_other_devices():
    with reveille.Context(devices=["h200", "h200"]) as gpu:
        address = gpu.alloc(MIB, device=1, access=[0])
        assert gpu.allocation(address).access == (0, 1)
        assert gpu.allocation(address).device == 1
        with pytest.raises(reveille.NoDevice) as caught:
            gpu.alloc(MIB, device=2)
        assert caught.value.device == 2
        assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    "call",
    [
        lambda gpu: gpu.alloc(0),
        lambda gpu: gpu.alloc(-1),
        lambda gpu: gpu.alloc(1 << 64),
        lambda gpu: gpu.alloc(1 << 63),
        lambda gpu: gpu.alloc(1.0),
        lambda gpu: gpu.alloc("1 parsec"),
        lambda gpu: gpu.alloc("1GiB\0"),
        lambda gpu: gpu.alloc(1, 7),
        lambda gpu: gpu.alloc(1, "a\0b"),
        lambda gpu: gpu.alloc(1, "n" * 256),
        lambda gpu: gpu.alloc(1, backup="tape"),
        lambda gpu: gpu.alloc(1, device=1 << 32),
        lambda gpu: gpu.alloc(1, access=[True]),
        lambda gpu: gpu.free(0),
        lambda gpu: gpu.free(-1),
        lambda gpu: gpu.free("here"),
        lambda gpu: gpu.tag("t", block_bytes=1),
        lambda gpu: gpu.tag("t", before_unmap=3),
        lambda gpu: gpu.resume(timeout=-1),
        lambda gpu: gpu.resume(timeout=float("nan")),
        lambda gpu: gpu.resume(timeout="soon"),
        lambda gpu: gpu.stage(""),
        lambda gpu: gpu.stage(None),
        lambda gpu: gpu.external("", 1),
    ],
)
def test_bad_arguments_change_nothing(gpu, call):
    with pytest.raises(ValueError) as caught:
        call(gpu)
    assert isinstance(caught.value, reveille.InvalidArgument)
    assert caught.value.status_name == "RVL_ERR_INVALID"
    assert gpu.memory() == (H200, H200)
    assert list(gpu.allocations()) == []
    assert gpu.tags == ()


def test_double_free(gpu):
    address = gpu.alloc(1)
    gpu.free(Tensor(address, 1, 1))
    with pytest.raises(reveille.InvalidArgument):
        gpu.free(address)


# ---- Pause and resume ----


@pytest.mark.parametrize("backup", ["host", "disk"])
def test_content_comes_back(tmp_path, backup):
    content = bytes(range(256)) * 4096
    with reveille.Context(disk_directory=tmp_path, disk_tmpfs=True) as gpu:
        address = gpu.alloc(len(content), "weights", backup=backup)
        ctypes.memmove(address, content, len(content))
        gpu.pause("weights")
        assert gpu.memory() == (H200, H200)
        gpu.resume("weights")
        assert ctypes.string_at(address, len(content)) == content


def test_resume_without_restore_drops_the_backup(gpu):
    address = gpu.alloc(1, "weights", backup="host")
    ctypes.memmove(address, b"gone", 4)
    gpu.pause("weights")
    gpu.resume("weights", restore=False)
    assert ctypes.string_at(address, 4) == b"\xa5" * 4
    ctypes.memmove(address, b"gone", 4)
    gpu.pause("weights", discard=True)
    gpu.resume("weights")
    assert ctypes.string_at(address, 4) == b"\xa5" * 4


def test_backup_is_read_while_paused(gpu):
    address = gpu.alloc(2 * MIB, "weights", backup="host")
    ctypes.memmove(address, b"0123456789", 10)
    with pytest.raises(reveille.NotFound):
        gpu.backup(address)
    gpu.pause("weights")
    assert gpu.backup(address, 10) == b"0123456789"
    assert gpu.backup(Tensor(address + 2, 2, 4)) == b"23456789"
    assert len(gpu.backup(address)) == 2 * MIB
    assert gpu.backup(address, 0) == b""
    with pytest.raises(reveille.InvalidArgument, match="2097152 bytes are backed up"):
        gpu.backup(address, 2 * MIB + 1)
    with pytest.raises(reveille.InvalidArgument):
        gpu.backup(address, -1)


def test_pause_and_resume_everything(small):
    small.alloc(GIB)
    small.alloc(2 * GIB, "weights")
    small.pause()
    assert small.memory() == (80 * GIB, 80 * GIB)
    small.resume("")  # the untagged ones
    assert small.memory() == (79 * GIB, 80 * GIB)
    small.resume()
    assert small.memory() == (77 * GIB, 80 * GIB)


def test_unknown_tag_names_those_there_are(gpu):
    gpu.alloc(1, "weights")
    for call in (gpu.pause, gpu.resume, gpu.fits, gpu.pause_forecast):
        with pytest.raises(LookupError) as caught:
            call("weights", "wieghts")
        assert isinstance(caught.value, reveille.NotFound)
        assert str(caught.value).startswith('no tag "wieghts"; there are: "weights". A tag begins')
        assert caught.value.tag == "wieghts"
    assert gpu.allocation(next(gpu.allocations()).addr).state == "active"


def test_out_of_memory_has_the_numbers_and_changes_nothing(small):
    small.alloc("60GiB", "kv_cache")
    small.pause("kv_cache")
    small.alloc("40GiB", "training_copy")
    with pytest.raises(MemoryError) as caught:
        small.resume("kv_cache")
    error = caught.value
    assert isinstance(error, reveille.OutOfDeviceMemory)
    assert str(error).startswith('resume of "kv_cache" needs 60.0 GiB, 40.0 GiB free on sim:0')
    assert (error.status, error.status_name) == (-6, "RVL_ERR_DEVICE_OOM")
    assert (error.op, error.tag, error.device) == ("create", "kv_cache", 0)
    assert (error.requested_bytes, error.free_bytes) == (60 * GIB, 40 * GIB)
    assert (error.native_code, error.native_name) == (0, "")
    assert small.memory() == (40 * GIB, 80 * GIB)
    assert error.summary == (
        f"Reveille {reveille.version()}, device 0: 80.0 GiB, 40.0 GiB free; held here: "
        "kv_cache 60.0 GiB paused, training_copy 40.0 GiB"
    )
    shown = "".join(traceback.format_exception(type(error), error, None)).rstrip()
    assert shown.endswith(error.summary)  # by the exception's notes, or, in older Pythons, itself
    with pytest.raises(reveille.TimedOut):
        small.resume("kv_cache", timeout=0.01)
    small.pause("training_copy")
    small.resume("kv_cache")
    assert small.memory() == (20 * GIB, 80 * GIB)


def test_a_summary_is_shown_by_pythons_without_notes(small, monkeypatch):
    monkeypatch.setattr(reveille.errors, "NOTES", False)
    with pytest.raises(reveille.OutOfDeviceMemory) as caught:
        small.alloc("90GiB", "kv_cache")
    message, summary = str(caught.value).split("\n")
    assert message == caught.value.message
    assert summary == caught.value.summary
    assert summary.endswith("80.0 GiB free; nothing is held here")
    with pytest.raises(reveille.InvalidArgument) as caught:
        small.alloc(0, "kv_cache")
    assert (caught.value.summary, str(caught.value)) == ("", caught.value.message)


def test_fits_is_a_dry_run(small):
    small.alloc("60GiB", "kv_cache", backup="host")
    pause = small.pause_forecast("kv_cache")
    assert (pause.fits, pause.needed_bytes, pause.host_bytes) == (True, 60 * GIB, 60 * GIB)
    assert small.pause_forecast("kv_cache", discard=True).host_bytes == 0
    before = small.clock_ns
    small.pause("kv_cache")
    assert small.clock_ns - before == pause.time_ns
    small.alloc("40GiB")
    resume = small.fits("kv_cache")
    assert not resume
    assert resume == reveille.Forecast(
        fits=False,
        device=0,
        needed_bytes=60 * GIB,
        free_bytes=40 * GIB,
        host_bytes=60 * GIB,
        disk_bytes=0,
        allocation_count=1,
        time_ns=resume.time_ns,
    )
    assert resume.time_ns > small.fits("kv_cache", restore=False).time_ns > 0
    assert str(resume).startswith("does not fit: needs 60.0 GiB, 40.0 GiB free on device 0, about ")
    assert small.memory() == (40 * GIB, 80 * GIB)


def test_errors_travel_between_processes(small):
    """Pools of workers pickle them."""
    with pytest.raises(reveille.OutOfDeviceMemory) as caught:
        small.alloc("81GiB", "kv_cache")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is reveille.OutOfDeviceMemory
    assert (str(copy), vars(copy)) == (str(caught.value), vars(caught.value))
    assert (copy.tag, copy.requested_bytes) == ("kv_cache", 81 * GIB)


def test_streams_and_events_of_torch_are_taken():
    class Stream:
        cuda_stream = 0x5EED

    class Event:
        cuda_event = 0xE7E7

    assert list(_options.handles_of([Stream(), 7], "cuda_stream")) == [0x5EED, 7]
    assert list(_options.handles_of([Event()], "cuda_event")) == [0xE7E7]


# ---- Tags and callbacks ----


def test_callbacks_see_each_transition(gpu):
    seen = []
    gpu.tag(
        "weights",
        before_unmap=lambda tag: seen.append(("before", tag, gpu.memory()[0])),
        after_map=lambda tag: seen.append(("after", tag, gpu.memory()[0])),
    )
    gpu.alloc(2 * MIB, "weights")
    gpu.pause("weights")
    gpu.resume("weights")
    assert seen == [("before", "weights", H200 - 2 * MIB), ("after", "weights", H200 - 2 * MIB)]
    gpu.tag("weights")
    gpu.pause("weights")
    assert len(seen) == 2


def test_callback_refuses_the_pause(gpu):
    def refuse(tag):
        raise RuntimeError(f"{tag} is registered")

    gpu.tag("weights", before_unmap=refuse)
    address = gpu.alloc(1, "weights")
    with pytest.raises(reveille.Vetoed) as caught:
        gpu.pause("weights")
    assert repr(caught.value.__cause__) == "RuntimeError('weights is registered')"
    assert gpu.allocation(address).state == "active"


def test_callback_may_only_read(gpu):
    raised = []

    def meddle(_tag):
        for call in (lambda: gpu.alloc(1), gpu.pause, gpu.close):
            try:
                call()
            except reveille.InvalidState as error:
                raised.append(str(error).split(":")[0])

    gpu.tag("weights", before_unmap=meddle)
    gpu.alloc(1, "weights")
    gpu.pause("weights")
    assert raised == ["a callback may only read statistics"] * 3
    assert not gpu.closed


def test_exception_after_map_is_not_lost(gpu, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: unraisable.append(repr(it.exc_value)))

    def fail(_tag):
        raise KeyError("late")

    gpu.tag("weights", after_map=fail)
    address = gpu.alloc(1, "weights")
    gpu.pause("weights")
    gpu.resume("weights")
    assert gpu.allocation(address).state == "active"
    assert unraisable == ["KeyError('late')"]


# ---- Options that reach C ----


def test_small_allocations_share_a_block(small):
    small.tag("weights", coalesce_bytes="64MiB")
    small.alloc("2MiB", "weights")
    small.alloc("2MiB", "weights")
    assert small.memory() == (80 * GIB - 64 * MIB, 80 * GIB)


def test_large_blocks_are_cut():
    lines = []

    def log(_level, text):
        lines.append(text)

    with reveille.Context(memory="accounted", log=log, log_ops=True) as gpu:
        gpu.tag("kv_cache", block_bytes="1GiB")
        gpu.alloc("4GiB", "kv_cache")
    assert sum(line == "sim create: success" for line in lines) == 4


def test_retained_backup_outlives_the_resume(small):
    small.tag("weights", retain_backups=True)
    small.alloc(GIB, "weights", backup="host")
    small.pause("weights")
    small.resume("weights")
    assert small.stats().tags["weights"].host_backup_bytes == GIB


def test_released_blocks_are_kept(gpu):
    with reveille.Context(keep_bytes="4MiB", memory="accounted") as keeping:
        keeping.free(keeping.alloc("2MiB"))
        assert keeping.stats().devices[0].kept_bytes == 2 * MIB
    gpu.free(gpu.alloc("2MiB"))
    assert gpu.stats().devices[0].kept_bytes == 0


@pytest.mark.parametrize(("verify", "digests"), [(True, 2), (False, 0)])
def test_restored_content_is_verified(verify, digests):
    lines = []

    def log(_level, text):
        lines.append(text)

    with reveille.Context(verify=verify, log=log, log_ops=True) as gpu:
        gpu.alloc("4MiB", "weights", backup="host")
        gpu.pause("weights")
        gpu.resume("weights")
    assert sum("digest" in line for line in lines) == digests


def test_damaged_backup_is_found(gpu):
    address = gpu.alloc("4MiB", "weights", backup="host")
    gpu.pause("weights")
    host, size = ctypes.c_void_p(), ctypes.c_uint64()
    gpu._handle.call("rvl_backup_find", address, ctypes.byref(host), ctypes.byref(size))
    ctypes.memset(host.value + 100, 0, 1)
    with pytest.raises(reveille.DigestMismatch) as caught:
        gpu.resume("weights")
    assert caught.value.tag == "weights"
    assert gpu.allocation(address).state == "paused"
    gpu.resume("weights", restore=False)


def test_disk_directory_in_memory_must_be_wanted():
    mounts = pathlib.Path("/proc/mounts").read_text()
    if " /dev/shm tmpfs " not in mounts:
        pytest.skip("/dev/shm is no tmpfs here")
    with pytest.raises(reveille.InvalidArgument):
        reveille.Context(disk_directory="/dev/shm")
    with reveille.Context(disk_directory="/dev/shm", disk_tmpfs=True, memory="accounted") as gpu:
        gpu.alloc(MIB, backup="disk")
    with reveille.Context() as gpu, pytest.raises(reveille.InvalidArgument):
        gpu.alloc(MIB, backup="disk")


def test_log_of_operations():
    lines = []
    with reveille.Context(log=lambda level, text: lines.append((level, text)), log_ops=True) as gpu:
        gpu.alloc(1)
    assert {level for level, _text in lines} == {"debug"}
    assert any("create" in text for _level, text in lines)


# ---- Stages, statistics, recording ----


def test_stats_of_one_moment(small):
    small.alloc(GIB, "weights", backup="host")
    small.step()
    small.stage("rollout")
    small.alloc(2 * GIB, "kv_cache")
    small.external("nccl", 3 * GIB)
    small.stage("training")
    small.external("nccl", 0)
    small.pause()
    stats = small.stats()
    device = stats.devices[0]
    assert (device.index, device.used_bytes, device.peak_bytes) == (0, 0, 6 * GIB)
    assert (device.peak_stage, device.oom) == ("rollout", None)
    assert (device.alloc_calls, device.pauses, device.host_backup_bytes) == (2, 2, GIB)
    assert stats.tags == {
        "weights": reveille.TagStats(0, GIB, GIB, GIB, 1, 1, 0),
        "kv_cache": reveille.TagStats(0, 2 * GIB, 2 * GIB, 0, 1, 1, 0),
    }
    stages = [(s.name, s.step, s.peak_bytes, s.end_bytes) for s in stats.stages]
    assert stages == [
        ("start", 0, GIB, GIB),
        ("rollout", 1, 6 * GIB, 6 * GIB),
        ("training", 1, 6 * GIB, 0),
    ]
    assert stats.stages[1].free_at_peak_bytes == 74 * GIB
    assert stats.host.used_bytes == GIB
    assert stats.clock_ns == small.clock_ns > 0
    assert small.holders("rollout") == (
        reveille.Holder("external", "nccl", 3 * GIB),
        reveille.Holder("self", "kv_cache", 2 * GIB),
        reveille.Holder("self", "weights", GIB),
    )


def test_many_holders(small):
    for number in range(40):
        small.alloc(GIB, f"t{number:02}")
    holders = small.holders("start")
    assert [holder.tag for holder in holders] == [f"t{number:02}" for number in range(40)]
    with pytest.raises(reveille.NotFound, match='no stage "end"; there are: start'):
        small.holders("end")


def test_unused_start_is_not_listed(small):
    assert small.stats().stages == ()
    small.stage("rollout")
    small.stage("rollout")
    assert [s.name for s in small.stats().stages] == ["rollout", "rollout#2"]


def test_overcommit_tells_the_first_that_did_not_fit():
    with reveille.Context(devices="8GiB", memory="accounted", overcommit=True) as gpu:
        gpu.stage("rollout")
        gpu.alloc("6GiB", "weights")
        gpu.alloc("4GiB", "kv_cache")
        gpu.external("nccl", "1GiB")
        oom = gpu.stats().devices[0].oom
        assert oom == reveille.Oom("rollout", False, "kv_cache", 4 * GIB, 2 * GIB)
    with reveille.Context(devices="8GiB", memory="accounted", overcommit=True) as gpu:
        gpu.external("nccl", "9GiB")
        assert gpu.stats().devices[0].oom == reveille.Oom("start", True, "nccl", 9 * GIB, 8 * GIB)


def test_record_writes_a_trace(small, tmp_path):
    path = tmp_path / "run.rvt"
    with small.record(path):
        small.stage("rollout")
        small.alloc("5GiB", "weights")
    assert path.read_text().startswith("reveille-trace 1.4\n")
    stage = reveille.replay(path).devices[0].stage("rollout")
    assert (stage.peak_bytes, stage.holders[0].tag) == (5 * GIB, "weights")


@pytest.mark.parametrize("path", [None, "", 3, "a\0b"])
def test_what_is_no_path(small, path):
    with pytest.raises(reveille.InvalidArgument, match="the file of a recording must be a path"):
        small.record(path)
    if path is not None:  # no backups on disk
        with pytest.raises(reveille.InvalidArgument, match="disk_directory must be a path, not "):
            reveille.Context(disk_directory=path)


def test_tags_in_errors_are_whole(small):
    """The error record has room for 47 bytes."""
    names = [letter * 120 for letter in "abc"] + ["d" * 46, "\u00e9" * 60]
    for name in names:
        with pytest.raises(reveille.OutOfDeviceMemory) as caught:
            small.alloc(1 << 60, name)
        assert caught.value.tag == name
    with pytest.raises(reveille.NotFound) as missing:
        small.pause("e" * 200)
    assert missing.value.tag == "e" * 200
    for number in range(2):
        small.tag("f" * 100 + str(number))
    small.alloc("1MiB", "f" * 100 + "1")

    def refuse(_tag):
        raise ValueError

    small.tag("f" * 100 + "1", before_unmap=refuse)
    with pytest.raises(reveille.Vetoed) as vetoed:
        small.pause("f" * 100 + "1")
    assert vetoed.value.tag == "f" * 100 + "1"
    with pytest.raises(reveille.Vetoed) as either:
        small.pause()
    assert either.value.tag == "f" * 47


def test_record_fails_with_its_cause(small, tmp_path):
    with pytest.raises(reveille.InputOutputError) as caught:
        with small.record(tmp_path / "missing" / "run.rvt"):
            pytest.fail("must not be entered")
    assert caught.value.native_code == 2  # ENOENT
    with pytest.raises(reveille.InvalidArgument):
        small.record(tmp_path / "run.rvt.zst").__enter__()
    with small.record(tmp_path / "one.rvt"):
        with pytest.raises(reveille.InvalidState):
            small.record(tmp_path / "two.rvt").__enter__()


def test_record_ends_when_the_block_raises(small, tmp_path):
    with pytest.raises(KeyError):
        with small.record(tmp_path / "run.rvt"):
            small.alloc(GIB)
            raise KeyError
    assert reveille.replay(tmp_path / "run.rvt").devices[0].peak_bytes == GIB


# ---- Profiles and sizes ----


def test_profiles():
    names = [profile.name for profile in reveille.profiles()]
    assert names[0] == "h200"
    assert len(set(names)) == len(names) >= 5
    h200 = reveille.profile("H200")
    assert (h200.name, h200.capacity_bytes, h200.granularity_bytes) == ("h200", H200, 2 * MIB)
    assert h200.source != ""
    sized = reveille.profile("80GiB")
    assert (sized.name, sized.capacity_bytes) == ("", 80 * GIB)
    assert h200.capacity_doubt_bytes == 0
    assert reveille.profile("a100-80g").capacity_doubt_bytes == 81920 * 2**20 // 100


def test_profile_of_a_file(tmp_path):
    """What `reveille calibrate` writes names a device; a mistake in it is told with its key."""
    costs = {name: {"call_ns": 5, "fs_per_byte": 6, "from": "measured"} for name, _kind in _c.CostModel._fields_}
    waits = {name: {"call_ns": 7, "fs_per_byte": 8, "from": "measured"} for name, _kind in _c.CostWaits._fields_}
    driver = {f"{name}_bytes": 0 for name in
              ("context", "first_kernel", "streams", "graph", "first_backup", "per_pinned_gib")}
    made = {"format": "reveille device profile", "version": 2, "name": "mine", "description": "my card",
            "source": "measured", "capacity_bytes": 2**30, "granularity_bytes": 2**21, "rdma": False,
            "costs": costs, "waits": waits, "driver": driver}
    path = tmp_path / "card.json"
    path.write_text(json.dumps(made))
    assert reveille.profile(str(path)).name == "mine"
    with reveille.Context("sim", devices=str(path), memory="accounted") as gpu:
        assert gpu.devices[0].capacity_bytes == 2**30
    path.write_text(json.dumps({**made, "version": 1}))
    with pytest.raises(reveille.ReveilleError, match="calibrate the card again"):
        reveille.profile(str(path))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1048575, "1.0 MiB"),
        (H200, "139.8 GiB"),
        ((1 << 64) - 1, "16.0 EiB"),
    ],
)
def test_sizes_are_written_for_people(size, text):
    assert reveille.format_size(size) == text


def test_sizes_are_read():
    assert reveille.parse_size("1.5GiB") == 3 * GIB // 2
    assert reveille.parse_size(7) == 7
