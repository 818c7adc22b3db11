# SPDX-License-Identifier: MIT
"""The C API as ctypes sees it: structs, constants, prototypes, and where the libraries are.

Only what the package uses is declared. Names are those of ``include/reveille/*.h`` in Python's
spelling; a test compares sizes, offsets, constants and prototypes with what the C compiler says.
The libraries are opened at the first use, so that ``import reveille`` costs nothing.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any, Callable

from . import _distribution
from ._misfit import why as misfit

# Every part of the package comes by here, also where another project has replaced __init__.py.
_distribution.check(__package__, __file__)

API_VERSION = "0.1"
LIBRARY_VARIABLE = "RVL_LIBRARY_DIR"

OK = 0
ERR_INVALID = -1
ERR_NOT_SUPPORTED = -5
ERR_NO_BACKEND = -10
ERR_NOT_FOUND = -18
ERR_VETOED = -19
ERR_FORKED = -20

NO_DEVICE = -1
SUMMARY_BYTES = 512  # room for rvl_device_get_summary()

ALLOC_EXPORTABLE = 1
ALLOC_RDMA = 2
ALLOC_PAUSED = 4
CONTEXT_LOG_OPS = 1
CONTEXT_NO_VERIFY = 2
CONTEXT_DISK_TMPFS = 4
CONTEXT_STORE_OVERFLOW = 8
TAG_RETAIN_BACKUPS = 1
TAG_POISON = 2
PAUSE_DISCARD = 1
RESUME_NO_RESTORE = 1
RESUME_BY_PIECES = 2
SLEEP_DISCARD = 1
SLEEP_SHARED_EVENTS = 2
CONTROL_SLEEP = 1
CONTROL_WHY_BYTES = 256
WAKE_UP_PAUSED = 1
SIM_OVERCOMMIT = 1
SIM_HOST_AHEAD = 2
CUDA_HOST_AHEAD = 1
CUDA_HOST_PAGEABLE = 2
REPLAY_PARTIAL = 1
REPLAY_HEADROOM_BYTES = 4
REPLAY_HEADROOM_PERCENT = 8
MODEL_SEGMENTS = 0x100000
PLAN_REFUSED = 4
PLAN_ANY = (1 << 64) - 1  # of largest_bytes: any size fits

# Enums, as tuples in the order of their values.
BACKUPS = ("none", "host", "disk")
STATES = ("active", "pausing", "paused", "resuming", "lost")
SIM_MEMORIES = ("backed", "accounted")
HOST_KEEPS = ("all", "bytes", "none")
WAKES = ("staged", "together")
PIECE_STATES = ("open", "restored", "filled")
LOG_LEVELS = ("error", "warn", "info", "debug")
PLAN_STATES = ("left out", "fits", "tight", "does not fit", "refused", "failed")
MODEL_DOUBTS = ("none", "assumed", "left out")
MODEL_TERMS = (
    "weights",
    "kv_cache",
    "cuda_graph",
    "buffers",
    "sharded_weights",
    "master_weights",
    "optimizer",
    "gradients",
    "gradient_buckets",
    "all_gather",
    "activations",
    "logits",
    "training_copy",
    "engine_context",
    "trainer_context",
    "trainer_residue",
    "asleep",
    "optimizer_temporaries",
    "blas_workspaces",
    "cached",
    "engine_nccl",
    "trainer_nccl",
    "dequantised",
    "trainer_host",
    "paged_optimizer",
    "update_bucket",
)


def flags(*chosen: tuple[object, int]) -> int:
    """The flags that are wanted, combined. Takes pairs: whether it is wanted, and the flag."""
    return sum(flag for wanted, flag in chosen if wanted)


class Sized(Structure):
    """A struct of the C API that begins with its own size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.struct_size = ctypes.sizeof(self)


class Owned(c_void_p):
    """A pointer that C fills. What it points to is freed with the last reference to this object.

    It exists before what it owns, so no signal handler can raise in between.
    """

    def __init__(self, free: Callable[[Any], Any]) -> None:
        super().__init__()
        self._free = free

    def __del__(self) -> None:
        if self:
            self._free(self)


LogFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
BeforeUnmapFunction = CFUNCTYPE(c_int, c_void_p, c_uint32)
AfterMapFunction = CFUNCTYPE(None, c_void_p, c_uint32)


class Error(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("status", c_int),
        ("native_code", c_int),
        ("device", c_int),
        ("line", c_uint32),
        ("requested_bytes", c_uint64),
        ("free_bytes", c_uint64),
        ("op", c_char * 24),
        ("tag", c_char * 48),
        ("native_name", c_char * 40),
        ("message", c_char * 256),
        ("key", c_char * 64),
        ("file", c_char * 1024),
        ("column", c_uint32),
        ("reserved", c_uint32),
    ]


class ControlRequest(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("verb", c_int),
        ("reserved", c_uint32),
        ("flags", c_uint64),
        ("timeout_ns", c_uint64),
    ]


ControlFunction = CFUNCTYPE(c_int, c_void_p, POINTER(ControlRequest), c_void_p)


class ControlOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("move", ControlFunction),
        ("user", c_void_p),
    ]


class ContextOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint64),
        ("backend_options", c_void_p),
        ("process_name", c_char_p),
        ("log", LogFunction),
        ("log_user", c_void_p),
        ("keep_bytes", c_uint64),
        ("disk_directory", c_char_p),
        ("store_path", c_char_p),
    ]


class DeviceInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 64),
        ("capacity_bytes", c_uint64),
        ("granularity_bytes", c_uint64),
        ("simulated", c_bool),
        ("overcommit", c_bool),
        ("rdma", c_bool),
        ("reserved", c_uint8 * 5),
    ]


class Communicator(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("comm", c_void_p),
        ("device", c_int),
        ("rank", c_int),
        ("rank_count", c_int),
        ("state", c_int),
        ("size_bytes", c_uint64),
        ("kept_bytes", c_uint64),
        ("can_pause", c_bool),
        ("reserved", c_uint8 * 7),
    ]


class CudaOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("devices", POINTER(c_int)),
        ("device_count", c_size_t),
        ("host_keep", c_int),
        ("reserved", c_uint32),
        ("host_keep_bytes", c_uint64),
        ("flags", c_uint64),
    ]


class Cost(Structure):
    _fields_ = [("call_ns", c_uint32), ("fs_per_byte", c_uint32)]


COSTS = (
    "reserve",
    "release_range",
    "create",
    "release",
    "reclaim",
    "map",
    "set_access",
    "unmap",
    "fill",
    "host_alloc",
    "host_free",
    "copy_to_host",
    "copy_to_device",
    "digest",
    "disk_write",
    "disk_read",
)


class CostModel(Structure):
    _fields_ = [(name, Cost) for name in COSTS]


WAITS = (
    "host_first",
    "host_start",
    "clear",
    "idle_clearing",
    "unmap_clearing",
    "release_clearing",
)


class CostWaits(Structure):
    _fields_ = [(name, Cost) for name in WAITS]


class DriverUse(Structure):
    _fields_ = [
        (f"{name}_bytes", c_uint64)
        for name in (
            "context",
            "first_kernel",
            "streams",
            "graph",
            "first_backup",
            "per_pinned_gib",
        )
    ]


class Profile(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("description", c_char_p),
        ("source", c_char_p),
        ("capacity_bytes", c_uint64),
        ("granularity_bytes", c_uint64),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("cost", CostModel),
        ("driver", DriverUse),
        ("capacity_doubt_bytes", c_uint64),
        ("waits", CostWaits),
    ]


class SimOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint64),
        ("devices", POINTER(POINTER(Profile))),
        ("device_count", c_size_t),
        ("memory", c_int),
        ("poison", c_int),
    ]


class TagOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint64),
        ("process", c_uint32),
        ("reserved", c_uint32),
        ("block_bytes", c_uint64),
        ("coalesce_bytes", c_uint64),
        ("before_unmap", BeforeUnmapFunction),
        ("after_map", AfterMapFunction),
        ("callback_user", c_void_p),
    ]


class AllocOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint64),
        ("tag", c_char_p),
        ("tag_id", c_uint32),
        ("process", c_uint32),
        ("device", c_int),
        ("backup", c_int),
        ("access", POINTER(c_int)),
        ("access_count", c_size_t),
    ]


