#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""FakeGPU's published cases, on simulated GPUs, beside what its pages say a card needed.

    fakegpu_cases.py REVEILLE PYTHON [NAME...]   PYTHON has PyTorch, transformers and PEFT
    fakegpu_cases.py --case NAME                 the program of a case itself (reveille run starts it)

The cases and the card's peaks are those of FanBB2333/FakeGPU, docs/llm-sft-memory-estimation.md and
docs/llm-inference-estimation.md: fine-tuning of Qwen3.5, bf16, one sequence, AdamW with one tensor at a time,
all parameters or LoRA of rank 8; and two tokens of Qwen3-8B. The card is an RTX PRO 5000. The peak is
torch.cuda.max_memory_allocated(). Its QLoRA cases run FakeGPU's own code for four bits and are left out.

Take its transformers, too, 5.12.1: later ones keep less of this model for the backward pass. Fails where a
peak is off by more than 0.5 %, or a model has other parameters than FakeGPU's pages say.
"""
import os
import subprocess
import sys
from typing import NamedTuple

# hidden, intermediate, parameters, and those of its adapters
MODELS = {"0.8b": (1024, 3584, 752393024, 5411328), "2b": (2048, 6144, 1881825088, 8409600)}


class Case(NamedTuple):
    model: str
    card_gib: float
    their_percent: float  # FakeGPU's error
    length: int = 16
    micro_batches: int = 1
    checkpoints: bool = False
    lora: bool = False
    ranks: int = 1


CASES = {
    "0.8b, 2 micro-batches": Case("0.8b", 6.626, 0.989, micro_batches=2),
    "0.8b, 128 tokens": Case("0.8b", 6.687, 1.121, 128),
    "0.8b, 128 tokens, checkpoints": Case("0.8b", 6.679, 1.006, 128, checkpoints=True),
    "2b, 2 micro-batches": Case("2b", 15.939, 0.102, micro_batches=2),
    "0.8b, FSDP on two ranks": Case("0.8b", 3.308, 0.730, ranks=2),
    "0.8b, FSDP on two ranks, 128 tokens": Case("0.8b", 3.357, 0.633, 128, ranks=2),
    "0.8b, LoRA": Case("0.8b", 1.756, 1.921, lora=True),
    "0.8b, LoRA, 128 tokens": Case("0.8b", 2.696, 1.271, 128, lora=True),
    "0.8b, LoRA, 128 tokens, checkpoints": Case("0.8b", 1.876, 1.506, 128, checkpoints=True, lora=True),
    "2b, LoRA": Case("2b", 3.868, 0.266, lora=True),
    "2b, LoRA, 128 tokens": Case("2b", 4.959, 0.359, 128, lora=True),
    "2b, LoRA, 128 tokens, checkpoints": Case("2b", 3.974, 0.281, 128, checkpoints=True, lora=True),
    "0.8b, LoRA, FSDP2 on two ranks": Case("0.8b", 1.961, 1.881, lora=True, ranks=2),
    "0.8b, LoRA, FSDP2 on two ranks, 128 tokens": Case("0.8b", 2.689, 0.106, 128, lora=True, ranks=2),
    "0.8b, LoRA, FSDP2 on four ranks": Case("0.8b", 1.593, 0.487, lora=True, ranks=4),
    "0.8b, LoRA, FSDP2 on four ranks, 64 tokens": Case("0.8b", 1.801, 1.881, 64, lora=True, ranks=4),
    "0.8b, LoRA, FSDP2 on four ranks, 128 tokens": Case("0.8b", 2.324, 0.071, 128, lora=True, ranks=4),
    "8b, two tokens after nine": Case("8b", 16396630528 / 2**30, 0.065, 9),
}
ERROR_PERCENT_MAX = 0.5
MARK = "peak allocated:"


def on_host(torch, kind, config):
    """A model of bf16 on the host, as loading leaves it. Nothing is in its weights: no kernel reads them."""
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = kind(config)
    torch.set_default_dtype(torch.float32)
    model.to_empty(device="cpu")
    model.tie_weights()
    return model


def trained_model(torch, case):
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    hidden, intermediate, parameters, adapters = MODELS[case.model]
    model = on_host(torch, Qwen3_5ForCausalLM, Qwen3_5TextConfig(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=24, num_attention_heads=8,
        num_key_value_heads=2, linear_num_value_heads=16, tie_word_embeddings=True, use_cache=False))  # fmt: skip
    assert sum(each.numel() for each in model.parameters()) == parameters
    if case.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, task_type="CAUSAL_LM", target_modules="all-linear"))
        assert sum(each.numel() for each in model.parameters() if each.requires_grad) == adapters
    if case.checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if case.lora:
            model.enable_input_require_grads()
    return model.train()


def sharded(torch, model):
    """FULL_SHARD of each decoder layer and of the root, without prefetch."""
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    layer = type(model.model.layers[0])
    return FullyShardedDataParallel(
        model, sharding_strategy=ShardingStrategy.FULL_SHARD, auto_wrap_policy=ModuleWrapPolicy({layer}),
        device_id=torch.cuda.current_device(), backward_prefetch=None, forward_prefetch=False,
        limit_all_gathers=True)  # fmt: skip


def sharded_by_parameter(model):
    """FSDP2 of each decoder layer and of the root: adapters have another type than what they adapt."""
    from torch.distributed.fsdp import fully_shard

    model.cuda()
    for each in [*model.base_model.model.model.layers, model]:
        fully_shard(each, reshard_after_forward=True)
    return model


def on_gpus(torch, case, model):
    if case.ranks == 1:
        return model.cuda()
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    return sharded_by_parameter(model) if case.lora else sharded(torch, model)


def train(torch, case):
    model = on_gpus(torch, case, trained_model(torch, case))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], foreach=False)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(case.micro_batches):
        tokens = torch.randint(100, 248320, (1, case.length))
        labels = tokens.clone()
        labels[:, : case.length // 2] = -100
        output = model(input_ids=tokens.cuda(), labels=labels.cuda(), use_cache=False)
        (output.loss / case.micro_batches).backward()
    optimizer.step()


def answer(torch, case):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    model = on_host(torch, Qwen3ForCausalLM, Qwen3Config(
        vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=False)).eval().cuda()  # fmt: skip
    tokens = torch.randint(100, 151643, (1, case.length)).cuda()
    mask = torch.ones_like(tokens)
    torch.cuda.reset_peak_memory_stats()
    with torch.inference_mode():
        output = model(input_ids=tokens, attention_mask=mask, use_cache=True)
        token = output.logits[:, -1, :].argmax(dim=-1, keepdim=True)
        mask = torch.cat([mask, mask[:, :1]], dim=1)
        model(input_ids=token, attention_mask=mask, past_key_values=output.past_key_values, use_cache=True)


def run_case(case):
    import torch

    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    (train if case.model in MODELS else answer)(torch, case)
    print(MARK, torch.cuda.max_memory_allocated())
    if case.ranks > 1:
        torch.distributed.destroy_process_group()


def measured(reveille, python, name):
    """The peak of a case on simulated GPUs, of the rank with the most."""
    ranks = CASES[name].ranks
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
        return run_case(CASES[sys.argv[2]])
    wrong = 0
    print(f"{'case':44} {'card, GiB':>10} {'simulated':>10} {'off':>8} {'FakeGPU off':>12}")
    for name in sys.argv[3:] or CASES:
        case, gib = CASES[name], measured(sys.argv[1], sys.argv[2], name) / 2**30
        percent = (gib / case.card_gib - 1) * 100
        wrong += abs(percent) > ERROR_PERCENT_MAX
        print(f"{name:44} {case.card_gib:10.3f} {gib:10.3f} {percent:+7.2f} % {case.their_percent:10.2f} %", flush=True)
    return wrong > 0


sys.exit(main())
