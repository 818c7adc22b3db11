# SPDX-License-Identifier: MIT
"""Exceptions: one class a status of the C library, with the numbers of its error record.

Where Python has an exception that means the same, the class is that too, so that code which expects
``MemoryError`` or ``ValueError`` works.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from . import _c


class ReveilleError(Exception):
    """A call of the library failed and has changed nothing, unless its message says otherwise.

    Attributes:
        status: the C status, such as -6
        status_name: its name, such as "RVL_ERR_DEVICE_OOM"
        op: the step that failed ("create", "map", "copy_to_host"), "" if none
        tag: the tag it worked on, "" if none
        device: number of the device, None if none
        requested_bytes: what was asked for, 0 if no size was involved
        free_bytes: free on the device when it failed, 0 if unknown
        native_code: the driver's or the system's own number, 0 if none
        native_name: the name of native_code, "" if none
    """

    STATUS: ClassVar[int] = 0

    def __init__(
        self,
        message: str = "",
        *,
        status: int | None = None,
        op: str = "",
        tag: str = "",
        device: int | None = None,
        requested_bytes: int = 0,
        free_bytes: int = 0,
        native_code: int = 0,
        native_name: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = self.STATUS if status is None else status
        self.op = op
        self.tag = tag
        self.device = device
        self.requested_bytes = requested_bytes
        self.free_bytes = free_bytes
        self.native_code = native_code
        self.native_name = native_name

    @property
    def status_name(self) -> str:
        """Name of the status as written in C."""
        return _c.some_text(_c.core().rvl_status_name(self.status))


class InvalidArgument(ReveilleError, ValueError):
    """An argument that the call does not take."""

    STATUS = -1


class InvalidState(ReveilleError):
    """Not possible in this state: a closed context, a call from a callback."""

    STATUS = -2


class Busy(ReveilleError):
    """A stream is being captured."""

    STATUS = -3


class TimedOut(ReveilleError):
    """Memory did not become free within the timeout."""

    STATUS = -4


class NotSupported(ReveilleError):
    """The backend cannot do this."""

    STATUS = -5


class OutOfDeviceMemory(ReveilleError, MemoryError):
    """The device has not enough free memory."""

    STATUS = -6


class OutOfHostMemory(ReveilleError, MemoryError):
    """The host has not enough memory, for a backup for instance."""

    STATUS = -7


class DiskFull(ReveilleError):
    """No room for a backup on disk."""

    STATUS = -8


class InputOutputError(ReveilleError):
    """A file could not be read or written."""

    STATUS = -9


class NoBackend(ReveilleError):
    """This build of the library lacks the backend."""

    STATUS = -10


class NoDriver(ReveilleError):
    """There is no GPU driver."""

    STATUS = -11


class DriverTooOld(ReveilleError):
    """The GPU driver is too old."""

    STATUS = -12


class NoDevice(ReveilleError, LookupError):
    """There is no such device."""

    STATUS = -13


class DeviceLost(ReveilleError):
    """The device does not answer any more."""

    STATUS = -14


class DigestMismatch(ReveilleError):
    """Restored content differs from what was backed up."""

    STATUS = -15


class CorruptTrace(ReveilleError):
    """A trace that breaks its format.

    Attributes: file, line and column (from 1; 0 for the whole), beside those of ReveilleError.
    """

    STATUS = -16
    file: str | None = None
    line: int = 0
    column: int = 0


class VersionMismatch(ReveilleError):
    """A newer version of a trace or of options than this library knows."""

    STATUS = -17


class NotFound(ReveilleError, LookupError):
    """No such tag, allocation, stage or backup."""

    STATUS = -18


class Vetoed(ReveilleError):
    """A before_unmap callback refused the pause; what it raised is the __cause__."""

    STATUS = -19


class Forked(ReveilleError):
    """The context was opened before fork and belongs to the parent: open one here."""

    STATUS = -20


def _all_subclasses(cls: type[ReveilleError]) -> list[type[ReveilleError]]:
    return [each for direct in cls.__subclasses__() for each in (direct, *_all_subclasses(direct))]


BY_STATUS: dict[int, type[ReveilleError]] = {
    cls.STATUS: cls for cls in _all_subclasses(ReveilleError)
}


def error_of(status: int, message: str, **facts: Any) -> ReveilleError:
    """The exception of a status; statuses of newer libraries become plain ReveilleError."""
    return BY_STATUS.get(status, ReveilleError)(message, status=status, **facts)


def last_error(
    status: int, backend: str = "", library: Any = None, ordinal: int | None = None
) -> ReveilleError:
    """The exception of a call that has just failed on this thread.

    The library numbers devices ("on device 0"); with the name of the backend the sentence names
    them as PyTorch does ("on cuda:0").

    Args:
        backend: its name
        library: the library that was called, libreveille if it is None
        ordinal: number of the context's only device in PyTorch, if the context has another
    """
    record = _c.Error()
    (library or _c.core()).rvl_last_error(ctypes.byref(record))
    if record.status != status:  # it failed without a word, which is a fault of the library
        return error_of(status, _c.some_text(_c.core().rvl_status_text(status)))
    message = _c.some_text(record.message)
    device = None if record.device == _c.NO_DEVICE else record.device
    shown = device if ordinal is None else ordinal
    if backend and device is not None:
        message = message.replace(f" on device {device}", f" on {backend}:{shown}", 1)
    return error_of(
        status,
        message,
        op=_c.some_text(record.op),
        tag=_c.some_text(record.tag),
        device=None if device is None else shown,
        requested_bytes=record.requested_bytes,
        free_bytes=record.free_bytes,
        native_code=record.native_code,
        native_name=_c.some_text(record.native_name),
    )


def check(status: int, backend: str = "", library: Any = None, ordinal: int | None = None) -> None:
    """Raises what a status says, nothing for OK. Arguments as those of last_error()."""
    if status != _c.OK:
        raise last_error(status, backend, library, ordinal)
