# SPDX-License-Identifier: MIT
"""Gives GPU memory up and takes it back in stages, and predicts the peaks.

``Context`` manages memory on a real or simulated GPU, ``replay`` reports the peaks of recorded
runs, ``python -m reveille`` says what was found, ``reveille.testing`` is a pytest plugin. Needs
the standard library alone; where an address is wanted, a tensor of PyTorch does as well.
"""

from . import _c
from ._context import Context
from ._options import profile, profiles
from ._replay import replay
from ._results import (
    Allocation,
    Device,
    DeviceStats,
    Forecast,
    Holder,
    HostMemory,
    Oom,
    Profile,
    Replay,
    ReplayDevice,
    ReplayOom,
    ReplayStage,
    StageStats,
    Stats,
    TagStats,
)
from ._sizes import format_size, parse_size
from .errors import (
    Busy,
    CorruptTrace,
    DeviceLost,
    DigestMismatch,
    DiskFull,
    DriverTooOld,
    Forked,
    InputOutputError,
    InvalidArgument,
    InvalidState,
    NoBackend,
    NoDevice,
    NoDriver,
    NotFound,
    NotSupported,
    OutOfDeviceMemory,
    OutOfHostMemory,
    ReveilleError,
    TimedOut,
    VersionMismatch,
    Vetoed,
)


def version() -> str:
    """Version of the C library that is in use."""
    return _c.some_text(_c.core().rvl_version())


__all__ = [
    "Allocation",
    "Busy",
    "Context",
    "CorruptTrace",
    "Device",
    "DeviceLost",
    "DeviceStats",
    "DigestMismatch",
    "DiskFull",
    "DriverTooOld",
    "Forecast",
    "Forked",
    "Holder",
    "HostMemory",
    "InputOutputError",
    "InvalidArgument",
    "InvalidState",
    "NoBackend",
    "NoDevice",
    "NoDriver",
    "NotFound",
    "NotSupported",
    "Oom",
    "OutOfDeviceMemory",
    "OutOfHostMemory",
    "Profile",
    "Replay",
    "ReplayDevice",
    "ReplayOom",
    "ReplayStage",
    "ReveilleError",
    "StageStats",
    "Stats",
    "TagStats",
    "TimedOut",
    "VersionMismatch",
    "Vetoed",
    "format_size",
    "parse_size",
    "profile",
    "profiles",
    "replay",
    "version",
]
