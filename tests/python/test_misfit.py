# SPDX-License-Identifier: MIT
"""A package for another processor or C library, and a driver of CUDA 11: one clear line each."""

import os
import platform
import subprocess
import sys

import pytest
import reveille
from reveille import _c, _misfit
from test_regions import variables

OWN = {"arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
NUMBERS = {"x86_64": 62, "aarch64": 183}
OTHER = next(name for name in NUMBERS if name != OWN)


def elf(path, number):
    """The begin of a library for a processor."""
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + number.to_bytes(2, "little") + bytes(44))
    return path


def imported(folder):
    """The last line of a program that uses the package with the libraries of a folder."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", "import reveille; reveille.version()"],
        env={**os.environ, "RVL_LIBRARY_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_libraries_of_another_processor_are_named(tmp_path):
    path = elf(tmp_path / _c.library_path().name, NUMBERS[OTHER])
    assert imported(tmp_path) == (
        f"ImportError: {path} is for {OTHER}, and this Python runs on {OWN}: install the wheel for {OWN}"
    )


def test_a_broken_library_of_this_processor_keeps_the_loaders_words(tmp_path):
    path = elf(tmp_path / _c.library_path().name, NUMBERS[OWN])
    assert imported(tmp_path).startswith(f"ImportError: {path} cannot be used: ")


def test_an_old_glibc_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.17"))
    path = elf(tmp_path / "x.so", NUMBERS[OWN])
    assert _misfit.why(path, "/lib64/libc.so.6: version `GLIBC_2.28' not found (required by x.so)") == (
        f"{path} needs glibc 2.28, and this system has 2.17: install the wheel manylinux_2_28, or build it here with "
        "`pip install .` in Reveille's repository"
    )


def test_musl_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    path = elf(tmp_path / "x.so", NUMBERS[OWN])
    assert "is for glibc, and this system has another C library (musl" in _misfit.why(path, "no such file")


def test_what_is_no_library_is_not_explained(tmp_path):
    (tmp_path / "x.so").write_text("text")
    assert _misfit.why(tmp_path / "x.so") is None
    assert _misfit.why(tmp_path / "missing.so") is None


def test_a_driver_of_cuda_11_is_one_line():
    environment = variables()
    with pytest.raises(subprocess.CalledProcessError) as raised:
        subprocess.run(
            [sys.executable, "-B", "-c", "import reveille; reveille.Context('cuda')"],
            env={**os.environ, **environment, "FAKE_CUDA_DRIVER_VERSION": "11080"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    last = raised.value.stderr.strip().splitlines()[-1]
    assert last.startswith("reveille.errors.DriverTooOld: ")
    assert "older than CUDA 12.0" in last and "install a newer one" in last
    assert reveille.DriverTooOld.__module__ == "reveille.errors"
