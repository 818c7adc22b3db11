# SPDX-License-Identifier: MIT
"""The module through which torch_memory_saver calls its C interface."""

from reveille.torch_memory_saver import BinaryWrapper

__all__ = ["BinaryWrapper"]