class Allocation(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("addr", c_uint64),
        ("size_bytes", c_uint64),
        ("id", c_uint64),
        ("tag", c_uint32),
        ("process", c_uint32),
        ("device", c_int),
        ("backup", c_int),
        ("state", c_int),
        ("flags", c_uint32),
        ("access_mask", c_uint64),
        ("backup_bytes", c_uint64),
    ]


class PauseOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint64),
        ("process", c_uint32),
        ("reserved", c_uint32),
        ("events", POINTER(c_void_p)),
        ("event_count", c_size_t),
        ("streams", POINTER(c_void_p)),
        ("stream_count", c_size_t),
    ]


class SleepOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("flags", c_uint64), ("timeout_ns", c_uint64)]


class WakeUpOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("flags", c_uint64), ("timeout_ns", c_uint64)]


class ResumeOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint64),
        ("process", c_uint32),
        ("reserved", c_uint32),
        ("timeout_ns", c_uint64),
        ("streams", POINTER(c_void_p)),
        ("stream_count", c_size_t),
        ("order", POINTER(c_uint64)),
        ("order_count", c_size_t),
        ("arrived", c_void_p),
        ("arrived_user", c_void_p),
        ("part_index", c_uint32),
        ("part_count", c_uint32),
    ]


class Piece(Structure):
    _fields_ = [
        ("addr", c_uint64),
        ("size_bytes", c_uint64),
        ("digest", c_uint64 * 2),
        ("part", c_uint32),
        ("device", c_int),
        ("state", c_int),
        ("reserved", c_uint32),
    ]


class Forecast(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_int),
        ("fits", c_bool),
        ("reserved", c_uint8 * 3),
        ("needed_bytes", c_uint64),
        ("free_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("disk_bytes", c_uint64),
        ("allocation_count", c_uint64),
        ("time_ns", c_uint64),
    ]


class Oom(Structure):
    _fields_ = [
        ("happened", c_bool),
        ("external", c_bool),
        ("reserved", c_uint8 * 2),
        ("stage", c_uint32),
        ("cause", c_char_p),
        ("process", c_uint32),
        ("tag", c_uint32),
        ("requested_bytes", c_uint64),
        ("free_bytes", c_uint64),
    ]


DEVICE_COUNTERS = (
    "capacity_bytes",
    "used_bytes",
    "external_bytes",
    "kept_bytes",
    "stranded_bytes",
    "peak_bytes",
    "host_backup_bytes",
    "host_peak_bytes",
    "disk_backup_bytes",
    "disk_peak_bytes",
    "allocation_count",
    "alloc_calls",
    "free_calls",
    "pauses",
    "resumes",
    "backup_out_bytes",
    "backup_in_bytes",
    "transition_ns",
    "imported_bytes",
    "filled_in_bytes",
    "prepared_bytes",
)


class DeviceStats(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("peak_stage", c_uint32),
        ("reserved", c_uint32),
        ("oom", Oom),
        *((name, c_uint64) for name in DEVICE_COUNTERS),
    ]


class StoreStats(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("budget_bytes", c_uint64),
        ("kept_bytes", c_uint64),
        ("promised_bytes", c_uint64),
        ("referenced_bytes", c_uint64),
        ("segment_count", c_uint64),
        ("user_count", c_uint64),
        ("shared_bytes", c_uint64),
        ("refused_bytes", c_uint64),
        ("refused_count", c_uint64),
    ]


class HostMemory(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("used_bytes", c_uint64),
        ("pinned_bytes", c_uint64),
        ("pageable_bytes", c_uint64),
        ("staged_copy_bytes", c_uint64),
        ("registering_refused", c_uint64),
        ("store_bytes", c_uint64),
        ("store_found_bytes", c_uint64),
    ]


