# SPDX-License-Identifier: MIT
"""Reports what vLLM and SGLang find out about their KV cache when they start, for `reveille run` (simcuda/driver/engine.h)."""

import ctypes
import os

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")


def _tell(name, blocks, block_tokens, tokens, size_bytes):
    tell = ctypes.PyDLL(_DRIVER).rvli_simulated_engine
    tell.restype, tell.argtypes = None, (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)
    tell(name, blocks, block_tokens, tokens, size_bytes)


def _bytes_of(configs):
    """The bytes on the GPU with the most: stages of a pipeline may have different layers."""
    return max(sum(tensor.size for tensor in each.kv_cache_tensors) for each in configs)


def watch_vllm(core):
    """Called when vllm.v1.engine.core was imported. One process of each engine, besides its workers, has an EngineCore."""
    made = core.get_kv_cache_configs
    sized = core.EngineCore._initialize_kv_caches
    workers = []

    def get_kv_cache_configs(*args, **kwargs):
        workers[:] = made(*args, **kwargs)
        return list(workers)

    def initialize_kv_caches(self, vllm_config, *args, **kwargs):
        result = sized(self, vllm_config, *args, **kwargs)
        cache = vllm_config.cache_config
        blocks, groups = cache.num_gpu_blocks, workers[0].kv_cache_groups
        if groups:  # a model without attention has none
            # vLLM 0.24 counts tokens itself. Earlier versions divide the blocks among groups of layers.
            counted = getattr(cache, "kv_cache_size_tokens", None)
            tokens = counted if counted is not None else blocks // len(groups) * cache.block_size
            _tell(b"vLLM", blocks, cache.block_size, tokens, _bytes_of(workers))
        return result

    core.get_kv_cache_configs = get_kv_cache_configs
    core.EngineCore._initialize_kv_caches = initialize_kv_caches


def watch_sglang(scheduler):
    """Called when sglang.srt.managers.scheduler was imported. Each rank has a Scheduler, and all have the same tokens."""
    begin = scheduler.Scheduler.__init__

    def begin_and_tell(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        if self.tp_group.rank_in_group != 0 or getattr(getattr(self, "pp_group", None), "rank_in_group", 0) != 0:
            return
        size = self.token_to_kv_pool_allocator.get_kvcache().get_kv_size_bytes()
        size_bytes = size if isinstance(size, int) else sum(size)  # of keys and values
        _tell(b"SGLang", self.max_total_num_tokens // self.page_size, self.page_size, self.max_total_num_tokens, size_bytes)

    scheduler.Scheduler.__init__ = begin_and_tell
