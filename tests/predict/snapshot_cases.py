#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks `reveille snapshot` on files written by hand, with values worked out by hand: shapes that only pickles from
Python have, private pools, several devices, lost beginnings of ranges, and files on which a search that looks at every
block for every entry would not come to an end.

usage: snapshot_cases.py REVEILLE
"""
import json
import pickle
import subprocess
import sys
import tempfile

MIB, X = 1 << 20, 1 << 40
SECONDS_MAX = 300 # a search that is not bounded takes many times that


class Trace(list):
    def add(self, action, addr, size, stream=0, **more):
        self.append({"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 10 * len(self) + 10,
                     "compile_context": "N/A", "user_metadata": "", **more})

    def free(self, addr, size):
        self.add("free_requested", addr, size)
        self.add("free_completed", addr, size)


def segment(addr, size, live=(), pool=0, small=False, expandable=False):
    """Live blocks are (offset, size, requested); what is behind the last one is free."""
    blocks = [{"address": addr + at, "size": room, "requested_size": asked, "state": "active_allocated", "frames": []}
              for at, room, asked in live]
    used = live[-1][0] + live[-1][1] if live else 0
    if used < size:
        blocks.append({"address": addr + used, "size": size - used, "requested_size": 0, "state": "inactive",
                       "frames": []})
    return {"device": 0, "address": addr, "total_size": size, "stream": 0, "segment_pool_id": (0, pool),
            "segment_type": "small" if small else "large", "is_expandable": expandable, "frames": [], "blocks": blocks}


def snapshot(trace, segments=(), settings=None, **more):
    known = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
             "expandable_segments": False, "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}
    return {"segments": list(segments), "device_traces": [trace], "external_annotations": [],
            "allocator_settings": {**known, **(settings or {})}, **more}


def run(command, what, *options, status=0):
    traces = what["device_traces"] # as plain lists: a file must not name classes
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump({**what, "device_traces": type(traces)(list(trace) for trace in traces)}, file)
        file.flush()
        done = subprocess.run([command, "snapshot", "--json", *options, file.name], capture_output=True, text=True,
                              timeout=SECONDS_MAX)
    assert done.returncode == status, (options, done.returncode, done.stderr)
    return json.loads(done.stdout) if done.stdout else done.stderr


def check(result, allocated, reserved, end, note=None, name="all"):
    stage = result["stages"][0]
    found = [stage[key] / MIB for key in ("peak_allocated_bytes", "peak_reserved_bytes", "end_reserved_bytes")]
    assert stage["name"] == name and found == [allocated, reserved, end], (stage["name"], found)
    assert note is None or any(note in text for text in result["notes"]), result["notes"]


def private_pools(command):
    """A capture's pool gets the addresses that empty_cache gave back before it."""
    trace = Trace()
    trace.add("segment_alloc", X, 100 * MIB)
    trace.add("alloc", X, 100 * MIB)
    trace.free(X, 100 * MIB)
    trace.add("alloc", X, 5 * MIB)
    trace.add("alloc", X + 5 * MIB, 30 * MIB)
    trace.free(X, 5 * MIB)
    trace.free(X + 5 * MIB, 30 * MIB)
    trace.add("segment_free", X, 100 * MIB)
    trace.add("segment_alloc", X, 20 * MIB)
    trace.add("alloc", X, 4 * MIB)
    trace.free(X, 4 * MIB)
    captured = snapshot(trace, [segment(X, 20 * MIB, pool=1)])
    for options in ((), ("--verify",)):
        result = run(command, captured, *options)
        check(result, 100, 100, 20)
        assert result["diverged_at"] is None, result

    # A pool that is gone in the end, and that no entry names: what it made is seen, and told.
    trace = Trace()
    trace.add("segment_alloc", X, 20 * MIB)
    trace.add("alloc", X, 4 * MIB)
    trace.free(X, 4 * MIB)
    trace.add("segment_alloc", X + 32 * MIB, 20 * MIB)
    trace.add("alloc", X + 32 * MIB, 4 * MIB)
    gone = snapshot(trace)
    assert "private pool" in run(command, gone, "--verify", status=3)["diverged_at"]["why"]
    result = run(command, gone)
    check(result, 4, 20, 20, "private pools that are gone")
    assert result["confidence"] == "interval", result
    for entry in trace[3:]: # named, it is like any other
        entry["pool_id"] = (0, 1)
    check(run(command, gone, "--verify"), 4, 40, 40)
    check(run(command, gone), 4, 40, 40)


