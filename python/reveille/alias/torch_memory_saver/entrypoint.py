# SPDX-License-Identifier: MIT
"""The module that has torch_memory_saver's classes."""

from reveille.torch_memory_saver import TorchMemorySaver, _TorchMemorySaverImpl

__all__ = ["TorchMemorySaver", "_TorchMemorySaverImpl"]
