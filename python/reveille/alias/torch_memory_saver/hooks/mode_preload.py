# SPDX-License-Identifier: MIT
"""The module that has torch_memory_saver's preload mode and configure_subprocess()."""

from __future__ import annotations

import os
import re

from reveille.torch_memory_saver import configure_subprocess

from .base import HookUtilBase


class HookUtilModePreload(HookUtilBase):
    """The library that this process was started with."""

    MODE = "preload"

    def get_path_binary(self) -> str:
        """Its file, among those that LD_PRELOAD names."""
        preloaded = re.split("[: ]", super().get_path_binary())
        ours = (each for each in preloaded if re.search("reveille|saver", os.path.basename(each)))
        return next(ours, "")


__all__ = ["HookUtilModePreload", "configure_subprocess"]
