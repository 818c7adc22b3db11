# SPDX-License-Identifier: MIT
"""Calls that a signal handler ends by an exception, and calls while a context is being closed.

Where a signal handler may raise differs between Pythons. RVL_TEST_PYTHONS=all runs this on every
one of this machine that the package supports, and else on this one alone.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reveille

PACKAGES = Path(reveille.__file__).resolve().parents[1]
SUPPORTED = [f"3.{minor}" for minor in range(9, 15)]
SCENARIOS = ("calls", "closes", "opens", "crowd", "running", "everywhere", "collected")


def _pythons():
    """This interpreter, or by version also those on PATH and those of pyenv."""
    own = "{}.{}".format(*sys.version_info)
    found = {own: sys.executable}
    if os.environ.get("RVL_TEST_PYTHONS") != "all":
        return found
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in SUPPORTED:
        on_path = shutil.which(f"python{version}")
        places = [on_path] if on_path else []
        places += sorted(str(each) for each in root.glob(f"versions/{version}.*/bin/python"))
        for place in places:
            if subprocess.run([place, "-c", "import ctypes"], capture_output=True).returncode == 0:
                found.setdefault(version, place)
    return found


PYTHONS = _pythons()


@pytest.mark.parametrize("version", sorted(PYTHONS))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_interrupted(scenario, version):
    program = Path(__file__).with_name("interrupted.py")
    done = subprocess.run(
        [PYTHONS[version], "-B", str(program), scenario],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
