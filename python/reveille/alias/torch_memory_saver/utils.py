# SPDX-License-Identifier: MIT
"""What launchers use of torch_memory_saver.utils: the path for LD_PRELOAD, and setting it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from reveille import _hooks
from reveille._scope import scope


def get_binary_path_from_package(stem: str) -> Path:
    """The hook library of a mode, given by its name in the other package."""
    return Path(_hooks.existing("preload" if "preload" in stem else "torch"))


@scope
def change_env(key: str, value: str) -> Iterator[None]:
    """Sets a variable of the environment for the block."""
    before = os.environ.get(key)
    try:
        os.environ[key] = value
        yield
    finally:
        if before is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = before


def is_xpu() -> bool:
    """False: Reveille works on CUDA."""
    return False
