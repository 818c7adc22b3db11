# SPDX-License-Identifier: MIT
"""PyTorch's graphs on simulated GPUs, under `reveille run`, with each of PyTorch's allocators."""
import torch

MIB = 1 << 20
STREAMS = 70 * MIB  # PyTorch makes 128 at once; its other allocator has requested them earlier
native = torch.cuda.get_allocator_backend() == "native"


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


x = torch.zeros(8, 1024, device="cuda")
layer = torch.nn.Linear(1024, 1024, device="cuda")
before = used()
stream = torch.cuda.Stream()
check(used() - before, STREAMS if native else 0, "what PyTorch's streams take")
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(3):
        layer(x).sum().backward()
torch.cuda.current_stream().wait_stream(stream)

# Two graphs that share a pool. Their memory is the same each time.
first = torch.cuda.CUDAGraph(keep_graph=True)
with torch.cuda.graph(first):
    y = layer(x)
    z = y.relu()
assert first.raw_cuda_graph() != 0
first.instantiate()
second = torch.cuda.CUDAGraph()
with torch.cuda.graph(second, pool=first.pool()):
    w = z + 1
before = used()
for _ in range(3):
    first.replay()
    second.replay()
torch.cuda.synchronize()
if native:
    check(used(), before, "in use after replays")

model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Dropout(0.1)).cuda()
sample = torch.zeros(8, 1024, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(model, (sample,))
graphed(torch.zeros(8, 1024, device="cuda", requires_grad=True)).sum().backward()
check(model[0].weight.grad.shape, torch.Size([1024, 1024]), "gradient of a graphed module")

start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record()
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) >= 0

# What is captured is not done: content changes with the replay.
numbers, copied = torch.arange(4, device="cuda"), torch.zeros(4, dtype=torch.int64, device="cuda")
third = torch.cuda.CUDAGraph()
with torch.cuda.graph(third):
    copied.copy_(numbers)
    copied[:2].copy_(numbers[2:])
check(copied.tolist(), [0, 0, 0, 0], "content after a capture")
third.replay()
check(copied.tolist(), [2, 3, 2, 3], "content after the replay")

# What a capture forbids, as a user sees it. The other allocator cannot capture again afterwards.
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.cuda.synchronize()
    raise AssertionError("a capture was waited for")
except torch.AcceleratorError as error:
    assert "operation failed due to a previous error during capture" in str(error), error
del y, z, w
first.reset()
second.reset()
torch.cuda.empty_cache()
print("all is as expected")
