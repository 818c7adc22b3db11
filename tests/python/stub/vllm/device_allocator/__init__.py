# SPDX-License-Identifier: MIT
"""What an allocator must have, and which one it is."""

from typing import Protocol

DEFERRABLE_TAGS = ("weights", "kv_cache")


class MemAllocator(Protocol):
    def use_memory_pool(self, tag=None): ...

    def sleep(self, offload_tags=None): ...

    def discard(self, tags): ...

    def wake_up(self, tags=None): ...

    def get_current_usage(self): ...


def get_mem_allocator_instance():
    from .cumem import CuMemAllocator

    return CuMemAllocator.get_instance()
