#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Checks `reveille snapshot --tensors`: at every instant the live tensors with their sizes, stacks and labels, and the
segments, of random recordings, whole and without their beginning; and shapes written by hand.

usage: snapshot_tensors.py REVEILLE
"""
import pickle
import random
import subprocess
import sys
import tempfile

import tensors
from tensors import MIB

X = 1 << 40
FRAME = {"name": "forward", "filename": "/job/model.py", "line": 7}


def same(found, expected, what):
    assert found == expected, f"{what}: {found}, expected {expected}"


def written(command, what, protocol=4, unshared=False):
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        if unshared:
            pickler = pickle.Pickler(file, protocol)
            pickler.fast = True  # every stack is written again
            pickler.dump(what)
        else:
            pickle.dump(what, file, protocol)
        file.flush()
        return tensors.listed(command, file.name)


def refused(command, what, message):
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump(what, file, 4)
        file.flush()
        for words in (["snapshot", "--tensors"], ["snapshot"]):
            done = subprocess.run([command, *words, file.name], capture_output=True, text=True)
            same(done.returncode, 2, message)
            same(done.stdout, "", message)
            assert message in done.stderr and "byte " in done.stderr, (message, done.stderr)


def snapshot(trace, segments=()):
    return {"segments": list(segments), "device_traces": [trace], "external_annotations": [], "allocator_settings": {}}


def entry(action, addr, size, at, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": at, **more}


# ---- Tests ----

def test_random(command):
    for seed in range(6):
        made = tensors.random_run(seed, 600)
        # A small file is read by the machine alone; padding makes the short way of entries possible.
        for how in ({}, {"protocol": 2}, {"unshared": True}):
            found = written(command, made.snapshot(), **how)
            same(found.time_us, [each["time_us"] for each in made.trace], "times")
            for i, (live, mapped, _) in enumerate(made.known):
                same(found.live(i + 1), live, f"seed {seed}, entry {i}, {how}")
                same(found.mapped(i + 1), mapped, f"segments, seed {seed}, entry {i}, {how}")
            same((found.live(0), found.mapped(0)), ([], []), "before the first entry")


def test_lost_beginning(command):
    """What was live then is known from frees, without stacks, and from the final segments, with them."""
    for seed in range(6):
        made, since = tensors.random_run(seed, 600), 300
        found = written(command, made.snapshot(since))
        finally_live = set(made.known[-1][0])
        for i in range(since, len(made.known)):
            live = made.known[i][0]
            seen = found.live(i + 1 - since)
            same([each[:2] for each in seen], [each[:2] for each in live], f"seed {seed}, entry {i}")
            for mine, there in zip(seen, live):
                if there in finally_live or there in made.known[since - 1][0]:
                    continue
                same(mine, there, "one that was allocated in the trace")
            for each in finally_live & set(live):
                assert each in seen, ("one that is there in the end has its stack", each)
        # A segment with nothing in it that nobody gives back later is not known of: all others are.
        same(found.mapped(len(made.trace) - since), made.known[-1][1], "segments in the end")


def test_ranges(command):
    """Parts of what was mapped are unmapped, in the middle, over several, and of what was there before."""
    trace = [entry("segment_map", X, 8 * MIB, 10), entry("segment_unmap", X + 2 * MIB, 2 * MIB, 20),
             entry("segment_map", X + 8 * MIB, 4 * MIB, 30), entry("segment_unmap", X + 6 * MIB, 4 * MIB, 40),
             entry("segment_map", X + 2 * MIB, 2 * MIB, 50), entry("segment_unmap", X, 6 * MIB, 60),
             entry("segment_unmap", X + 10 * MIB, 10 * MIB, 70)]
    found = written(command, snapshot(trace))
    at = lambda *pairs: [(X + a * MIB, X + b * MIB) for a, b in pairs]
    for instant, expected in enumerate(([(12, 20)], [(0, 8), (12, 20)], [(0, 2), (4, 8), (12, 20)],
                                        [(0, 2), (4, 20)], [(0, 2), (4, 6), (10, 20)], [(0, 6), (10, 20)], [(10, 20)], [])):
        same(found.mapped(instant), at(*expected), f"instant {instant}")


def test_contradictions(command):
    """An address given out twice is the second one's; sizes that cannot be are left out."""
    trace = [entry("alloc", X, 512, 10, frames=[FRAME]), entry("alloc", X, 1024, 20),
             entry("alloc", X + MIB, 1 << 60, 30), entry("alloc", 0, 512, 40),
             entry("free_requested", X, 1024, 50), entry("alloc", X, 2048, 60), entry("free_completed", X, 2048, 70)]
    found = written(command, snapshot(trace))
    stack = ((FRAME["filename"], FRAME["name"], FRAME["line"]),)
    for instant, expected in ((1, [(X, 512, stack, "")]), (2, [(X, 1024, (), "")]), (4, [(X, 1024, (), "")]),
                              (5, []), (6, [(X, 2048, (), "")]), (7, [(X, 2048, (), "")])):
        same(found.live(instant), expected, f"instant {instant}")


