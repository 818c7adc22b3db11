#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Checks `reveille snapshot --recompute`, gradient checkpointing of a line, on recordings written by hand, byte for byte.

usage: snapshot_recompute.py REVEILLE
"""
import json
import pickle
import subprocess
import sys
import tempfile

MIB = 1 << 20
PIECE = 20 * MIB  # a segment of its own
PROGRAM = {"name": "<module>", "filename": "/job/train.py", "line": 90}
MODULE = {"name": "_call_impl", "filename": "venv/lib/python3.12/site-packages/torch/nn/modules/module.py", "line": 1747}
PHASES = ("phase 1 between 0 - -", "phase 2 between 0 - -", "phase 3 backward 90 <module> /job/train.py", "phase 4 between 0 - -")


def stack(*lines):
    """Of lines of /job/gpt.py, the innermost first; between them are modules."""
    frames = []
    for line in lines:
        frames += [{"name": "forward", "filename": "/job/gpt.py", "line": line}, MODULE]
    return [*frames, PROGRAM]


class Trace:
    def __init__(self):
        self.entries, self.addresses = [], {}

    def entry(self, action, name, label, frames=()):
        addr = self.addresses.setdefault(name, (1 << 40) + len(self.addresses) * PIECE)
        self.entries.append({"action": action, "addr": addr, "size": PIECE, "stream": 0, "frames": list(frames),
                             "time_us": 1000 + 10 * len(self.entries), "user_metadata": label})

    def alloc(self, name, label="", frames=()):
        self.entry("segment_alloc", name, label, frames)
        self.entry("alloc", name, label, frames)

    def free(self, name, label=""):
        self.entry("free_requested", name, label)
        self.entry("free_completed", name, label)


def three_blocks(how):
    """Three calls by one line, each of which keeps one tensor, returns another, and passes backward."""
    trace = Trace()
    for i in (1, 2, 3):
        trace.alloc(f"kept {i}", "rvl:1", stack(20, 10))
        trace.alloc(f"returned {i}", "rvl:1", stack(21, 10))
        if how == "written meanwhile" and i == 2:  # by the thread that writes files: its phase is another
            trace.entries.append({"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": trace.entries[-1]["time_us"],
                                  "frames": [], "user_metadata": "rvl:2"})
    for i in (3, 2, 1):
        trace.alloc(f"gradient {i}")
        trace.free(f"returned {i}")
        trace.free(f"kept {i}")
        if i < 3:
            trace.free(f"gradient {i + 1}")
    trace.free("gradient 1", "rvl:4")
    return trace


def run(command, trace, *words, phases=PHASES):
    notes = [{"name": "reveille:" + each, "stage": "START", "device": 0, "time_us": 0} for each in phases]
    what = {"segments": [], "device_traces": [trace.entries], "external_annotations": notes, "allocator_settings": {}}
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump(what, file, 4)
        file.flush()
        return subprocess.run([command, "snapshot", "--json", *words, file.name], capture_output=True, text=True)


def peak(command, trace, *words):
    done = run(command, trace, *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    (stage,) = json.loads(done.stdout)["stages"]
    return stage["peak_reserved_bytes"] // PIECE


def refused(command, words, message, **more):
    done = run(command, three_blocks("plain"), *words, **more)
    assert done.returncode == 2 and message in done.stderr, done


def main(command):
    for how in ("plain", "written meanwhile"):
        trace = three_blocks(how)
        # Six tensors and a gradient; with checkpoints what three calls return, and one more for the rest.
        assert peak(command, trace) == 7, how
        for place in ("gpt.py:10", "job/gpt.py:10", "/job/gpt.py:10"):
            assert peak(command, trace, "--recompute", place) == 4, (how, place)
    refused(command, ("--recompute", "gpt.py:21"), "no call of this line keeps anything")
    refused(command, ("--recompute", "t.py:10"), "no call of this line keeps anything")  # the end of another name
    refused(command, ("--recompute", "gpt.py:10"), "no call of this line keeps anything", phases=())
    refused(command, ("--recompute", "gpt.py"), "expected FILE:LINE")
    refused(command, ("--recompute", "gpt.py:x"), "expected FILE:LINE")
    refused(command, ("--recompute", "gpt.py:10", "--verify"), "leave verify out")


if __name__ == "__main__":
    main(sys.argv[1])