def full_cards(command):
    """A run that filled its card, with settings that reserve more: the card stays as large as it was."""
    trace = Trace()
    trace.add("segment_alloc", X, 60 * MIB)
    trace.add("alloc", X, 60 * MIB)
    trace.free(X, 60 * MIB)
    trace.add("alloc", X, 30 * MIB)
    swap = ("--set", "max_split_size_mb=20")
    what = snapshot(trace, [segment(X, 60 * MIB, [(0, 30 * MIB, 30 * MIB)])])
    lacks = "does not say what its device had"

    usual = run(command, what)["notes"] # that there are no stages
    assert len(usual) == 1 and "the whole trace" in usual[0], usual

    # Nothing shows the card's size: more is reserved than there may have been, and that is told.
    result = run(command, what, *swap)
    check(result, 60, 90, 90, lacks)
    assert result["capacity"] is None and len(result["notes"]) == 2, result
    result = run(command, what) # as recorded: nothing to be told
    check(result, 60, 60, 60)
    assert (result["capacity"], result["notes"]) == (None, usual), result
    result = run(command, what, "--set", "max_split_size_mb=100") # other settings that reserve no more
    check(result, 60, 60, 60)
    assert result["notes"] == usual, result

    # It is named: as bytes, or as a card, of which the driver takes its share.
    result = run(command, what, *swap, "--capacity", "89MiB")
    check(result, 60, 60, 30)
    assert result["capacity"] == {"bytes": 89 * MIB, "from": "options"} and result["notes"] == usual, result
    result = run(command, what, *swap, "--device", "0", "--device", "h100-80g")
    check(result, 60, 90, 90)
    card = subprocess.run([command, "devices", "--device", "h100-80g", "--json"], capture_output=True, check=True)
    card = json.loads(card.stdout)
    takes = card["driver"]["context_bytes"] + card["driver"]["first_kernel_bytes"]
    assert result["capacity"] == {"bytes": card["capacity_bytes"] - takes, "from": "options"}, result
    assert result["notes"] == usual, result
    for words, why in ((("--device", "h300"), "reveille devices"), (("--device", "0", "--device", "1"), "twice"),
                       (("--device", "h200", "--device", "h200"), "twice")):
        assert why in run(command, what, *words, status=2), words

    # A request that failed shows it: 10 MiB were free beside the 60. The least of several counts.
    for free in (40, 10, 25):
        trace.append({"action": "oom", "device_free": free * MIB, "size": 50 * MIB, "stream": 0,
                      "time_us": 10 * len(trace) + 10})
    for options in (swap, (*swap, "--device", "0")):
        result = run(command, what, *options)
        check(result, 60, 60, 30)
        assert result["capacity"] == {"bytes": 70 * MIB, "from": "recording"} and result["notes"] == usual, result
    assert run(command, what, *swap, "--capacity", "95MiB")["stages"][0]["peak_reserved_bytes"] == 90 * MIB
    assert run(command, what)["capacity"] is None


def lost_ranges(command):
    """A ring without its beginning, and an entry that maps across what later ones left of a range."""
    trace = Trace()
    trace.free(X - 64 * MIB, 512)
    trace.add("segment_map", X, 100 * MIB)
    trace.add("alloc", X, 90 * MIB)
    trace.free(X, 90 * MIB)
    trace.add("alloc", X, 5 * MIB)
    trace.add("alloc", X + 5 * MIB, 90 * MIB)
    trace.free(X + 5 * MIB, 90 * MIB)
    trace.add("segment_unmap", X + 20 * MIB, 80 * MIB)
    trace.add("segment_unmap", X - 64 * MIB, 2 * MIB)
    trace.add("segment_map", X + 20 * MIB, 40 * MIB)
    trace.add("alloc", X + 5 * MIB, 50 * MIB)
    lost = snapshot(trace, [segment(X, 60 * MIB, [(0, 5 * MIB, 5 * MIB), (5 * MIB, 50 * MIB, 50 * MIB)],
                                    expandable=True)], {"expandable_segments": True})
    for options in ((), ("--verify",)):
        result = run(command, lost, *options)
        check(result, 95, 102, 60, "lacks its beginning")
        assert result["diverged_at"] is None, result["diverged_at"]

    # Recording began when nothing was live, but something was cached.
    trace = Trace()
    trace.add("alloc", X, 30 * MIB)
    trace.free(X, 30 * MIB)
    trace.add("segment_alloc", X + 64 * MIB, 40 * MIB)
    trace.add("alloc", X + 64 * MIB, 40 * MIB)
    trace.add("segment_free", X, 30 * MIB)
    cached = snapshot(trace, [segment(X + 64 * MIB, 40 * MIB, [(0, 40 * MIB, 40 * MIB)])])
    for options in ((), ("--verify",)):
        check(run(command, cached, *options), 40, 70, 40, "lacks its beginning")


