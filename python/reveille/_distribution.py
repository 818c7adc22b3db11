# SPDX-License-Identifier: MIT
"""Checks that the files of the module are this package's.

The distribution is ``reveille-gpu``; its module is ``reveille``. Another distribution is named
``reveille``, with a module of that name, too. pip installs both into one folder, and the later one
replaces files of the earlier. So a package that looks complete may contain another project's files.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path

NAME = "reveille-gpu"
_OTHER = re.compile(r"(reveille)-([^-]+)\.(?:dist-info|egg-info)")
_REMEDY = (
    "`pip uninstall reveille` removes the other one, and files of ours with it: "
    f"then install {NAME} again with `pip install --force-reinstall`"
)


def other(folder: Path) -> str | None:
    """Name and version of the other distribution in a folder of packages; None if it is not there."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None
    found = [match for match in map(_OTHER.fullmatch, names) if match]
    return " ".join(found[0].groups()) if found else None


def check(package: str, path: str) -> None:
    """Warns if another distribution is in the folder. Raises ImportError if the module is not ours.

    Args:
        package: the name of the module
        path: a file of the module
    """
    module = sys.modules.get(package)
    folder = Path(path).resolve().parent
    found = other(folder.parent)
    if module is not None and getattr(module, "DISTRIBUTION", None) != NAME:
        raise ImportError(
            f"{folder / '__init__.py'} is not {NAME}'s: it belongs to "
            f"{found or 'another distribution'}. {_REMEDY}"
        )
    if found is not None:
        warnings.warn(
            f"{folder} also has files of the distribution {found}, another project. {_REMEDY}",
            stacklevel=2,
        )
