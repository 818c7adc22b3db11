# SPDX-License-Identifier: MIT
"""A program's own Triton kernels: nothing computes what they write, so it becomes unknown (_reveille_contents.py).

PyTorch finds from a kernel's code what it writes, as for a kernel in torch.compile.
"""

import contextlib
import functools

import _reveille_contents as contents


def watch(jit):
    """Called when triton.runtime.jit was imported. torch.compile launches its own kernels in another way (watch_compiled)."""
    run = jit.JITFunction.run

    @functools.wraps(run)
    def run_and_lose(kernel, *args, **kwargs):
        launched = run(kernel, *args, **kwargs)
        if not kwargs.get("warmup"):
            _lose_written(kernel, args, kwargs)
        return launched

    jit.JITFunction.run = run_and_lose


def _lose_written(kernel, args, kwargs):
    if not any(contents.may_be_known(each) for each in (*args, *kwargs.values())):
        return
    bound = kernel.signature.bind(*args, **{name: each for name, each in kwargs.items() if name in kernel.signature.parameters})
    bound.apply_defaults()
    for name in _written(kernel, bound.arguments):
        if contents.may_be_known(bound.arguments[name]):
            contents.lose(bound.arguments[name])


def _written(kernel, given):
    """The names of arguments that the kernel writes. All, if PyTorch cannot tell, of which it warns."""
    constant = {each.name for each in kernel.params if each.is_constexpr}
    # What the code depends on. No value of the program is kept, since it may hold memory.
    kinds = tuple(str(getattr(each, "dtype", each if name in constant else type(each))) for name, each in given.items())
    known = kernel.__dict__.setdefault("_reveille_written", {})
    if kinds not in known:
        known[kinds] = _analyse(kernel, given)
    return known[kinds]


def _analyse(kernel, given):
    try:
        from torch._higher_order_ops import triton_kernel_wrap as analysis

        with _quiet(analysis.log):
            return tuple(analysis.identify_mutated_tensors(kernel, dict(given), {}))
    except Exception:  # another version of PyTorch
        return tuple(given)


@contextlib.contextmanager
def _quiet(log):
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
