# SPDX-License-Identifier: MIT
"""A race in PyTorch, which ends in the same way in every simulated run, and behaviour that depends on a cache.

DistributedDataParallel reduces its first backward pass through one bucket of the size of all gradients, and then makes new ones. The
NCCL group holds the first bucket until one of its threads, which polls every 100 ms, has seen that the reduction is complete, and then
until the next collective. So on a card, timing decides whether the bucket is freed before the second forward pass, or only before the
second backward pass, which takes more memory. Here it is always the latter: that thread sees nothing until the second backward pass
begins, and polls then (simcuda/driver/polled.h).

torch.compile(mode="reduce-overhead") is not a race. A run that compiles and a run that finds its code in PyTorch's cache lay out the
graphs' pool in different ways, but each always in the same way. The first takes more. A note says so if this run was not of the first
kind.
"""

import atexit
import ctypes
import os
import sys

import torch

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_driver = ctypes.CDLL(_DRIVER)  # waits without Python's lock
_driver.rvli_polled_note.argtypes = (ctypes.c_char_p,)
PASSES = 2  # of each model: the pass after the first bucket, and the one after the first of the new buckets
OTHER_WAY = (
    b"DistributedDataParallel may free the bucket of its first backward pass before the second forward pass, "
    b"and then takes less: it is a race, and here it always waits for the second backward pass"
)

COMPILED = (
    b"torch.compile may take more for its CUDA graphs where it compiles: here it found its code in PyTorch's cache "
    b"(TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 compiles)"
)


class _Passes:
    """How many backward passes are still followed."""

    left = 0
    followed = told = False


def _hold(model):
    if model.find_unused_parameters and not model.static_graph:
        return  # it keeps its first buckets
    if not _Passes.followed:
        _Passes.followed = True
        atexit.register(_driver.rvli_polled_end)
        _follow_passes()
    _driver.rvli_polled_begin()
    _Passes.left += PASSES


def _show():
    """Shows the watchdog that the reductions of earlier passes are complete."""
    if _driver.rvli_polled_show() == 0:
        return
    if not _Passes.told:
        _Passes.told = True
        _driver.rvli_polled_note(OTHER_WAY)
    _Passes.left -= 1
    if _Passes.left == 0:
        _driver.rvli_polled_end()


def _follow_passes():
    engine = torch.autograd._engine_run_backward

    def show_and_run(*args, **kwargs):
        if _Passes.left > 0:
            _show()
        return engine(*args, **kwargs)

    torch.autograd._engine_run_backward = show_and_run


def watch(distributed):
    """Called when torch.nn.parallel.distributed was imported."""
    model = distributed.DistributedDataParallel
    begin = model.__init__

    def begin_and_hold(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        _hold(self)

    model.__init__ = begin_and_hold


def _tell_of_cache():
    counters = sys.modules["torch._dynamo.utils"].counters
    if counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"] > 0:
        _driver.rvli_polled_note(COMPILED)


def watch_graphs(_module):
    """Called when torch._inductor.cudagraph_trees was imported: compiled code runs as CUDA graphs."""
    atexit.register(_tell_of_cache)
