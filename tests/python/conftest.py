# SPDX-License-Identifier: MIT
"""What the tests of the Python package share. They run on the installed package."""

import os
import subprocess
import sys
from collections import Counter
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


def pytest_terminal_summary(terminalreporter):
    """Says what was left out, in the lines that scripts/summary.py reads."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    for reason, count in Counter(reasons).items():
        print(f"SKIP {count} cases: {reason.removeprefix('Skipped: ')}")
