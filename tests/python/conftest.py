# SPDX-License-Identifier: MIT
"""What the tests of the Python package share. They run on the installed package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]


@pytest.fixture
def source() -> Path:
    """Root of the repository."""
    return SOURCE


@pytest.fixture
def run_python(tmp_path):
    """Runs Python in a process of its own, in an empty folder."""

    def run(*arguments, **variables):
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run
