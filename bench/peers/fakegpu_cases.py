#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""FakeGPU's published cases, on simulated GPUs, beside what its pages say a card needed.

    fakegpu_cases.py REVEILLE PYTHON [NAME...]   PYTHON has PyTorch and transformers
    fakegpu_cases.py --case NAME                 the program of a case itself (reveille run starts it)

The cases and the card's peaks are those of FanBB2333/FakeGPU, docs/llm-sft-memory-estimation.md (RTX PRO 5000
and RTX 3090 Ti, PyTorch 2.8 and 2.12, 2026-07-21): supervised fine-tuning of Qwen3.5, bf16, one sequence, AdamW
with one tensor at a time. The peak is torch.cuda.max_memory_allocated(). Its LoRA cases need PEFT and are
left out. Fails where a peak is off by more than 1 %, or a model has other parameters than it says.
"""
import os
import subprocess
import sys

SMALL, LARGE = (1024, 3584, 752393024), (2048, 6144, 1881825088)  # hidden, intermediate, parameters
# name: model, sequence, micro-batches, checkpoints, ranks, the card's peak in GiB, FakeGPU's error in %
CASES = {
    "0.8b, 2 micro-batches": (SMALL, 16, 2, False, 1, 6.626, 0.989),
    "0.8b, 128 tokens": (SMALL, 128, 1, False, 1, 6.687, 1.121),
    "0.8b, 128 tokens, checkpoints": (SMALL, 128, 1, True, 1, 6.679, 1.006),
    "2b, 2 micro-batches": (LARGE, 16, 2, False, 1, 15.939, 0.102),
    "0.8b, FSDP on two ranks": (SMALL, 16, 1, False, 2, 3.308, 0.730),
    "0.8b, FSDP on two ranks, 128 tokens": (SMALL, 128, 1, False, 2, 3.357, 0.633),
}
ERROR_PERCENT_MAX = 1.0
MARK = "peak allocated:"


def model_of(torch, hidden, intermediate, parameters):
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    config = Qwen3_5TextConfig(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=24, num_attention_heads=8,
        num_key_value_heads=2, linear_num_value_heads=16, tie_word_embeddings=True, use_cache=False)  # fmt: skip
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3_5ForCausalLM(config)
    assert sum(each.numel() for each in model.parameters()) == parameters
    return model.train()


def sharded(torch, model):
    """FULL_SHARD of each decoder layer and of the root, without prefetch."""
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    layer = type(model.model.layers[0])
    return FullyShardedDataParallel(
        model, sharding_strategy=ShardingStrategy.FULL_SHARD, auto_wrap_policy=ModuleWrapPolicy({layer}),
        device_id=torch.cuda.current_device(), use_orig_params=True, backward_prefetch=None,
        forward_prefetch=False, limit_all_gathers=True)  # fmt: skip


def run_case(name):
    import torch

    shape, length, micro_batches, checkpoints, ranks, _, _ = CASES[name]
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    model = model_of(torch, *shape)
    if checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = sharded(torch, model) if ranks > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(micro_batches):
        tokens = torch.randint(100, 248320, (1, length))
        labels = tokens.clone()
        labels[:, :length // 2] = -100
        output = model(input_ids=tokens.cuda(), labels=labels.cuda(), use_cache=False)
        (output.loss / micro_batches).backward()
    optimizer.step()
    print(MARK, torch.cuda.max_memory_allocated())
    if ranks > 1:
        torch.distributed.destroy_process_group()


def measured(reveille, python, name):
    """The peak of a case on simulated GPUs, of the rank with the most."""
    ranks = CASES[name][4]
    own = [python, os.path.abspath(__file__), "--case", name]
    if ranks > 1:
        own[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run([reveille, "run", "--device", "rtx3090", "--gpus", str(ranks), "--attribution=off", "--", *own],
                          capture_output=True, text=True, check=False)  # fmt: skip
    peaks = [int(line.split()[-1]) for line in done.stdout.splitlines() if MARK in line]
    if done.returncode or len(peaks) != ranks:
        sys.exit(f"{name}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return max(peaks)


def main():
    if sys.argv[1] == "--case":
        return run_case(sys.argv[2])
    wrong = 0
    print(f"{'case':36} {'card, GiB':>10} {'simulated':>10} {'off':>8} {'FakeGPU off':>12}")
    for name in sys.argv[3:] or CASES:
        *_, card_gib, their_percent = CASES[name]
        gib = measured(sys.argv[1], sys.argv[2], name) / 2**30
        percent = (gib / card_gib - 1) * 100
        wrong += abs(percent) > ERROR_PERCENT_MAX
        print(f"{name:36} {card_gib:10.3f} {gib:10.3f} {percent:+7.2f} % {their_percent:10.2f} %", flush=True)
    return wrong > 0


sys.exit(main())
