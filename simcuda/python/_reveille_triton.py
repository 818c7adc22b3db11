# SPDX-License-Identifier: MIT
"""Kernels of a program's own, in Triton: nobody computes what they write, so it is not known any more (_reveille_tensors.py).

PyTorch finds what a kernel writes by its code, as it does where torch.compile meets one.
"""

import contextlib
import functools

import _reveille_tensors as tensors
import torch


def watch(jit):
    """triton.runtime.jit was imported. torch.compile launches its own kernels in another way (watch_compiled)."""
    run = jit.JITFunction.run

    @functools.wraps(run)
    def run_and_lose(kernel, *args, **kwargs):
        launched = run(kernel, *args, **kwargs)
        if not kwargs.get("warmup"):
            _lose_written(kernel, args, kwargs)
        return launched

    jit.JITFunction.run = run_and_lose


def _lose_written(kernel, args, kwargs):
    known = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor) and tensors.may_be_known(each)]
    if not known:
        return
    bound = kernel.signature.bind(*args, **{name: each for name, each in kwargs.items() if name in kernel.signature.parameters})
    bound.apply_defaults()
    given = dict(bound.arguments)
    for name in _written(_Call(kernel, given)):
        if any(given[name] is each for each in known):
            tensors.lose(given[name])


class _Call:
    """What the code of a kernel depends on: types of tensors and numbers, and values of what else is given."""

    def __init__(self, kernel, given):
        self.kernel, self.given = kernel, given
        constant = {each.name for each in kernel.params if each.is_constexpr}
        kinds = (each.dtype if isinstance(each, torch.Tensor) else each if name in constant else type(each) for name, each in given.items())
        self.key = (id(kernel), *map(repr, kinds))

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return self.key == other.key


@functools.lru_cache(maxsize=1024)
def _written(call):
    """The names of its arguments that it writes: all tensors, where PyTorch cannot say, of which it warns."""
    from torch._higher_order_ops import triton_kernel_wrap as analysis

    with _quiet(analysis.log):
        return analysis.identify_mutated_tensors(call.kernel, call.given, {})


@contextlib.contextmanager
def _quiet(log):
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
