# SPDX-License-Identifier: MIT
"""Releases and reclaims GPU memory in stages, and predicts memory peaks.

In a PyTorch program use ``region``, ``pause`` and ``resume``; they work through a hook library.
Without PyTorch, ``Context`` manages memory on a real or simulated GPU. ``replay`` reports the peaks
of recorded runs, and ``model`` those of a model from its config. ``plan`` finds what fits.
``simulated`` runs programs on simulated GPUs. ``python -m reveille`` reports what is installed.
``reveille.testing`` is a pytest plugin. ``reveille.torch_memory_saver`` has the interface of the
package of that name. ``reveille.prometheus`` exports ``metrics()`` to Prometheus.

The package needs only the standard library. Functions that work on tensors import PyTorch when you
call them.
"""

DISTRIBUTION = "reveille-gpu"  # the name in package indexes

from . import _c  # noqa: E402
from ._asleep import asleep, sleep, wake
from ._communicators import Communicator
from ._context import Context
from ._functions import (
    add_communicator,
    backup_of,
    communicators,
    contexts,
    cuda_graph,
    disable,
    fits,
    hook_mode,
    pause,
    ready,
    record,
    region,
    remove_communicator,
    resume,
    set_disk_directory,
    stage,
    stats,
    step,
    wait,
)
from ._hooks import HookContext, configure_subprocess
from ._job import Job, JobForecast
from ._metrics import DeviceMetrics, Metrics, StoreMetrics, TagMetrics, metrics
from ._model import model, plan, plan_model, settings
from ._options import profile, profiles
from ._process import HookStats
from ._replay import replay
from ._replicas import Exchange, Links, Transfer
from ._results import (
    Allocation,
    Device,
    DeviceStats,
    Forecast,
    Holder,
    HostMemory,
    ModelStep,
    Oom,
    Plan,
    Profile,
    Replay,
    ReplayDevice,
    ReplayOom,
    ReplayStage,
    Setting,
    StageStats,
    Stats,
    TagStats,
    Term,
    Verdict,
)
from ._simulated import ProgramFailed, SimulatedGPUs, SimulatedRun, simulated
from ._sizes import format_size, parse_size
from ._wake import Wake
from ._watch import FailureMetrics, TransitionMetrics
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
    JobAborted,
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
    "Communicator",
    "Context",
    "CorruptTrace",
    "Device",
    "DeviceLost",
    "DeviceMetrics",
    "DeviceStats",
    "DigestMismatch",
    "DiskFull",
    "DriverTooOld",
    "Exchange",
    "FailureMetrics",
    "Forecast",
    "Forked",
    "Holder",
    "HookContext",
    "HookStats",
    "HostMemory",
    "InputOutputError",
    "InvalidArgument",
    "InvalidState",
    "Job",
    "JobAborted",
    "JobForecast",
    "Links",
    "Metrics",
    "ModelStep",
    "NoBackend",
    "NoDevice",
    "NoDriver",
    "NotFound",
    "NotSupported",
    "Oom",
    "OutOfDeviceMemory",
    "OutOfHostMemory",
    "Plan",
    "Profile",
    "ProgramFailed",
    "Replay",
    "ReplayDevice",
    "ReplayOom",
    "ReplayStage",
    "Verdict",
    "ReveilleError",
    "Setting",
    "SimulatedGPUs",
    "SimulatedRun",
    "StageStats",
    "Stats",
    "StoreMetrics",
    "TagMetrics",
    "TagStats",
    "Term",
    "TimedOut",
    "Transfer",
    "TransitionMetrics",
    "VersionMismatch",
    "Vetoed",
    "Wake",
    "add_communicator",
    "asleep",
    "backup_of",
    "communicators",
    "configure_subprocess",
    "contexts",
    "cuda_graph",
    "disable",
    "fits",
    "format_size",
    "hook_mode",
    "metrics",
    "model",
    "parse_size",
    "pause",
    "plan",
    "plan_model",
    "profile",
    "profiles",
    "ready",
    "record",
    "region",
    "remove_communicator",
    "replay",
    "resume",
    "set_disk_directory",
    "settings",
    "simulated",
    "sleep",
    "stage",
    "stats",
    "step",
    "version",
    "wait",
    "wake",
]
