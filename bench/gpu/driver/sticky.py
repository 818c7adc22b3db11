# SPDX-License-Identifier: MIT
"""What a card answers to bad addresses and after a kernel has failed: sticky.py >> JSON lines. libcuda and libcudart alone.
Each subject is asked in processes of its own: one that finds the context broken ends, and the next goes on behind it."""

import ctypes as C
import glob
import json
import os
import subprocess
import sys

PTX = b""".version 8.0
.target sm_90
.address_size 64
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 words[4] = {120, 33, 0, 0};
.visible .entry store(.param .u64 p) { .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd1, [p]; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1; ret; }
.visible .entry nothing(.param .u64 p) { ret; }
.visible .entry traps(.param .u64 p) { trap; ret; }
.visible .entry asserts(.param .u64 p) { .reg .b64 %rd<4>; .reg .b32 %r<2>;
 mov.u64 %rd1, words; cvta.global.u64 %rd2, %rd1; mov.u32 %r1, 7; mov.u64 %rd3, 1;
 { .param .b64 a0; st.param.b64 [a0], %rd2; .param .b64 a1; st.param.b64 [a1], %rd2; .param .b32 a2; st.param.b32 [a2], %r1; .param .b64 a3; st.param.b64 [a3], %rd2; .param .b64 a4; st.param.b64 [a4], %rd3;
   call.uni __assertfail, (a0, a1, a2, a3, a4); } ret; }
\0"""
cuda = C.CDLL("libcuda.so.1")
P = C.c_void_p
U = C.c_uint64
MIB = 1 << 20


def runtime():
    import sysconfig

    for name in [
        "libcudart.so.13",
        *glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib/libcudart.so.13"),
        *glob.glob("/usr/local/lib/python3*/*-packages/nvidia/*/lib/libcudart.so.13"),
        *glob.glob("/usr/local/cuda*/lib64/libcudart.so.1[23]"),
        "libcudart.so.12",
    ]:
        try:
            return C.CDLL(name)
        except OSError:
            pass


rt = runtime()


class Prop(C.Structure):
    _fields_ = [
        ("type", C.c_int),
        ("handles", C.c_int),
        ("where", C.c_int),
        ("id", C.c_int),
        ("win", P),
        ("flags", C.c_ubyte * 8),
    ]


class Access(C.Structure):
    _fields_ = [("where", C.c_int), ("id", C.c_int), ("flags", C.c_int)]


class S:
    pass


s = S()


def ok(r, what):
    if r:
        raise SystemExit(f"{what}: {r}")


def begin():
    dev = C.c_int()
    s.ctx = P()
    ok(cuda.cuInit(0), "cuInit")
    cuda.cuDeviceGet(C.byref(dev), 0)
    ok(cuda.cuDevicePrimaryCtxRetain(C.byref(s.ctx), dev), "context")
    cuda.cuCtxSetCurrent(s.ctx)
    s.dev = dev
    s.stream, s.event, s.start = P(), P(), P()
    cuda.cuStreamCreate(C.byref(s.stream), 1)
    cuda.cuEventCreate(C.byref(s.event), 0)
    cuda.cuEventCreate(C.byref(s.start), 0)
    cuda.cuEventRecord(s.start, s.stream)
    s.mem, s.mem2 = U(), U()
    cuda.cuMemAlloc_v2(C.byref(s.mem), C.c_size_t(4 * MIB))
    cuda.cuMemAlloc_v2(C.byref(s.mem2), C.c_size_t(4 * MIB))
    s.host = P()
    cuda.cuMemHostAlloc(C.byref(s.host), C.c_size_t(MIB), 0)
    s.page = C.create_string_buffer(MIB)
    s.mod = P()
    s.loaded = cuda.cuModuleLoadData(C.byref(s.mod), PTX)
    s.k = {}
    for n in (b"store", b"nothing", b"traps", b"asserts"):
        f = P()
        cuda.cuModuleGetFunction(C.byref(f), s.mod, n)
        s.k[n.decode()] = f
    s.phys, s.range = U(), U()
    p = Prop(type=1, where=1, id=0)
    s.prop = p
    cuda.cuMemCreate(C.byref(s.phys), C.c_size_t(2 * MIB), C.byref(p), U(0))
    cuda.cuMemAddressReserve(C.byref(s.range), C.c_size_t(8 * MIB), C.c_size_t(0), U(0), U(0))
    cuda.cuMemMap(s.range, C.c_size_t(2 * MIB), C.c_size_t(0), s.phys, U(0))
    a = Access(1, 0, 3)
    cuda.cuMemSetAccess(s.range, C.c_size_t(2 * MIB), C.byref(a), C.c_size_t(1))
    s.phys2 = U()
    cuda.cuMemCreate(C.byref(s.phys2), C.c_size_t(2 * MIB), C.byref(p), U(0))
    cuda.cuMemMap(U(s.range.value + 2 * MIB), C.c_size_t(2 * MIB), C.c_size_t(0), s.phys2, U(0))
    cuda.cuCtxSynchronize()
    s.gone = U()
    cuda.cuMemAlloc_v2(C.byref(s.gone), C.c_size_t(64 * MIB))
    cuda.cuMemFree_v2(s.gone)


