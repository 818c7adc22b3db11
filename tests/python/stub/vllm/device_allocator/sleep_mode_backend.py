# SPDX-License-Identifier: MIT
"""Backends by name. vLLM's own one asks the allocator in the slot."""

import abc
import importlib

from . import get_mem_allocator_instance


class SleepModeBackend(abc.ABC):
    def __init__(self):
        self._state = "RUNNING"

    @abc.abstractmethod
    def suspend(self, level=1): ...

    @abc.abstractmethod
    def resume(self, tags=None): ...

    def state(self):
        return self._state


class CuMemBackend(SleepModeBackend):
    def suspend(self, level=1):
        self._state = "SUSPENDED"
        kept = ("runtime", "cudagraph") + (("weights",) if level == 1 else ())
        get_mem_allocator_instance().sleep(offload_tags=kept)

    def resume(self, tags=None):
        self._state = "RESUMING"
        get_mem_allocator_instance().wake_up(tags)
        self._state = "RUNNING"

    def discard(self, tags):
        get_mem_allocator_instance().discard(tags)
        self._state = "SUSPENDED"


class SleepModeBackendFactory:
    _registry = {"cumem": (__name__, "CuMemBackend")}

    @classmethod
    def register_backend(cls, name, module_path, class_name):
        if name in cls._registry:
            raise ValueError(f"{name} is registered already")
        cls._registry[name] = (module_path, class_name)

    @classmethod
    def create_backend(cls, model_config):
        module, name = cls._registry[model_config.sleep_mode_backend]
        return getattr(importlib.import_module(module), name)()
