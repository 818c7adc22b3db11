# SPDX-License-Identifier: MIT
"""How PyTorch's own allocator behaves on simulated GPUs, under `reveille run --gpus 2`."""
import torch

MIB = 1 << 20
CONTEXT = 552402944  # what the driver takes on an H200
KERNELS = 92 * MIB  # with PyTorch's first kernel, as on a card (bench/gpu/driver)
HANDLES = (66 + 64) * MIB  # cuBLAS's handles for the program's thread and for the backward pass's thread
TOTAL = 150109880320


def used(device=0):
    free, total = torch.cuda.mem_get_info(device)
    assert total == TOTAL, total
    return total - free


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


check(torch.cuda.device_count(), 2, "devices")
check(torch.cuda.get_device_name(), "NVIDIA H200", "name")
check(used(), CONTEXT, "in use at first")

# A segment of 20 MiB for requests of at most 10 MiB, and one of 2 MiB for requests of at most 1 MiB.
x = torch.zeros(1 << 20, device="cuda")
check(torch.cuda.memory_allocated(), 4 * MIB, "allocated")
check(torch.cuda.memory_reserved(), 20 * MIB, "reserved")
check(used(), CONTEXT + KERNELS + 20 * MIB, "in use")
y = torch.zeros(1, device="cuda")
check(torch.cuda.memory_reserved(), 22 * MIB, "reserved with a small one")

# Products, with and without cuBLASLt, forward and backward.
linear = torch.nn.Linear(4096, 4096, device="cuda", dtype=torch.bfloat16)
linear(torch.zeros(512, 4096, device="cuda", dtype=torch.bfloat16)).sum().backward()
check(linear.weight.grad.shape, torch.Size([4096, 4096]), "gradient")
check((x[:1024].view(32, 32) @ x[:1024].view(32, 32)).sum().item(), 0.0, "content")

# Other linear algebra loads cuSOLVER: batches of few matrices, and of many.
for batch in (2, 16):
    lower, values = torch.eye(4, device="cuda").repeat(batch, 1, 1), torch.full((batch, 4, 3), 2.0, device="cuda")
    solved = torch.linalg.solve_triangular(lower, values, upper=False, unitriangular=True)
    check(solved.sum().item(), 24.0 * batch, "solved")

# Out of memory, and PyTorch's reaction.
before = torch.cuda.memory_reserved()
try:
    torch.empty(TOTAL, device="cuda", dtype=torch.uint8)
    raise AssertionError("it fits")
except torch.OutOfMemoryError as error:
    assert "139.80 GiB" in str(error), error
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() <= before
check(used(), CONTEXT + KERNELS + HANDLES + torch.cuda.memory_reserved(), "in use after running out")

with torch.cuda.device(1):
    z = torch.empty(100 * MIB, device="cuda", dtype=torch.uint8)
check(used(1), CONTEXT + 100 * MIB, "in use on device 1")
print("all is as expected")
