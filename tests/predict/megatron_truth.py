#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds `reveille model --train megatron:N` against megatron-core: the most that PyTorch allocated and reserved in a step.

    megatron_truth.py REVEILLE [FOLDER]      FOLDER: where the readings are; default: tests/simcuda/truth

The programs are tests/simcuda/programs/megatron_train.py on simulated H200s (tests/simcuda/megatron.sh made the figures).
Prints a table for docs/fidelity/megatron.md, and ends with 1 where a prediction is beyond its bounds.
"""

import json
import os
import subprocess
import sys
import tempfile

from training_truth import CONFIGS, TRUTH, cell, moments

# File of its readings, config, its layers if not all, options of the prediction.
PROGRAMS = [
    ("tp2", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-tp 2 --micro-batch 2 --seq-len 2048"),
    ("tp2-sp", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-tp 2 --sequence-parallel --micro-batch 2 --seq-len 4096"),
    ("pp2-first", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-pp 2 --seq-len 2048 --accumulate 4"),
    ("pp2-last", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-pp 2 --train-stage 1 --seq-len 2048 --accumulate 4"),
    ("dp2", "qwen3-0.6b", None, "megatron:2 --transformer-impl local --seq-len 4096 --accumulate 2"),
    ("tp2-pp2-dp2-sp-recompute", "llama-3.1-8b", None,
     "megatron:8 --transformer-impl local --train-tp 2 --train-pp 2 --sequence-parallel --seq-len 4096 --accumulate 4 --recompute"),
    ("tp4-sp-selective-bf16", "qwen2.5-7b", None,
     "megatron:4 --transformer-impl local --train-tp 4 --sequence-parallel --seq-len 4096 --accumulate 2 --recompute-attention --bf16-gradients"),
    ("ep2", "qwen3-30b-a3b", 2, "megatron:2 --transformer-impl local --train-ep 2 --seq-len 1024"),
    ("pp4-second", "llama-3.2-1b", None, "megatron:4 --transformer-impl local --train-pp 4 --train-stage 1 --seq-len 4096 --accumulate 6"),
    ("dp4-bf16", "qwen2.5-0.5b", None, "megatron:4 --transformer-impl local --micro-batch 2 --seq-len 2048 --bf16-gradients"),
    ("tp2-recompute", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-tp 2 --seq-len 8192 --recompute"),
    ("ep4-tp2-sp", "qwen3-30b-a3b", 3,
     "megatron:8 --transformer-impl local --train-tp 2 --train-ep 4 --sequence-parallel --seq-len 2048 --accumulate 2"),
    ("ep8-recompute", "mixtral-8x7b-v0.1", 2, "megatron:8 --transformer-impl local --train-ep 8 --seq-len 4096 --recompute"),
    ("pp2-vpp2-first", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-pp 2 --train-vpp 2 --seq-len 2048 --accumulate 4"),
    ("pp2-vpp2-last", "llama-3.2-1b", None,
     "megatron:2 --transformer-impl local --train-pp 2 --train-vpp 2 --train-stage 1 --seq-len 2048 --accumulate 4"),
    ("pp4-vpp2-second", "llama-3.2-1b", None,
     "megatron:4 --transformer-impl local --train-pp 4 --train-vpp 2 --train-stage 1 --seq-len 4096 --accumulate 8"),
    ("pp4-vpp3-first", "qwen2.5-0.5b", None, "megatron:4 --transformer-impl local --train-pp 4 --train-vpp 3 --seq-len 2048 --accumulate 8"),
    ("pp4-vpp3-third", "qwen2.5-0.5b", None,
     "megatron:4 --transformer-impl local --train-pp 4 --train-vpp 3 --train-stage 2 --seq-len 2048 --accumulate 12"),
    ("pp4-vpp3-last", "qwen2.5-0.5b", None,
     "megatron:4 --transformer-impl local --train-pp 4 --train-vpp 3 --train-stage 3 --seq-len 2048 --accumulate 8"),
    ("pp2-vpp3-last", "qwen2.5-0.5b", None,
     "megatron:2 --transformer-impl local --train-pp 2 --train-vpp 3 --train-stage 1 --seq-len 2048 --accumulate 2"),
    ("pp2-vpp4-first", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-pp 2 --train-vpp 4 --seq-len 2048 --accumulate 6"),
    ("pp4-vpp4-second", "llama-3.2-1b", None,
     "megatron:4 --transformer-impl local --train-pp 4 --train-vpp 4 --train-stage 1 --seq-len 4096 --accumulate 8"),
    ("pp4-vpp2-first", "llama-3.2-1b", None, "megatron:4 --transformer-impl local --train-pp 4 --train-vpp 2 --seq-len 2048 --accumulate 4"),
    # With Megatron's layers, but TransformerEngine's attention and Adam.
    ("cp2", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-cp 2 --seq-len 4096 --fused"),
    ("cp2-last", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-cp 2 --seq-len 4096 --fused"),
    ("cp4", "llama-3.2-1b", None, "megatron:4 --transformer-impl local --train-cp 4 --seq-len 8192 --fused"),
    ("cp2-tp2-sp", "qwen3-0.6b", None,
     "megatron:4 --transformer-impl local --train-cp 2 --train-tp 2 --sequence-parallel --seq-len 8192 --accumulate 2 --fused"),
    ("cp4-recompute", "qwen2.5-0.5b", None, "megatron:4 --transformer-impl local --train-cp 4 --seq-len 32768 --recompute --fused"),
    ("cp2-selective", "llama-3.2-1b", None, "megatron:2 --transformer-impl local --train-cp 2 --seq-len 8192 --recompute-attention --fused"),
    # With TransformerEngine's layers.
    ("te-dp2", "qwen3-0.6b", None, "megatron:2 --seq-len 4096 --accumulate 2"),
    ("te-tp2-sp", "llama-3.2-1b", None, "megatron:2 --train-tp 2 --sequence-parallel --micro-batch 2 --seq-len 4096"),
    ("te-pp2-last", "llama-3.2-1b", None, "megatron:2 --train-pp 2 --train-stage 1 --seq-len 2048 --accumulate 4"),
    ("te-pp2-vpp2-last", "llama-3.2-1b", None,
     "megatron:2 --train-pp 2 --train-vpp 2 --train-stage 1 --seq-len 2048 --accumulate 4"),
    ("te-pp4-vpp2-second", "llama-3.2-1b", None,
     "megatron:4 --train-pp 4 --train-vpp 2 --train-stage 1 --seq-len 4096 --accumulate 8"),
    ("te-tp2-pp2-dp2-sp-recompute", "llama-3.1-8b", None,
     "megatron:8 --train-tp 2 --train-pp 2 --sequence-parallel --seq-len 4096 --accumulate 4 --recompute"),
    ("te-tp4-sp-selective-bf16", "qwen2.5-7b", None,
     "megatron:4 --train-tp 4 --sequence-parallel --seq-len 4096 --accumulate 2 --recompute-attention --bf16-gradients"),
    ("te-tp2-recompute", "llama-3.2-1b", None, "megatron:2 --train-tp 2 --seq-len 8192 --recompute"),
    ("te-dp4-bf16", "qwen2.5-0.5b", None, "megatron:4 --micro-batch 2 --seq-len 2048 --bf16-gradients"),
    ("te-cp2", "llama-3.2-1b", None, "megatron:2 --train-cp 2 --seq-len 4096"),
    ("te-cp4-recompute", "qwen2.5-0.5b", None, "megatron:4 --train-cp 4 --seq-len 32768 --recompute"),
    ("te-cp2-selective", "llama-3.2-1b", None, "megatron:2 --train-cp 2 --seq-len 8192 --recompute-attention"),
    ("te-ep2", "qwen3-30b-a3b", 2, "megatron:2 --train-ep 2 --seq-len 1024"),
    ("te-ep8-recompute", "mixtral-8x7b-v0.1", 2, "megatron:8 --train-ep 8 --seq-len 4096 --recompute"),
    # Grouped products of experts; the older class's package is replaced in the program.
    ("te-ep2-grouped", "qwen3-30b-a3b", 2, "megatron:2 --train-ep 2 --seq-len 1024 --moe-grouped-gemm"),
    ("te-ep4-tp2-sp-grouped", "qwen3-30b-a3b", 3,
     "megatron:8 --train-tp 2 --train-ep 4 --sequence-parallel --seq-len 2048 --accumulate 2 --moe-grouped-gemm"),
    ("te-ep8-recompute-grouped", "mixtral-8x7b-v0.1", 2,
     "megatron:8 --train-ep 8 --seq-len 4096 --recompute --moe-grouped-gemm"),
    ("te-pp2-ep4-grouped-first", "qwen3-30b-a3b", 4,
     "megatron:8 --train-pp 2 --train-ep 4 --seq-len 2048 --accumulate 4 --moe-grouped-gemm"),
    ("te-ep8-recompute-legacy", "mixtral-8x7b-v0.1", 2,
     "megatron:8 --train-ep 8 --seq-len 4096 --recompute --moe-grouped-gemm --moe-use-legacy-grouped-gemm"),
    ("ep2-legacy", "qwen3-30b-a3b", 2,
     "megatron:2 --transformer-impl local --train-ep 2 --seq-len 1024 --moe-grouped-gemm --fused"),
    ("ep4-tp2-sp-legacy", "qwen3-30b-a3b", 3,
     "megatron:8 --transformer-impl local --train-tp 2 --train-ep 4 --sequence-parallel --seq-len 2048 --accumulate 2 "
     "--moe-grouped-gemm --fused"),
    # A part of the optimizer on the host.
    ("offload", "qwen2.5-0.5b", None, "megatron:4 --transformer-impl local --seq-len 1024 --optimizer-offload 1"),
    ("offload-half", "qwen2.5-0.5b", None, "megatron:4 --transformer-impl local --seq-len 1024 --optimizer-offload 0.5"),
    ("offload-tp2-sp-quarter", "llama-3.2-1b", None,
     "megatron:4 --transformer-impl local --train-tp 2 --sequence-parallel --seq-len 4096 --optimizer-offload 0.25"),
    ("offload-ep8-bf16-half", "qwen3-30b-a3b", 2,
     "megatron:8 --transformer-impl local --train-ep 8 --seq-len 1024 --bf16-gradients --optimizer-offload 0.5"),
    ("te-offload-half", "qwen3-0.6b", None, "megatron:4 --seq-len 4096 --accumulate 2 --optimizer-offload 0.5"),
]
BOUNDS = {"max_allocated": 0.05, "max_reserved": 0.08}
MIB = 1 << 20


def config_with(name, layers, folder):
    """The path of a config, with fewer layers if asked for."""
    path = os.path.join(CONFIGS, f"{name}.json")
    if layers is None:
        return path
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    shorter = os.path.join(folder, f"{name}.json")
    with open(shorter, "w", encoding="utf-8") as file:
        json.dump({**fields, "num_hidden_layers": layers}, file)
    return shorter


def predict(reveille, config, layers, options):
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "step.rvt")
        line = [reveille, "model", config_with(config, layers, folder), "--train", *options.split(), "-o", trace]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        allocated, reserved = zip(*moments(trace))
        return {"max_allocated": max(allocated), "max_reserved": max(reserved)}


def read(folder, name):
    with open(os.path.join(folder, f"megatron-{name}.json"), encoding="utf-8") as file:
        return json.load(file)["step2"]["end"]


def main():
    reveille = os.path.abspath(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else TRUTH
    missing = [name for name, *_ in PROGRAMS if not os.path.exists(os.path.join(folder, f"megatron-{name}.json"))]
    if missing and folder == TRUTH:
        sys.exit(f"no readings of {', '.join(missing)}")
    beyond = []
    print("| program | peak allocated, MiB | read | peak reserved, MiB | read |\n| --- | --- | --- | --- | --- |")
    for name, config, layers, options in PROGRAMS:
        if name in missing:
            print(f"| {config} {options} | not run | | | |")
            continue
        truth, predicted = read(folder, name), predict(reveille, config, layers, options)
        cells = [f"{cell(predicted[what], truth[what])} | {truth[what] / MIB:.0f}" for what in BOUNDS]
        shown = f"{config}, {layers} layers" if layers else config
        print(f"| {shown} {options} | {cells[0]} | {cells[1]} |")
        for what, bound in BOUNDS.items():
            if abs(predicted[what] / truth[what] - 1) > bound:
                beyond.append(f"{name}: {what} is {predicted[what]}, and was {truth[what]}")
    if beyond:
        sys.exit("\n".join(beyond))


if __name__ == "__main__":
    main()