def test_labels(command):
    """PyTorch's category comes from its profiler, user_metadata from the program; others leave nothing."""
    trace = [entry("alloc", X, 512, 10, category="parameter", frames=[]),
             entry("alloc", X + 512, 512, 20, user_metadata="mine", frames=None),
             entry("alloc", X + 1024, 512, 30, user_metadata=None),
             entry("alloc", X + 1536, 512, 40, user_metadata="")]
    found = written(command, snapshot(trace))
    same([each[3] for each in found.live(4)], ["parameter", "mine", "", ""], "labels")


def test_frames(command):
    """Lines that are not known, frames without a name, and a stack deeper than any is kept whole."""
    frames = [{"name": "a", "filename": "f.py", "line": -1}, {"name": "a", "filename": "f.py", "line": None},
              {"filename": "g.cpp", "line": 3}]
    deep = [{"name": f"f{i}", "filename": "deep.py", "line": i + 1} for i in range(2000)]
    trace = [entry("alloc", X, 512, 10, frames=frames), entry("alloc", X + 512, 512, 20, frames=deep),
             entry("alloc", X + 1024, 512, 30, frames=list(frames))]
    found = written(command, snapshot(trace))
    expected = (("f.py", "a", 0), ("f.py", "a", 0), ("g.cpp", "", 3))
    same([each[2] for each in found.live(3)], [expected, tuple(("deep.py", f"f{i}", i + 1) for i in range(512)), expected],
         "stacks")
    same(len(found.frames), 2 + 2000, "each frame is there once")


def test_malformed(command):
    for frames, message in (({}, "frames are not a list"), (["f"], "an item of frames is not a stack frame"),
                            ([{**FRAME, "filename": 3}], "a stack frame's filename is not a string"),
                            ([{**FRAME, "name": []}], "a stack frame's name is not a string"),
                            ([{**FRAME, "line": "7"}], "a stack frame's line is not an integer")):
        refused(command, snapshot([entry("alloc", X, 512, 10, frames=frames)]), message)
        block = {"address": X, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": frames}
        segment = {"device": 0, "address": X, "total_size": 2 * MIB, "stream": 0, "segment_type": "large",
                   "blocks": [block], "frames": []}
        refused(command, snapshot([entry("alloc", X + MIB, 512, 10)], [segment]), message)


def bomb(lists):
    """Lists of frames from the memo, in orders that share nothing: three bytes for a stack that is kept."""
    chance = random.Random(5)
    out = bytearray(b"\x80\x04")
    text = lambda word: b"\x8c" + bytes([len(word)]) + word.encode() + b"\x94"
    for i in range(200): # four memo entries each: the dict and three texts
        out += b"}\x94(" + text("filename") + b"\x8c\x01f\x94" + text("line") + b"K" + bytes([i]) + b"u0"
    for _ in range(lists):
        out += b"]" + b"".join(b"h" + bytes([4 * chance.randrange(60)]) + b"a" for _ in range(500)) + b"0"
    return bytes(out + b"}.")


def test_bomb(command):
    """What stacks take is bounded by the file's size, as all that is read."""
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(bomb(12_000))
        file.flush()
        done = subprocess.run([command, "snapshot", file.name], capture_output=True, text=True)
    same(done.returncode, 2, done.stderr)
    assert "unpacks to far more than a snapshot of its size has" in done.stderr, done.stderr


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(sys.argv[1])


if __name__ == "__main__":
    main()