def launch(name, addr=0):
    v = U(addr)
    a = (P * 1)(C.cast(C.byref(v), P))
    return cuda.cuLaunchKernel(s.k[name], 1, 1, 1, 1, 1, 1, 0, s.stream, a, None)


Z = C.c_size_t


def operations():
    """Each on an address: bytes 64."""
    return {
        "cuMemsetD8": lambda a: cuda.cuMemsetD8_v2(U(a), C.c_ubyte(1), Z(64)),
        "cuMemsetD8Async": lambda a: cuda.cuMemsetD8Async(U(a), C.c_ubyte(1), Z(64), s.stream),
        "cuMemcpyHtoD": lambda a: cuda.cuMemcpyHtoD_v2(U(a), s.page, Z(64)),
        "cuMemcpyHtoD 1 MiB": lambda a: cuda.cuMemcpyHtoD_v2(U(a), s.page, Z(MIB)),
        "cuMemcpyHtoDAsync pinned": lambda a: cuda.cuMemcpyHtoDAsync_v2(
            U(a), s.host, Z(64), s.stream
        ),
        "cuMemcpyDtoH": lambda a: cuda.cuMemcpyDtoH_v2(s.page, U(a), Z(64)),
        "cuMemcpyDtoHAsync pinned": lambda a: cuda.cuMemcpyDtoHAsync_v2(
            s.host, U(a), Z(64), s.stream
        ),
        "cuMemcpyDtoD from": lambda a: cuda.cuMemcpyDtoD_v2(s.mem, U(a), Z(64)),
        "cuMemcpyDtoD to": lambda a: cuda.cuMemcpyDtoD_v2(U(a), s.mem, Z(64)),
        "cuMemcpyDtoDAsync to": lambda a: cuda.cuMemcpyDtoDAsync_v2(U(a), s.mem, Z(64), s.stream),
        "cuMemcpyAsync to": lambda a: cuda.cuMemcpyAsync(U(a), s.mem, Z(64), s.stream),
        "cuMemcpyAsync from": lambda a: cuda.cuMemcpyAsync(s.mem, U(a), Z(64), s.stream),
        "store": lambda a: launch("store", a),
        "cuMemFree": lambda a: cuda.cuMemFree_v2(U(a)),
        "cuMemFreeAsync": lambda a: cuda.cuMemFreeAsync(U(a), s.stream),
    }


def places():
    return {
        "16": 16,
        "freed": s.gone.value,
        "beyond the end": s.mem2.value + 4 * MIB - 32,
        "inside": s.mem.value + 4096,
        "reserved, not mapped": s.range.value + 4 * MIB,
        "mapped, no access": s.range.value + 2 * MIB,
        "mapped into unmapped": s.range.value + 2 * MIB - 32,
    }


