# SPDX-License-Identifier: MIT
"""What a driver answers of functions by version, and whether a query that is not ready is kept as the last error.

    entry_points.py OUT.jsonl      needs libcuda.so.1; libcudart.so.13 or .12 as PyTorch or CUDA brings it (argument 2, or found)
"""
import ctypes
import glob
import json
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")
out = open(sys.argv[1], "w")


def say(**facts):
    print(json.dumps(facts), file=out, flush=True)
    print(json.dumps(facts), flush=True)


assert cuda.cuInit(0) == 0
version = ctypes.c_int()
cuda.cuDriverGetVersion(ctypes.byref(version))
say(part="driver", version=version.value)
own = version.value


def ask(name, wanted, flags=0, form="cuGetProcAddress_v2", status=True):
    function = ctypes.c_void_p(1)
    found = ctypes.c_int(-1)
    call = getattr(cuda, form)
    arguments = [name.encode(), ctypes.byref(function), ctypes.c_int(wanted), ctypes.c_uint64(flags)]
    if form.endswith("_v2"):
        arguments.append(ctypes.byref(found) if status else None)
    result = call(*arguments)
    names = [n for n in (name, name + "_v2", name + "_v3", name + "_v4")
             if hasattr(cuda, n) and ctypes.cast(getattr(cuda, n), ctypes.c_void_p).value == function.value]
    say(part=form, name=name, version=wanted, flags=flags, result=result, status=found.value,
        null=not function.value, untouched=function.value == 1, is_form=names)


NAMES = {"cuInit": 2000, "cuMemAlloc": 2000, "cuCtxCreate": 2000, "cuMemAllocAsync": 11020, "cuMemAddressReserve": 10020,
         "cuGraphExecUpdate": 10020, "cuLibraryLoadData": 12000, "cuCtxGetDevResource": 12040,
         "cuMemAdvise": 8000, "cuStreamGetCaptureInfo": 10010, "cuNone": 0, "cuMemAlloc_v2": 0,
         "cuGetProcAddress": 11030, "cuDeviceGetUuid": 9020}
for name, brought in NAMES.items():
    for wanted in sorted({0, 1, 1999, 2000, 3010, 3020, brought - 10, brought - 1, brought, 12000, 12050, own - 10, own, own + 1,
                          own + 10, 13020, 14000, 20000, 99990, -1}):
        ask(name, wanted)
        if name in ("cuInit", "cuNone", "cuLibraryLoadData"):
            ask(name, wanted, form="cuGetProcAddress")
for flags in (0, 1, 2, 3, 4, 8):
    ask("cuMemAlloc", 12000, flags)
ask("cuMemAlloc", 12000, status=False)
say(part="null name", result=cuda.cuGetProcAddress_v2(None, ctypes.byref(ctypes.c_void_p()), 12000, ctypes.c_uint64(0), None))

# ---- Not ready: is it kept? ----
paths = sys.argv[2:] or ["libcudart.so.13", "libcudart.so.12"]
for root in sys.path:
    paths += glob.glob(os.path.join(root, "nvidia", "*", "lib", "libcudart.so.1[23]"))
runtime = None
for path in paths:
    try:
        runtime = ctypes.CDLL(path)
        say(part="runtime", path=path)
        break
    except OSError:
        pass
if runtime is None:
    say(part="runtime", path=None)
    sys.exit(0)
assert runtime.cudaSetDevice(0) == 0
rows = 1 << 30
memory, host = ctypes.c_void_p(), ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(rows)) == 0
assert runtime.cudaMallocHost(ctypes.byref(host), ctypes.c_size_t(rows)) == 0
event, stream = ctypes.c_void_p(), ctypes.c_void_p()
assert runtime.cudaStreamCreate(ctypes.byref(stream)) == 0
assert runtime.cudaEventCreate(ctypes.byref(event)) == 0
for what in ("event", "stream"):
    assert runtime.cudaDeviceSynchronize() == 0
    for _ in range(8):  # 8 GiB over the link: about 150 ms
        runtime.cudaMemcpyAsync(memory, host, ctypes.c_size_t(rows), 1, stream)
    runtime.cudaEventRecord(event, stream)
    answer = runtime.cudaEventQuery(event) if what == "event" else runtime.cudaStreamQuery(stream)
    say(part="not ready", what=what, answer=answer, peek=runtime.cudaPeekAtLastError(),
        get=runtime.cudaGetLastError(), again=runtime.cudaGetLastError())
    runtime.cudaDeviceSynchronize()
# An error before it stays?
runtime.cudaSetDevice(77)
for _ in range(8):
    runtime.cudaMemcpyAsync(memory, host, ctypes.c_size_t(rows), 1, stream)
say(part="error before", answer=runtime.cudaStreamQuery(stream), peek=runtime.cudaPeekAtLastError(),
    get=runtime.cudaGetLastError())
runtime.cudaDeviceSynchronize()
# The runtime's own way to entry points.
for wanted in (11000, 12000, own, own + 10, 14000):
    for name in ("cuInit", "cuLibraryLoadData", "cuCtxGetDevResource"):
        if not hasattr(runtime, "cudaGetDriverEntryPointByVersion"):
            continue
        function, found = ctypes.c_void_p(1), ctypes.c_int(-1)
        result = runtime.cudaGetDriverEntryPointByVersion(name.encode(), ctypes.byref(function), ctypes.c_uint(wanted),
                                                          ctypes.c_uint64(0), ctypes.byref(found))
        say(part="cudaGetDriverEntryPointByVersion", name=name, version=wanted, result=result, status=found.value,
            null=not function.value)
