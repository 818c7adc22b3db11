#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `reveille snapshot` with what PyTorch measured when the snapshots of traces/snapshots/ were recorded.

usage: snapshot_truth.py REVEILLE SNAPSHOT_DIR

Verification must reproduce every stage's peaks exactly, and so must a prediction with the recorded settings, with and
without the device's size, also when every entry that tells where a segment begins has been taken out; within 1 % when
the oldest entries have been lost, wherever the cut is. The
default allocator's snapshot, asked what expandable segments would do, must be within 5 % of the run that was recorded
with them.
"""
import gzip
import json
import pickle
import subprocess
import sys
import tempfile

KEYS = ("peak_allocated_bytes", "peak_reserved_bytes", "end_reserved_bytes")
BEGINS = ("segment_alloc", "segment_map")


def run(command, path, *options, status=0):
    done = subprocess.run([command, "snapshot", path, "--json", *options], capture_output=True, text=True)
    assert done.returncode == status, (path, options, done.returncode, done.stderr)
    return json.loads(done.stdout)


def check_gap(stage):
    gap = stage["gap"]
    assert min(gap.values()) >= 0, stage
    assert sum(gap.values()) <= stage["peak_reserved_bytes"], stage


def compare(what, result, truth, tolerance):
    """The stages' names and values; the largest relative difference."""
    worst = 0.0
    assert [s["name"] for s in result["stages"]] == [s["name"] for s in truth["stages"]], what
    for stage, expected in zip(result["stages"], truth["stages"]):
        check_gap(stage)
        assert stage["num_alloc_retries"] == expected["num_alloc_retries"], (what, stage)
        for key in KEYS:
            difference = abs(stage[key] - expected[key]) / expected[key]
            worst = max(worst, difference)
            assert difference <= tolerance, (what, stage["name"], key, stage[key], expected[key])
    print(f"{what}: within {worst:.4%}")


def without(snapshot, actions):
    traces = [[entry for entry in trace if entry["action"] not in actions] for trace in snapshot["device_traces"]]
    return {**snapshot, "device_traces": traces}


def without_oldest(snapshot, truth, stages):
    """Without the entries before the end of some stages, and the truth of the stages behind them."""
    end = truth["stages"][stages - 1]["end_us"]
    traces = [[entry for entry in trace if entry["time_us"] > end] for trace in snapshot["device_traces"]]
    notes = [note for note in snapshot["external_annotations"] if note["time_us"] > end]
    return ({**snapshot, "device_traces": traces, "external_annotations": notes},
            {**truth, "stages": truth["stages"][stages:]})


def check_lost(command, file, snapshot, part):
    """A ring that has lost some part of its entries is verified all the same."""
    trace = snapshot["device_traces"][0]
    file.seek(0)
    file.truncate()
    pickle.dump({**snapshot, "device_traces": [trace[int(part * len(trace)):]]}, file)
    file.flush()
    result = run(command, file.name, "--verify")
    assert result["confidence"] == "interval" and result["diverged_at"] is None, (part, result["diverged_at"])


def check_card(command, path, recorded):
    """Settings that reserve more than the run did: the card's size bounds it, and a note says where it is not known."""
    lacks = "does not say what its device had"

    def swapped(*words):
        result = run(command, path, "--set", "max_split_size_mb=20", *words)
        return result, max(stage["peak_reserved_bytes"] for stage in result["stages"])

    result, unbounded = swapped()
    assert result["capacity"] is None and any(lacks in note for note in result["notes"]), result["notes"]
    assert unbounded > recorded, (unbounded, recorded)
    card = unbounded * 3 // 4
    result, bounded = swapped("--capacity", str(card))
    assert result["capacity"] == {"bytes": card, "from": "options"}, result["capacity"]
    assert recorded < bounded <= card, (recorded, bounded, card)
    assert not any(lacks in note for note in result["notes"]), result["notes"]
    result, large = swapped("--device", "h100-80g")
    assert large == unbounded and result["capacity"]["from"] == "options", (large, unbounded)
    assert not any(lacks in note for note in result["notes"]), result["notes"]


def main(command, folder):
    names = ("default", "expandable", "maxsplit", "rounded", "collected", "retried")
    truths, snapshots = {}, {}
    for name in names:
        with open(f"{folder}/dev-{name}.truth.json") as file:
            truths[name] = json.load(file)
        with gzip.open(f"{folder}/dev-{name}.pickle.gz") as file:
            snapshots[name] = pickle.load(file)
    for name in names:
        path = f"{folder}/dev-{name}.pickle.gz"
        limited = "fraction" in truths[name]["conf"]
        limit = ("--capacity", str(truths[name]["total_bytes"])) if limited else ()
        verified = run(command, path, "--verify", *limit)
        compare(f"{name}, verified", verified, truths[name], 0)
        assert verified["diverged_at"] is None and verified["confidence"] == "exact", verified
        predicted = run(command, path, *limit)
        compare(f"{name}, predicted", predicted, truths[name], 0)
        assert predicted["confidence"] == "exact", predicted["notes"]
        if limited: # without the device's size it is known what was given back, and so when there was a retry
            compare(f"{name}, predicted without its limit", run(command, path), truths[name], 0)
            compare(f"{name}, verified without its limit", run(command, path, "--verify"), truths[name], 0)
        with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
            for protocol in (2, 4, 5):
                file.seek(0)
                file.truncate()
                pickle.dump(without(snapshots[name], BEGINS), file, protocol=protocol)
                file.flush()
                for options in {(), limit}:
                    result = run(command, file.name, *options)
                    compare(f"{name}, stripped, protocol {protocol} {options}", result, truths[name], 0)
            for part in range(1, 20):
                check_lost(command, file, snapshots[name], part / 20)
            for stages in () if limited else (4, 8):
                late, truth = without_oldest(snapshots[name], truths[name], stages)
                file.seek(0)
                file.truncate()
                pickle.dump(late, file)
                file.flush()
                for options in ((), ("--verify",)):
                    result = run(command, file.name, *options)
                    compare(f"{name}, without {stages} stages {options}", result, truth, 0.01)
                    assert result["confidence"] == "interval" and result["diverged_at"] is None, result["diverged_at"]
    path = f"{folder}/dev-default.pickle.gz"
    compare("default, with expandable segments", run(command, path, "--set", "expandable_segments=true"),
            truths["expandable"], 0.05)
    check_card(command, path, max(stage["peak_reserved_bytes"] for stage in truths["default"]["stages"]))
    small = run(command, path, "--capacity", "4500MiB")
    retries = [stage["num_alloc_retries"] for stage in small["stages"]]
    assert retries[-1] > 0 and retries == sorted(retries), retries
    assert max(stage["peak_reserved_bytes"] for stage in small["stages"]) <= 4500 << 20
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
