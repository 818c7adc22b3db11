# SPDX-License-Identifier: MIT
"""Training of a model of transformers by FSDP2: three steps, and what PyTorch's allocator says after each part.

    python -m torch.distributed.run --nproc-per-node N train.py CONFIG.json --out OUT.json

On a card or below `reveille run`. Rank 0 writes.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard

NOT_OF_THE_MODEL = ("model_type", "architectures", "transformers_version", "torch_dtype", "dtype")
STEPS = 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--out", required=True)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--reshard", action="store_true")
    parser.add_argument("--snapshot", help="where PyTorch's memory snapshot of rank 0 goes")
    return parser.parse_args()


def sharded(options):
    """The model on this rank's card, its layers sharded, with weights of no meaning."""
    with open(options.config, encoding="utf-8") as file:
        fields = json.load(file)
    kind = transformers.CONFIG_MAPPING[fields["model_type"]]
    config = kind(**{key: value for key, value in fields.items() if key not in NOT_OF_THE_MODEL})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    if options.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    for layer in model.model.layers:
        fully_shard(layer, reshard_after_forward=options.reshard)
    fully_shard(model, reshard_after_forward=options.reshard)
    model.to_empty(device="cuda")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.02) if parameter.dim() > 1 else parameter.fill_(1)
        for name, buffer in model.named_buffers():
            if "inv_freq" in name:
                count = buffer.numel()
                buffer.copy_(1.0 / (10000 ** (torch.arange(0, count, device="cuda").float() / count)))
    return model, config


def memory():
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
        "used": total - free,
    }


def step(model, optimizer, ids):
    torch.cuda.reset_peak_memory_stats()
    read = {}
    with torch.profiler.record_function("stage:train"):
        loss = model(input_ids=ids, labels=ids).loss
        read["after_forward"] = memory()
        loss.backward()
        read["after_backward"] = memory()
        optimizer.step()
        read["after_step"] = memory()
        optimizer.zero_grad(set_to_none=True)
    del loss
    read["end"] = memory()
    return read


def main():
    options = arguments()
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model, config = sharded(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
    read = {"loaded": memory()}
    ids = torch.randint(0, config.vocab_size, (options.micro_batch, options.seq_len), device="cuda")
    if options.snapshot and rank == 0:
        torch.cuda.memory._record_memory_history(max_entries=2000000, stacks="python", context=None)
    for number in range(STEPS):
        read[f"step{number}"] = step(model, optimizer, ids)
    if rank == 0:
        if options.snapshot:
            torch.cuda.memory._dump_snapshot(options.snapshot)
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(read, file, indent=1)
    dist.destroy_process_group()


main()