def settings(command):
    """Settings as current and older versions of PyTorch write them."""
    trace = Trace()
    trace.add("alloc", X, 5 * MIB + 1)
    for more in ({"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions: 4 , max_split_size_mb : 64"},
                 {"roundup_power2_divisions": [4] * 16}, {"roundup_power2_divisions": {1 << i: 4 for i in range(16)}}):
        what = snapshot(trace, settings=more)
        if "PYTORCH_CUDA_ALLOC_CONF" in more:
            what["allocator_settings"] = more
        result = run(command, what)
        check(result, 6, 20, 20)
        assert len(result["notes"]) == 1, result["notes"]
    result = run(command, snapshot(trace, settings={"PYTORCH_CUDA_ALLOC_CONF": " expandable_segments: False"}))
    assert len(result["notes"]) == 1, result["notes"]
    for unread in ({"roundup_power2_divisions": [3] * 16}, {"roundup_power2_divisions": "4"},
                   {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:1"}, {"PYTORCH_CUDA_ALLOC_CONF": "new_word:1"}):
        result = run(command, snapshot(trace, settings=unread))
        assert any("does not know" in note for note in result["notes"]), (unread, result["notes"])
    bare = snapshot(trace)
    del bare["allocator_settings"]
    result = run(command, bare)
    assert result["confidence"] == "interval" and any("no allocator_settings" in note for note in result["notes"])
    trace.free(X, 5 * MIB + 1)
    trace.add("alloc", X, 25 * MIB)
    check(run(command, snapshot(trace), "--set", "capacity=30MiB"), 26, 26, 26)


def devices(command):
    first, second = Trace(), Trace()
    first.add("alloc", X, 20 * MIB)
    second.add("alloc", X, 200 * MIB)
    notes = [{"stage": edge, "name": "stage:a", "device": 0, "time_us": at} for edge, at in (("START", 1), ("END", 99))]
    both = snapshot(first, device_traces=[first, second], external_annotations=notes)
    result = run(command, both)
    check(result, 20, 20, 20, "name one with --device", "a")
    assert result["confidence"] == "exact", result
    check(run(command, both, "--device", "1"), 200, 200, 200, "on another device", "a")
    only = snapshot(first, device_traces=[[], first], external_annotations=notes)
    check(run(command, only), 20, 20, 20, "on another device", "a")
    wrong = snapshot(first, device_traces=(first,))
    assert "device_traces is not a list" in run(command, wrong, status=2)


def searches(command):
    count = 40000
    trace = Trace()
    for i in range(count):
        trace.free(X + i * 4096, 2048)
    held = [segment(X + i * 2 * MIB, 2 * MIB, small=True) for i in range(count * 4096 // (2 * MIB) + 1)]
    check(run(command, snapshot(trace, held)), count * 2048 / MIB, len(held) * 2, len(held) * 2, "lacks its beginning")
    trace = Trace()
    for i in range(count):
        trace.add("alloc", X + i * 4 * MIB, 2 * MIB)
    for i in range(count):
        trace.free(X + i * 4 * MIB, 2 * MIB)
    for i in range(count):
        trace.add("alloc", X + i * 4 * MIB, 3 * MIB)
    assert run(command, snapshot(trace), "--verify", status=3)["diverged_at"]["event"] == 0
    trace = Trace()
    for i in range(count):
        trace.add("segment_alloc", X + i * 32 * MIB, 20 * MIB)
        trace.add("alloc", X + i * 32 * MIB, 20 * MIB)
    for i in range(count):
        trace.free(X + i * 32 * MIB, 20 * MIB)
    for i in range(count // 2): # that is not what empty_cache would begin with
        trace.add("segment_free", X + (i + count // 2) * 32 * MIB, 20 * MIB)
        trace.add("alloc", X - 4 * MIB, 512)
        trace.free(X - 4 * MIB, 512)
    held = [segment(X + i * 32 * MIB, 20 * MIB) for i in range(count // 2)]
    assert run(command, snapshot(trace, held), "--verify", status=3)["diverged_at"]["event"] == 4 * count
    trace = Trace()
    for i in range(20000):
        trace.add("alloc", X + i * 32 * MIB, 512, i)
    check(run(command, snapshot(trace)), 20000 * 512 / MIB, 40000, 40000)


def main(command):
    for case in (private_pools, full_cards, lost_ranges, settings, devices, searches):
        case(command)
        print(f"{case.__name__}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