class TagStats(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("active_bytes", c_uint64),
        ("paused_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("host_backup_bytes", c_uint64),
        ("allocation_count", c_uint64),
        ("pauses", c_uint64),
        ("resumes", c_uint64),
    ]


class StageStats(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("mark", c_char_p),
        ("step", c_uint32),
        ("reserved", c_uint32),
        ("peak_bytes", c_uint64),
        ("end_bytes", c_uint64),
        ("free_at_peak_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("transition_ns", c_uint64),
    ]


class Holder(Structure):
    _fields_ = [("process", c_char_p), ("tag", c_char_p), ("bytes", c_uint64)]


class Budget(Structure):
    _fields_ = [("stage", c_char_p), ("bytes", c_uint64)]


class ReplayOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint64),
        ("backend", c_char_p),
        ("device", c_char_p),
        ("conductor", c_char_p),
        ("wake", c_int),
        ("settle_ms", c_uint32),
        ("budgets", POINTER(Budget)),
        ("budget_count", c_size_t),
        ("budget_size", c_size_t),
        ("progress", c_void_p),
        ("progress_user", c_void_p),
        ("timeline", c_void_p),
        ("snapshot_process", c_char_p),
        ("snapshot_device", c_uint32),
        ("reserved", c_uint32),
        ("filter", c_void_p),
        ("filter_user", c_void_p),
        ("event_size", c_size_t),
        ("headroom_bytes", c_uint64),
        ("headroom_percent", c_double),
    ]


class Verdict(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int),
        ("device", c_int),
        ("spare_bytes", c_uint64),
        ("headroom_bytes", c_uint64),
        ("refused_count", c_uint64),
        ("cured_count", c_uint64),
        ("process", c_char_p),
        ("tag", c_char_p),
        ("stage", c_char_p),
        ("where", c_char_p),
        ("requested_bytes", c_uint64),
        ("free_bytes", c_uint64),
        ("exit_status", c_uint32),
        ("stage_number", c_uint32),
        ("waits", c_char_p),
        ("ended", c_bool),
        ("by_signal", c_bool),
        ("reserved", c_uint8 * 6),
        ("text", c_char * 768),
    ]


class ReplayDevice(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_int),
        ("fits", c_bool),
        ("within_budgets", c_bool),
        ("reserved", c_uint8 * 2),
        ("profile", c_char_p),
        ("capacity_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("peak_stage", c_uint32),
        ("stage_count", c_uint32),
        ("oom_file", c_char_p),
        ("oom_line", c_uint32),
        ("oom_stage", c_uint32),
        ("oom_process", c_char_p),
        ("oom_tag", c_char_p),
        ("oom_requested_bytes", c_uint64),
        ("oom_free_bytes", c_uint64),
        ("sample_count", c_uint64),
        ("worst_sample_difference_bytes", c_int64),
        ("flags", c_uint64),
        ("capacity_doubt_bytes", c_uint64),
    ]


class ModelGiven(Structure):
    _fields_ = [
        ("term", c_int),
        ("reserved", c_uint32),
        ("bytes", c_uint64),
    ]


class ModelOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint64),
        ("device", c_char_p),
        ("tp", c_uint32),
        ("pp", c_uint32),
        ("pp_rank", c_uint32),
        ("ep", c_uint32),
        ("train", c_int),
        ("train_ranks", c_uint32),
        ("mem_fraction_ppm", c_uint32),
        ("strategy", c_int),
        ("wake", c_int),
        ("micro_batch", c_uint32),
        ("seq_len", c_uint32),
        ("optimizer", c_int),
        ("weights_dtype", c_int),
        ("kv_dtype", c_int),
        ("name", c_char_p),
        ("notes", c_void_p),
        ("note_count", c_size_t),
        ("given", POINTER(ModelGiven)),
        ("given_count", c_size_t),
        ("given_size", c_size_t),
        ("accumulate", c_uint32),
        ("attention", c_int),
        ("train_tp", c_uint32),
        ("train_pp", c_uint32),
        ("train_cp", c_uint32),
        ("train_ep", c_uint32),
        ("train_stage", c_uint32),
        ("loss", c_int),
        ("loss_chunks", c_uint32),
        ("lora_rank", c_uint32),
        ("lora_targets", c_int),
        ("base_dtype", c_int),
        ("train_vpp", c_uint32),
        ("optimizer_offload_ppm", c_uint32),
        ("use", c_int),
        ("reserved", c_uint32),
        ("update_bucket_bytes", c_uint64),
    ]


