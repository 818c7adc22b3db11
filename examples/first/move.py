# SPDX-License-Identifier: MIT
"""Pauses 8 GiB of PyTorch's tensors and takes them back: on a GPU, or under `reveille run`."""

import torch

import reveille


def free():
    return reveille.format_size(torch.cuda.mem_get_info()[0])


with reveille.region("weights", backup="host"):
    weights = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
weights[:4] = torch.tensor([7, 11, 13, 17], dtype=torch.uint8)
address = weights.data_ptr()
print("awake ", free(), "free")
reveille.pause("weights")  # the content goes to host memory, the address stays
print("paused", free(), "free")
reveille.resume("weights")  # the same address, the same content
print("awake ", free(), "free")
assert weights.data_ptr() == address
assert weights[:4].cpu().tolist() == [7, 11, 13, 17]
