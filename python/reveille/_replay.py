# SPDX-License-Identifier: MIT
"""Replay of traces: `reveille replay` in Python."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Union

from . import _c
from ._results import (
    Holder,
    Replay,
    ReplayDevice,
    ReplayOom,
    ReplayStage,
    Verdict,
    from_struct,
    holder_of,
)
from ._sizes import Size, name_bytes, parse_size
from .errors import (
    InvalidArgument,
    NotFound,
    check,
)

Path = Union[str, bytes, "os.PathLike[Any]"]


class _Headroom(NamedTuple):
    """A headroom for C. flag 0: the default headroom."""

    flag: int = 0
    size: int = 0
    percent: float = 0.0


def headroom_of(given: Size | None) -> _Headroom:
    """The headroom given as a size, or as a part of each device: "5%"."""
    if given is None:
        return _Headroom()
    if not isinstance(given, str) or not given.endswith("%"):
        return _Headroom(_c.REPLAY_HEADROOM_BYTES, parse_size(given))
    with contextlib.suppress(ValueError):
        percent = float(given[:-1])
        if 0 <= percent <= 100:
            return _Headroom(_c.REPLAY_HEADROOM_PERCENT, percent=percent)
    raise InvalidArgument(f'headroom must be a part such as "3%", a size, or 0, not {given!r}')


def _options(
    device: Size | None,
    wake: str,
    budgets: Mapping[str, Size],
    partial: bool,
    conductor: str | None,
    backend: str,
    headroom: Size | None,
) -> _c.ReplayOptions:
    if wake not in _c.WAKE_NAMES:
        raise InvalidArgument(f"wake must be one of {', '.join(_c.WAKE_NAMES)}, not {wake!r}")
    if not isinstance(budgets, Mapping):
        raise InvalidArgument(
            f'budgets must be stages and sizes, such as {{"train": "60GiB"}}, not {budgets!r}'
        )
    bounds = [
        _c.Budget(name_bytes(stage, "a stage"), parse_size(size)) for stage, size in budgets.items()
    ]
    kept = headroom_of(headroom)
    return _c.ReplayOptions(
        backend=name_bytes(backend, "backend"),
        device=None if device is None else name_bytes(str(device), "device"),
        conductor=None if conductor is None else name_bytes(conductor, "conductor"),
        wake=_c.WAKE_NAMES.index(wake),
        flags=_c.flags((partial, _c.REPLAY_PARTIAL)) | kept.flag,
        headroom_bytes=kept.size,
        headroom_percent=kept.percent,
        budgets=(_c.Budget * len(bounds))(*bounds),
        budget_count=len(bounds),
        budget_size=ctypes.sizeof(_c.Budget),
    )


class _Finished:
    """The results of a finished replay."""

    def __init__(self, handle: _c.Owned) -> None:
        self._handle = handle

    def _call(self, what: str, *arguments: Any) -> None:
        """Calls a function that fills in its last arguments. ctypes passes their addresses."""
        check(getattr(_c.replay(), f"rvl_replay_{what}")(self._handle, *arguments))

    def _holders(self, index: int, stage: int) -> tuple[Holder, ...]:
        def fill(*array: Any) -> None:
            self._call("get_holders", index, stage, *array)

        return tuple(holder_of(each) for each in _c.elements(_c.Holder, fill))

    def _pair(self, what: str, index: int, stage: int) -> tuple[int | None, int | None]:
        """Two numbers of a stage. Both are None if the stage has none."""
        one, other = ctypes.c_uint64(), ctypes.c_uint64()
        try:
            self._call(what, index, stage, one, other)
        except NotFound:
            return None, None
        return one.value, other.value

    def _stage(self, index: int, device: int, stage: int) -> ReplayStage:
        struct, over = _c.StageStats(), ctypes.c_bool()
        self._call("get_stage", index, stage, struct, over)
        peak, end = self._pair("get_measured", index, stage)
        read, predicted = self._pair("get_reading", index, stage)
        return from_struct(
            ReplayStage,
            struct,
            device=device,
            over_budget=over.value,
            holders=self._holders(index, stage),
            measured_peak_bytes=peak,
            measured_end_bytes=end,
            read_bytes=read,
            predicted_bytes=predicted,
        )

    def _device(self, index: int) -> ReplayDevice:
        struct = _c.ReplayDevice()
        self._call("get_device", index, struct)
        stages = tuple(self._stage(index, struct.device, i) for i in range(struct.stage_count))
        return from_struct(
            ReplayDevice,
            struct,
            peak_stage=stages[struct.peak_stage].name if stages else "",
            oom=_oom(struct, stages),
            stages=stages,
        )

    def _verdict(self) -> Verdict:
        struct = _c.Verdict()
        self._call("get_verdict", struct)
        return Verdict(
            kind=_c.some_text(_c.replay().rvl_verdict_keyword(struct.kind)),
            text=_c.some_text(struct.text),
            spare_bytes=struct.spare_bytes,
            headroom_bytes=struct.headroom_bytes,
            refused_count=struct.refused_count,
            process=_c.some_text(struct.process),
            tag=_c.some_text(struct.tag),
            stage=_c.some_text(struct.stage),
            where=_c.some_text(struct.where),
            requested_bytes=struct.requested_bytes,
            free_bytes=struct.free_bytes,
        )

    def _json(self) -> str:
        string = _c.Owned(_c.core().rvl_string_free)
        self._call("to_json", string)
        return _c.some_text(ctypes.string_at(string))

    def result(self) -> Replay:
        """All results."""
        library, skipped = _c.replay(), ctypes.c_uint64()
        devices = range(library.rvl_replay_device_count(self._handle))
        return Replay(
            event_count=library.rvl_replay_event_count(self._handle, skipped),
            skipped_events=skipped.value,
            devices=tuple(self._device(index) for index in devices),
            verdict=self._verdict(),
            json=self._json(),
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


def _files(paths: Any) -> list[bytes]:
    """The names of the traces, for C."""
    try:
        alone = isinstance(paths, (str, bytes, os.PathLike))
        files = [os.fsencode(path) for path in ([paths] if alone else paths)]
    except TypeError:
        raise InvalidArgument(f"paths must be a trace or several, not {paths!r}") from None
    if not files:
        raise InvalidArgument("paths is empty: name at least one trace")
    return files


def replay(
    paths: Path | Sequence[Path],
    *,
    device: Size | None = None,
    wake: str = "staged",
    budgets: Mapping[str, Size] | None = None,
    partial: bool = False,
    conductor: str | None = None,
    backend: str = "sim",
    headroom: Size | None = None,
) -> Replay:
    """Replays a trace, or several merged on one clock, and reports every stage's memory peak.

    Args:
        paths: one file or several; .zst is decompressed
        device: the device to replay on, a profile ("h200") or a size ("80GiB"); None: the trace's own
        wake: "staged": resume where the trace does; "together": resume everything at the first
            resume of a step
        budgets: upper bounds on the peaks of stages, by the name they were marked with
        partial: read a truncated trace up to its last whole line
        conductor: the process that marks stages and steps; None: each process marks its own stages,
            and the first process that marks steps marks the steps
        backend: the backend that replays
        headroom: the memory that should stay free on each device: a part ("5%"), a size or 0. With
            less, the verdict is "tight"; None: 3 %

    Raises:
        CorruptTrace: with file, line and column. InputOutputError, InvalidArgument, ... .
        A trace that does not fit is not an error: check the result.
    """
    files = _files(paths)
    options = _options(device, wake, budgets or {}, partial, conductor, backend, headroom)
    names = (ctypes.c_char_p * len(files))(*files)
    handle = _c.Owned(_c.replay().rvl_replay_close)
    status = _c.replay().rvl_replay_run(
        names, len(files), ctypes.byref(options), ctypes.byref(handle)
    )
    check(status)
    return _Finished(handle).result()
