# SPDX-License-Identifier: MIT
"""Why a library or program of the package cannot run on this machine: processor or C library.

pip refuses such a wheel. It can still get here through a copied folder, an environment in a
container of another system, or ``pip install --platform``.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path

_MACHINES = {62: "x86_64", 183: "aarch64"}
_SAME = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC_NEEDED = "2.28"


def machine_of(path: Path) -> str | None:
    """The processor that an ELF file is for. None if the file cannot be read or is not ELF."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return None
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return None
    number = int.from_bytes(head[18:20], "little")
    return _MACHINES.get(number, f"processor {number}")


def why(path: Path, error: str = "") -> str | None:
    """One line with cause and remedy. None if no mismatch is found.

    error: the loader's message.
    """
    own = platform.machine().lower()
    own, theirs = _SAME.get(own, own), machine_of(path)
    if theirs is not None and theirs != own:
        return f"{path} is for {theirs}, and this Python runs on {own}: install the wheel for {own}"
    library, version = platform.libc_ver()
    newer = re.search(r"version .?GLIBC_([\d.]+)' not found", error)
    if newer:
        return (
            f"{path} needs glibc {newer[1]}, and this system has {version or 'an older one'}: install the wheel "
            f"manylinux_2_28, or build it here with `pip install .` in Reveille's repository"
        )
    if theirs is not None and library != "glibc":
        return (
            f"{path} is for glibc, and this system has another C library (musl, as Alpine Linux): use an image with "
            f"glibc {_GLIBC_NEEDED} or newer, such as Debian's"
        )
    return None
