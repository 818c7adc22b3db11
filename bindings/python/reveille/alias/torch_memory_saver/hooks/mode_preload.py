# SPDX-License-Identifier: MIT
"""Where torch_memory_saver has configure_subprocess()."""

from reveille.torch_memory_saver import configure_subprocess

__all__ = ["configure_subprocess"]
