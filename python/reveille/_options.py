# SPDX-License-Identifier: MIT
"""Converts the arguments of Context to the option structs of the backends, and small values."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
from typing import Any, Union

from . import _c
from ._results import Profile, from_struct
from ._sizes import Size, name_bytes, whole, whole_bytes
from .errors import InvalidArgument, check

Devices = Union[None, Size, Sequence[Size]]

INT_MAX = (1 << 31) - 1


def choice(value: str, choices: Sequence[str], what: str) -> int:
    """The number of an enum's value, given by name."""
    if value not in choices:
        raise InvalidArgument(f"{what} must be one of {', '.join(choices)}, not {value!r}")
    return choices.index(value)


def whole_number(value: int, what: str) -> int:
    """Checks that a value is an integer that fits a C int."""
    number = whole(value, what)
    if abs(number) > INT_MAX:
        raise InvalidArgument(f"{what} is out of range: {number}")
    return number


def address_of(where: Any) -> int:
    """An address: given as a number, or taken from a tensor or another object with data_ptr()."""
    address = whole(where.data_ptr() if hasattr(where, "data_ptr") else where, "an address")
    if not 0 <= address < 1 << 64:
        raise InvalidArgument(f"an address must be from 0 to 2^64 - 1, not {address}")
    return address


def whole_tag(tag: str, names: Iterable[str]) -> str:
    """The full tag of an error, which C cuts to 47 bytes: the only name that begins with it."""
    if len(tag.encode()) < _c.Error.tag.size - 4:  # C cuts before a character, of up to 4 bytes
        return tag
    found = {name for name in names if name.startswith(tag)}
    return found.pop() if len(found) == 1 else tag


def handles_of(objects: Sequence[Any], attribute: str) -> Any:
    """A C array of streams or events, each given as a number or as an object of torch.cuda."""
    return (ctypes.c_void_p * len(objects))(*(getattr(each, attribute, each) for each in objects))


_MOST_SECONDS = 1.8e10  # slightly less than 2^64 ns, 584 years


def nanoseconds(timeout: float | None) -> int:
    """A timeout in seconds as nanoseconds. None, do not wait, becomes 0."""
    if timeout is None:
        return 0
    if not isinstance(timeout, (int, float)) or not 0 <= timeout < math.inf:
        raise InvalidArgument(f"timeout must be seconds from 0, or None, not {timeout!r}")
    return int(min(timeout, _MOST_SECONDS) * 1e9)


# ---- Profiles ----


def _find_profile(text: Size) -> _c.Profile:
    struct = _c.Profile()
    if not isinstance(text, str):
        text = str(whole_bytes(text))
    from_file = "/" in text or text.lower().endswith(".json")
    find = _c.replay().rvl_profile_load if from_file else _c.core().rvl_profile_find
    check(find(name_bytes(text, "a device"), ctypes.byref(struct)))
    return struct


def _profile(struct: _c.Profile) -> Profile:
    return from_struct(
        Profile,
        struct,
        name=_c.some_text(struct.name),
        description=_c.some_text(struct.description),
        source=_c.some_text(struct.source),
    )


def profile(name: Size) -> Profile:
    """The profile of a name ("h200"), of a file that `reveille calibrate` wrote, or of a size.

    The profile of a size ("80GiB") has the name "".
    """
    return _profile(_find_profile(name))


def profiles() -> tuple[Profile, ...]:
    """Every kind of GPU that you can simulate by name."""
    structs = []
    for index in range(_c.core().rvl_profile_count()):
        structs.append(_c.Profile())
        check(_c.core().rvl_profile_get(index, ctypes.byref(structs[-1])))
    return tuple(_profile(struct) for struct in structs)


# ---- Backends ----


def _as_list(devices: Devices) -> list[Size]:
    if devices is None or isinstance(devices, (int, str)):
        return [] if devices is None else [devices]
    try:
        return list(devices)
    except TypeError:
        raise InvalidArgument(f"devices must be one device or several, not {devices!r}") from None


def sim_options(devices: Devices, memory: str, overcommit: bool, poison: int) -> _c.SimOptions:
    """Options of simulated devices. Each device is a profile's name, a profile's file, or a size."""
    structs = [_find_profile(device) for device in _as_list(devices)]
    if devices is not None and not structs:
        raise InvalidArgument("devices is empty: leave it out for one h200")
    pointers = (ctypes.POINTER(_c.Profile) * len(structs))(*map(ctypes.pointer, structs))
    return _c.SimOptions(
        memory=choice(memory, _c.SIM_MEMORY_NAMES, "memory"),
        flags=_c.flags((overcommit, _c.SIM_OVERCOMMIT)),
        devices=pointers if structs else None,
        device_count=len(structs),
        poison=whole_number(poison, "poison"),
    )


def cuda_options(
    devices: Devices, host_keep: str | int, host_ahead: bool, host_pageable: bool
) -> _c.CudaOptions:
    """Options of real devices: CUDA ordinals, and how host memory is kept."""
    ordinals = []
    for device in _as_list(devices):
        if isinstance(device, str):
            raise InvalidArgument(f"devices of cuda are numbers, not {device!r}")
        ordinals.append(whole_number(device, "a device of cuda"))
    if devices is not None and not ordinals:
        raise InvalidArgument("devices is empty: leave it out for all that the driver shows")
    limited = not isinstance(host_keep, str)
    return _c.CudaOptions(
        devices=(ctypes.c_int * len(ordinals))(*ordinals) if ordinals else None,
        device_count=len(ordinals),
        host_keep=choice("bytes" if limited else str(host_keep), _c.HOST_KEEP_NAMES, "host_keep"),
        host_keep_bytes=whole_bytes(host_keep) if not isinstance(host_keep, str) else 0,
        flags=_c.flags(
            (host_ahead, _c.CUDA_HOST_AHEAD), (host_pageable, _c.CUDA_HOST_PAGEABLE)
        ),
    )
