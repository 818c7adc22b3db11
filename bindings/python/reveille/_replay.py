# SPDX-License-Identifier: MIT
"""Replay of traces: what `reveille replay` does, from Python."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any, Union

from . import _c
from ._results import Holder, Replay, ReplayDevice, ReplayOom, ReplayStage, from_struct, holder_of
from ._sizes import Size, name_bytes, parse_size
from .errors import CorruptTrace, InvalidArgument, ReveilleError, check, error_of, last_error

Path = Union[str, "os.PathLike[str]"]


def _options(
    device: Size | None,
    wake: str,
    budgets: Mapping[str, Size],
    partial: bool,
    conductor: str | None,
    backend: str,
) -> _c.ReplayOptions:
    if wake not in _c.WAKES:
        raise InvalidArgument(f"wake must be one of {', '.join(_c.WAKES)}, not {wake!r}")
    bounds = [
        _c.Budget(name_bytes(stage, "a stage"), parse_size(size)) for stage, size in budgets.items()
    ]
    return _c.ReplayOptions(
        backend=name_bytes(backend, "backend"),
        device=None if device is None else name_bytes(str(device), "device"),
        conductor=None if conductor is None else name_bytes(conductor, "conductor"),
        wake=_c.WAKES.index(wake),
        partial=partial,
        budgets=(_c.Budget * len(bounds))(*bounds),
        budget_count=len(bounds),
    )


def _error(status: int, where: _c.TraceError) -> ReveilleError:
    message = _c.some_text(where.message)
    if not message:
        return last_error(status)
    file = None if where.file is None else os.fsdecode(where.file)
    place = [file] if file is not None else []
    place += [str(number) for number in (where.line, where.column) if number]
    error = error_of(status, ": ".join(filter(None, [":".join(place), message])))
    if isinstance(error, CorruptTrace):
        error.file, error.line, error.column = file, where.line, where.column
    return error


def _holders(handle: ctypes.c_void_p, index: int, stage: int) -> tuple[Holder, ...]:
    holders, count = ctypes.POINTER(_c.Holder)(), ctypes.c_size_t()
    check(
        _c.replay().rvl_replay_get_holders(
            handle, index, stage, ctypes.byref(holders), ctypes.byref(count)
        )
    )
    return tuple(holder_of(holders[i]) for i in range(count.value))


def _measured(handle: ctypes.c_void_p, index: int, stage: int) -> tuple[int | None, int | None]:
    peak, end = ctypes.c_uint64(), ctypes.c_uint64()
    status = _c.replay().rvl_replay_get_measured(
        handle, index, stage, ctypes.byref(peak), ctypes.byref(end)
    )
    if status == _c.ERR_NOT_FOUND:
        return None, None
    check(status)
    return peak.value, end.value


def _stage(handle: ctypes.c_void_p, index: int, device: int, stage: int) -> ReplayStage:
    struct, over = _c.StageStats(), ctypes.c_bool()
    check(
        _c.replay().rvl_replay_get_stage(
            handle, index, stage, ctypes.byref(struct), ctypes.byref(over)
        )
    )
    peak, end = _measured(handle, index, stage)
    return from_struct(
        ReplayStage,
        struct,
        device=device,
        over_budget=over.value,
        holders=_holders(handle, index, stage),
        measured_peak_bytes=peak,
        measured_end_bytes=end,
    )


def _oom(struct: _c.ReplayDevice, stages: Sequence[ReplayStage]) -> ReplayOom | None:
    if struct.oom_file is None:
        return None
    return ReplayOom(
        file=os.fsdecode(struct.oom_file),
        line=struct.oom_line,
        stage=stages[struct.oom_stage].name,
        process=_c.some_text(struct.oom_process),
        tag=_c.some_text(struct.oom_tag),
        requested_bytes=struct.oom_requested_bytes,
        free_bytes=struct.oom_free_bytes,
    )


def _device(handle: ctypes.c_void_p, index: int) -> ReplayDevice:
    struct = _c.ReplayDevice()
    check(_c.replay().rvl_replay_get_device(handle, index, ctypes.byref(struct)))
    stages = tuple(_stage(handle, index, struct.device, i) for i in range(struct.stage_count))
    return from_struct(
        ReplayDevice,
        struct,
        peak_stage=stages[struct.peak_stage].name if stages else "",
        oom=_oom(struct, stages),
        stages=stages,
    )


def _json(handle: ctypes.c_void_p) -> str:
    string = ctypes.c_void_p()
    check(_c.replay().rvl_replay_to_json(handle, ctypes.byref(string)))
    try:
        return _c.some_text(ctypes.string_at(string))
    finally:
        _c.replay().rvl_replay_string_free(string)


def _result(handle: ctypes.c_void_p) -> Replay:
    library, skipped = _c.replay(), ctypes.c_uint64()
    events = library.rvl_replay_event_count(handle, ctypes.byref(skipped))
    return Replay(
        event_count=events,
        skipped_events=skipped.value,
        devices=tuple(_device(handle, i) for i in range(library.rvl_replay_device_count(handle))),
        json=_json(handle),
    )


def replay(
    paths: Path | Sequence[Path],
    *,
    device: Size | None = None,
    wake: str = "staged",
    budgets: Mapping[str, Size] | None = None,
    partial: bool = False,
    conductor: str | None = None,
    backend: str = "sim",
) -> Replay:
    """Replays a trace, or several merged on one clock, and reports every stage's memory peak.

    Args:
        paths: one file or several; .zst is decompressed
        device: what every device is taken to be, a profile ("h200") or a size ("80GiB"); None: the
            trace's own
        wake: "staged", resumes where the trace has them; "together", within a step all at the
            step's first
        budgets: upper bounds on the peaks of stages, by the name they were marked with
        partial: replay a trace that breaks off as far as it is whole
        conductor: process whose stage and step marks count; None: the first that marks
        backend: what replays

    Raises:
        CorruptTrace: with file, line and column; InputOutputError, InvalidArgument, ... .
        A trace that does not fit is no error: ask the result.
    """
    files: Sequence[Any] = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    options = _options(device, wake, budgets or {}, partial, conductor, backend)
    names = (ctypes.c_char_p * len(files))(*(os.fsencode(file) for file in files))
    where, handle = _c.TraceError(), ctypes.c_void_p()
    status = _c.replay().rvl_replay_run(
        names, len(files), ctypes.byref(options), ctypes.byref(where), ctypes.byref(handle)
    )
    if status != _c.OK:
        raise _error(status, where)
    try:
        return _result(handle)
    finally:
        _c.replay().rvl_replay_close(handle)
