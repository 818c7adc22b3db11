#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/rl_engine on simulated GPUs, with every stage compared: rl_engine.py REVEILLE PYTHON [OUT].

PYTHON has vLLM (vllm.sh installs it). Runs the step in stages, with and without CUDA graphs, and with --together. The driver's figures
at the end of each stage are compared with the trace, with what the engine and the trainer report, and with the model's sizes. Prints
peak and end of every stage.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from vllm_sleep import weight_bytes

TREE = Path(__file__).resolve().parents[2]
STEP = TREE / "examples/rl_engine/rl_engine.py"
sys.path.insert(0, str(STEP.parent))
from rl_engine import CONFIG, GIB  # noqa: E402

CAPACITY = 150109880320  # of an h200
SMALL = 65 << 20  # a trainer's memory besides its parameters: two workspaces of cuBLAS, positions, tokens
BEGIN = ["startup", "rollout", "asleep", "trainer_loaded", "train"]
STAGED = [*BEGIN, "optimizer_offloaded", "weights_awake", "weights_updated", "weights_offloaded", "kv_cache_awake",
          "rollout#2"]  # fmt: skip
# The peak of a staged step is in one of these. A rollout's peak differs by a few MiB from run to run, since vLLM's batching of prompts
# depends on the clock. Without CUDA graphs it usually equals startup's to the byte, and sometimes is higher.
ENGINE_AWAKE = ["startup", "rollout", "rollout#2"]
TOGETHER = [*BEGIN, "all_awake", "weights_updated", "trainer_offloaded", "rollout#2"]


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def print_stages(options, replay):
    """Peak and end. The last stage ends with the program."""
    print(" ".join(options) or "staged")
    *stages, last = replay["stages"]
    for each in stages:
        print(f"    {each['name']:<20} {each['peak_bytes'] / GIB:6.1f}, {each['end_bytes'] / GIB:6.1f}")
    print(f"    {last['name']:<20} {last['peak_bytes'] / GIB:6.1f}", flush=True)


def run(reveille, python, out, *options):
    """Exit status, the step's measurements, the device from `reveille replay` of the trace, and the whole result."""
    trace, readings, said = out / "run.rvt", out / "readings.json", out / "stderr"
    with said.open("w") as err:
        done = subprocess.run([reveille, "run", "--device", "h200", "--stages-nvtx", "stage:", "-o", trace, "--",
                               python, STEP, "-o", readings, *options],
                              check=False, stderr=err, timeout=600)  # fmt: skip
    replay = subprocess.run([reveille, "replay", "--json", trace], check=False, capture_output=True, text=True)
    result = json.loads(replay.stdout)
    print_stages(options, result["devices"][0])
    return done.returncode, json.loads(readings.read_text()), result["devices"][0], result


def awake(reading):
    return sum(reading["engine"]["awake"].values())


def driver_part(reading):
    """Memory in use outside the two allocators: contexts, kernels, streams, handles of cuBLAS."""
    return reading["used"] - reading["engine"]["reserved"] - reading["trainer"]["reserved"]


def check_stages(names, readings, replay):
    """The driver, the trace and both allocators agree at the end of every stage."""
    check([each["name"] for each in replay["stages"]], names, "stages of the trace")
    check([each["stage"] for each in readings], [name.split("#")[0] for name in names], "stages of the readings")
    for each, traced in list(zip(readings, replay["stages"], strict=True))[:-1]:  # the last one ends with the program
        check(traced["end_bytes"], each["used"], f"in use at the end of {traced['name']}")
    alone = driver_part(readings[0])
    both = driver_part(readings[4])
    check([driver_part(each) for each in readings[:3]], [alone] * 3, "the driver's part beside the engine")
    check([driver_part(each) for each in readings[4:]], [both] * (len(names) - 4), "the driver's part beside both")
    assert 2 * 526 << 20 < both < 2 << 30, both
    return both - alone


def check_engine(readings, asleep, awake_again):
    """When it sleeps, nothing of the engine is awake. When it is awake, it has what it had before."""
    before = readings[0]["engine"]["awake"]
    assert before["weights"] >= weight_bytes(CONFIG, 1), before
    for each in readings[asleep:awake_again]:
        loaded = each["stage"] in ("weights_awake", "weights_updated", "weights_offloaded")
        expected = {tag: size if loaded and tag != "kv_cache" else 0 for tag, size in before.items()}
        check(each["engine"]["awake"], expected, f"awake in {each['stage']}")
    for each in readings[awake_again:]:
        check(each["engine"]["awake"], before, f"awake in {each['stage']}")


