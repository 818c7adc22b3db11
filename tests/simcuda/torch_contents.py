# SPDX-License-Identifier: MIT
"""The data that ranks exchange, with PyTorch: `reveille run --gpus 2 -- torchrun --nproc-per-node 2 torch_contents.py`.

Every value is compared with what PyTorch's own operators compute on the CPU from the values of all ranks.

`reveille run --gpus 2 -- python torch_contents.py ends`: one of two ranks is killed between two operations. The exit status is 3.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def check(got, expected, what):
    assert got == expected, f"rank {RANK}: {what}: {got}, expected {expected}"


def equal(tensor, expected, what):
    got = tensor.cpu()
    assert got.dtype == expected.dtype and torch.equal(got, expected), (
        f"rank {RANK}: {what}: {got}, expected {expected}"
    )


def of(rank):
    """The data of a rank."""
    return torch.arange(1.0, 5.0) * (rank + 1) - 2


def objects():
    thing = {"rank": RANK, "text": "x" * (100 * RANK + 1)}
    everything = [None] * RANKS
    dist.all_gather_object(everything, thing)
    check(everything, [{"rank": r, "text": "x" * (100 * r + 1)} for r in range(RANKS)], "objects")
    sent = [["from", 1], {"of": "one"}] if RANK == 1 else [None, None]
    dist.broadcast_object_list(sent, src=1)
    check(sent, [["from", 1], {"of": "one"}], "broadcast objects")
    gathered = [None] * RANKS if RANK == 0 else None
    dist.gather_object(RANK * 7, gathered, dst=0)
    check(gathered, [r * 7 for r in range(RANKS)] if RANK == 0 else None, "gathered objects")


def reductions():
    brought = [of(rank) for rank in range(RANKS)]
    stacked = torch.stack(brought)
    ops = {
        dist.ReduceOp.SUM: stacked.sum(0),
        dist.ReduceOp.PRODUCT: stacked.prod(0),
        dist.ReduceOp.MIN: stacked.amin(0),
        dist.ReduceOp.MAX: stacked.amax(0),
        dist.ReduceOp.AVG: stacked.mean(0),
    }
    kinds = torch.float32, torch.float64, torch.float16, torch.bfloat16
    for kind in kinds:
        for op, expected in ops.items():
            tensor = of(RANK).to("cuda", kind)
            dist.all_reduce(tensor, op)
            equal(tensor, expected.to(kind), f"{kind} by {op}")
    for kind in torch.int8, torch.uint8, torch.int32, torch.int64:
        tensor = torch.tensor([1, 2, 3 + RANK], dtype=kind, device="cuda")
        dist.all_reduce(tensor)
        equal(tensor, torch.tensor([2, 4, 7], dtype=kind), f"{kind}")
    tensor = of(RANK).cuda()
    dist.reduce(tensor, dst=1)
    if RANK == 1:
        equal(tensor, ops[dist.ReduceOp.SUM], "reduce")
    part = torch.empty(2, device="cuda")
    dist.reduce_scatter_tensor(part, of(RANK).cuda())
    equal(part, ops[dist.ReduceOp.SUM][2 * RANK : 2 * RANK + 2], "reduce_scatter")


def exchanges():
    gathered = torch.empty(4 * RANKS, device="cuda")
    dist.all_gather_into_tensor(gathered, of(RANK).cuda())
    equal(gathered, torch.cat([of(rank) for rank in range(RANKS)]), "all_gather_into_tensor")
    parts = [torch.empty(4, device="cuda") for _ in range(RANKS)]
    dist.all_gather(parts, of(RANK).cuda())
    for rank, part in enumerate(parts):
        equal(part, of(rank), f"all_gather, from {rank}")
    counts = torch.tensor([RANK + 1, 2 * RANK + 3], device="cuda")
    others = torch.empty_like(counts)
    dist.all_to_all_single(others, counts)
    expected = [r + 1 if RANK == 0 else 2 * r + 3 for r in range(RANKS)]
    check(others.tolist(), expected, "counts of all_to_all")
    got = torch.empty(sum(expected), device="cuda")
    dist.all_to_all_single(
        got,
        torch.arange(float(counts.sum())).cuda() + 100 * RANK,
        output_split_sizes=expected,
        input_split_sizes=counts.tolist(),
    )
    whole = [torch.arange(3.0 * r + 4) + 100 * r for r in range(RANKS)]
    cut = [each[: r + 1] if RANK == 0 else each[r + 1 :] for r, each in enumerate(whole)]
    equal(got, torch.cat(cut), "all_to_all with sizes of their own")
    other = 1 - RANK
    there = torch.empty(4, device="cuda")
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, of(RANK).cuda(), other), dist.P2POp(dist.irecv, there, other)]
    ):
        work.wait()
    equal(there, of(other), "send and receive")
    if RANK == 0:
        dist.send(torch.tensor([5, 6], device="cuda"), 1)
    else:
        two = torch.zeros(2, dtype=torch.int64, device="cuda")
        dist.recv(two, 0)
        check((two + 1).tolist(), [6, 7], "a received tensor, added to")


def branches():
    """Both ranks stop at the same step, which only rank 1 determines."""
    steps = 0
    for step in range(50):
        stop = torch.tensor(int(RANK == 1 and step == 7), device="cuda")
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        steps += 1
        if stop.item():
            break
    check(steps, 8, "steps until one rank stops")
    loss = torch.tensor(0.25 * (RANK + 1), device="cuda")
    dist.all_reduce(loss)
    loss /= RANKS
    check(loss.item(), 0.375, "mean loss")
    check(bool((loss * 2 > 0.5).any()), True, "what is computed from it")


def clipped():
    """Sharded gradients, as in FSDP2: there is one norm for all shards, by which each is scaled."""
    mesh = init_device_mesh("cuda", (RANKS,))
    weight = torch.nn.Parameter(DTensor.from_local(torch.zeros(4, device="cuda"), mesh, [Shard(0)]))
    weight.grad = DTensor.from_local(of(RANK).cuda(), mesh, [Shard(0)])
    norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
    expected = torch.linalg.vector_norm(torch.cat([of(rank) for rank in range(RANKS)]))
    torch.testing.assert_close(norm.full_tensor().cpu(), expected)
    torch.testing.assert_close(weight.grad.to_local().cpu(), of(RANK) / expected)


def one_after_another():
    """Received data is sent on without a read in between, and rank 1 comes later."""
    tensor = torch.ones(2, device="cuda")
    for _ in range(5):
        dist.all_reduce(tensor)
    check(tensor.tolist(), [32.0, 32.0], "five sums in a row")
    large = torch.empty(1 << 20, device="cuda")  # beyond the limit, so unknown
    dist.all_reduce(large)
    check(dist.get_world_size(), RANKS, "ranks")


def killed():
    """Rank 1 has brought its flag, and is killed before the next operation: rank 0 is told, waits, and fails."""
    flag = torch.tensor(5 + RANK, device="cuda")
    dist.all_reduce(flag)
    if RANK == 1:
        torch.cuda.synchronize()
        os.kill(os.getpid(), signal.SIGKILL)
    check(flag.item(), 11, "what rank 1 brought before it was killed")
    flag.fill_(1)
    dist.all_reduce(flag)
    try:
        flag.item()
    except RuntimeError as error:  # PyTorch's watchdog ends the process, unless it comes late
        print("rank 0 fails:", str(error).splitlines()[0], flush=True)
        os._exit(1)
    print("rank 0 goes on", flush=True)


def waits():
    """Rank 1 is late, and makes a file. A process that has waited for an operation of both ranks finds it."""
    large = torch.ones(1 << 20, device="cuda")  # too large to keep

    def event():
        dist.all_reduce(large)
        done = torch.cuda.Event()
        done.record()
        done.synchronize()

    ways = {
        "barrier": dist.barrier,
        "synchronize": lambda: (dist.all_reduce(large), torch.cuda.synchronize()),
        "asynchronous": lambda: (dist.all_reduce(large, async_op=True).wait(), torch.cuda.current_stream().synchronize()),
        "event": event,
    }
    made = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(made, src=0)
    for name, wait in ways.items():
        path = os.path.join(made[0], name)
        if RANK == 1:
            time.sleep(0.5)
            open(path, "x").close()
        wait()
        check(os.path.exists(path), True, f"the file behind {name}")
    dist.barrier()
    if RANK == 0:
        shutil.rmtree(made[0])


def run_killed():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
        environment = os.environ | {name: str(value) for name, value in names.items()}
        environment |= {"MASTER_ADDR": "127.0.0.1", "REVEILLE_NCCL_LEFT_TIMEOUT_S": "1"}
        command = [sys.executable, __file__, "killed"]
        pipe = subprocess.PIPE
        ranks.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
    out, err = ranks[0].communicate(timeout=120)
    ends = (-signal.SIGABRT, ""), (1, "rank 0 fails: CUDA error: CUDA_ERROR_LAUNCH_TIMEOUT\n")
    check((ranks[0].returncode, out) in ends, True, f"the end of rank 0, {ranks[0].returncode}, {out}, {err}")
    check(ranks[1].wait(), -signal.SIGKILL, "rank 1")
    told = "rank 0 of 2 calls ncclAllReduce, and rank 1 has left without calling it"
    check(err.count(told), 1, f"who has left, in {err}")


def main():
    if sys.argv[1:] == ["ends"]:
        return run_killed()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    if sys.argv[1:] == ["killed"]:
        killed()
    for test in objects, reductions, exchanges, branches, clipped, one_after_another, waits:
        test()
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {RANK} of {RANKS}: all values are as expected", flush=True)


main()
