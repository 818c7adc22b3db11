#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds `reveille model` against training that ran: the most that PyTorch allocated and reserved in the last step.

    training_truth.py REVEILLE [--families]

The programs are tests/simcuda/programs/train.py with FSDP2 on two ranks, DDP or neither on one, bf16 and AdamW. card: two H200s; simulated: two
simulated ones (--out of that program), for what has not run on a card. terms: the formulas of docs/model.md added up, which is what `--given
cached=0` leaves. program: the step as a program, which is the default. --bucket-freed: what was read is that of
a second forward pass without DDP's first bucket (with it, it ends with more allocated than the third). Prints a table for docs/fidelity/training.md, and ends
with 1 where the program is beyond its bounds. --families: prints for docs/model.md how far the program was at most of each family.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "simcuda", "programs"))
from shrunk import shrunk  # noqa: E402

CONFIGS = os.path.join(HERE, "..", "data", "configs")
TRUTH = os.path.join(HERE, "..", "simcuda", "truth")
# What it ran on, file of its readings, config, options.
PROGRAMS = [
    ("card", "train-qwen2.5-0.5b", "qwen2.5-0.5b", "--micro-batch 4 --seq-len 2048"),
    ("card", "train-qwen3-0.6b", "qwen3-0.6b", "--micro-batch 4 --seq-len 4096"),
    ("card", "train-llama-3.2-1b", "llama-3.2-1b", "--micro-batch 2 --seq-len 2048"),
    ("card", "train-qwen2.5-7b", "qwen2.5-7b", "--micro-batch 2 --seq-len 4096 --recompute --reshard"),
    ("simulated", "simulated-llama-3.2-1b-recompute", "llama-3.2-1b", "--micro-batch 3 --seq-len 4096 --recompute"),
    ("simulated", "simulated-qwen2.5-0.5b-reshard", "qwen2.5-0.5b", "--micro-batch 1 --seq-len 8192 --reshard"),
    ("simulated", "simulated-qwen3-8b-reshard", "qwen3-8b", "--micro-batch 1 --seq-len 2048 --reshard"),
    ("simulated", "simulated-llama-3.1-8b", "llama-3.1-8b", "--micro-batch 1 --seq-len 1000"),
    ("simulated", "simulated-qwen2.5-7b-recompute", "qwen2.5-7b", "--micro-batch 1 --seq-len 3000 --recompute"),
    ("simulated", "simulated-gemma-2b-reshard", "gemma-2b", "--micro-batch 1 --seq-len 2048 --reshard"),
    ("simulated", "simulated-mistral-7b-recompute-reshard", "mistral-7b-v0.1",
     "--micro-batch 2 --seq-len 2048 --recompute --reshard"),
    ("simulated", "simulated-ernie-4.5-0.3b", "ernie-4.5-0.3b", "--micro-batch 2 --seq-len 2048"),
    ("simulated", "simulated-smollm3-3b", "smollm3-3b", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-granite-3.1-8b-reshard", "granite-3.1-8b", "--micro-batch 1 --seq-len 2048 --reshard"),
    ("simulated", "simulated-hunyuan-7b-recompute", "hunyuan-7b", "--micro-batch 1 --seq-len 2048 --recompute"),
    ("simulated", "simulated-ministral3-8b-reshard", "ministral3-8b", "--micro-batch 1 --seq-len 2048 --reshard"),
    ("simulated", "simulated-seed-oss-8-layers", "seed-oss-8-layers", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-seed-oss-8-layers-recompute", "seed-oss-8-layers", "--micro-batch 1 --seq-len 2048 --recompute"),
    ("simulated", "simulated-phi-4-mini", "phi-4-mini", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-phi-4-recompute-reshard", "phi-4", "--micro-batch 1 --seq-len 2048 --recompute --reshard"),
    ("simulated", "simulated-olmo-2-7b", "olmo-2-7b", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-olmo-3-7b-recompute", "olmo-3-7b", "--micro-batch 1 --seq-len 2048 --recompute"),
    ("simulated", "simulated-exaone-4.0-32b-8-layers", "exaone-4.0-32b", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-gemma-3-1b", "gemma-3-1b", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-mixtral-8x7b-3-layers", "mixtral-8x7b-v0.1", "--micro-batch 1 --seq-len 2048 --layers 3"),
    ("simulated", "simulated-qwen3-30b-a3b-4-layers", "qwen3-30b-a3b", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-olmoe-8-layers", "olmoe-1b-7b", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-granite-3.1-3b-a800m-16-layers", "granite-3.1-3b-a800m",
     "--micro-batch 1 --seq-len 2048 --layers 16"),
    ("simulated", "simulated-glm-4.5-air-4-layers", "glm-4.5-air",
     "--micro-batch 1 --seq-len 2048 --layers 4 --experts 32"),
    ("simulated", "simulated-minimax-m2-3-layers", "minimax-m2", "--micro-batch 1 --seq-len 2048 --layers 3 --experts 32"),
    ("simulated", "simulated-gemma-2-2b", "gemma-2-2b", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-glm-4-9b-reshard", "glm-4-9b-0414", "--micro-batch 1 --seq-len 2048 --reshard"),
    ("simulated", "simulated-ministral-8b-reshard", "ministral-8b-2410", "--micro-batch 1 --seq-len 2048 --reshard"),
    ("simulated", "simulated-qwen3-30b-a3b-6-layers-recompute-reshard", "qwen3-30b-a3b",
     "--micro-batch 1 --seq-len 4096 --layers 6 --recompute --reshard"),
    ("simulated", "simulated-qwen1.5-moe-a2.7b-8-layers", "qwen1.5-moe-a2.7b", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-ernie-4.5-21b-a3b-6-layers", "ernie-4.5-21b-a3b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-deepseek-v2-lite-6-layers", "deepseek-v2-lite", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-deepseek-v3-5-layers", "deepseek-v3",
     "--micro-batch 1 --seq-len 2048 --layers 5 --experts 16"),
    ("simulated", "simulated-glm-4.7-flash-6-layers", "glm-4.7-flash", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-mistral4-4-layers", "mistral4", "--micro-batch 1 --seq-len 2048 --layers 4 --experts 16"),
    ("simulated", "simulated-mistral4-4-layers-recompute-reshard", "mistral4",
     "--micro-batch 1 --seq-len 3000 --layers 4 --experts 16 --recompute --reshard"),
    ("simulated", "simulated-mistral4-4-layers-ddp-freed", "mistral4",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4 --experts 16"),
    ("simulated", "simulated-glm-5-5-layers", "glm-moe-dsa", "--micro-batch 1 --seq-len 2048 --layers 5 --experts 16"),
    ("simulated", "simulated-glm-5-4-layers-two-sequences", "glm-moe-dsa",
     "--micro-batch 2 --seq-len 1000 --layers 4 --experts 8"),
    ("simulated", "simulated-glm-5-5-layers-recompute-reshard", "glm-moe-dsa",
     "--micro-batch 1 --seq-len 3000 --layers 5 --experts 16 --recompute --reshard"),
    ("simulated", "simulated-glm-5-4-layers-ddp-freed", "glm-moe-dsa",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4 --experts 8"),
    ("simulated", "simulated-deepseek-v3.2-5-layers", "deepseek-v3.2-exp",
     "--micro-batch 1 --seq-len 2048 --layers 5 --experts 16"),
    ("simulated", "simulated-glm-5-4-layers-longer-than-chosen", "glm-moe-dsa",
     "--micro-batch 1 --seq-len 4096 --layers 4 --experts 8"),
    ("simulated", "simulated-gemma-3n-e2b", "gemma-3n-e2b", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-gemma-3n-e2b-below-window-recompute", "gemma-3n-e2b",
     "--micro-batch 3 --seq-len 400 --recompute"),
    ("simulated", "simulated-gemma-3n-e4b-recompute-reshard", "gemma-3n-e4b-text",
     "--micro-batch 1 --seq-len 2048 --recompute --reshard"),
    ("simulated", "simulated-gemma-3n-e2b-ddp-freed", "gemma-3n-e2b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 1024"),
    ("simulated", "simulated-gpt-oss-20b-6-layers", "gpt-oss-20b", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-gpt-oss-20b-6-layers-recompute-reshard", "gpt-oss-20b",
     "--micro-batch 1 --seq-len 1500 --layers 6 --recompute --reshard"),
    ("simulated", "simulated-llama-4-4-layers", "llama4-text", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-qwen3-vl-8b-reshard", "qwen3-vl-8b", "--micro-batch 1 --seq-len 2048 --reshard"),
    ("simulated", "simulated-llama-3.2-1b-plain", "llama-3.2-1b", "--train plain --micro-batch 2 --seq-len 2048"),
    ("simulated", "simulated-qwen2.5-0.5b-plain", "qwen2.5-0.5b", "--train plain --micro-batch 2 --seq-len 2048"),
    ("simulated", "simulated-llama-3.2-1b-ddp", "llama-3.2-1b", "--train ddp --micro-batch 2 --seq-len 2048"),
    ("simulated", "simulated-llama-3.2-1b-ddp-freed", "llama-3.2-1b",
     "--train ddp --bucket-freed --micro-batch 2 --seq-len 2048"),
    ("simulated", "simulated-gemma-2-2b-ddp-freed", "gemma-2-2b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-glm-4-9b-3-layers-ddp", "glm-4-9b-0414",
     "--train ddp --micro-batch 1 --seq-len 2048 --layers 3"),
    ("simulated", "simulated-phi-4-mini-16-layers-ddp", "phi-4-mini",
     "--train ddp --micro-batch 1 --seq-len 2048 --layers 16"),
    ("simulated", "simulated-phi-4-mini-16-layers-ddp-freed", "phi-4-mini",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 16"),
    ("simulated", "simulated-olmo-2-7b-12-layers-ddp", "olmo-2-7b",
     "--train ddp --micro-batch 1 --seq-len 2048 --layers 12"),
    ("simulated", "simulated-olmo-2-7b-12-layers-ddp-freed", "olmo-2-7b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 12"),
    ("simulated", "simulated-hunyuan-a13b-4-layers", "hunyuan-a13b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-qwen3-vl-30b-a3b-4-layers", "qwen3-vl-30b-a3b", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-nemotron-3-nano-30b-a3b-7-layers", "nemotron-3-nano-30b-a3b",
     "--micro-batch 1 --seq-len 2048 --layers 7 --experts 16"),
    ("simulated", "simulated-granitemoeshared", "granitemoeshared", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-granite-4.0-h-tiny-8-layers", "granite-4.0-h-tiny",
     "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-nemotron-nano-9b-v2-15-layers-reshard", "nemotron-nano-9b-v2",
     "--micro-batch 1 --seq-len 2048 --layers 15 --reshard"),
    ("simulated", "simulated-granite-4.0-h-micro-8-layers-ddp", "granite-4.0-h-micro",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-granitemoeshared-recompute-reshard", "granitemoeshared",
     "--micro-batch 1 --seq-len 1500 --recompute --reshard"),
    ("simulated", "simulated-nemotron-3-nano-30b-a3b-7-layers-ddp", "nemotron-3-nano-30b-a3b",
     "--train ddp --micro-batch 1 --seq-len 1000 --layers 7 --experts 16"),
    ("simulated", "simulated-nemotron-nano-9b-v2-15-layers-recompute", "nemotron-nano-9b-v2",
     "--micro-batch 1 --seq-len 3000 --layers 15 --recompute"),
    ("simulated", "simulated-nemotron-nano-9b-v2-9-layers-ddp", "nemotron-nano-9b-v2",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 1024 --layers 9"),
    ("simulated", "simulated-granite-4.0-h-micro-10-layers-recompute-reshard", "granite-4.0-h-micro",
     "--micro-batch 2 --seq-len 1000 --layers 10 --recompute --reshard"),
    ("simulated", "simulated-granitemoeshared-2-layers-ddp", "granitemoeshared",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 2"),
    ("simulated", "simulated-granite-4.0-h-tiny-6-layers-reshard", "granite-4.0-h-tiny",
     "--micro-batch 2 --seq-len 700 --layers 6 --reshard"),
    ("simulated", "simulated-gemma-2-2b-6-layers", "gemma-2-2b", "--micro-batch 1 --seq-len 6000 --layers 6"),
    ("simulated", "simulated-llama-3.2-1b-flash", "llama-3.2-1b", "--micro-batch 2 --seq-len 2048 --attention flash"),
    ("simulated", "simulated-qwen2.5-7b-flash-recompute", "qwen2.5-7b",
     "--micro-batch 1 --seq-len 3000 --attention flash --recompute"),
    ("simulated", "simulated-llama-2-7b-efficient", "llama-2-7b",
     "--micro-batch 1 --seq-len 1500 --attention efficient --reshard"),
    ("simulated", "simulated-llama-3.2-1b-math", "llama-3.2-1b", "--micro-batch 2 --seq-len 1024 --attention math"),
    ("simulated", "simulated-qwen3-0.6b-math-recompute", "qwen3-0.6b",
     "--micro-batch 2 --seq-len 1500 --attention math --recompute --reshard"),
    ("simulated", "simulated-llama-3.2-1b-chunked", "llama-3.2-1b", "--micro-batch 2 --seq-len 2048 --loss chunked"),
    ("simulated", "simulated-qwen2.5-7b-chunked-recompute", "qwen2.5-7b",
     "--micro-batch 1 --seq-len 3000 --loss chunked:5 --recompute --reshard"),
    ("simulated", "simulated-qwen2.5-0.5b-fused", "qwen2.5-0.5b", "--micro-batch 4 --seq-len 2048 --loss fused"),
    ("simulated", "simulated-qwen3-8b-fused-reshard", "qwen3-8b",
     "--micro-batch 1 --seq-len 2048 --loss fused --reshard"),
    ("simulated", "simulated-llama-3.2-1b-reduce-fp32", "llama-3.2-1b", "--micro-batch 2 --seq-len 2048 --reduce-fp32"),
    ("simulated", "simulated-qwen3-8b-reduce-fp32-reshard", "qwen3-8b",
     "--micro-batch 1 --seq-len 2048 --reduce-fp32 --reshard"),
    ("card", "train-llama-3.2-1b-lora", "llama-3.2-1b", "--micro-batch 2 --seq-len 2048 --lora 16"),
    ("card", "train-qwen2.5-7b-lora-recompute", "qwen2.5-7b",
     "--micro-batch 1 --seq-len 3000 --lora 64 --lora-targets all-linear --recompute --reshard"),
    ("simulated", "simulated-qwen3-8b-lora-reshard", "qwen3-8b",
     "--micro-batch 1 --seq-len 2048 --lora 32 --lora-targets all-linear --reshard"),
    ("simulated", "simulated-llama-3.1-8b-lora-ddp", "llama-3.1-8b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 1000 --lora 8"),
    ("simulated", "simulated-llama-3.2-1b-nf4", "llama-3.2-1b",
     "--train ddp --bucket-freed --micro-batch 2 --seq-len 2048 --lora 16 --base-dtype nf4"),
    ("simulated", "simulated-llama-3.1-8b-nf4-recompute", "llama-3.1-8b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --lora 64 --lora-targets all-linear --base-dtype nf4 "
     "--recompute"),
    ("simulated", "simulated-llama-3.1-8b-nf4-single", "llama-3.1-8b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 1000 --lora 8 --base-dtype nf4-single"),
    ("simulated", "simulated-qwen2.5-7b-nf4-recompute", "qwen2.5-7b",
     "--train ddp --bucket-freed --micro-batch 4 --seq-len 2048 --lora 16 --lora-targets all-linear --base-dtype nf4 "
     "--recompute"),
    ("simulated", "simulated-qwen3-8b-nf4-8bit", "qwen3-8b",
     "--train ddp --bucket-freed --micro-batch 2 --seq-len 1024 --lora 32 --lora-targets all-linear "
     "--base-dtype nf4-single --optimizer adamw-8bit"),
    ("simulated", "simulated-llama-3.2-1b-nf4-fsdp", "llama-3.2-1b",
     "--micro-batch 2 --seq-len 2048 --lora 16 --base-dtype nf4"),
    ("simulated", "simulated-llama-3.1-8b-nf4-fsdp-recompute", "llama-3.1-8b",
     "--micro-batch 2 --seq-len 2048 --lora 64 --lora-targets all-linear --base-dtype nf4 --recompute --reshard"),
    ("simulated", "simulated-qwen2.5-7b-nf4-single-fsdp", "qwen2.5-7b",
     "--micro-batch 1 --seq-len 1500 --lora 16 --base-dtype nf4-single --reshard"),
    ("simulated", "simulated-llama-3.1-8b-nf4-autocast", "llama-3.1-8b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --lora 32 --lora-targets all-linear --base-dtype nf4 "
     "--autocast --recompute"),
    ("simulated", "simulated-llama-3.2-1b-nf4-kbit-autocast", "llama-3.2-1b",
     "--train ddp --bucket-freed --micro-batch 2 --seq-len 2048 --lora 16 --base-dtype nf4 --prepare-kbit --autocast"),
    ("simulated", "simulated-llama-3.1-8b-nf4-kbit-autocast", "llama-3.1-8b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --lora 64 --lora-targets all-linear --base-dtype nf4 "
     "--prepare-kbit --autocast --recompute"),
    ("simulated", "simulated-qwen2.5-7b-nf4-kbit-autocast", "qwen2.5-7b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 1500 --lora 16 --lora-targets all-linear --base-dtype nf4 "
     "--prepare-kbit --autocast --adapter-dtype bf16"),
    ("simulated", "simulated-qwen3-8b-nf4-kbit-autocast-fsdp", "qwen3-8b",
     "--micro-batch 1 --seq-len 2048 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast "
     "--recompute --reshard"),
    ("simulated", "simulated-qwen3-8b-nf4-bf16-adapters", "qwen3-8b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --lora 32 --lora-targets all-linear --base-dtype nf4 "
     "--adapter-dtype bf16 --recompute"),
    ("simulated", "simulated-llama-3.1-8b-nf4-bf16-adapters-fsdp", "llama-3.1-8b",
     "--micro-batch 1 --seq-len 2048 --lora 16 --lora-targets all-linear --base-dtype nf4 --adapter-dtype bf16"),
    ("simulated", "simulated-llama-3.2-1b-lora-bf16-adapters", "llama-3.2-1b",
     "--micro-batch 2 --seq-len 2048 --lora 16 --adapter-dtype bf16"),
    ("simulated", "simulated-llama-3.2-1b-paged-8bit", "llama-3.2-1b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --optimizer paged-adamw-8bit"),
    ("simulated", "simulated-llama-3.2-1b-cpu-offload", "llama-3.2-1b", "--micro-batch 2 --seq-len 2048 --cpu-offload"),
    ("simulated", "simulated-qwen3-0.6b-cpu-offload-recompute", "qwen3-0.6b",
     "--micro-batch 4 --seq-len 2048 --cpu-offload --recompute --reshard"),
    ("simulated", "simulated-llama-3.2-1b-offload-activations", "llama-3.2-1b",
     "--micro-batch 2 --seq-len 2048 --recompute --offload-activations"),
    ("simulated", "simulated-llama-3.1-8b-offload-activations-reshard", "llama-3.1-8b",
     "--micro-batch 1 --seq-len 4096 --recompute --reshard --offload-activations"),
    ("simulated", "simulated-llama-3.1-8b-nf4-offload-activations", "llama-3.1-8b",
     "--train ddp --bucket-freed --micro-batch 2 --seq-len 2048 --lora 16 --lora-targets all-linear --base-dtype nf4 "
     "--recompute --offload-activations"),
    ("simulated", "simulated-qwen3-next-8-layers", "qwen3-next-80b-a3b",
     "--micro-batch 1 --seq-len 2048 --layers 8 --experts 64"),
    ("simulated", "simulated-qwen3-next-8-layers-recompute", "qwen3-next-80b-a3b",
     "--micro-batch 2 --seq-len 1500 --layers 8 --experts 64 --recompute"),
    ("simulated", "simulated-qwen3-next-4-layers-ddp", "qwen3-next-80b-a3b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4 --experts 64"),
    ("simulated", "simulated-qwen3.5-8-layers", "qwen3_5", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-qwen3.5-8-layers-recompute-reshard", "qwen3_5",
     "--micro-batch 2 --seq-len 1500 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-qwen3.5-4-layers-ddp", "qwen3_5",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-qwen3.5-moe-8-layers", "qwen3_5_moe",
     "--micro-batch 1 --seq-len 2048 --layers 8 --experts 64"),
    ("simulated", "simulated-qwen3.5-moe-8-layers-recompute-reshard", "qwen3_5_moe",
     "--micro-batch 2 --seq-len 1500 --layers 8 --experts 64 --recompute --reshard"),
    ("simulated", "simulated-qwen3.5-moe-4-layers-ddp", "qwen3_5_moe",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4 --experts 64"),
    ("simulated", "simulated-qwen2.5-0.5b-accumulate-fused", "qwen2.5-0.5b",
     "--micro-batch 4 --seq-len 2048 --accumulate 3 --fused"),
    ("simulated", "simulated-qwen2.5-0.5b-accumulate-ddp", "qwen2.5-0.5b", "--train ddp --seq-len 2048 --accumulate 2"),
    ("simulated", "simulated-qwen3-0.6b-accumulate-reduce-fp32", "qwen3-0.6b",
     "--seq-len 4096 --accumulate 2 --reduce-fp32"),
    ("simulated", "simulated-qwen2.5-vl-7b-text-6-layers", "qwen2.5-vl-7b-text", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-qwen2-vl-2b-text", "qwen2-vl-2b-text", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-qwen2-vl-7b-6-layers", "qwen2-vl-7b", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-qwen3-vl-8b-text-6-layers", "qwen3-vl-8b-text", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-qwen3-vl-30b-a3b-text-4-layers", "qwen3-vl-30b-a3b-text",
     "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-glm4v-text-6-layers", "glm4v-text", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-glm4v-moe-text-4-layers", "glm4v-moe-text",
     "--micro-batch 1 --seq-len 2048 --layers 4 --experts 32"),
    ("simulated", "simulated-glm-4-9b-8-layers", "glm-4-9b", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-afm-4.5b-4-layers", "afm-4.5b", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-cwm-8-layers", "cwm", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-solar-open-4-layers", "solar-open-100b", "--micro-batch 1 --seq-len 2048 --layers 4 --experts 32"),
    ("simulated", "simulated-dots.llm1-4-layers", "dots.llm1", "--micro-batch 1 --seq-len 2048 --layers 4 --experts 32"),
    ("simulated", "simulated-vaultgemma-1b", "vaultgemma-1b", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-flex-olmo-6-layers", "flex-olmo-7x7b", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-k-exaone-4-layers", "k-exaone-236b-a23b", "--micro-batch 1 --seq-len 2048 --layers 4 --experts 16"),
    ("simulated", "simulated-afm-4.5b-8-layers-recompute-reshard", "afm-4.5b",
     "--micro-batch 1 --seq-len 3000 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-afm-4.5b-8-layers-lora", "afm-4.5b",
     "--micro-batch 1 --seq-len 2048 --layers 8 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-flex-olmo-4-layers-recompute-reshard", "flex-olmo-7x7b",
     "--micro-batch 1 --seq-len 2048 --layers 4 --recompute --reshard"),
    ("simulated", "simulated-glm-4-9b-8-layers-lora", "glm-4-9b",
     "--micro-batch 1 --seq-len 1024 --layers 8 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-dots.llm1-4-layers-recompute-reshard", "dots.llm1",
     "--micro-batch 1 --seq-len 2048 --layers 4 --experts 32 --recompute --reshard"),
    ("simulated", "simulated-deepseek-v3-5-layers-recompute-reshard", "deepseek-v3",
     "--micro-batch 1 --seq-len 3000 --layers 5 --experts 32 --recompute --reshard"),
    ("simulated", "simulated-deepseek-v3-4-layers", "deepseek-v3",
     "--micro-batch 1 --seq-len 4096 --layers 4 --experts 64"),
    ("simulated", "simulated-kimi-k2-4-layers", "kimi-k2",
     "--micro-batch 1 --seq-len 4096 --layers 4 --experts 64"),
    ("simulated", "simulated-glm-4.5-air-4-layers-recompute-reshard", "glm-4.5-air",
     "--micro-batch 1 --seq-len 4096 --layers 4 --experts 64 --recompute --reshard"),
    ("simulated", "simulated-minimax-m2-3-layers-recompute-reshard", "minimax-m2",
     "--micro-batch 1 --seq-len 4096 --layers 3 --experts 64 --recompute --reshard"),
    ("simulated", "simulated-minimax-m2-2-layers-ddp", "minimax-m2",
     "--train ddp --micro-batch 1 --seq-len 2048 --layers 2 --experts 32"),
    ("simulated", "simulated-qwen1.5-moe-a2.7b-6-layers-recompute-reshard", "qwen1.5-moe-a2.7b",
     "--micro-batch 1 --seq-len 3000 --layers 6 --recompute --reshard"),
    ("simulated", "simulated-qwen1.5-moe-a2.7b-4-layers-ddp", "qwen1.5-moe-a2.7b",
     "--train ddp --micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-deepseek-v2-lite-4-layers-ddp", "deepseek-v2-lite",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-llama-4-4-layers-recompute-reshard", "llama4-text",
     "--micro-batch 1 --seq-len 2048 --layers 4 --recompute --reshard"),
    ("simulated", "simulated-qwen3-30b-a3b-4-layers-recompute-reshard", "qwen3-30b-a3b",
     "--micro-batch 1 --seq-len 4096 --layers 4 --recompute --reshard"),
    ("simulated", "simulated-glm-4.7-flash-5-layers-recompute", "glm-4.7-flash",
     "--micro-batch 1 --seq-len 4096 --layers 5 --recompute"),
    ("simulated", "simulated-olmoe-1b-7b-4-layers-ddp", "olmoe-1b-7b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-gpt-oss-20b-3-layers-ddp", "gpt-oss-20b",
     "--train ddp --micro-batch 1 --seq-len 2048 --layers 3"),
    ("simulated", "simulated-qwen3-next-4-layers-recompute-reshard", "qwen3-next-80b-a3b",
     "--micro-batch 1 --seq-len 2048 --layers 4 --experts 64 --recompute --reshard"),
    ("simulated", "simulated-mistral4-4-layers-two-sequences", "mistral4",
     "--micro-batch 2 --seq-len 2048 --layers 4 --experts 32"),
    ("simulated", "simulated-nemotron-3-nano-8-layers-recompute-reshard", "nemotron-3-nano-30b-a3b",
     "--micro-batch 1 --seq-len 2048 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-deepseek-v2-lite-5-layers-recompute-reshard", "deepseek-v2-lite",
     "--micro-batch 1 --seq-len 4096 --layers 5 --recompute --reshard"),
    ("simulated", "simulated-glm-4.1v-9b-6-layers-reshard", "glm-4.1v-9b", "--micro-batch 1 --seq-len 2048 --layers 6 --reshard"),
    ("simulated", "simulated-glm-4.5v-4-layers", "glm-4.5v", "--micro-batch 1 --seq-len 2048 --layers 4 --experts 32"),
    ("simulated", "simulated-youtu-llm-2b", "youtu-llm-2b", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-mellum-8-layers", "mellum", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-mellum-8-layers-recompute-reshard", "mellum",
     "--micro-batch 1 --seq-len 3000 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-bamba-9b-10-layers", "bamba-9b", "--micro-batch 1 --seq-len 2048 --layers 10"),
    ("simulated", "simulated-bamba-9b-10-layers-recompute-reshard", "bamba-9b",
     "--micro-batch 1 --seq-len 1500 --layers 10 --recompute --reshard"),
    ("simulated", "simulated-lfm2-1.2b", "lfm2-1.2b", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-lfm2-1.2b-recompute-reshard", "lfm2-1.2b", "--micro-batch 1 --seq-len 3000 --recompute --reshard"),
    ("simulated", "simulated-lfm2-350m-ddp-freed", "lfm2-350m", "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-llama-3.2-1b-cp2", "llama-3.2-1b", "--train fsdp:2 --train-cp 2 --micro-batch 1 --seq-len 8192"),
    ("simulated", "simulated-llama-3.2-1b-cp2-flash", "llama-3.2-1b",
     "--train fsdp:2 --train-cp 2 --micro-batch 1 --seq-len 8192 --attention flash"),
    ("simulated", "simulated-qwen3-0.6b-cp4-recompute-reshard", "qwen3-0.6b",
     "--train fsdp:4 --train-cp 4 --micro-batch 1 --seq-len 16384 --recompute --reshard"),
    ("simulated", "simulated-qwen2.5-0.5b-cp2-of-4", "qwen2.5-0.5b",
     "--train fsdp:4 --train-cp 2 --micro-batch 2 --seq-len 4096"),
    ("simulated", "simulated-qwen3-0.6b-cp2-flash-two-sequences", "qwen3-0.6b",
     "--train fsdp:2 --train-cp 2 --micro-batch 2 --seq-len 4096 --attention flash"),
    ("simulated", "simulated-llama-3.2-1b-cp4", "llama-3.2-1b", "--train fsdp:4 --train-cp 4 --micro-batch 1 --seq-len 8192"),
    ("simulated", "simulated-deepseek-v3-5-layers-accumulate", "deepseek-v3",
     "--micro-batch 1 --seq-len 2048 --layers 5 --experts 16 --accumulate 2"),
    ("simulated", "simulated-qwen3-30b-a3b-3-layers-ddp-flash", "qwen3-30b-a3b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 3 --attention flash"),
    ("simulated", "simulated-mixtral-8x7b-2-layers-ddp", "mixtral-8x7b-v0.1",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 2"),
    ("simulated", "simulated-mixtral-8x7b-4-layers-recompute-reshard", "mixtral-8x7b-v0.1",
     "--micro-batch 2 --seq-len 2000 --layers 4 --recompute --reshard"),
    ("simulated", "simulated-gpt-oss-20b-4-layers-recompute", "gpt-oss-20b",
     "--micro-batch 1 --seq-len 4096 --layers 4 --recompute"),
    ("simulated", "simulated-olmoe-1b-7b-6-layers-recompute-reshard", "olmoe-1b-7b",
     "--micro-batch 1 --seq-len 4096 --layers 6 --recompute --reshard"),
    ("simulated", "simulated-granite-3.1-3b-a800m-8-layers-recompute-reshard", "granite-3.1-3b-a800m",
     "--micro-batch 1 --seq-len 4096 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-granite-4.0-h-tiny-8-layers-recompute-reshard", "granite-4.0-h-tiny",
     "--micro-batch 1 --seq-len 2048 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-lfm2-8b-a1b-8-layers", "lfm2-8b-a1b", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-lfm2-8b-a1b-12-layers-recompute-reshard", "lfm2-8b-a1b",
     "--micro-batch 1 --seq-len 3000 --layers 12 --experts 16 --recompute --reshard"),
    ("simulated", "simulated-granitemoeshared-recompute", "granitemoeshared",
     "--micro-batch 1 --seq-len 2048 --recompute"),
    ("simulated", "simulated-glm-4.5-air-4-layers-128-experts", "glm-4.5-air",
     "--micro-batch 1 --seq-len 4096 --layers 4 --experts 128"),
    ("simulated", "simulated-llama-4-2-layers-ddp", "llama4-text",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 1024 --layers 2"),
    ("simulated", "simulated-ernie-4.5-21b-a3b-4-layers-ddp", "ernie-4.5-21b-a3b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-apertus-8b-4-layers", "apertus-8b", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-apertus-8b-4-layers-recompute-reshard", "apertus-8b",
     "--micro-batch 1 --seq-len 3000 --layers 4 --recompute --reshard"),
    ("simulated", "simulated-gemma-2-2b-8-layers-offload", "gemma-2-2b",
     "--micro-batch 1 --seq-len 2048 --layers 8 --recompute --offload-activations"),
    ("simulated", "simulated-gemma-3n-e2b-offload-activations", "gemma-3n-e2b",
     "--micro-batch 1 --seq-len 2048 --recompute --offload-activations"),
    ("simulated", "simulated-gemma-4-e2b", "gemma-4-e2b-text", "--micro-batch 1 --seq-len 2048"),
    ("simulated", "simulated-gemma-4-e2b-offload-activations", "gemma-4-e2b-text",
     "--micro-batch 1 --seq-len 2048 --recompute --offload-activations"),
    ("simulated", "simulated-gemma-4-e2b-below-window-recompute", "gemma-4-e2b-text",
     "--micro-batch 3 --seq-len 400 --recompute"),
    ("simulated", "simulated-gemma-4-e2b-ddp-freed", "gemma-4-e2b-text",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 1024"),
    ("simulated", "simulated-gemma-4-e4b-two-sequences", "gemma-4-e4b-text", "--micro-batch 2 --seq-len 1000"),
    ("simulated", "simulated-gemma-4-e4b-recompute-reshard", "gemma-4-e4b-text",
     "--micro-batch 1 --seq-len 2048 --recompute --reshard"),
    ("simulated", "simulated-gemma-4-31b-6-layers", "gemma-4-31b", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-gemma-4-31b-6-layers-recompute-reshard", "gemma-4-31b",
     "--micro-batch 1 --seq-len 3000 --layers 6 --recompute --reshard"),
    ("simulated", "simulated-gemma-4-12b-6-layers", "gemma-4-12b-text", "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-command-r7b-4-layers", "command-r7b", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-command-r7b-8-layers-recompute-reshard", "command-r7b",
     "--micro-batch 1 --seq-len 5000 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-command-r7b-3-layers-ddp-freed", "command-r7b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 3"),
    ("simulated", "simulated-aya-23-8b-4-layers", "aya-23-8b", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-aya-23-8b-4-layers-recompute-reshard", "aya-23-8b",
     "--micro-batch 1 --seq-len 3000 --layers 4 --recompute --reshard"),
    ("simulated", "simulated-command-r-plus-2-layers", "command-r-plus", "--micro-batch 1 --seq-len 1024 --layers 2"),
    ("simulated", "simulated-command-r-plus-3-layers-recompute-reshard", "command-r-plus",
     "--micro-batch 2 --seq-len 2048 --layers 3 --recompute --reshard"),
    ("simulated", "simulated-starcoder2-3b-8-layers", "starcoder2-3b", "--micro-batch 1 --seq-len 2048 --layers 8"),
    ("simulated", "simulated-starcoder2-7b-4-layers", "starcoder2-7b", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-starcoder2-3b-8-layers-recompute-reshard", "starcoder2-3b",
     "--micro-batch 1 --seq-len 5000 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-starcoder2-3b-6-layers-ddp-freed", "starcoder2-3b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-starcoder2-7b-6-layers-recompute-reshard", "starcoder2-7b",
     "--micro-batch 1 --seq-len 3000 --layers 6 --recompute --reshard"),
    ("simulated", "simulated-phi-3.5-moe-3-layers", "phi-3.5-moe", "--micro-batch 1 --seq-len 2048 --layers 3"),
    ("simulated", "simulated-phi-3.5-moe-3-layers-recompute-reshard", "phi-3.5-moe",
     "--micro-batch 1 --seq-len 3000 --layers 3 --recompute --reshard"),
    ("simulated", "simulated-phi-3.5-moe-2-layers-ddp-freed", "phi-3.5-moe",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 2048 --layers 2"),
    ("simulated", "simulated-phi-mini-moe-6-layers", "phi-mini-moe", "--micro-batch 1 --seq-len 4096 --layers 6"),
    ("simulated", "simulated-gemma-4-12b-12-layers-recompute-reshard", "gemma-4-12b-text",
     "--micro-batch 1 --seq-len 4096 --layers 12 --recompute --reshard"),
    ("simulated", "simulated-gemma-4-31b-12-layers-reshard", "gemma-4-31b",
     "--micro-batch 2 --seq-len 1024 --layers 12 --reshard"),
    ("simulated", "simulated-gemma-4-26b-a4b-6-layers", "gemma-4-26b-a4b-text",
     "--micro-batch 1 --seq-len 2048 --layers 6"),
    ("simulated", "simulated-gemma-4-26b-a4b-6-layers-recompute-reshard", "gemma-4-26b-a4b-text",
     "--micro-batch 1 --seq-len 3000 --layers 6 --experts 32 --recompute --reshard"),
    ("simulated", "simulated-gemma-4-26b-a4b-3-layers-ddp-freed", "gemma-4-26b-a4b-text",
     "--train ddp --bucket-freed --micro-batch 2 --seq-len 1000 --layers 3"),
    ("simulated", "simulated-falcon-h1-1.5b-4-layers", "falcon-h1-1.5b", "--micro-batch 1 --seq-len 1024 --layers 4"),
    ("simulated", "simulated-falcon-h1-1.5b-4-layers-recompute-reshard", "falcon-h1-1.5b",
     "--micro-batch 1 --seq-len 1100 --layers 4 --recompute --reshard"),
    ("simulated", "simulated-falcon-h1-1.5b-4-layers-ddp-freed", "falcon-h1-1.5b",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 512 --layers 4"),
    ("simulated", "simulated-nanochat-d32-4-layers", "nanochat-d32", "--micro-batch 1 --seq-len 2048 --layers 4"),
    ("simulated", "simulated-nanochat-d32-8-layers-recompute-reshard", "nanochat-d32",
     "--micro-batch 1 --seq-len 3000 --layers 8 --recompute --reshard"),
    ("simulated", "simulated-nanochat-d32-6-layers-ddp-freed", "nanochat-d32",
     "--train ddp --bucket-freed --micro-batch 1 --seq-len 4096 --layers 6"),
    ("simulated", "simulated-adapters-qwen3-moe-recompute", "qwen3-30b-a3b",
     "--micro-batch 1 --seq-len 3000 --layers 4 --lora 16 --lora-targets all-linear --recompute --reshard"),
    ("simulated", "simulated-adapters-deepseek-v2-lite", "deepseek-v2-lite",
     "--micro-batch 1 --seq-len 2048 --layers 4 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-command-r7b", "command-r7b", "--micro-batch 1 --seq-len 2048 --layers 8 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-starcoder2", "starcoder2-3b", "--micro-batch 1 --seq-len 2048 --layers 8 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-lfm2", "lfm2-1.2b", "--micro-batch 1 --seq-len 2048 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-qwen1.5-moe", "qwen1.5-moe-a2.7b",
     "--micro-batch 1 --seq-len 2048 --layers 4 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-granite-h", "granite-4.0-h-tiny",
     "--micro-batch 1 --seq-len 1024 --layers 6 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-qwen3_5", "qwen3_5_text", "--micro-batch 1 --seq-len 1024 --layers 4 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-gpt-oss", "gpt-oss-20b", "--micro-batch 1 --seq-len 2048 --layers 4 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-nanochat", "nanochat-d32", "--micro-batch 1 --seq-len 2048 --layers 8 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-glm-4.5-air", "glm-4.5-air",
     "--micro-batch 1 --seq-len 2048 --layers 4 --experts 32 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-deepseek-v3", "deepseek-v3",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-qwen3-next", "qwen3-next-80b-a3b",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 32 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-bamba", "bamba-9b", "--micro-batch 1 --seq-len 1024 --layers 4 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-apertus", "apertus-8b", "--micro-batch 1 --seq-len 2048 --layers 6 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-gemma4", "gemma-4-12b-text", "--micro-batch 1 --seq-len 2048 --layers 12 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-olmoe", "olmoe-1b-7b", "--micro-batch 1 --seq-len 2048 --layers 8 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-gemma3n-e2b", "gemma-3n-e2b", "--micro-batch 1 --seq-len 2048 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-gemma4-e2b", "gemma-4-e2b-text", "--micro-batch 1 --seq-len 2048 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-lfm2-moe", "lfm2-8b-a1b", "--micro-batch 1 --seq-len 2048 --layers 6 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-qwen3_5_moe", "qwen3_5_moe_text",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 32 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-granite-moe", "granite-3.1-3b-a800m",
     "--micro-batch 1 --seq-len 2048 --layers 8 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-mixtral", "mixtral-8x7b-v0.1", "--micro-batch 1 --seq-len 2048 --layers 3 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-gemma4-moe", "gemma-4-26b-a4b-text",
     "--micro-batch 1 --seq-len 2048 --layers 6 --experts 32 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-mistral4", "mistral4",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-minimax", "minimax-m2",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-lfm2-ddp", "lfm2-1.2b", "--train ddp --micro-batch 2 --seq-len 1024 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-qwen3_5-recompute", "qwen3_5_text",
     "--micro-batch 1 --seq-len 1500 --layers 8 --lora 16 --lora-targets all-linear --recompute --reshard"),
    ("simulated", "simulated-adapters-starcoder2-ddp", "starcoder2-3b",
     "--train ddp --micro-batch 2 --seq-len 1024 --layers 8 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-granite-h-recompute", "granite-4.0-h-tiny",
     "--micro-batch 1 --seq-len 1500 --layers 6 --lora 16 --lora-targets all-linear --recompute --reshard"),
    ("simulated", "simulated-adapters-youtu", "youtu-llm-2b", "--micro-batch 1 --seq-len 1024 --layers 6 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-command-r7b-offload", "command-r7b", "--micro-batch 1 --seq-len 2048 --layers 8 --recompute --offload-activations"),
    ("simulated", "simulated-starcoder2-offload", "starcoder2-3b", "--micro-batch 1 --seq-len 2048 --layers 8 --recompute --offload-activations"),
    ("simulated", "simulated-nanochat-offload", "nanochat-d32", "--micro-batch 1 --seq-len 2048 --layers 8 --recompute --offload-activations"),
    ("simulated", "simulated-adapters-lfm2-nf4", "lfm2-1.2b",
     "--train ddp --micro-batch 1 --seq-len 2048 --lora 16 --lora-targets all-linear --base-dtype nf4"),
    ("simulated", "simulated-adapters-starcoder2-nf4", "starcoder2-3b",
     "--train ddp --micro-batch 1 --seq-len 2048 --layers 8 --lora 16 --lora-targets all-linear --base-dtype nf4"),
    ("simulated", "simulated-adapters-qwen3_5-nf4", "qwen3_5_text",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 4 --lora 16 --lora-targets all-linear --base-dtype nf4"),
    ("simulated", "simulated-adapters-bamba-nf4", "bamba-9b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 4 --lora 16 --lora-targets all-linear --base-dtype nf4"),
    ("simulated", "simulated-adapters-qwen3-moe-ddp", "qwen3-30b-a3b",
     "--train ddp --micro-batch 2 --seq-len 1024 --layers 3 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-glm-4.5-recompute", "glm-4.5-air",
     "--micro-batch 1 --seq-len 3000 --layers 4 --experts 32 --lora 16 --lora-targets all-linear --recompute --reshard"),
    ("simulated", "simulated-adapters-ernie-moe", "ernie-4.5-21b-a3b",
     "--micro-batch 1 --seq-len 2048 --layers 4 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-dots", "dots.llm1",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 32 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-flex-olmo", "flex-olmo-7x7b", "--micro-batch 1 --seq-len 1024 --layers 4 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-k-exaone", "k-exaone-236b-a23b",
     "--micro-batch 1 --seq-len 1024 --layers 5 --experts 16 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-solar", "solar-open-100b",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 32 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-mellum", "mellum", "--micro-batch 1 --seq-len 1024 --layers 4 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-glm-flash", "glm-4.7-flash",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-glm4v-moe", "glm4v-moe-text",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-deepseek-v3.2", "deepseek-v3.2-exp",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-glm-dsa", "glm-moe-dsa",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-qwen3-moe-bf16", "qwen3-30b-a3b",
     "--micro-batch 1 --seq-len 2048 --layers 4 --lora 16 --lora-targets all-linear --adapter-dtype bf16"),
    ("simulated", "simulated-adapters-qwen3-next-recompute", "qwen3-next-80b-a3b",
     "--micro-batch 1 --seq-len 1024 --layers 4 --experts 32 --lora 16 --lora-targets all-linear --recompute --reshard"),
    ("simulated", "simulated-adapters-ernie-moe-ddp", "ernie-4.5-21b-a3b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 3 --lora 16 --lora-targets all-linear"),
    ("simulated", "simulated-adapters-qwen3-moe-nf4", "qwen3-30b-a3b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 3 --lora 16 --lora-targets all-linear --base-dtype nf4"),
    ("simulated", "simulated-adapters-qwen1.5-nf4", "qwen1.5-moe-a2.7b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 3 --lora 16 --lora-targets all-linear --base-dtype nf4"),
    ("simulated", "simulated-adapters-deepseek-nf4", "deepseek-v2-lite",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 3 --lora 16 --lora-targets all-linear --base-dtype nf4"),
    ("simulated", "simulated-adapters-gemma2-kbit", "gemma-2-2b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 6 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast"),
    ("simulated", "simulated-adapters-phi4-kbit", "phi-4-mini",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 6 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast"),
    ("simulated", "simulated-adapters-olmo2-kbit", "olmo-2-7b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 6 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast"),
    ("simulated", "simulated-adapters-command-kbit", "command-r7b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 6 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast"),
    ("simulated", "simulated-adapters-lfm2-kbit", "lfm2-1.2b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast"),
    ("simulated", "simulated-gemma2-cp", "gemma-2-2b", "--micro-batch 1 --seq-len 2048 --train-cp 2 --layers 6"),
    ("simulated", "simulated-phi4-cp", "phi-4-mini", "--micro-batch 1 --seq-len 2048 --train-cp 2 --layers 6"),
    ("simulated", "simulated-olmo2-cp", "olmo-2-7b", "--micro-batch 1 --seq-len 2048 --train-cp 2 --layers 6"),
    ("simulated", "simulated-command-cp", "command-r7b", "--micro-batch 1 --seq-len 2048 --train-cp 2 --layers 8"),
    ("simulated", "simulated-qwen3-moe-cp", "qwen3-30b-a3b", "--micro-batch 1 --seq-len 2048 --train-cp 2 --layers 4"),
    ("simulated", "simulated-starcoder2-cp", "starcoder2-3b", "--micro-batch 1 --seq-len 2048 --train-cp 2 --layers 6"),
    ("simulated", "simulated-llama-cp-offload", "llama-3.2-1b", "--micro-batch 1 --seq-len 2048 --train-cp 2 --recompute --offload-activations"),
    ("simulated", "simulated-llama-cp-cpu", "llama-3.2-1b", "--micro-batch 1 --seq-len 2048 --train-cp 2 --cpu-offload"),
    ("simulated", "simulated-adapters-qwen1.5-kbit", "qwen1.5-moe-a2.7b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3"),
    ("simulated", "simulated-adapters-deepseek-kbit", "deepseek-v2-lite",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3"),
    ("simulated", "simulated-adapters-bamba-kbit", "bamba-9b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3"),
    ("simulated", "simulated-adapters-starcoder2-kbit", "starcoder2-3b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 6"),
    ("simulated", "simulated-adapters-apertus-kbit", "apertus-8b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 4"),
    ("simulated", "simulated-kbit-granite-3.1-8b-recompute", "granite-3.1-8b",
     "--train ddp --micro-batch 1 --seq-len 2048 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 6 --recompute"),
    ("simulated", "simulated-kbit-granite-3.1-3b-a800m", "granite-3.1-3b-a800m",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 4"),
    ("simulated", "simulated-kbit-granitemoeshared", "granitemoeshared",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3"),
    ("simulated", "simulated-kbit-granite-4.0-h-tiny", "granite-4.0-h-tiny",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 6"),
    ("simulated", "simulated-kbit-granite-4.0-h-tiny-recompute", "granite-4.0-h-tiny",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 6 --recompute"),
    ("simulated", "simulated-kbit-granite-4.0-h-tiny-fsdp", "granite-4.0-h-tiny",
     "--micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --recompute --reshard --layers 6"),
    ("simulated", "simulated-kbit-glm-4.5-air", "glm-4.5-air",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3 --experts 16"),
    ("simulated", "simulated-kbit-glm-4.5-air-recompute", "glm-4.5-air",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3 --experts 16 --recompute"),
    ("simulated", "simulated-kbit-glm-4.5-air-fsdp", "glm-4.5-air",
     "--micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --recompute --reshard --layers 3 --experts 16"),
    ("simulated", "simulated-kbit-ernie-4.5-21b-a3b", "ernie-4.5-21b-a3b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3 --experts 16"),
    ("simulated", "simulated-kbit-dots.llm1", "dots.llm1",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3 --experts 16"),
    ("simulated", "simulated-kbit-minimax-m2", "minimax-m2",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3 --experts 16"),
    ("simulated", "simulated-kbit-lfm2-8b-a1b", "lfm2-8b-a1b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 4"),
    ("simulated", "simulated-kbit-glm-4.7-flash", "glm-4.7-flash",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3 --experts 16"),
    ("simulated", "simulated-kbit-deepseek-v3", "deepseek-v3",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 4 --experts 16"),
    ("simulated", "simulated-kbit-qwen3_5_text", "qwen3_5_text",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast"),
    ("simulated", "simulated-kbit-qwen3-next-80b-a3b", "qwen3-next-80b-a3b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 4 --experts 16"),
    ("simulated", "simulated-kbit-qwen3-next-80b-a3b-recompute", "qwen3-next-80b-a3b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 4 --experts 16 --recompute"),
    ("simulated", "simulated-autocast-qwen3_5_text", "qwen3_5_text",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --autocast --layers 4"),
    ("simulated", "simulated-autocast-glm-4.5-air", "glm-4.5-air",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --autocast --layers 3 --experts 16"),
    ("simulated", "simulated-math-llama-3.2-1b-4-layers", "llama-3.2-1b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 4 --attention math"),
    ("simulated", "simulated-math-gemma-2b", "gemma-2b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 4 --attention math"),
    ("simulated", "simulated-math-gemma-3-1b", "gemma-3-1b",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 6 --attention math"),
    ("simulated", "simulated-math-deepseek-v2-lite", "deepseek-v2-lite",
     "--train ddp --micro-batch 1 --seq-len 1024 --layers 3 --attention math"),
    ("simulated", "simulated-math-deepseek-v3-recompute", "deepseek-v3",
     "--train ddp --micro-batch 2 --seq-len 700 --layers 3 --experts 8 --attention math --recompute"),
    ("simulated", "simulated-math-gemma-4-e2b", "gemma-4-e2b-text",
     "--train ddp --micro-batch 1 --seq-len 512 --attention math"),
    ("simulated", "simulated-parts-deepseek-v2-lite", "deepseek-v2-lite", "--micro-batch 1 --seq-len 2048 --layers 4 --experts 16 --train-cp 2"),
    ("simulated", "simulated-parts-deepseek-v3", "deepseek-v3", "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --train-cp 2"),
    ("simulated", "simulated-parts-glm-4.7-flash", "glm-4.7-flash", "--micro-batch 1 --seq-len 2048 --layers 4 --experts 16 --train-cp 2"),
    ("simulated", "simulated-parts-glm-4.7-flash-recompute", "glm-4.7-flash",
     "--micro-batch 2 --seq-len 2048 --layers 4 --experts 16 --recompute --train-cp 2"),
    ("simulated", "simulated-parts-youtu-llm-2b", "youtu-llm-2b", "--micro-batch 1 --seq-len 2048 --layers 4 --train-cp 2"),
    ("simulated", "simulated-parts-mistral4", "mistral4", "--micro-batch 1 --seq-len 1024 --layers 4 --experts 16 --train-cp 2"),
    ("simulated", "simulated-parts-gemma-4-12b", "gemma-4-12b-text", "--micro-batch 1 --seq-len 2048 --layers 6 --train-cp 2"),
    ("simulated", "simulated-parts-gemma-4-12b-recompute", "gemma-4-12b-text", "--micro-batch 1 --seq-len 4096 --layers 6 --recompute --train-cp 2"),
    ("simulated", "simulated-parts-gemma-4-26b-a4b", "gemma-4-26b-a4b-text", "--micro-batch 1 --seq-len 2048 --layers 6 --experts 16 --train-cp 2"),
    ("simulated", "simulated-parts-gemma-4-e2b", "gemma-4-e2b-text", "--micro-batch 1 --seq-len 2048 --layers 25 --train-cp 2"),
    ("simulated", "simulated-parts-gemma-3n-e2b", "gemma-3n-e2b", "--micro-batch 1 --seq-len 2048 --layers 15 --train-cp 2"),
    ("simulated", "simulated-parts-gemma-3n-e2b-recompute", "gemma-3n-e2b", "--micro-batch 1 --seq-len 4096 --layers 15 --recompute --train-cp 2"),
    ("simulated", "simulated-parts-mistral-7b-v0.1", "mistral-7b-v0.1", "--micro-batch 1 --seq-len 8192 --layers 4 --train-cp 2"),
    ("simulated", "simulated-parts-bamba-9b", "bamba-9b", "--micro-batch 1 --seq-len 2048 --layers 10 --train-cp 2"),
    ("simulated", "simulated-parts-lfm2-1.2b", "lfm2-1.2b", "--micro-batch 1 --seq-len 2048 --layers 6 --train-cp 2"),
    ("simulated", "simulated-parts-qwen3-next-80b-a3b", "qwen3-next-80b-a3b", "--micro-batch 1 --seq-len 2048 --layers 4 --experts 16 --train-cp 2"),
    ("simulated", "simulated-parts-qwen3-next-80b-a3b-recompute", "qwen3-next-80b-a3b",
     "--micro-batch 1 --seq-len 2048 --layers 4 --experts 16 --recompute --train-cp 2"),
    ("simulated", "simulated-parts-falcon-h1-1.5b", "falcon-h1-1.5b", "--micro-batch 1 --seq-len 2048 --layers 4 --train-cp 2"),
    ("simulated", "simulated-parts-nemotron-nano-9b-v2", "nemotron-nano-9b-v2", "--micro-batch 1 --seq-len 2048 --layers 8 --train-cp 2"),
    ("simulated", "simulated-parts-granite-4.0-h-tiny", "granite-4.0-h-tiny", "--micro-batch 1 --seq-len 2048 --layers 6 --train-cp 2"),
    ("simulated", "simulated-parts-qwen3_5", "qwen3_5_text", "--micro-batch 1 --seq-len 2048 --layers 4 --train-cp 2"),
    ("simulated", "simulated-parts-qwen3-0.6b-lora", "qwen3-0.6b", "--micro-batch 1 --seq-len 4096 --lora 16 --train-cp 2"),
    ("simulated", "simulated-parts-qwen3-0.6b-lora-all", "qwen3-0.6b",
     "--micro-batch 1 --seq-len 4096 --lora 16 --lora-targets all-linear --train-cp 2"),
    ("simulated", "simulated-parts-qwen3-0.6b-nf4", "qwen3-0.6b",
     "--micro-batch 1 --seq-len 4096 --lora 16 --lora-targets all-linear --base-dtype nf4 --train-cp 2"),
    ("simulated", "simulated-parts-deepseek-v2-lite-lora", "deepseek-v2-lite",
     "--micro-batch 1 --seq-len 2048 --layers 4 --experts 16 --lora 16 --lora-targets all-linear --train-cp 2"),
    ("simulated", "simulated-parts-llama-3.2-1b-chunked", "llama-3.2-1b", "--micro-batch 1 --seq-len 4096 --loss chunked --train-cp 2"),
    ("simulated", "simulated-parts-llama-3.2-1b-chunked-recompute", "llama-3.2-1b",
     "--micro-batch 2 --seq-len 4096 --loss chunked:4 --recompute --train-cp 2"),
    ("simulated", "simulated-parts-qwen3-0.6b-fused", "qwen3-0.6b", "--micro-batch 1 --seq-len 4096 --loss fused --train-cp 2"),
    ("simulated", "simulated-adapters-hunyuan-lora", "hunyuan-a13b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --layers 3 --experts 16"),
    ("simulated", "simulated-adapters-hunyuan-lora-recompute", "hunyuan-a13b",
     "--train ddp --micro-batch 1 --seq-len 2048 --lora 16 --lora-targets all-linear --layers 3 --experts 16 --recompute"),
    ("simulated", "simulated-adapters-hunyuan-nf4", "hunyuan-a13b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --layers 3 --experts 16"),
    ("simulated", "simulated-adapters-hunyuan-kbit", "hunyuan-a13b",
     "--train ddp --micro-batch 1 --seq-len 1024 --lora 16 --lora-targets all-linear --base-dtype nf4 --prepare-kbit --autocast --layers 3 --experts 16"),
]
BOUNDS = {"max_allocated": 0.02, "max_reserved": 0.01}
MIB = 1 << 20
# Settings that the formulas do not know, with a value or alone. `reveille model` refuses them where it adds terms up.
OF_THE_PROGRAM = re.compile(r" --(attention (?!math)\S+|loss \S+|accumulate \d+|train-cp \d+|fused|reduce-fp32|bucket-freed|offload-activations"
                            r"|autocast|prepare-kbit)")  # fmt: skip


def moments(trace):
    """What the trainer holds beside its cache and with it, after each event of stage `train`, from the trace's text."""
    sizes, segments, parts, inside = {}, set(), {}, False
    allocated = reserved = 0
    with open(trace, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if words[:1] == ["stage"]:
                inside = words[4] == "train"
            if words[2:3] != ["trainer"] or words[0] not in ("alloc", "free", "part"):
                continue
            name = words[4]
            if words[0] == "alloc":
                sizes[name] = int(words[6])
                reserved += sizes[name]
                if words[7] == "cached":
                    segments.add(name)
                    parts[name] = {}
                else:
                    allocated += sizes[name]
            elif words[0] == "part":
                allocated += int(words[5]) - parts[name].get(words[6], 0)
                parts[name][words[6]] = int(words[5])
            else:
                reserved -= sizes[name]
                allocated -= sum(parts.pop(name).values()) if name in segments else sizes[name]
                segments.discard(name)
            if inside and words[0] != "free":
                yield allocated, reserved


def config_of(name, options, folder):
    """The path of a config, and the options without those that shrink it (train.py)."""
    path, rest, sizes = os.path.join(CONFIGS, f"{name}.json"), list(options), {}
    for word in ("layers", "experts"):
        if f"--{word}" in rest:
            at = rest.index(f"--{word}")
            sizes[word] = int(rest[at + 1])
            del rest[at:at + 2]
    if not sizes:
        return path, rest
    with open(path, encoding="utf-8") as file:
        fields = shrunk(json.load(file), **sizes)
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(fields, file)
    return path, rest


def predict(reveille, config, options, folder):
    """The most that is allocated and reserved."""
    trace = os.path.join(folder, "step.rvt")
    path, options = config_of(config, options, folder)
    trainer = [] if "--train" in options else ["--train", "fsdp:2"]
    in_fp32 = "--lora" in options and "--adapter-dtype" not in options
    states = "adamw" if in_fp32 else "adamw-bf16"  # in the type of what is trained
    optimizer = [] if "--optimizer" in options else ["--optimizer", states]
    line = [reveille, "model", path, *trainer, *optimizer, *options, "-o", trace]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    allocated, reserved = zip(*moments(trace))
    return {"max_allocated": max(allocated), "max_reserved": max(reserved)}


def read(name):
    with open(os.path.join(TRUTH, f"{name}.json"), encoding="utf-8") as file:
        return json.load(file)["step2"]["end"]


def is_bucket_held(name):
    """Whether DDP's first bucket was there in the second forward pass."""
    with open(os.path.join(TRUTH, f"{name}.json"), encoding="utf-8") as file:
        steps = json.load(file)
    return steps["step1"]["after_forward"]["allocated"] > steps["step2"]["after_forward"]["allocated"] + MIB


def cell(predicted, truth):
    return f"{predicted / MIB:.0f} ({(predicted / truth - 1) * 100:+.2f} %)"


def family_of(config):
    with open(os.path.join(CONFIGS, f"{config}.json"), encoding="utf-8") as file:
        return json.load(file)["model_type"]


def families(reveille):
    """Of each family the difference that is farthest from 0, in all of its programs."""
    farthest, counts = {}, {}
    for _, name, config, options in PROGRAMS:
        family = family_of(config)
        counts[family] = counts.get(family, 0) + 1
        with tempfile.TemporaryDirectory() as folder:
            program = predict(reveille, config, options.split(), folder)
        for what in BOUNDS:
            apart = program[what] / read(name)[what] - 1
            farthest[family, what] = max(farthest.get((family, what), 0), apart, key=abs)
    print("| `model_type` | programs | peak allocated | peak reserved |\n| --- | --- | --- | --- |")
    for family, count in counts.items():
        apart = [f"{farthest[family, what] * 100:+.2f} %" for what in BOUNDS]
        print(f"| `{family}` | {count} | {apart[0]} | {apart[1]} |")


def main():
    reveille = os.path.abspath(sys.argv[1])
    beyond = []
    if sys.argv[2:] == ["--families"]:
        families(reveille)
        return
    for what, bound in BOUNDS.items():
        print(f"\n| {what.replace('max_', 'peak ')}, MiB | terms | program | read | on |\n| --- | --- | --- | --- | --- |")
        for on, name, config, options in PROGRAMS:
            truth = read(name)[what]
            with tempfile.TemporaryDirectory() as folder:
                added = [*OF_THE_PROGRAM.sub("", options).split(), "--given", "cached=0"]
                terms = predict(reveille, config, added, folder)[what]
                program = predict(reveille, config, options.split(), folder)[what]
            print(f"| {config} {options} | {cell(terms, truth)} | {cell(program, truth)} | {truth / MIB:.0f} | {on} |")
            if abs(program / truth - 1) > bound:
                beyond.append(f"{config} {options}: {what} is {program}, and was {truth}")
    beyond += [f"{name}: read in the other state" for _, name, _, options in PROGRAMS
               if "--train ddp" in options and "--accumulate" not in options  # there the last pass is read
               and is_bucket_held(name) == ("--bucket-freed" in options)]  # fmt: skip
    if beyond:
        sys.exit("\n".join(beyond))


if __name__ == "__main__":
    main()
