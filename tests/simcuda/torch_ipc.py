# SPDX-License-Identifier: MIT
"""PyTorch tensors that processes of one simulated machine share, also with expandable segments:

    reveille run -- python tests/simcuda/torch_ipc.py
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True reveille run -- python tests/simcuda/torch_ipc.py
"""

import os
import signal

import torch
import torch.multiprocessing

SIZE = 256 << 20
CONTEXT = 548995072  # of a second process


def used():
    """Bytes in use on the device, by all processes."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def owner(pipe):
    """Sends a large tensor and a small one, changes the small one on request, and waits."""
    large = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    small = torch.arange(10, device="cuda")
    pipe.send((large, small))
    while (message := pipe.recv()) is not None:
        small.fill_(message)
        torch.cuda.synchronize()
        pipe.send(small.tolist())


def main():
    context = torch.multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=owner, args=(theirs,))
    torch.ones(1, device="cuda")
    process.start()
    theirs.close()
    large, small = pipe.recv()
    both = used()
    assert large.numel() == SIZE and small.tolist() == list(range(10)), small.tolist()
    assert used() == both, used() - both  # it is counted once
    pipe.send(7)
    assert pipe.recv() == [7] * 10
    assert small.tolist() == [7] * 10, small.tolist()
    small.fill_(8)
    pipe.send(9)
    assert pipe.recv() == [9] * 10 and small.tolist() == [9] * 10
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    left = used()
    gone = both - left  # its context, but nothing that is mapped here
    assert CONTEXT <= gone <= CONTEXT + (8 << 20), gone
    assert small.tolist() == [9] * 10
    del large, small
    torch.cuda.ipc_collect()
    assert left - used() >= SIZE, left - used()
    print("PASS")


if __name__ == "__main__":
    main()