def calls():
    """What is asked of a context after a failure, in this order."""
    f, t, i, p, u = Z(), Z(), C.c_int(), P(), U()
    c = []
    add = lambda n, g: c.append((n, g))
    add("cuStreamQuery", lambda: cuda.cuStreamQuery(s.stream))
    add("cuStreamSynchronize", lambda: cuda.cuStreamSynchronize(s.stream))
    add("cuCtxSynchronize", lambda: cuda.cuCtxSynchronize())
    add("cuCtxSynchronize again", lambda: cuda.cuCtxSynchronize())
    add("cuMemGetInfo", lambda: cuda.cuMemGetInfo_v2(C.byref(f), C.byref(t)))
    add("cuMemAlloc", lambda: cuda.cuMemAlloc_v2(C.byref(u), Z(MIB)))
    add("cuMemFree", lambda: cuda.cuMemFree_v2(s.mem))
    add("cuMemFree 0", lambda: cuda.cuMemFree_v2(U(0)))
    add("cuMemsetD8", lambda: cuda.cuMemsetD8_v2(s.mem2, C.c_ubyte(1), Z(64)))
    add("cuMemcpyHtoD", lambda: cuda.cuMemcpyHtoD_v2(s.mem2, s.page, Z(64)))
    add("cuMemcpyDtoHAsync", lambda: cuda.cuMemcpyDtoHAsync_v2(s.host, s.mem2, Z(64), s.stream))
    add("cuLaunchKernel", lambda: launch("nothing"))
    add("cuModuleGetFunction", lambda: cuda.cuModuleGetFunction(C.byref(p), s.mod, b"nothing"))
    add("cuModuleLoadData", lambda: cuda.cuModuleLoadData(C.byref(p), PTX))
    add("cuModuleUnload", lambda: cuda.cuModuleUnload(s.mod))
    add("cuStreamCreate", lambda: cuda.cuStreamCreate(C.byref(p), 1))
    add("cuEventCreate", lambda: cuda.cuEventCreate(C.byref(p), 0))
    add("cuEventRecord", lambda: cuda.cuEventRecord(s.event, s.stream))
    add("cuEventQuery", lambda: cuda.cuEventQuery(s.start))
    add("cuEventSynchronize", lambda: cuda.cuEventSynchronize(s.start))
    add("cuStreamWaitEvent", lambda: cuda.cuStreamWaitEvent(s.stream, s.start, 0))
    add("cuEventDestroy", lambda: cuda.cuEventDestroy_v2(s.start))
    add("cuStreamBeginCapture", lambda: cuda.cuStreamBeginCapture_v2(s.stream, 2))
    add("cuStreamIsCapturing", lambda: cuda.cuStreamIsCapturing(s.stream, C.byref(i)))
    add("cuMemHostAlloc", lambda: cuda.cuMemHostAlloc(C.byref(p), Z(MIB), 0))
    add("cuMemFreeHost", lambda: cuda.cuMemFreeHost(s.host))
    add("cuMemHostRegister", lambda: cuda.cuMemHostRegister_v2(s.page, Z(4096), 0))
    add(
        "cuMemAddressReserve",
        lambda: cuda.cuMemAddressReserve(C.byref(u), Z(2 * MIB), Z(0), U(0), U(0)),
    )
    add("cuMemCreate", lambda: cuda.cuMemCreate(C.byref(u), Z(2 * MIB), C.byref(s.prop), U(0)))
    add("cuMemMap", lambda: cuda.cuMemMap(U(s.range.value + 4 * MIB), Z(2 * MIB), Z(0), u, U(0)))
    a = Access(1, 0, 3)
    add(
        "cuMemSetAccess",
        lambda: cuda.cuMemSetAccess(U(s.range.value + 2 * MIB), Z(2 * MIB), C.byref(a), Z(1)),
    )
    add("cuMemUnmap", lambda: cuda.cuMemUnmap(s.range, Z(2 * MIB)))
    add("cuMemRelease", lambda: cuda.cuMemRelease(s.phys))
    add("cuMemAllocAsync", lambda: cuda.cuMemAllocAsync(C.byref(u), Z(MIB), s.stream))
    pool = P()
    add("cuDeviceGetDefaultMemPool", lambda: cuda.cuDeviceGetDefaultMemPool(C.byref(pool), s.dev))
    add("cuMemPoolTrimTo", lambda: cuda.cuMemPoolTrimTo(pool, Z(0)))
    add("cuPointerGetAttribute", lambda: cuda.cuPointerGetAttribute(C.byref(i), 2, s.mem2))
    add("cuCtxGetCurrent", lambda: cuda.cuCtxGetCurrent(C.byref(p)))
    add("cuCtxGetDevice", lambda: cuda.cuCtxGetDevice(C.byref(i)))
    add("cuCtxSetCurrent", lambda: cuda.cuCtxSetCurrent(s.ctx))
    add("cuDeviceGetCount", lambda: cuda.cuDeviceGetCount(C.byref(i)))
    add("cuDeviceGetAttribute", lambda: cuda.cuDeviceGetAttribute(C.byref(i), 16, s.dev))
    add("cuInit", lambda: cuda.cuInit(0))
    h = C.create_string_buffer(64)
    add("cuIpcGetMemHandle", lambda: cuda.cuIpcGetMemHandle(h, s.mem2))
    g = P()
    add("cuGraphCreate", lambda: cuda.cuGraphCreate(C.byref(g), 0))
    e = P()
    add(
        "cuGraphInstantiate",
        lambda: cuda.cuGraphInstantiateWithFlags(C.byref(e), g, C.c_ulonglong(0)),
    )
    add("cuGraphLaunch", lambda: cuda.cuGraphLaunch(e, s.stream))
    add("cuGraphDestroy", lambda: cuda.cuGraphDestroy(g))
    add("cuStreamDestroy", lambda: cuda.cuStreamDestroy_v2(s.stream))
    add("cuCtxCreate another", lambda: cuda.cuCtxCreate_v2(C.byref(p), 0, s.dev))
    add("... its cuMemGetInfo", lambda: cuda.cuMemGetInfo_v2(C.byref(f), C.byref(t)))
    add("cuCtxSetCurrent back", lambda: cuda.cuCtxSetCurrent(s.ctx))
    if rt is not None:
        add("cudaPeekAtLastError", rt.cudaPeekAtLastError)
        add("cudaGetLastError", rt.cudaGetLastError)
        add("cudaGetLastError again", rt.cudaGetLastError)
        add("cudaDeviceSynchronize", rt.cudaDeviceSynchronize)
        add("cudaGetLastError then", rt.cudaGetLastError)
        add("cudaGetLastError then again", rt.cudaGetLastError)
        add("cudaMalloc", lambda: rt.cudaMalloc(C.byref(p), Z(512)))
        add("cudaFree", lambda: rt.cudaFree(P(s.mem2.value)))
        add("cudaMemGetInfo", lambda: rt.cudaMemGetInfo(C.byref(f), C.byref(t)))
        add("cudaSetDevice", lambda: rt.cudaSetDevice(0))
        add("cudaGetDevice", lambda: rt.cudaGetDevice(C.byref(i)))
        add("cudaGetDeviceCount", lambda: rt.cudaGetDeviceCount(C.byref(i)))
        add("cudaStreamCreate", lambda: rt.cudaStreamCreate(C.byref(p)))
        add("cudaHostAlloc", lambda: rt.cudaHostAlloc(C.byref(p), Z(4096), 0))
        add("cudaDeviceReset", rt.cudaDeviceReset)
        add("cudaMalloc after reset", lambda: rt.cudaMalloc(C.byref(p), Z(512)))
        add("cudaDeviceSynchronize after reset", rt.cudaDeviceSynchronize)
        add("cudaGetLastError after reset", rt.cudaGetLastError)
    else:
        add("cuDevicePrimaryCtxReset", lambda: cuda.cuDevicePrimaryCtxReset_v2(s.dev))
        add("cuMemGetInfo after reset", lambda: cuda.cuMemGetInfo_v2(C.byref(f), C.byref(t)))
    return c