def check_trainer(readings, times):
    """times: multiples of its parameters' bytes, by stage: weights, and two moments. Gradients are freed by the end of a stage."""
    weights = weight_bytes(CONFIG, 1)
    for each in readings:
        more = each["trainer"]["requested"] - times.get(each["stage"], 0) * weights
        assert 0 <= more <= SMALL, f"{each['stage']}: the trainer has {more} bytes more than its parameters"
        assert each["trainer"]["reserved"] >= each["trainer"]["requested"], each


def check_staged(status, readings, replay):
    check(status, 0, "exit status")
    check_stages(STAGED, readings, replay)
    check_engine(readings, 2, 9)
    check_trainer(readings, {"trainer_loaded": 1, "train": 3, "optimizer_offloaded": 1, "weights_awake": 1,
                             "weights_updated": 1})  # fmt: skip
    at = {each["stage"]: each for each in readings[1:-1]}
    before = readings[0]["engine"]["awake"]
    check(at["weights_awake"]["used"] - at["optimizer_offloaded"]["used"], before["weights"] + before["runtime"],
          "taken by the weights")  # fmt: skip
    uncached = at["weights_offloaded"]["engine"]["reserved"] - awake(at["weights_offloaded"])
    uncached -= at["kv_cache_awake"]["engine"]["reserved"] - awake(at["kv_cache_awake"])
    check(at["kv_cache_awake"]["used"] - at["weights_offloaded"]["used"], before["kv_cache"] - uncached,
          "taken by the KV cache")  # fmt: skip
    peaks = {each["name"]: each["peak_bytes"] for each in replay["stages"]}
    assert peaks["train"] > 4 * weight_bytes(CONFIG, 1), "weights, gradients and two moments at once"
    check(replay["fits"], True, "it fits")
    assert replay["peak_stage"] in ENGINE_AWAKE, f"the peak is in {replay['peak_stage']}, expected one of {ENGINE_AWAKE}"


def check_refused(status, readings, result):
    """The KV cache does not fit beside the trainer, by the driver's own figures."""
    check(status, 1, "exit status")
    check([each["stage"] for each in readings], BEGIN, "stages that ended")
    before, trained = readings[0]["engine"]["awake"], readings[-1]["used"]
    free = CAPACITY - trained - before["weights"] - before["runtime"]
    refusal = result["refused"]["first"]
    assert refusal["process"].startswith("VLLM::"), refusal
    asked = refusal["requested_bytes"], refusal["free_bytes"]
    check(asked, (before["kv_cache"], free), "asked for, and free")
    check(result["verdict"]["kind"], "out of memory", "verdict")


def check_together(status, readings, replay):
    """Everything at once fits beside a smaller engine, and is the peak."""
    check(status, 0, "exit status")
    check_stages(TOGETHER, readings, replay)
    check_engine(readings, 2, 5)
    check_trainer(readings, {"trainer_loaded": 1, "train": 3, "all_awake": 3, "weights_updated": 3})
    trained, both = readings[4], readings[5]
    check(both["used"] - trained["used"], awake(both), "taken by the engine beside the trainer")
    peaks = {each["name"]: each["peak_bytes"] for each in replay["stages"]}
    staged = max(peaks[name] for name in BEGIN)
    assert replay["peak_bytes"] >= staged + awake(both) - SMALL, (replay["peak_bytes"], staged)


def main():
    reveille, python = Path(sys.argv[1]).resolve(), sys.argv[2]
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_USE_FLASHINFER_SAMPLER="0")
    with tempfile.TemporaryDirectory() as made:
        out = Path(sys.argv[3] if len(sys.argv) > 3 else made).resolve()
        for graphs in ([], ["--eager"]):
            status, readings, replay, _ = run(reveille, python, out, *graphs)
            check_staged(status, readings, replay)
        status, readings, _, result = run(reveille, python, out, "--eager", "--together")
        check_refused(status, readings, result)
        status, readings, replay, _ = run(reveille, python, out, "--eager", "--together", "--mem-fraction", "0.4")
        check_together(status, readings, replay)
    print("all is as expected")


if __name__ == "__main__":
    main()
