# SPDX-License-Identifier: MIT
"""A loop of small tensors, as in samplers and schedulers: `small.py [TURNS [hand-on]]`.

With hand-on, a mode of PyTorch's that does nothing intercepts each operator. This costs as much as any such mode in Python must.
"""

import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class HandOn(TorchDispatchMode):
    @classmethod
    def ignore_compile_internals(cls):
        return True

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


if "hand-on" in sys.argv[2:]:
    torch._C._push_on_torch_dispatch_stack(HandOn())
logits = torch.randn(8, 64, device="cuda")
done = torch.zeros(8, dtype=torch.bool, device="cuda")
tokens = torch.zeros(8, dtype=torch.long, device="cuda")
for turn in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000):
    scores = logits / 0.7 + turn
    tokens = torch.where(done, tokens, scores.argmax(-1))
    done = done | (tokens == 3)
    if turn % 100 == 99 and bool(done.all()):
        done.zero_()
