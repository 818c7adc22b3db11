# SPDX-License-Identifier: MIT
"""Tries whether a GPU's memory can be shared over a fabric (NVLink between nodes).

The driver's attribute is set even where a later call fails: without its daemon (IMEX), without
permission for its channel, or in a container. So we create a handle, export it and import it again.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_byte, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p
from typing import Any, Callable

from . import _c

FABRIC_SUPPORTED = 128  # CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
FABRIC = 8  # CU_MEM_HANDLE_TYPE_FABRIC
PINNED, DEVICE = 1, 1
HANDLE_BYTES = 64


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location_type", c_int),
        ("location", c_int),
        ("windows", c_void_p),
        ("compression", c_ubyte),
        ("rdma", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    ]


class _Driver:
    """Entry points of the driver that libreveille uses, by name."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        entry = c_void_p()
        if _c.core().rvl_cuda_get_entry(name.encode(), 12000, byref(entry)) != 0:
            raise AttributeError(name)
        function: Any = ctypes.CFUNCTYPE(c_int)(entry.value)
        function.argtypes = None  # each argument carries its own type
        return function


def _name(driver: _Driver, code: int) -> str:
    text = ctypes.c_char_p()
    known = driver.cuGetErrorName(code, byref(text)) == 0 and text.value
    return text.value.decode() if known and text.value else f"error {code}"


def _try(driver: _Driver, device: int) -> str:
    """ "works", or the step that fails and the error that it returns."""
    wanted = _Properties(type=PINNED, handle_types=FABRIC, location_type=DEVICE, location=device)
    granule, made, again = c_size_t(), c_uint64(), c_uint64()
    exported = (c_byte * HANDLE_BYTES)()
    steps = [
        ("create", lambda: driver.cuMemGetAllocationGranularity(byref(granule), byref(wanted), 0)),
        ("create", lambda: driver.cuMemCreate(byref(made), granule, byref(wanted), c_uint64(0))),
        ("export", lambda: driver.cuMemExportToShareableHandle(byref(exported), made, FABRIC, c_uint64(0))),
        ("import", lambda: driver.cuMemImportFromShareableHandle(byref(again), byref(exported), FABRIC)),
    ]
    answer = "works"
    for step, call in steps:
        code = call()
        if code != 0:
            answer = f"the driver says that it is there, and {step} fails: {_name(driver, code)}"
            break
    for handle in (again, made):
        if handle.value:
            driver.cuMemRelease(handle)
    return answer


def probe(device: int) -> str:
    """ "none", "works", or why it fails. device: CUDA's number. The driver must be initialized."""
    try:
        driver, value = _Driver(), c_int()
        if driver.cuDeviceGetAttribute(byref(value), FABRIC_SUPPORTED, device) != 0:
            return "none"
        return _try(driver, device) if value.value else "none"
    except AttributeError:  # a build without the backend, or an old driver
        return "none"
