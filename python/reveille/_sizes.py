# SPDX-License-Identifier: MIT
"""Sizes: parsed as in the command ("80GiB"), and formatted as in its tables."""

from __future__ import annotations

import ctypes
import operator
import os
from typing import Any, Union

from . import _c
from .errors import InvalidArgument, check

Size = Union[int, str]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def parse_size(size: Size) -> int:
    """Bytes from an int, or from a text such as "80GiB" or "1.5T" (powers of two)."""
    if isinstance(size, str):
        bytes_out = ctypes.c_uint64()
        check(_c.core().rvl_size_parse(name_bytes(size, "a size"), ctypes.byref(bytes_out)))
        return bytes_out.value
    return whole_bytes(size)


def whole_bytes(size: int) -> int:
    """Checks that a size is an int that C can hold. ctypes would truncate it silently."""
    number = whole(size, "a size")
    if not 0 <= number < 1 << 64:
        raise InvalidArgument(f"a size must be from 0 to 2^64 - 1 bytes, not {number}")
    return number


def whole(value: Any, what: str) -> int:
    """An int, or a value that converts to one (NumPy's). Refuses a bool, which is a mistake."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise InvalidArgument(f"{what} must be a whole number, not {value!r}")


def name_bytes(name: str, what: str) -> bytes:
    """A text for C. Refuses a NUL, where C would cut it."""
    if not isinstance(name, str):
        raise InvalidArgument(f"{what} must be a str, not {name!r}")
    if "\0" in name:
        raise InvalidArgument(f"{what} must not contain a NUL: {name!r}")
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} must be text that UTF-8 can hold: {name!r}") from error


def path_bytes(path: Any, what: str) -> bytes:
    """A path for C. Refuses "", which some calls take for the current folder and others for none."""
    try:
        name = os.fsencode(path)
    except TypeError:
        name = b""
    if not name or b"\0" in name:
        raise InvalidArgument(f"{what} must be a path, not {path!r}")
    return name


def format_size(size: int) -> str:
    """A size for people: "94.2 GiB"."""
    if abs(size) < 1024:
        return f"{size} B"
    value = float(size)
    for unit in _UNITS:
        if abs(round(value, 1)) < 1024 or unit == _UNITS[-1]:
            return f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")
