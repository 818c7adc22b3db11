# SPDX-License-Identifier: MIT
"""The driver's calls for blocks of memory, for programs that time them. Needs libcuda alone."""

import ctypes as C
import sys

MIB = 1 << 20


class Location(C.Structure):
    _fields_ = [("type", C.c_int), ("id", C.c_int)]


class Property(C.Structure):  # CUmemAllocationProp
    _fields_ = [("type", C.c_int), ("handles", C.c_int), ("location", Location), ("win32", C.c_void_p),
                ("compression", C.c_ubyte), ("rdma", C.c_ubyte), ("usage", C.c_ushort), ("reserved", C.c_ubyte * 4)]  # fmt: skip


class Access(C.Structure):
    _fields_ = [("location", Location), ("flags", C.c_int)]


cuda = C.CDLL("libcuda.so.1")
cuda.cuMemCreate.argtypes = [C.c_void_p, C.c_size_t, C.c_void_p, C.c_ulonglong]
cuda.cuMemMap.argtypes = [C.c_ulonglong, C.c_size_t, C.c_size_t, C.c_ulonglong, C.c_ulonglong]
cuda.cuMemSetAccess.argtypes = [C.c_ulonglong, C.c_size_t, C.c_void_p, C.c_size_t]
cuda.cuMemUnmap.argtypes = [C.c_ulonglong, C.c_size_t]
cuda.cuMemRelease.argtypes = [C.c_ulonglong]
cuda.cuMemAddressReserve.argtypes = [C.c_void_p, C.c_size_t, C.c_size_t, C.c_ulonglong, C.c_ulonglong]
cuda.cuMemAddressFree.argtypes = [C.c_ulonglong, C.c_size_t]


def need(result):
    if result != 0:
        sys.exit(f"the driver answered {result}")


context = C.c_void_p()
need(cuda.cuInit(0))
need(cuda.cuDevicePrimaryCtxRetain(C.byref(context), 0))
need(cuda.cuCtxSetCurrent(context))
location = Location(1, 0)
kind = Property(1, 0, location, None, 0, 1, 0)
access = Access(location, 3)


def reserve(size):
    at = C.c_ulonglong()
    need(cuda.cuMemAddressReserve(C.byref(at), size, 0, 0, 0))
    return at.value
