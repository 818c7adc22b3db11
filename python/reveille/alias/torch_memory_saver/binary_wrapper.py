# SPDX-License-Identifier: MIT
"""Where torch_memory_saver reaches its C interface."""

from reveille.torch_memory_saver import BinaryWrapper

__all__ = ["BinaryWrapper"]
