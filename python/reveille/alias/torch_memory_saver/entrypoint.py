# SPDX-License-Identifier: MIT
"""Where torch_memory_saver has its classes."""

from reveille.torch_memory_saver import TorchMemorySaver, _TorchMemorySaverImpl

__all__ = ["TorchMemorySaver", "_TorchMemorySaverImpl"]
