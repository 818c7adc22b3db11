#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replays the recorded step of traces/recorded/ against what the driver read at the end of each stage.

usage: recorded_truth.py REVEILLE RECORDED_DIR

Every stage's end must be within 0.5 % of the reading beside the traces, which the replay does not see. Of what the
traces say of the true use only the first sample enters a replay; external bytes must have a cause that is known.
"""
import json
import subprocess
import sys

STEP = "qwen2.5-32b-step"
WITHIN = 0.005
CAUSES = {"first_sample", "cuda_context", "kernels", "streams", "graphs"}


def replay(command, folder):
    traces = [f"{folder}/{STEP}-{process}.rvt" for process in ("engine", "trainer")]
    done = subprocess.run([command, "replay", "--json", *traces], capture_output=True, text=True, check=True)
    (device,) = json.loads(done.stdout)["devices"]
    assert device["fits"], device
    return {stage["name"]: stage for stage in device["stages"]}


def main(command, folder):
    with open(f"{folder}/{STEP}.readings.json") as file:
        readings = json.load(file)
    assert readings["scale"] == 1.0 and readings["passed"], readings
    predicted = replay(command, folder)
    for reading in readings["stages"]:
        stage = predicted[reading["stage"]]
        difference = stage["end_bytes"] / reading["used_bytes"] - 1
        print(f"{reading['stage']:<22} {reading['used_bytes']:>13} {difference:+.3%}")
        assert abs(difference) <= WITHIN, (stage, reading)
        for held in stage["at_peak"]:
            assert held["process"] != "external" or held["tag"].split(":")[0] in CAUSES, held
    assert len(readings["stages"]) == 7
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
