# SPDX-License-Identifier: MIT
"""The stub's own allocator, and the slot in which it lies. It only counts the calls."""

import contextlib

cumem_available = True


class CuMemAllocator:
    instance = None
    default_tag = "default"

    @staticmethod
    def get_instance():
        if CuMemAllocator.instance is None:
            CuMemAllocator.instance = CuMemAllocator()
        return CuMemAllocator.instance

    def __init__(self):
        self.calls = []

    @contextlib.contextmanager
    def use_memory_pool(self, tag=None):
        self.calls.append(("use_memory_pool", tag))
        yield

    @contextlib.contextmanager
    def cudagraph_pool(self):
        yield (0, 0)

    def sleep(self, offload_tags=None):
        self.calls.append(("sleep", offload_tags))

    def discard(self, tags):
        self.calls.append(("discard", tags))

    def wake_up(self, tags=None):
        self.calls.append(("wake_up", tags))

    def get_current_usage(self):
        return 0

    def release_pools(self):
        self.calls.append(("release_pools",))

    def close(self):
        self.release_pools()
