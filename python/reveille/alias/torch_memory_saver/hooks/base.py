# SPDX-License-Identifier: MIT
"""The module that has what torch_memory_saver's two modes share."""

from __future__ import annotations

from typing import Any, Literal

from reveille import _hooks

HookMode = Literal["preload", "torch"]


class HookUtilBase:
    """A hook library: its file, and an allocator for pools if the mode needs one."""

    MODE: HookMode

    @staticmethod
    def create(hook_mode: HookMode) -> HookUtilBase:
        """The hook of a mode. Raises InvalidArgument for another name."""
        from . import mode_preload, mode_torch

        _hooks.check_mode(hook_mode)
        if hook_mode == "preload":
            return mode_preload.HookUtilModePreload()
        return mode_torch.HookUtilModeTorch()

    def get_path_binary(self) -> str:
        """The file of the library. Raises InvalidState in preload mode if it is not loaded."""
        return _hooks.open_hook(self.MODE).path

    def get_allocator(self) -> Any:
        """The allocator for torch.cuda.MemPool, or None."""
        return None


__all__ = ["HookMode", "HookUtilBase"]
