# SPDX-License-Identifier: MIT
"""Reveille in place of the package torch_memory_saver."""

from reveille.torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]
