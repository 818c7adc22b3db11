# SPDX-License-Identifier: MIT
"""vLLM's parallel groups, and their communicators, which it makes beside PyTorch's."""

import ctypes
import weakref
from types import SimpleNamespace

_groups = {}


class Group:
    """As vLLM's, it lives as long as somebody holds it."""

    def __init__(self, name, ranks, pointer, library):
        own = pointer and SimpleNamespace(
            comm=ctypes.c_void_p(pointer), nccl=SimpleNamespace(lib=library), _suspended=False
        )
        self.ranks = ranks
        self.device_communicator = SimpleNamespace(pynccl_comm=own)
        _groups[name] = weakref.ref(self)

    @property
    def suspended(self):
        return self.device_communicator.pynccl_comm._suspended
