# SPDX-License-Identifier: MIT
"""Pools, graphs and devices of the stub."""

import contextlib
import ctypes
import itertools
import os
import sys
import threading
import weakref

from . import memory  # noqa: F401

_runtime = ctypes.CDLL(os.environ["RVL_TEST_CUDART_FAKE"], ctypes.RTLD_GLOBAL)
_process = ctypes.CDLL(None)  # cudaMalloc is the preload library's, if that is there
_device = 0
_thread = threading.local()  # a current stream is of a thread
_ids = itertools.count(1)
_free = {}  # (pool, size): segments that nobody uses
_segments = {}  # by address
_current = []
_pools = weakref.WeakValueDictionary()
_gone = set()  # pools that are: empty_cache() gives back their free segments, and the default pool's


class OutOfMemoryError(RuntimeError):
    pass


class MemPool:
    def __init__(self, allocator=None):
        self.allocator = allocator
        self.id = (0, next(_ids))
        _pools[self.id] = self

    def __del__(self):  # as PyTorch does
        if sys.is_finalizing():
            return
        if _current:
            print("a pool went while another was in use", file=sys.stderr, flush=True)
            os.abort()
        _gone.add(self.id)
        _give_back(lambda pool: pool == self.id)


DEFAULT = MemPool()


@contextlib.contextmanager
def use_mem_pool(pool):
    _current.append(pool)
    try:
        yield
    finally:
        _current.pop()


class Segment:
    def __init__(self, address, size, pool, device):
        self.address, self.size, self.device = address, size, device
        self.pool, self.allocator = pool.id, pool.allocator
        _segments[address] = self

    def give_back(self):
        del _segments[self.address]
        if self.allocator is not None:
            self.allocator.free(self.address, self.size, self.device)
        elif _process.cudaFree(ctypes.c_void_p(self.address)) != 0:
            raise RuntimeError("cudaFree failed")


class Block:
    def __init__(self, segment):
        self.address = segment.address
        weakref.finalize(self, lambda: _free.setdefault(key_of(segment), []).append(segment))


def key_of(segment):
    return segment.pool, segment.size, segment.device


def allocate(size):
    pool = _current[-1] if _current else DEFAULT
    size = (size + (2 << 20) - 1) // (2 << 20) * (2 << 20)
    kept = _free.get((pool.id, size, _device))
    if kept:
        return Block(kept.pop())
    address = _segment(pool, size)
    if not address:
        empty_cache()
        address = _segment(pool, size)
    if not address:
        raise OutOfMemoryError(f"no memory for {size} bytes")
    return Block(Segment(address, size, pool, _device))


def _segment(pool, size):
    if pool.allocator is not None:
        return pool.allocator.malloc(size, _device)
    pointer = ctypes.c_void_p()
    failed = _process.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    return None if failed else pointer.value


def memory_snapshot():
    """As PyTorch 2.11 and 2.14 do it: expandable segments are left out of pools with an allocator."""
    on = memory._snapshot()["allocator_settings"]["expandable_segments"]
    everywhere = "STUB_EXPANDABLE_IN_ALL_POOLS" in os.environ
    return [
        {
            "address": each.address,
            "total_size": each.size,
            "is_expandable": on and (everywhere or each.allocator is None),
        }
        for each in _segments.values()
    ]


def empty_cache():
    _give_back(lambda pool: pool == DEFAULT.id or pool in _gone)


def ipc_collect():
    """Nothing here comes from other processes."""


def _give_back(wanted):
    for (pool, _size, _device), segments in _free.items():
        while segments and wanted(pool):
            segments.pop().give_back()


def mem_get_info(device=0):
    before = current_device()
    set_device(device)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert _runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    set_device(before)
    return free.value, total.value


def current_device():
    return _device


def set_device(device):
    global _device
    assert _runtime.cudaSetDevice(device) == 0
    _device = device


def is_initialized():
    return True


def is_current_stream_capturing():
    return getattr(_thread, "capturing", False)


def synchronize():
    pass


class CUDAGraph:
    def pool(self):
        return self._private.id


@contextlib.contextmanager
def graph(cuda_graph, pool=None, stream=None, capture_error_mode="global"):
    private = MemPool() if pool is None else _pools[pool]
    cuda_graph._private = private  # a graph keeps its pool
    captured = ctypes.c_void_p()
    assert _process.cudaStreamCreate(ctypes.byref(captured)) == 0
    assert _process.cudaStreamBeginCapture(captured, 0) == 0
    _thread.capturing = True
    try:
        with use_mem_pool(private):
            yield
    finally:
        _thread.capturing = False
        assert _process.cudaStreamEndCapture(captured, None) == 0
        assert _process.cudaStreamDestroy(captured) == 0
