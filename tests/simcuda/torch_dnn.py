# SPDX-License-Identifier: MIT
"""What PyTorch allocates with cuDNN on a simulated H200, under `reveille run`. The figures of plans are those of cuDNN 9.19."""
import ctypes
import os

import torch

KIB, MIB = 1 << 10, 1 << 20
exact = torch.backends.cudnn.version() == 91900


def measure(call):
    """Bytes above the current ones: at the peak, and afterwards, with the result of the call."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = call()
    return torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before, result


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def randn(*sizes, **kind):
    return torch.randn(*sizes, device="cuda", **kind)


# A program that looks for cuDNN among all loaded libraries finds the simulated one, and cuDNN's frontend finds PyTorch's own runtime.
address = [ctypes.cast(ctypes.CDLL(name).cudnnBackendExecute, ctypes.c_void_p).value for name in (None, "libcudnn.so.9")]
check(address[0], address[1], "cudnnBackendExecute among all libraries")
runtime = f"libcudart.so.{torch.version.cuda.split('.')[0]}"
check(os.environ["CUDNN_FRONTEND_CUDART_LIB_NAME"], runtime, "the runtime of cuDNN's frontend")

# The first convolution of ResNet-50: the plan pads 3 channels to 8.
images = randn(128, 3, 224, 224, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
stem = torch.nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False, device="cuda", dtype=torch.bfloat16)
stem = stem.to(memory_format=torch.channels_last)
output = 128 * 64 * 112 * 112 * 2
peak, after, y = measure(lambda: stem(images))
check(after, output, "convolution's output")
workspace = peak - output
assert 98 * MIB <= workspace < 99 * MIB, workspace
if exact:
    check(workspace, 102811136, "convolution's workspace")
peak, after, _ = measure(lambda: y.backward(y))
assert stem.weight.grad is not None
del y

# Attention with cuDNN: the output, and a sum for each row for the backward pass.
q, k, v = (randn(2, 32, 1024, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
    peak, after, y = measure(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    sums = 2 * 32 * 1024 * 4 + KIB  # with dropout's seed and offset
    check(after, q.nbytes + sums, "attention's output and sums")
    gradient = torch.ones_like(y)
    peak, after, _ = measure(lambda: y.backward(gradient))
    check(after, 3 * q.nbytes - sums, "attention's gradients, less what was kept for them")
    if exact:  # the query's gradient in float32, and a sum for each row
        check(peak - 3 * q.nbytes, 17039872, "attention's workspace backward")

# Networks and batch normalization run. Their weights are in one allocation.
lstm = torch.nn.LSTM(128, 256, 2, bidirectional=True, device="cuda")
y = lstm(randn(50, 16, 128))[0]
check(y.shape, torch.Size([50, 16, 512]), "output of an LSTM")
y.sum().backward()
weights = 2 * 4 * (128 * 256 + 256 * 256 + 2 * 256) + 2 * 4 * (512 * 256 + 256 * 256 + 2 * 256)
check(sum(p.numel() for p in lstm.parameters()), weights, "weights of an LSTM")
check(lstm.weight_ih_l0.untyped_storage().nbytes(), weights * 4, "memory of the weights")
# A network of bench/results/2026-11-27-h100/recurrent.csv: what an H100 keeps for the backward pass, and its workspace.
lstm = torch.nn.LSTM(512, 512, device="cuda")
inputs = randn(64, 32, 512)
lstm(inputs)  # takes what is only needed once
peak, after, (y, states) = measure(lambda: lstm(inputs))
reserve = 20971776 + 256  # PyTorch rounds to 512 bytes
check(after, y.nbytes + 4 * states[0].nbytes + reserve, "an LSTM's output, states before and after it, and reserve")
check(peak - after, 42664448, "an LSTM's workspace")
norm = torch.nn.BatchNorm2d(64, device="cuda")
norm(randn(8, 64, 56, 56)).sum().backward()
check(norm.weight.grad.shape, torch.Size([64]), "gradient of batch normalization")
print("cuDNN is as expected")
