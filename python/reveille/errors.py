# SPDX-License-Identifier: MIT
"""Exceptions: one class for each status of the C library, with the numbers of its error record.

If Python has a matching exception, the class also derives from it. So code that catches
``MemoryError`` or ``ValueError`` works.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, ClassVar

from . import _c

# Each class below registers itself here with its status.
BY_STATUS: dict[int, type[ReveilleError]] = {}
NOTES = hasattr(BaseException, "add_note")


class ReveilleError(RuntimeError):
    """A call failed. Nothing has changed, unless the message says otherwise.

    Attributes:
        status: the C status, such as -6
        status_name: its name, such as "RVL_ERR_DEVICE_OOM"
        op: the step that failed ("create", "map", "copy_to_host"), "" if none
        tag: the tag that the call worked on, "" if none
        device: number of the device, None if none
        requested_bytes: bytes that were requested, 0 if no size was involved
        free_bytes: bytes free on the device when the call failed, 0 if unknown
        native_code: the driver's or the system's error number, 0 if none
        native_name: the name of native_code, "" if none
        file: the file in question, None if none; with line and column (from 1, 0 if none)
        key: the key of a config, or the name of a setting of a step, "" if none
        summary: who held the device's memory when the call failed, "" if no device is involved
    """

    STATUS: ClassVar[int] = 0

    def __init_subclass__(cls, status: int | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        if status is not None:
            cls.STATUS = status
            BY_STATUS[status] = cls

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
        file: str | None = None,
        line: int = 0,
        column: int = 0,
        key: str = "",
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
        self.file = file
        self.line = line
        self.column = column
        self.key = key
        self.summary = ""

    def __str__(self) -> str:
        # Tracebacks show notes from Python 3.11 on.
        return self.message if NOTES or not self.summary else f"{self.message}\n{self.summary}"

    def note_summary(self, summary: str) -> None:
        """Adds below the message who held the memory, once."""
        if self.summary or not summary:
            return
        self.summary = summary
        if NOTES:
            self.add_note(summary)

    @property
    def status_name(self) -> str:
        """Name of the status as written in C."""
        return _c.some_text(_c.core().rvl_status_name(self.status))


class InvalidArgument(ReveilleError, ValueError, status=-1):
    """The call does not accept this argument."""


class InvalidState(ReveilleError, status=-2):
    """Not possible in this state: a closed context, a call from a callback."""


class Busy(ReveilleError, status=-3):
    """A stream is being captured, or a transition of the memory is prepared."""


class TimedOut(ReveilleError, status=-4):
    """Memory did not become free within the timeout."""


class NotSupported(ReveilleError, status=-5):
    """The backend cannot do this."""


class OutOfDeviceMemory(ReveilleError, MemoryError, status=-6):
    """The device does not have enough free memory."""


class OutOfHostMemory(ReveilleError, MemoryError, status=-7):
    """The host does not have enough memory, for example for a backup."""


class DiskFull(ReveilleError, status=-8):
    """There is no room for a backup on disk."""


class InputOutputError(ReveilleError, status=-9):
    """A file could not be read or written."""


class NoBackend(ReveilleError, status=-10):
    """This build of the library lacks the backend."""


class NoDriver(ReveilleError, status=-11):
    """There is no GPU driver."""


class DriverTooOld(ReveilleError, status=-12):
    """The GPU driver is too old."""


class NoDevice(ReveilleError, LookupError, status=-13):
    """There is no such device."""


class DeviceLost(ReveilleError, status=-14):
    """The device no longer responds."""


class DigestMismatch(ReveilleError, status=-15):
    """Restored content differs from the content that was backed up."""


class CorruptTrace(ReveilleError, status=-16):
    """A trace violates its format, at a line and column of a file."""


class VersionMismatch(ReveilleError, status=-17):
    """A trace or options have a newer version than this library knows."""


class NotFound(ReveilleError, LookupError, status=-18):
    """There is no such tag, allocation, stage or backup."""


class Vetoed(ReveilleError, status=-19):
    """A before_unmap callback refused the pause. Its exception is the __cause__."""


class Forked(ReveilleError, status=-20):
    """The context was opened before the fork and belongs to the parent: open a new one here."""


class JobAborted(ReveilleError):
    """A rank could not pause or resume, so none did. Memory and content are as before on all ranks.

    All ranks raise the same exception, with the numbers of the rank that failed.

    Attributes:
        rank: the rank that failed, -1 if unknown
        reason: its message
        agreed: whether all ranks that respond raise this. False if one is late or dead, if the
            store failed for this rank, or if this rank could not undo everything
    """

    def __init__(
        self,
        message: str = "",
        *,
        rank: int = -1,
        reason: str = "",
        agreed: bool = True,
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.rank = rank
        self.reason = reason
        self.agreed = agreed


def error_of(status: int, message: str, **facts: Any) -> ReveilleError:
    """The exception of a status. A status of a newer library becomes a plain ReveilleError."""
    return BY_STATUS.get(status, ReveilleError)(message, status=status, **facts)


def last_error(
    status: int, backend: str = "", library: Any = None, ordinal: int | None = None
) -> ReveilleError:
    """The exception of a call that has just failed on this thread.

    The library's message numbers devices ("on device 0"). If the backend is given, the message
    names them as PyTorch does ("on cuda:0").

    Args:
        backend: name of the backend
        library: the library that was called; None: libreveille
        ordinal: PyTorch's number of the context's only device, if the context's number differs
    """
    record = _c.Error()
    (library or _c.core()).rvl_last_error(ctypes.byref(record))
    if record.status != status:  # it stored no error record, which is a bug of the library
        return error_of(status, _c.some_text(_c.core().rvl_status_text(status)))
    message = _c.some_text(record.message)
    device = None if record.device == _c.NO_DEVICE else record.device
    shown = device if ordinal is None else ordinal
    if backend and device is not None:
        message = message.replace(f" on device {device}", f" on {backend}:{shown}", 1)
    file = os.fsdecode(record.file) if record.file else None
    if file is not None:
        place = [file, *(str(number) for number in (record.line, record.column) if number)]
        message = f"{':'.join(place)}: {message}"
    elif record.key:
        message = f"{_c.some_text(record.key)}: {message}"
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
        file=file,
        line=record.line,
        column=record.column,
        key=_c.some_text(record.key),
    )


def check(status: int, backend: str = "", library: Any = None, ordinal: int | None = None) -> None:
    """Raises the exception of a status unless it is OK. Arguments as in last_error()."""
    if status != _c.OK:
        raise last_error(status, backend, library, ordinal)
