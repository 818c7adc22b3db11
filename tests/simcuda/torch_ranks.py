# SPDX-License-Identifier: MIT
"""PyTorch ranks on simulated GPUs: `reveille run --gpus 2 -- torchrun --nproc-per-node 2 torch_ranks.py fsdp`, or `ddp`."""
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

MIB = 1 << 20
CONTEXT = 552402944  # what the driver takes on an H200
COMMUNICATOR = 484 * MIB
CODE = 290 * MIB  # NCCL's, once for each process
STREAMS = 70 * MIB  # PyTorch's
KERNELS = 94 * MIB  # PyTorch's code, cuBLAS's code beyond the context's room, and what assert() needs
BLAS = 2 * 64 * MIB + 2 * MIB  # a handle for each pass
DRIVER = CONTEXT + STREAMS + KERNELS + BLAS
WIDTH = 1024
STEPS = 3


def used():
    """Bytes in use on this rank's device outside PyTorch's allocator."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def model(how):
    layers = [torch.nn.Linear(WIDTH, WIDTH, device="cuda") for _ in range(2)]
    whole = torch.nn.Sequential(*layers)
    if how == "ddp":
        return torch.nn.parallel.DistributedDataParallel(whole)
    for layer in layers:
        fully_shard(layer)
    return fully_shard(whole)


def main(how):
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    check((dist.get_rank(), dist.get_world_size()), (rank, ranks), "rank and number of ranks")
    trained = model(how)
    optimizer = torch.optim.AdamW(trained.parameters())
    for _ in range(STEPS):
        trained(torch.randn(8, WIDTH, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    check(used(), DRIVER + CODE + COMMUNICATOR, "in use with one communicator")
    local = sum(p.to_local().numel() if how == "fsdp" else p.numel() for p in trained.parameters())
    check(local, 2 * (WIDTH * WIDTH + WIDTH) // (ranks if how == "fsdp" else 1), "parameters here")

    group = dist.new_group(list(range(ranks)))
    tensor = torch.ones(4, device="cuda")
    dist.all_reduce(tensor, group=group)
    dist.barrier()
    check(used(), DRIVER + CODE + 2 * COMMUNICATOR, "in use with two")
    dist.destroy_process_group()
    check(used(), DRIVER + CODE, "in use with none")
    print(f"rank {rank} of {ranks}, {how}: all is as expected", flush=True)


main(sys.argv[1])
