# SPDX-License-Identifier: MIT
"""Makes `import torch_memory_saver` find Reveille, if the environment asks for it.

The package's .pth file calls install() whenever a Python of this environment starts. So this
module must be small and must never raise. The modules that are then imported are in `alias`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

VARIABLE = "REVEILLE_AS_TORCH_MEMORY_SAVER"
FOLDER = Path(__file__).resolve().parent / "alias"
NAME = "torch_memory_saver"

VALUES = {
    **dict.fromkeys(("1", "true", "TRUE", "yes", "YES"), True),
    **dict.fromkeys(("", "0", "false", "FALSE", "no", "NO"), False),
}


def wanted() -> bool | None:
    """Whether the environment asks for Reveille. None: its value is not understood."""
    return VALUES.get(os.environ.get(VARIABLE, ""))


class Finder:
    """Finds torch_memory_saver in our folder, before any other finder."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Called by the import system. Submodules are found through the package's own path."""
        if name != NAME:
            return None
        if wanted() is None:
            raise ImportError(
                f"{VARIABLE}={os.environ[VARIABLE]!r} is not understood: set it to 1 for Reveille, "
                "or to 0 for the package torch_memory_saver"
            )
        return PathFinder.find_spec(name, [str(FOLDER)], target)

    @staticmethod
    def find_distributions(context: Any = None) -> Iterable[Any]:
        """Called by importlib.metadata. Gives the version that has this interface."""
        from importlib.metadata import DistributionFinder, MetadataPathFinder

        if wanted() is None:
            return ()
        name = getattr(context, "name", None)
        here = DistributionFinder.Context(name=name, path=[str(FOLDER)])
        return MetadataPathFinder.find_distributions(here)


def install() -> None:
    """Adds the finder, unless the environment turns it off."""
    if wanted() is not False and Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