class ModelSetting(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("group", c_char_p),
        ("values", c_char_p),
        ("expected", c_char_p),
        ("usual", c_char_p),
        ("help", c_char_p),
    ]


class PlanCase(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("plan", c_void_p),
        ("tag", c_char_p),
        ("step", POINTER(ModelOptions)),
        ("replay", POINTER(ReplayOptions)),
    ]


class PlanResult(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("state", c_int),
        ("device", c_int),
        ("flags", c_uint64),
        ("gpu_count", c_uint32),
        ("mem_fraction_ppm", c_uint32),
        ("capacity_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("transition_ns", c_uint64),
        ("largest_bytes", c_uint64),
        ("traced_bytes", c_uint64),
        ("headroom_bytes", c_uint64),
        ("capacity_doubt_bytes", c_uint64),
        ("assumed_bytes", c_uint64),
        ("stage", c_char * 64),
        ("key", c_char * 64),
        ("why", c_char * 384),
    ]


_TAGS = [POINTER(c_uint32), c_size_t]
_HOLDERS = [POINTER(Holder), c_size_t, c_size_t, POINTER(c_size_t)]

# name: (result, arguments)
CORE_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "rvl_version": (c_char_p, []),
    "rvl_status_name": (c_char_p, [c_int]),
    "rvl_status_text": (c_char_p, [c_int]),
    "rvl_last_error": (c_int, [POINTER(Error)]),
    "rvl_string_free": (None, [c_void_p]),
    "rvl_context_open": (c_int, [c_char_p, POINTER(ContextOptions), POINTER(c_void_p)]),
    "rvl_context_close": (c_int, [c_void_p, POINTER(c_uint64)]),
    "rvl_device_count": (c_int, [c_void_p]),
    "rvl_device_get_info": (c_int, [c_void_p, c_int, POINTER(DeviceInfo)]),
    "rvl_clock_ns": (c_uint64, [c_void_p]),
    "rvl_tag_define": (c_int, [c_void_p, c_char_p, POINTER(TagOptions), POINTER(c_uint32)]),
    "rvl_tag_find": (c_int, [c_void_p, c_uint32, c_char_p, POINTER(c_uint32)]),
    "rvl_tag_name": (c_char_p, [c_void_p, c_uint32]),
    "rvl_alloc": (c_int, [c_void_p, c_uint64, POINTER(AllocOptions), POINTER(c_uint64)]),
    "rvl_free": (c_int, [c_void_p, c_uint64]),
    "rvl_allocation_find": (c_int, [c_void_p, c_uint64, POINTER(Allocation)]),
    "rvl_allocation_next": (c_int, [c_void_p, c_uint64, POINTER(Allocation)]),
    "rvl_backup_find": (c_int, [c_void_p, c_uint64, POINTER(c_void_p), POINTER(c_uint64)]),
    "rvl_pause": (c_int, [c_void_p, *_TAGS, POINTER(PauseOptions)]),
    "rvl_resume": (c_int, [c_void_p, *_TAGS, POINTER(ResumeOptions)]),
    "rvl_pause_prepare": (c_int, [c_void_p, *_TAGS, POINTER(PauseOptions), POINTER(c_void_p)]),
    "rvl_resume_prepare": (c_int, [c_void_p, *_TAGS, POINTER(ResumeOptions), POINTER(c_void_p)]),
    "rvl_resume_start": (c_int, [c_void_p, *_TAGS, POINTER(ResumeOptions), POINTER(c_void_p)]),
    "rvl_resume_start_prepare": (
        c_int,
        [c_void_p, *_TAGS, POINTER(ResumeOptions), POINTER(c_void_p)],
    ),
    "rvl_resume_start_commit": (c_int, [c_void_p]),
    "rvl_resume_start_abort": (c_int, [c_void_p]),
    "rvl_resume_finish": (c_int, [c_void_p]),
    "rvl_allocation_wait": (c_int, [c_void_p, c_uint64, c_uint64]),
    "rvl_transition_commit": (c_int, [c_void_p]),
    "rvl_transition_copy_pieces": (
        c_int,
        [c_void_p, POINTER(Piece), c_size_t, c_size_t, POINTER(c_size_t)],
    ),
    "rvl_transition_load_next": (c_int, [c_void_p, POINTER(c_size_t)]),
    "rvl_transition_fill": (c_int, [c_void_p, POINTER(c_bool), c_size_t]),
    "rvl_transition_abort": (c_int, [c_void_p]),
    "rvl_pause_forecast": (c_int, [c_void_p, *_TAGS, POINTER(PauseOptions), POINTER(Forecast)]),
    "rvl_resume_forecast": (c_int, [c_void_p, *_TAGS, POINTER(ResumeOptions), POINTER(Forecast)]),
    "rvl_control_open": (c_int, [POINTER(ControlOptions)]),
    "rvl_control_close": (c_int, []),
    "rvl_sleep": (c_int, [c_void_p, POINTER(SleepOptions)]),
    "rvl_wake_up": (c_int, [c_void_p, POINTER(WakeUpOptions)]),
    "rvl_context_is_asleep": (c_bool, [c_void_p]),
    "rvl_sleep_forecast": (c_int, [c_void_p, POINTER(SleepOptions), POINTER(Forecast)]),
    "rvl_wake_up_forecast": (c_int, [c_void_p, POINTER(WakeUpOptions), POINTER(Forecast)]),
    "rvl_stage": (c_int, [c_void_p, c_char_p]),
    "rvl_step": (c_int, [c_void_p]),
    "rvl_external_set": (c_int, [c_void_p, c_int, c_char_p, c_uint64]),
    "rvl_device_get_stats": (c_int, [c_void_p, c_int, POINTER(DeviceStats)]),
    "rvl_device_get_memory": (c_int, [c_void_p, c_int, POINTER(c_uint64), POINTER(c_uint64)]),
    "rvl_host_get_memory": (c_int, [c_void_p, POINTER(HostMemory)]),
    "rvl_store_get_stats": (c_int, [c_char_p, POINTER(StoreStats)]),
    "rvl_device_get_summary": (c_int, [c_void_p, c_int, c_char_p, c_size_t]),
    "rvl_tag_get_stats": (c_int, [c_void_p, c_uint32, c_int, POINTER(TagStats)]),
    "rvl_stage_count": (c_uint32, [c_void_p]),
    "rvl_stage_get_stats": (c_int, [c_void_p, c_uint32, c_int, POINTER(StageStats)]),
    "rvl_stage_get_holders": (
        c_int,
        [c_void_p, c_uint32, c_int, *_HOLDERS],
    ),
    "rvl_record_start": (c_int, [c_void_p, c_char_p]),
    "rvl_record_stop": (c_int, [c_void_p]),
    "rvl_profile_count": (c_size_t, []),
    "rvl_profile_get": (c_int, [c_size_t, POINTER(Profile)]),
    "rvl_profile_find": (c_int, [c_char_p, POINTER(Profile)]),
    "rvl_size_parse": (c_int, [c_char_p, POINTER(c_uint64)]),
}

