# SPDX-License-Identifier: MIT
"""Where torch_memory_saver has its class."""

from reveille.torch_memory_saver import TorchMemorySaver

__all__ = ["TorchMemorySaver"]
