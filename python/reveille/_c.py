# SPDX-License-Identifier: MIT
"""The C API for ctypes, and the location of the libraries.

``python/headers.py`` makes structs, constants and prototypes from ``include/reveille/*.h`` when the
libraries are built. They are in ``_headers.py``, under the C names in Python's spelling. The
libraries are opened at the first use, so that ``import reveille`` is cheap.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from ctypes import c_size_t, c_void_p
from pathlib import Path
from typing import Any, Callable

from . import _distribution
from ._misfit import why as misfit

# Every part of the package imports this module, even if another project has replaced __init__.py.
_distribution.check(__package__, __file__)

LIBRARY_VARIABLE = "RVL_LIBRARY_DIR"
_REMEDY = (
    "is missing: install the package with `pip install .` in Reveille's repository, or name the "
    f"folder of a build in {LIBRARY_VARIABLE}"
)



def _load_headers() -> None:
    """Loads _headers.py: beside this file if the package is installed, else from the libraries."""
    own = Path(__file__).with_name("_headers.py")
    path = own if own.exists() else Path(os.environ.get(LIBRARY_VARIABLE) or own.parent, own.name)
    if not path.exists():
        raise ImportError(f"{path} {_REMEDY}")
    spec = importlib.util.spec_from_file_location(f"{__package__}.{path.stem}", path)
    assert spec is not None and spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


_load_headers()
from ._headers import *  # noqa: E402,F403
from ._headers import PROTOTYPES, VERSION_MAJOR, VERSION_MINOR  # noqa: E402

API_VERSION = f"{VERSION_MAJOR}.{VERSION_MINOR}"


def flags(*chosen: tuple[object, int]) -> int:
    """Combines flags. Takes pairs: whether the flag is wanted, and the flag."""
    return sum(flag for wanted, flag in chosen if wanted)


class Owned(c_void_p):
    """A pointer that C fills in. Its target is freed with the last reference to this object.

    The object exists before C creates the target, so no signal handler can raise in between and
    leak it.
    """

    def __init__(self, free: Callable[[Any], Any]) -> None:
        super().__init__()
        self._free = free

    def __del__(self) -> None:
        if self:
            self._free(self)


class Library(ctypes.CDLL):
    """A library, with the types of the headers. A missing function raises AttributeError."""

    def __getitem__(self, name: Any) -> Any:
        function = super().__getitem__(name)
        function.restype, function.argtypes = PROTOTYPES[name]
        return function


_core: Library | None = None
_replay: Library | None = None


def library_directory() -> Path:
    """The folder of the libraries: RVL_LIBRARY_DIR, or the package's own."""
    chosen = os.environ.get(LIBRARY_VARIABLE)
    return Path(chosen) if chosen else Path(__file__).resolve().parent / "lib"


def library_path(name: str = "reveille") -> Path:
    """The file of a library of the package. It may not exist."""
    return library_directory() / f"lib{name}.so.0"


def hook_library_path(mode: str) -> Path:
    """The file of a hook library ("preload" or "torch"). It may not exist."""
    return library_directory() / f"libreveille-{mode}.so"


def _loaded(name: str) -> Library | None:
    """A library that a hook library or the program has already loaded. None if neither has."""
    try:
        return Library(f"lib{name}.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _open(name: str) -> Library:
    path = library_path(name)
    library = _loaded(name)
    if library is None and not path.exists():
        raise ImportError(f"{path} {_REMEDY}")
    try:
        return library or Library(str(path))
    except OSError as error:
        raise ImportError(misfit(path, str(error)) or f"{path} cannot be used: {error}") from error


def opened_core_is_asleep() -> bool:
    """Whether this process sleeps. False if this package has not opened libreveille."""
    return _core is not None and bool(_core.rvl_context_is_asleep(None))


def core() -> Library:
    """libreveille, opened at the first call."""
    global _core
    if _core is None:
        library = _open("reveille")
        version = library.rvl_version().decode()
        if version != API_VERSION and not version.startswith(API_VERSION + "."):
            raise ImportError(
                f"{library_path()} is version {version}, and this package was written for "
                f"{API_VERSION}: install both from one source"
            )
        _core = library
    return _core


def replay() -> Library:
    """libreveille-replay, opened at the first call."""
    global _replay
    if _replay is None:
        core()
        if (path := library_path()).exists():  # it links libreveille by its soname
            ctypes.CDLL(str(path))
        _replay = _open("reveille-replay")
    return _replay


def elements(kind: Any, fill: Callable[[Any, int, int, c_size_t], None]) -> list[Any]:
    """All elements that fill() writes. fill takes array, element size, capacity and count."""
    room = 16
    while True:
        array, count = (kind * room)(), c_size_t()
        fill(array, ctypes.sizeof(kind), room, count)
        if count.value <= room:
            return [array[i] for i in range(count.value)]
        room = count.value


def text(value: bytes | None) -> str | None:
    """A C string as str. Invalid UTF-8, such as a character that was cut, is replaced."""
    return None if value is None else value.decode("utf-8", "replace")


def some_text(value: bytes | None) -> str:
    """Like text(), but returns "" for NULL."""
    return text(value) or ""


def null_function(kind: Callable[..., Any]) -> Any:
    """A NULL function pointer of this type."""
    return ctypes.cast(None, kind)  # type: ignore[arg-type]
