# SPDX-License-Identifier: MIT
"""The module beside another project's of the same name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import reveille
from reveille import _c, _distribution

PACKAGE = Path(reveille.__file__).parent
IMPORT = "import sys; sys.path.insert(0, sys.argv[1]); import reveille; print(reveille.parse_size('1KiB'))"


@pytest.fixture
def site(tmp_path):
    """A folder of packages with a copy of this one."""
    left_out = shutil.ignore_patterns("__pycache__", "lib", "bin", "*.so")
    shutil.copytree(PACKAGE, tmp_path / "reveille", ignore=left_out)
    return tmp_path


def imported(site, program=IMPORT):
    return subprocess.run(
        [sys.executable, "-B", "-I", "-c", program, str(site)],
        env={**os.environ, "RVL_LIBRARY_DIR": str(_c.library_directory())},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_alone_it_says_nothing(site):
    (site / "reveille_gpu-0.1.0.dist-info").mkdir()
    (site / "reveille_tools-2.0.dist-info").mkdir()
    done = imported(site)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1024\n", "")


def test_files_of_another_distribution_are_named(site):
    (site / "reveille-0.10.0.dist-info").mkdir()
    done = imported(site)
    assert (done.returncode, done.stdout) == (0, "1024\n")
    assert f"{site / 'reveille'} also has files of the distribution reveille 0.10.0" in done.stderr
    assert "`pip uninstall reveille`" in done.stderr
    assert "`pip install --force-reinstall`" in done.stderr


def test_a_replaced_module_is_refused(site):
    (site / "reveille-0.10.0.dist-info").mkdir()
    (site / "reveille" / "__init__.py").write_text("__version__ = '0.10.0'\n")
    done = imported(site, "import sys; sys.path.insert(0, sys.argv[1]); import reveille.vllm")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"ImportError: {site / 'reveille' / '__init__.py'} is not reveille-gpu's: it belongs to reveille 0.10.0. "
    )
    assert "`pip uninstall reveille`" in last


def test_a_replaced_module_without_a_record_is_refused(site):
    (site / "reveille" / "__init__.py").write_text("")
    done = imported(site, "import sys; sys.path.insert(0, sys.argv[1]); import reveille.testing")
    assert "it belongs to another distribution" in done.stderr


def test_a_folder_that_cannot_be_read_has_no_other(tmp_path):
    assert _distribution.other(tmp_path / "missing") is None


def test_no_text_installs_the_other_project(source):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    found = subprocess.run(
        ["git", "grep", "-nE", r"(^|[^n])install( -[^ ]+)* ['\"]?reveille(\[[a-z]+\])?(['\"` ,.:;)]|$)"],
        cwd=source,
        capture_output=True,
        text=True,
    )
    if found.returncode not in (0, 1):
        pytest.skip("not a checkout of git")
    said = [line for line in found.stdout.splitlines() if "test_distribution.py" not in line]
    assert said == []
