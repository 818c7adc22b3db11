# SPDX-License-Identifier: MIT
"""What a context with managed memory leaves on the device when it ends, and what the next context gets of it.

    managed_left.py    needs libcuda.so.1 and libnvidia-ml.so.1; nothing else may use the device

A JSON line for each size, each in a process of its own. 64 MiB left 64 MiB on an H100 and an H200: is that what the driver
had not handed out, or half of what it took?
"""
import ctypes as C
import json
import subprocess
import sys
import time

MIB = 1 << 20
SIZES_MIB = (2, 16, 64, 100, 126, 130, 200)
AGAIN_MIB = 16


class Location(C.Structure):  # CUmemLocation: type 1 is a device
    _fields_ = [("type", C.c_int), ("id", C.c_int)]


class Memory(C.Structure):  # nvmlMemory_t
    _fields_ = [("total", C.c_ulonglong), ("free", C.c_ulonglong), ("used", C.c_ulonglong)]


def need(result):
    if result != 0:
        sys.exit(f"managed_left.py: {result} was answered")


class Device:
    def __init__(self):
        self.cuda, self.nvml = C.CDLL("libcuda.so.1"), C.CDLL("libnvidia-ml.so.1")
        self.handle = C.c_void_p()
        need(self.nvml.nvmlInit_v2())
        need(self.nvml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(self.handle)))
        need(self.cuda.cuInit(0))

    def used(self):
        memory = Memory()
        time.sleep(0.3)  # the driver gives back behind the call
        need(self.nvml.nvmlDeviceGetMemoryInfo(self.handle, C.byref(memory)))
        return memory.used

    def enter(self):
        context = C.c_void_p()
        need(self.cuda.cuDevicePrimaryCtxRetain(C.byref(context), 0))
        need(self.cuda.cuCtxSetCurrent(context))

    def leave(self):
        need(self.cuda.cuDevicePrimaryCtxRelease_v2(0))

    def manage(self, size_bytes):
        addr = C.c_ulonglong()
        need(self.cuda.cuMemAllocManaged(C.byref(addr), C.c_size_t(size_bytes), 1))
        need(self.cuda.cuMemPrefetchAsync_v2(addr, C.c_size_t(size_bytes), Location(1, 0), 0, None))
        need(self.cuda.cuCtxSynchronize())


def measure(size_bytes):
    device = Device()
    begun = device.used()
    device.enter()
    entered = device.used()
    device.manage(size_bytes)
    taken = device.used() - entered
    device.leave()
    left = device.used() - begun
    device.enter()
    again = device.used()
    device.manage(AGAIN_MIB * MIB)
    more = device.used() - again
    device.leave()
    print(json.dumps({"part": "managed left", "bytes": size_bytes, "taken": taken, "left": left,
                      "more_for_16_mib": more, "left_then": device.used() - begun}), flush=True)  # fmt: skip


if len(sys.argv) > 1:
    measure(int(sys.argv[1]))
else:
    for mib in SIZES_MIB:
        subprocess.run([sys.executable, __file__, str(mib * MIB)], check=False)
