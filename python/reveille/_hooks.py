# SPDX-License-Identifier: MIT
"""The hook library of this process, and its contexts.

In preload mode the program was started with LD_PRELOAD, so the library's functions are among the
process's own. In torch mode this module opens the library, and PyTorch's pluggable allocator opens
the same file. Both libraries have only torch_memory_saver's functions. Contexts and error records
are in libreveille.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator

from . import _c
from ._context import Context
from ._handle import BorrowedHandle
from ._options import choice
from ._scope import scope
from ._wake import Wakes
from .errors import InvalidState, NotFound, ReveilleError, check

MODES = ("preload", "torch")


class HookContext(Context):
    """A context that regions allocate in. It belongs to the hook library; you cannot close it."""

    def __init__(self, handle: BorrowedHandle, ordinal: int) -> None:
        self._handle = handle
        self._tag_names = {}
        self._wakes = Wakes()
        self.ordinal = ordinal
        self._store_path = os.environ.get("REVEILLE_STORE")

    @property
    def tags(self) -> tuple[str, ...]:
        """Names of the tags, in the order of their first use."""
        names: list[str] = []

        def collect(context: ctypes.c_void_p) -> None:
            while name := self._handle.library.rvl_tag_name(context, len(names) + 1):
                names.append(_c.some_text(name))

        self._handle.run(collect)
        return tuple(names)


class Hook:
    """A hook library in this process."""

    def __init__(self, mode: str, library: _c.Library, path: str) -> None:
        self.mode = mode
        self.library = library  # torch_memory_saver's functions
        self.core = _c.core()
        self.path = path

    def check(self, status: int) -> None:
        """Raises the exception of a status, with a summary of who holds the device's memory."""
        try:
            check(status, "cuda", self.core)
        except ReveilleError as error:
            if error.device is not None:
                self._note_summaries(error, error.device)
            raise

    def _note_summaries(self, error: ReveilleError, device: int) -> None:
        for context in self.contexts():
            handle = context._handle
            error.note_summary(handle.run(functools.partial(handle.summary, device=device)))

    def context(self, device: int) -> HookContext:
        """The context of a device. Opens it if needed."""
        context = ctypes.c_void_p()
        self.check(self.core.rvl_hooks_get_context(device, ctypes.byref(context)))
        return HookContext(BorrowedHandle(self.core, context, device), device)

    def contexts(self) -> Iterator[HookContext]:
        """Every open context, including those for disk backups."""
        index, device, context = 0, ctypes.c_int(), ctypes.c_void_p()
        while True:
            found = self.core.rvl_hooks_get_context_at(
                index, ctypes.byref(device), ctypes.byref(context)
            )
            if found == _c.ERR_NOT_FOUND:
                return
            self.check(found)
            handle = BorrowedHandle(self.core, ctypes.c_void_p(context.value), device.value)
            yield HookContext(handle, device.value)
            index += 1


def preloaded() -> _c.Library | None:
    """The process as a library, if it was started with the preload library. None if not."""
    process = _c.Library(None)
    mode = getattr(process, "rvl_hooks_mode", None)
    return process if mode and mode() == b"preload" else None


def check_mode(mode: str) -> None:
    """Raises InvalidArgument unless this is a mode."""
    choice(mode, MODES, "hook_mode")


def open_hook(mode: str | None) -> Hook:
    """The hook of a mode. None: the preload library if it is loaded, else torch mode."""
    if mode is not None:
        check_mode(mode)
    process = preloaded() if mode != "torch" else None
    if process is not None:
        return Hook("preload", process, os.environ.get("LD_PRELOAD", ""))
    if mode == "preload":
        raise InvalidState(
            "hook_mode is preload, but the preload library is not in this process: start it under "
            "reveille.configure_subprocess(), or with "
            f"LD_PRELOAD={_c.hook_library_path('preload')} (LD_PRELOAD is "
            f"{os.environ.get('LD_PRELOAD', '')!r})"
        )
    path = existing("torch")
    try:
        hook = Hook("torch", _c.Library(path), path)
    except OSError as error:
        raise ImportError(f"{path} cannot be used: {error}") from error
    hook.check(hook.core.rvl_hooks_check_settings())  # otherwise wrong settings would end the process at its first use
    return hook


def existing(mode: str) -> str:
    """The path of a hook library of the package. Raises NotFound if it was not built."""
    path = _c.hook_library_path(mode)
    if not path.exists():
        raise NotFound(
            f"{path} is missing: it is built where the CUDA headers are. Install the package "
            f"there, or name the folder of a build in {_c.LIBRARY_VARIABLE}"
        )
    return str(path)


@scope
def configure_subprocess() -> Iterator[None]:
    """Processes that you start within the ``with`` block load the preload library.

    The block sets LD_PRELOAD for the whole process: start processes from one thread at a time.
    A process that was itself preloaded passes the library on anyway.
    """
    if preloaded() is not None and os.environ.get("LD_PRELOAD"):
        yield
        return
    path, before = existing("preload"), os.environ.get("LD_PRELOAD")
    others = [each for each in (before or "").split(":") if each and each != path]
    try:
        os.environ["LD_PRELOAD"] = ":".join([path, *others])
        yield
    finally:
        if before is None:
            os.environ.pop("LD_PRELOAD", None)
        else:
            os.environ["LD_PRELOAD"] = before
