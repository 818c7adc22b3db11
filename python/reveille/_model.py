# SPDX-License-Identifier: MIT
"""Steps of models from their configs, and what fits: `reveille model` and `plan` in Python."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _c
from ._replay import Path, _files, _Finished, _options, headroom_of
from ._results import ModelStep, Plan, Setting, Term, from_struct
from ._sizes import Size, name_bytes, parse_size
from .errors import InvalidArgument, check

_ANY_SIZE = (1 << 64) - 1  # largest_bytes if any size fits


def settings() -> tuple[Setting, ...]:
    """Every setting of a step: its name, its values, and what it does."""
    found = []
    struct = _c.ModelSetting()
    while _c.replay().rvl_model_setting_get(len(found), ctypes.byref(struct)) == _c.OK:
        texts = {name: _c.text(getattr(struct, name)) for name, _ in struct._fields_[1:]}
        found.append(Setting(**texts))
    return tuple(found)


def _text_of(value: Any) -> str:
    """A value in the form of the command line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class _Step:
    """Options of a step, and the memory that they point to."""

    def __init__(self, chosen: Mapping[str, Any], given: Mapping[str, Size] | None) -> None:
        sizes = dict(given or {})
        for term in sizes:
            if term not in _c.MODEL_TERM_NAMES:
                raise InvalidArgument(f"given: no such term: {term!r}")
        self._given = (_c.ModelGiven * len(sizes))(
            *(
                _c.ModelGiven(term=_c.MODEL_TERM_NAMES.index(term), bytes=parse_size(size))
                for term, size in sizes.items()
            )
        )
        self.options = _c.ModelOptions(
            given=self._given, given_count=len(sizes), given_size=ctypes.sizeof(_c.ModelGiven)
        )
        self._texts: list[bytes] = []  # C does not copy the name of a device
        names = [key.replace("_", "-") for key in chosen]
        for name, value in zip(names, chosen.values()):
            self._texts.append(name_bytes(_text_of(value), name))
            self._call("set", name, self._texts[-1])
        for name in names:  # after all are set
            self._call("check", name)

    def _call(self, what: str, name: str, *more: bytes) -> None:
        call = getattr(_c.replay(), f"rvl_model_options_{what}")
        check(call(ctypes.byref(self.options), name_bytes(name, "a setting"), *more))


def _open_model(config: Path) -> _c.Owned:
    model = _c.Owned(_c.replay().rvl_model_close)
    check(_c.replay().rvl_model_open(os.fsencode(config), ctypes.byref(model)))
    return model


def _terms(step: _c.Owned) -> tuple[Term, ...]:
    library = _c.replay()
    return tuple(
        Term(
            name=_c.some_text(library.rvl_model_step_tag(step, term)),
            bytes=library.rvl_model_step_bytes(step, term),
            allocation_count=library.rvl_model_step_allocation_count(step, term),
            doubt=_c.MODEL_DOUBT_NAMES[library.rvl_model_step_doubt(step, term)].replace("_", " "),
        )
        for term in range(len(_c.MODEL_TERM_NAMES))
        if library.rvl_model_step_bytes(step, term) or library.rvl_model_step_doubt(step, term)
    )


