# SPDX-License-Identifier: MIT
"""A vLLM that is none: the shape of its sleep mode, and a worker that uses it."""

import contextlib
import os
from types import SimpleNamespace

from . import device_allocator

__version__ = os.environ.get("STUB_VLLM_VERSION", "0.33.0")


def config(backend, ranks=1, offload_graphs=False, suspend_communicators=False):
    return SimpleNamespace(
        model_config=SimpleNamespace(
            sleep_mode_backend=backend,
            sleep_mode_offload_cudagraph=offload_graphs,
            enable_nccl_comm_suspend=suspend_communicators,
        ),
        parallel_config=SimpleNamespace(world_size=ranks),
    )


class Worker:
    """Asks for the allocator without a word about the backend, as vLLM's does."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        self._backend = None

    @property
    def backend(self):
        from .device_allocator.sleep_mode_backend import SleepModeBackendFactory

        if self._backend is None:
            self._backend = SleepModeBackendFactory.create_backend(self.vllm_config.model_config)
        return self._backend

    def pool(self, tag):
        allocator = device_allocator.get_mem_allocator_instance()
        if tag == "weights":
            assert allocator.get_current_usage() == 0
        return allocator.use_memory_pool(tag=tag)


@contextlib.contextmanager
def capture_pool(vllm_config):
    if vllm_config.model_config.sleep_mode_backend != "cumem":
        yield None
        return
    with device_allocator.get_mem_allocator_instance().cudagraph_pool() as pool:
        yield pool
