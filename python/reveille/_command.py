# SPDX-License-Identifier: MIT
"""The script `reveille` that pip installs: executes the C program in the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ._misfit import why as misfit

PROGRAM = Path(__file__).resolve().parent / "bin" / "reveille"


def main() -> int:
    """Executes the program. Returns 1 if it cannot be run."""
    try:
        os.execv(PROGRAM, ["reveille", *sys.argv[1:]])
    except OSError as error:
        cause = f"{PROGRAM}: {error.strerror}: install the package with `pip install .` in Reveille's repository"
        print(f"reveille: {misfit(PROGRAM) or cause}", file=sys.stderr)
    return 1