# A library that was built without CUDA lacks these. They are declared where they are used.
CUDA_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "rvl_communicator_check_sleep": (c_int, [POINTER(Communicator), c_size_t]),
}

REPLAY_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "rvl_replay_run": (
        c_int,
        [
            POINTER(c_char_p),
            c_size_t,
            POINTER(ReplayOptions),
            POINTER(c_void_p),
        ],
    ),
    "rvl_profile_load": (c_int, [c_char_p, POINTER(Profile)]),
    "rvl_replay_device_count": (c_size_t, [c_void_p]),
    "rvl_replay_event_count": (c_uint64, [c_void_p, POINTER(c_uint64)]),
    "rvl_replay_get_device": (c_int, [c_void_p, c_size_t, POINTER(ReplayDevice)]),
    "rvl_replay_get_stage": (
        c_int,
        [c_void_p, c_size_t, c_uint32, POINTER(StageStats), POINTER(c_bool)],
    ),
    "rvl_replay_get_holders": (
        c_int,
        [c_void_p, c_size_t, c_uint32, *_HOLDERS],
    ),
    "rvl_replay_get_measured": (
        c_int,
        [c_void_p, c_size_t, c_uint32, POINTER(c_uint64), POINTER(c_uint64)],
    ),
    "rvl_replay_get_reading": (
        c_int,
        [c_void_p, c_size_t, c_uint32, POINTER(c_uint64), POINTER(c_uint64)],
    ),
    "rvl_replay_get_verdict": (c_int, [c_void_p, POINTER(Verdict)]),
    "rvl_verdict_keyword": (c_char_p, [c_int]),
    "rvl_replay_to_json": (c_int, [c_void_p, POINTER(c_void_p)]),
    "rvl_replay_close": (None, [c_void_p]),
    "rvl_model_open": (c_int, [c_char_p, POINTER(c_void_p)]),
    "rvl_model_close": (None, [c_void_p]),
    "rvl_model_type": (c_char_p, [c_void_p]),
    "rvl_model_parameter_count": (c_uint64, [c_void_p]),
    "rvl_model_setting_get": (c_int, [c_size_t, POINTER(ModelSetting)]),
    "rvl_model_options_set": (c_int, [POINTER(ModelOptions), c_char_p, c_char_p]),
    "rvl_model_options_check": (c_int, [POINTER(ModelOptions), c_char_p]),
    "rvl_model_step_make": (c_int, [c_void_p, POINTER(ModelOptions), POINTER(c_void_p)]),
    "rvl_model_step_close": (None, [c_void_p]),
    "rvl_model_step_bytes": (c_uint64, [c_void_p, c_int]),
    "rvl_model_step_allocation_count": (c_size_t, [c_void_p, c_int]),
    "rvl_model_step_tag": (c_char_p, [c_void_p, c_int]),
    "rvl_model_step_doubt": (c_int, [c_void_p, c_int]),
    "rvl_model_step_token_count": (c_uint64, [c_void_p]),
    "rvl_model_step_replay": (c_int, [c_void_p, POINTER(ReplayOptions), POINTER(c_void_p)]),
    "rvl_model_step_write": (c_int, [c_void_p, c_char_p]),
    "rvl_plan_open": (
        c_int,
        [POINTER(c_char_p), c_size_t, POINTER(ReplayOptions), POINTER(c_void_p)],
    ),
    "rvl_plan_open_model": (c_int, [c_void_p, POINTER(c_void_p)]),
    "rvl_plan_close": (None, [c_void_p]),
    "rvl_plan_run": (c_int, [POINTER(PlanCase), POINTER(PlanResult), POINTER(c_void_p)]),
}

