#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `reveille run` reports about a peak if a process leaves PyTorch's history behind: holders.py COMMAND.

Here, the process is this file again. It allocates through CUDA's runtime and writes the history itself.
"""
import ctypes
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time
from urllib.parse import quote

MIB = 1 << 20
ASKED = 90 << 30  # more than the device has
FRAME = {"name": "forward", "filename": "/job/model.py", "line": 7}


class Program:
    """Takes segments, and records them with their content."""

    def __init__(self):
        self.runtime = ctypes.CDLL(os.environ["RUNTIME"])
        self.trace, self.notes, self.segments, self.late_us = [], [], [], 0

    def take(self, size):
        pointer = ctypes.c_void_p()
        assert self.runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
        return pointer.value

    def entry(self, action, addr, size, frames=(), label=""):
        self.trace.append({"action": action, "addr": addr, "size": size, "stream": 0, "frames": list(frames),
                           "time_us": time.time_ns() // 1000 + self.late_us, "user_metadata": label})
        time.sleep(0.002)

    def segment(self, size):
        addr = self.take(size)
        self.entry("segment_alloc", addr, size)
        return addr

    def map(self, size):
        """As an engine's allocator does it: the memory can be released, and reclaimed at the same address."""
        driver = ctypes.CDLL(os.environ["DRIVER"])
        addr, handle = ctypes.c_uint64(), ctypes.c_uint64()
        pinned_on_device_0 = (ctypes.c_uint64 * 4)(1, 1, 0, 0)
        assert driver.cuMemAddressReserve(ctypes.byref(addr), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0)) == 0
        assert driver.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), pinned_on_device_0, ctypes.c_uint64(0)) == 0
        assert driver.cuMemMap(addr, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0)) == 0
        return addr, size, handle

    def release(self, addr, size, handle):
        driver = ctypes.CDLL(os.environ["DRIVER"])
        assert driver.cuMemUnmap(addr, ctypes.c_size_t(size)) == 0 and driver.cuMemRelease(handle) == 0

    def pool(self, number, mapped, what):
        """The engine's segment, with a tensor that fills it."""
        addr, size, _ = mapped
        self.entry("segment_alloc", addr.value, size)
        self.entry("alloc", addr.value, size, [FRAME], what)
        self.segments.append({"device": 0, "address": addr.value, "total_size": size, "allocated_size": size, "active_size": size,
                              "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, number),
                              "is_expandable": False, "frames": [],
                              "blocks": [{"address": addr.value, "size": size, "requested_size": size, "state": "active_allocated", "frames": []}]})

    def write(self, number=1, text=None, ended=True):
        name = ctypes.PyDLL(os.environ["DRIVER"]).rvli_simulated_name  # this process's name in traces
        name.restype, name.argtypes = ctypes.c_char_p, ()
        path = pathlib.Path(os.environ["REVEILLE_HISTORY"], f"{quote(name().decode(), safe='')}.{number}.pickle")
        path.write_bytes(text or pickle.dumps({"segments": self.segments, "device_traces": [self.trace], "external_annotations": self.notes,
                                               "allocator_settings": {}}, 4))
        if ended:
            path.with_name(path.name.replace(f".{number}.pickle", ".end")).touch()


def inside_marked(program):
    """A tensor is freed just before a stage begins, and PyTorch's clock is late: marks show on which side of the stage's beginning the free
    was."""
    driver = ctypes.PyDLL(os.environ["DRIVER"])
    told = []
    listener = ctypes.PYFUNCTYPE(None, ctypes.c_uint64)(told.append)
    driver.rvli_simulated_on_mark(ctypes.cast(listener, ctypes.c_void_p))
    driver.rvli_simulated_enter.restype, driver.rvli_simulated_leave.argtypes = ctypes.c_uint64, (ctypes.c_uint64,)
    first = program.segment(20 * MIB)
    program.late_us = 1000
    program.entry("alloc", first, 8 * MIB, [FRAME], "rvl:1")
    program.entry("free_requested", first, 8 * MIB, label="rvl:1")
    program.entry("free_completed", first, 8 * MIB, label="rvl:1")
    time.sleep(0.002)
    for entry in program.trace[-2:]:
        entry["time_us"] = time.time_ns() // 1000 + program.late_us
    stage = driver.rvli_simulated_enter(b"forward")
    program.entry("alloc", first, 2 * MIB, [FRAME], "rvl:2")
    driver.rvli_simulated_leave(stage)
    program.entry("free_requested", first, 2 * MIB, label="rvl:3")
    names = ["phase 1 between 0 - -", "phase 2 between 0 - -", "phase 3 between 0 - -"]
    names += [f"mark {number} {us:x}" for number, us in zip((2, 3), told)]
    program.notes = [{"name": "reveille:" + each, "stage": "START", "device": 0, "time_us": 0} for each in names]
    program.write()
    driver.rvli_simulated_on_mark(None)