def model(
    config: Path,
    *,
    given: Mapping[str, Size] | None = None,
    headroom: Size | None = None,
    output: Path | None = None,
    **chosen: Any,
) -> ModelStep:
    """Computes the memory that a step of a model needs on one GPU, and replays the step.

    Args:
        config: the model's config.json
        given: terms of known size, such as {"cuda_graph": "2.5GiB"}; 0 leaves a term out
        headroom: as in replay()
        output: also write the step to this file, as a trace
        chosen: settings by name, with _ for -: device="h100-80g", tp=2, train="fsdp:8",
            recompute=True; settings() lists them

    Raises:
        InvalidArgument: with key; also for a setting that has no effect with the other ones.
        A step that does not fit is not an error: check the result.
    """
    library = _c.replay()
    of_step = _Step(chosen, given)
    of_step.options.flags |= _c.MODEL_SEGMENTS
    opened = _open_model(config)
    step = _c.Owned(library.rvl_model_step_close)
    options = ctypes.byref(of_step.options)
    check(library.rvl_model_step_make(opened, options, ctypes.byref(step)))
    if output is not None:
        check(library.rvl_model_step_write(step, os.fsencode(output)))
    replay = _c.Owned(library.rvl_replay_close)
    how = _options(None, "staged", {}, False, None, "sim", headroom)
    check(library.rvl_model_step_replay(step, ctypes.byref(how), ctypes.byref(replay)))
    return ModelStep(
        type=_c.some_text(library.rvl_model_type(opened)),
        parameter_count=library.rvl_model_parameter_count(opened),
        token_count=library.rvl_model_step_token_count(step),
        terms=_terms(step),
        replay=_Finished(replay).result(),
    )


def _run(
    opened: _c.Owned, tag: str | None, how: _c.ReplayOptions, step: _c.ModelOptions | None
) -> Plan:
    result = _c.PlanResult()
    planned = _c.PlanCase(
        plan=opened,
        tag=None if tag is None else name_bytes(tag, "a tag"),
        step=None if step is None else ctypes.pointer(step),
        replay=ctypes.pointer(how),
    )
    check(_c.replay().rvl_plan_run(ctypes.byref(planned), ctypes.byref(result), None))
    if result.state == _c.PLAN_REFUSED:
        key, why = _c.some_text(result.key), _c.some_text(result.why)
        raise InvalidArgument(f"{key}: {why}" if key else why, key=key)
    largest = result.largest_bytes
    return from_struct(
        Plan,
        result,
        state=_c.PLAN_STATE_NAMES[result.state].replace("_", " "),
        largest_bytes=None if largest == _ANY_SIZE else largest,
        mem_fraction=result.mem_fraction_ppm / 1e6 or None,
    )


def plan(
    paths: Path | Sequence[Path],
    tag: str | None = None,
    *,
    device: Size | None = None,
    wake: str = "staged",
    partial: bool = False,
    conductor: str | None = None,
    headroom: Size | None = None,
) -> Plan:
    """Finds the largest size of a tag with which traces fit, or says whether they fit as they are.

    Args:
        paths: traces and PyTorch snapshots, merged on one clock
        tag: TAG or PROCESS/TAG; None: as it is
        device, wake, partial, conductor, headroom: as in replay()

    Raises:
        InvalidArgument: for example if nothing is allocated under the tag. NotFound: the traces
        have no stage. InputOutputError, CorruptTrace, ... .
    """
    files = _files(paths)
    how = _options(device, wake, {}, False, conductor, "sim", headroom)
    reading = _options(None, "staged", {}, partial, None, "sim", None)
    names = (ctypes.c_char_p * len(files))(*files)
    opened = _c.Owned(_c.replay().rvl_plan_close)
    read, out = ctypes.byref(reading), ctypes.byref(opened)
    check(_c.replay().rvl_plan_open(names, len(files), read, out))
    return _run(opened, tag, how, None)


def plan_model(
    config: Path,
    tag: str | None = None,
    *,
    given: Mapping[str, Size] | None = None,
    headroom: Size | None = None,
    **chosen: Any,
) -> Plan:
    """Finds the largest size of a tag with which a model's step fits; for "kv_cache", mem_fraction.

    Arguments are those of model() and plan().
    """
    of_step = _Step(chosen, given)
    kept = headroom_of(headroom)
    how = _c.ReplayOptions(
        flags=kept.flag, headroom_bytes=kept.size, headroom_percent=kept.percent
    )
    model_of_plan = _open_model(config)
    opened = _c.Owned(_c.replay().rvl_plan_close)
    check(_c.replay().rvl_plan_open_model(model_of_plan, ctypes.byref(opened)))
    return _run(opened, tag, how, of_step.options)