# What a build without the CUDA backend lacks.
HOOK_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "rvl_hooks_mode": (c_char_p, []),
    "rvl_hooks_check_settings": (c_int, []),
    "rvl_hooks_get_context": (c_int, [c_int, POINTER(c_void_p)]),
    "rvl_hooks_get_context_at": (c_int, [c_size_t, POINTER(c_int), POINTER(c_void_p)]),
    "rvl_hooks_get_nccl_bytes": (c_int, [c_int, POINTER(c_uint64)]),
    "rvl_hooks_pause": (c_int, [c_char_p]),
    "rvl_hooks_resume": (c_int, [c_char_p]),
    "rvl_hooks_begin": (c_int, [c_uint64, c_char_p]),
    "rvl_hooks_end": (c_int, [c_uint64]),
    "rvl_hooks_step": (c_int, []),
}

# torch_memory_saver's C interface, as far as it is used.
SAVER_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "tms_set_current_tag": (None, [c_char_p]),
    "tms_get_current_tag": (c_char_p, []),
    "tms_set_interesting_region": (None, [c_bool]),
    "tms_get_interesting_region": (c_bool, []),
    "tms_set_enable_cpu_backup": (None, [c_bool]),
    "tms_get_enable_cpu_backup": (c_bool, []),
    "tms_set_cpu_backup_backend": (None, [c_char_p]),
    "tms_get_cpu_backup_backend": (c_char_p, []),
    "tms_set_enable_disk_backup": (None, [c_bool]),
    "tms_get_enable_disk_backup": (c_bool, []),
    "tms_set_disk_backup_dir": (None, [c_char_p]),
    "tms_pause": (c_int, [c_char_p]),
    "tms_resume": (c_int, [c_char_p]),
    "set_memory_margin_bytes": (None, [c_uint64]),
    "tms_set_retain_cpu_backup": (None, [c_bool]),
    "tms_get_retain_cpu_backup": (c_bool, []),
    "tms_get_cpu_backup_pointer": (c_void_p, [c_void_p, c_uint64]),
}