def inside_colocated(program, how):
    """An engine with weights of 16 MiB and a cache of 64 MiB sleeps, completely or except for its weights, while a trainer works."""
    driver = ctypes.PyDLL(os.environ["DRIVER"])
    driver.rvli_simulated_enter.restype, driver.rvli_simulated_leave.argtypes = ctypes.c_uint64, (ctypes.c_uint64,)
    first = program.segment(20 * MIB)
    program.entry("alloc", first, 3 * MIB, [FRAME], "parameter")
    program.take(6 * MIB)  # of a library
    if how == "unknown":  # about a state that no file covers, nothing is reported, not even the state in an earlier file
        program.write(1, ended=False)
        program.entry("segment_alloc", first + (1 << 32), 64 * MIB)
    else:
        pools = program.map(16 * MIB), program.map(64 * MIB)
        for number, (each, what) in enumerate(zip(pools, ("parameter", "gradient")), 5):
            program.pool(number, each, what)
        for each in pools[how != "asleep" :]:
            program.release(*each)
    time.sleep(0.2)  # earlier events are not part of the stage
    stage = driver.rvli_simulated_enter(b"train")
    program.entry("alloc", first + 3 * MIB, 5 * MIB, [FRAME], "activation")
    driver.rvli_simulated_leave(stage)
    time.sleep(0.2)
    program.notes = [{"name": "reveille:graphs", "stage": "START", "device": 0, "time_us": 0}]
    program.write(2)


def inside(how):
    program = Program()
    if how in ("asleep", "half", "unknown"):
        inside_colocated(program, how)
        return
    if how == "marked":
        inside_marked(program)
        return
    if how == "off":
        assert "REVEILLE_HISTORY" not in os.environ
        program.take(2 * MIB)
        return
    first = program.segment(20 * MIB)
    program.entry("alloc", first, 3 * MIB, [FRAME], "parameter")
    program.entry("alloc", first + 3 * MIB, 5 * MIB - 100, [FRAME], "activation")
    program.entry("free_requested", first + 3 * MIB, 5 * MIB - 100)
    program.entry("free_completed", first + 3 * MIB, 5 * MIB - 100)
    program.take(6 * MIB)  # of a library
    if how == "later":  # events after the peak are ignored
        second = program.segment(40 * MIB)
        program.entry("alloc", second, 40 * MIB, [FRAME], "gradient")
        program.entry("free_requested", second, 40 * MIB)
        program.entry("free_completed", second, 40 * MIB)
        program.entry("segment_free", second, 40 * MIB)
        assert program.runtime.cudaFree(ctypes.c_void_p(second)) == 0
    if how == "refused":
        program.entry("oom", 0, ASKED, [FRAME])
        program.trace[-1]["device_free"] = 70 << 30
        assert program.runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(ASKED)) != 0
    program.write(text=b"no pickle" if how == "broken" else None, ended=how != "killed")
    sys.exit(how == "refused")