def say(**row):
    print(json.dumps({"part": "sticky", **row}), flush=True)


def broken():
    f, t = Z(), Z()
    return cuda.cuMemGetInfo_v2(C.byref(f), C.byref(t))


def worker(what, at):
    begin()
    if what == "operations":
        todo = [(o, p) for o in operations() for p in places()]
        for n in range(at, len(todo)):
            o, p = todo[n]
            addr = places()[p]
            r = operations()[o](addr)
            first = cuda.cuStreamSynchronize(s.stream)
            sync = cuda.cuCtxSynchronize()
            after = broken()
            say(operation=o, at=p, result=r, stream=first, synchronize=sync, then=after, n=n)
            if after or o.startswith("cuMemFree") and r == 0:
                os._exit(9)
        os._exit(0)
    kind, place = what.split("@")
    addr = places().get(place, 0)
    r = launch(kind, addr)
    if "nowait" not in sys.argv:
        import time

        time.sleep(0.2)
    say(failure=what, launched=r, loaded=s.loaded, wait="nowait" not in sys.argv)
    for name, call in calls():
        say(failure=what, call=name, result=call())
    os._exit(0)


if len(sys.argv) > 2:
    worker(sys.argv[1], int(sys.argv[2]))
    sys.exit(0)


def go(*words):
    try:
        p = subprocess.run(
            [sys.executable, __file__, *words],
            timeout=20,
            capture_output=True,
            text=True,
        )
        out, code, err = p.stdout, p.returncode, p.stderr
    except subprocess.TimeoutExpired as e:
        out, code, err = (e.stdout or b"").decode(), "too slow", ""
    sys.stdout.write(out)
    sys.stdout.flush()
    if code not in (0, 9):
        say(words=list(words), ended=code, said=err[-400:])
    return out, code


say(runtime=rt is not None and rt._name)
for what in ("store@16", "traps@", "asserts@"):
    go(what, "0")
go("store@reserved, not mapped", "0")
go("store@16", "0", "nowait")
at = 0
while True:
    out, code = go("operations", str(at))
    rows = [json.loads(l) for l in out.splitlines() if '"operation"' in l]
    if code == 0:
        break
    nxt = rows[-1]["n"] + 1 if rows else at + 1
    at = nxt