_core: ctypes.CDLL | None = None
_replay: ctypes.CDLL | None = None


def library_directory() -> Path:
    """Where the libraries are taken from: RVL_LIBRARY_DIR, or the package itself."""
    chosen = os.environ.get(LIBRARY_VARIABLE)
    return Path(chosen) if chosen else Path(__file__).resolve().parent / "lib"


def library_path(name: str = "reveille") -> Path:
    """The file of a library of the package, whether or not it is there."""
    return library_directory() / f"lib{name}.so.0"


def hook_library_path(mode: str) -> Path:
    """The file of a hook library ("preload" or "torch"), whether or not it is there."""
    return library_directory() / f"libreveille-{mode}.so"


def declare(library: ctypes.CDLL, prototypes: dict[str, tuple[Any, list[Any]]]) -> None:
    """Sets the types of functions. Raises AttributeError for one that the library lacks."""
    for function, (result, arguments) in prototypes.items():
        entry = getattr(library, function)
        entry.restype = result
        entry.argtypes = arguments


def _loaded(name: str) -> ctypes.CDLL | None:
    """A library that the process has already: a hook library has brought it, or the program."""
    try:
        return ctypes.CDLL(f"lib{name}.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _open(name: str, prototypes: dict[str, tuple[Any, list[Any]]]) -> ctypes.CDLL:
    path = library_path(name)
    library = _loaded(name)
    if library is None and not path.exists():
        raise ImportError(
            f"{path} is missing: install the package with `pip install .` in Reveille's "
            f"repository, or name the folder of a build in {LIBRARY_VARIABLE}"
        )
    try:
        library = library or ctypes.CDLL(str(path))
        declare(library, prototypes)
    except (OSError, AttributeError) as error:
        raise ImportError(misfit(path, str(error)) or f"{path} cannot be used: {error}") from error
    return library


def opened_core_is_asleep() -> bool:
    """Whether this process sleeps, as far as libreveille is in use here."""
    return _core is not None and bool(_core.rvl_context_is_asleep(None))


def core() -> ctypes.CDLL:
    """libreveille, opened at the first call."""
    global _core
    if _core is None:
        library = _open("reveille", CORE_PROTOTYPES)
        version = library.rvl_version().decode()
        if version != API_VERSION and not version.startswith(API_VERSION + "."):
            raise ImportError(
                f"{library_path()} is version {version}, and this package was written for "
                f"{API_VERSION}: install both from one source"
            )
        if hasattr(library, "rvl_hooks_mode"):
            declare(library, HOOK_PROTOTYPES)
        _core = library
    return _core


def replay() -> ctypes.CDLL:
    """libreveille-replay, opened at the first call."""
    global _replay
    if _replay is None:
        core()
        if (path := library_path()).exists():  # it needs libreveille, and asks by that name
            ctypes.CDLL(str(path))
        _replay = _open("reveille-replay", REPLAY_PROTOTYPES)
    return _replay


def elements(kind: Any, fill: Callable[[Any, int, int, c_size_t], None]) -> list[Any]:
    """All elements that fill(array, size of an element, capacity, count) writes."""
    room = 16
    while True:
        array, count = (kind * room)(), c_size_t()
        fill(array, ctypes.sizeof(kind), room, count)
        if count.value <= room:
            return [array[i] for i in range(count.value)]
        room = count.value


def text(value: bytes | None) -> str | None:
    """A C string as str; what is not UTF-8, or was cut within a letter, is replaced."""
    return None if value is None else value.decode("utf-8", "replace")


def some_text(value: bytes | None) -> str:
    """As text(), with "" for NULL."""
    return text(value) or ""


def null_function(kind: Callable[..., Any]) -> Any:
    """A NULL function pointer of this type."""
    return ctypes.cast(None, kind)  # type: ignore[arg-type]