def run(command, how, *options, status=0):
    done = subprocess.run([command, "run", "--device", "h100-80g", *options, "--", sys.executable, __file__, "--inside", how],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == status, (how, done.returncode, done.stdout, done.stderr)
    return done


def holders(command, how, *options):
    shown = json.loads(run(command, how, "--json", *options).stdout)
    (stage,) = shown["devices"][0]["stages"]
    if "holders" in shown:  # if a history is missing or unreadable, nothing is reported
        (holder,) = shown["holders"]
        assert (holder["device"], holder["stage"]) == (0, "run"), holder
        assert sum(each["bytes"] for each in holder["at_peak"]) == stage["peak_bytes"], (holder, stage)
        parts = {each["tag"]: each["bytes"] for each in holder["at_peak"]}
        parts.pop("CUDA context", None), parts.pop("CUDA driver", None)
        return parts, [(each["tag"], each["name"], each["line"], each["bytes"]) for each in holder["lines"]]
    return None


def main(command):
    expected = {"weights": 3 * MIB, "activations": 5 * MIB - 100, "rounding": 100, "cached": 12 * MIB, "libraries": 6 * MIB}
    found = holders(command, "plain")
    assert found == (expected, [("activations", "forward", 7, 5 * MIB - 100), ("weights", "forward", 7, 3 * MIB)]), found
    found, _ = holders(command, "later")
    assert found == {"weights": 3 * MIB, "gradients": 40 * MIB, "cached": 17 * MIB, "libraries": 6 * MIB}, found
    found, _ = holders(command, "killed")  # what it allocated after its last file is unknown
    assert found["not followed"] == 6 * MIB and "libraries" not in found, found
    assert holders(command, "broken") is None
    shown = json.loads(run(command, "marked", "--json").stdout)["holders"]
    (forward,) = (each for each in shown if each["stage"] == "forward")
    parts = {each["tag"]: each["bytes"] for each in forward["at_peak"]}
    assert (parts["other tensors"], parts["cached"]) == (2 * MIB, 18 * MIB), parts
    for how, awake in (("asleep", 0), ("half", 16 * MIB)):
        shown = json.loads(run(command, how, "--json").stdout)["holders"]
        (train,) = (each for each in shown if each["stage"] == "train")
        parts = {each["tag"]: each["bytes"] for each in train["at_peak"] if not each["tag"].startswith("CUDA ")}
        assert parts == {"weights": 3 * MIB + awake, "activations": 5 * MIB, "cached": 12 * MIB, "libraries": 6 * MIB}, (how, parts)
    shown = json.loads(run(command, "unknown", "--json").stdout)["holders"]
    assert [each["stage"] for each in shown] == ["start"], shown
    assert holders(command, "off", "--attribution=off") is None
    text = run(command, "plain").stdout
    assert "at the peak of run: " in text and "forward (model.py:7)" in text, text
    assert text.rstrip().splitlines()[-1].startswith("fits"), text
    advice = json.loads(run(command, "plain", "--json", "--advise").stdout)["advice"]
    assert (advice["device"], advice["reserved_bytes"]) == (0, 20 * MIB), advice
    changes = advice["saving"] + advice["useless"]
    assert len(changes) == 4 and all(each["reserved_bytes"] == 20 * MIB - each["saved_bytes"] for each in changes), changes
    assert "advice" not in json.loads(run(command, "plain", "--json").stdout)
    advice = json.loads(run(command, "refused", "--json", status=1).stdout)["advice"]
    assert advice["reserved_bytes"] == 20 * MIB + ASKED, advice
    assert not any(each["has_room"] for each in advice["saving"] + advice["useless"]), advice
    text = run(command, "refused", status=1).stdout
    assert "what would change" in text and " with the request that was refused, where the device had 70.0 GiB for it" in text, text
    assert text.rstrip().splitlines()[-1].startswith("out of memory: "), text
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder, "kept")
        run(command, "plain", "--snapshots", str(kept))
        (file,) = kept.glob("*.pickle")
        listed = subprocess.run([command, "snapshot", file], capture_output=True, text=True, check=True).stdout
        assert "forward (model.py:7)" in listed, listed
        run(command, "plain", "--snapshots", str(kept / file.name), status=2)
        empty = pathlib.Path(folder, "temporary")
        empty.mkdir()
        os.environ["TMPDIR"] = str(empty)
        run(command, "plain")
        assert not list(empty.iterdir()), "a folder is left"
    done = run(command, "plain", "--snapshots", "x", "--attribution=off", status=2)
    assert "--attribution=off" in done.stderr, done.stderr


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        inside(sys.argv[2])
    else:
        libraries = pathlib.Path(sys.argv[2])
        os.environ["DRIVER"] = str(libraries / "libcuda.so.1")
        os.environ["RUNTIME"] = str(next(iter(sorted(libraries.glob("libcudart.so.*")))))
        main(sys.argv[1])
        print("ok")
