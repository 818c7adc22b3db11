# SPDX-License-Identifier: MIT
"""Parts without PyTorch: what the driver takes, one fresh process each. probe.py PART [ARG] >> lines of JSON."""

import ctypes as C
import fcntl
import json
import lzma
import os
import sys
import time

P = os.path.dirname(os.path.abspath(__file__))
PART, ARGS = (sys.argv + [""])[1], sys.argv[2:]
LABEL = " ".join(sys.argv[1:]) + (
    " eager" if os.environ.get("CUDA_MODULE_LOADING") == "EAGER" else ""
)


def libs():
    return {
        l.split("/", 1)[1].split()[0].rsplit("/", 1)[-1]
        for l in open("/proc/self/maps")
        if ".so" in l and "/" in l
    }


def turn(by_nvml):
    """One process at a time on the card: all wait for a lock, then until the card is as idle as at first."""
    path = os.environ.get("TURN")
    if not path:
        return
    global lock
    lock = open(path, "a+")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.seek(0)
    idle = lock.read()
    if not idle:
        lock.write(str(by_nvml()))
        lock.flush()
        return
    end = time.time() + 5
    while by_nvml() > int(idle) and time.time() < end:
        time.sleep(0.02)


class Look:
    def __init__(self):
        self.cuda = C.CDLL("libcuda.so.1")
        self.nvml = C.CDLL("libnvidia-ml.so.1")
        self.nvml.nvmlInit_v2()
        self.card = C.c_void_p()
        index = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        self.nvml.nvmlDeviceGetHandleByIndex_v2(int(index or 0), C.byref(self.card))
        turn(self.by_nvml)
        self.start = time.time()
        self.libs = libs()
        self.last = (self.by_driver(), self.by_nvml())

    def by_driver(self):
        free, total = C.c_size_t(), C.c_size_t()
        return (
            total.value - free.value
            if self.cuda.cuMemGetInfo_v2(C.byref(free), C.byref(total)) == 0
            else None
        )

    def by_nvml(self):
        m = (C.c_ulonglong * 3)()
        return m[2] if self.nvml.nvmlDeviceGetMemoryInfo(self.card, m) == 0 else None

    def __call__(self, what, result=0, **more):
        now, seen = (self.by_driver(), self.by_nvml()), libs()
        d = [None if a is None or b is None else a - b for a, b in zip(now, self.last)]
        print(
            json.dumps(
                {
                    "part": LABEL,
                    "what": what,
                    "bytes": d[0],
                    "bytes_nvml": d[1],
                    "used": now[0],
                    "used_nvml": now[1],
                    "result": result,
                    "loaded": sorted(seen - self.libs),
                    "s": round(time.time() - self.start, 3),
                    **more,
                }
            ),
            flush=True,
        )
        self.last, self.libs = now, seen


look = Look() if __name__ == "__main__" else None
cuda = look and look.cuda


def context():
    look("start")
    r = cuda.cuInit(0)
    look("cuInit", r)
    ctx = C.c_void_p()
    r = cuda.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)
    r = r or cuda.cuCtxSetCurrent(ctx)
    look.last = (0, look.last[1])
    look("primary context", r)
    return ctx


def limits():
    names = {0: "stack", 1: "printf", 2: "heap", 3: "sync_depth", 4: "pending_launches"}
    out = {}
    for k, n in names.items():
        v = C.c_size_t()
        out[n] = v.value if cuda.cuCtxGetLimit(C.byref(v), k) == 0 else None
        if out[n] is not None:
            out[n] = v.value
    return out


def module(name):
    data = (
        lzma.open(f"{P}/cubins/{name}.cubin.xz").read()
        if os.path.exists(f"{P}/cubins/{name}.cubin.xz")
        else open(f"{P}/cubins/{name}.cubin", "rb").read()
    )
    m = C.c_void_p()
    r = cuda.cuModuleLoadData(C.byref(m), data)
    look(f"cuModuleLoadData {name}", r, file_bytes=len(data))
    return m


def function(m, name):
    f = C.c_void_p()
    r = cuda.cuModuleGetFunction(C.byref(f), m, name.encode())
    return f, r


def attributes(f):
    out = {}
    for k, n in ((1, "shared"), (2, "const"), (3, "local"), (4, "regs"), (5, "ptx"), (6, "binary")):
        v = C.c_int()
        out[n] = v.value if cuda.cuFuncGetAttribute(C.byref(v), k, f) == 0 else None
    return out


def launch(f, blocks=1, threads=32, args=(C.c_void_p(0), C.c_int(1))):
    a = (C.c_void_p * len(args))(*[C.cast(C.byref(x), C.c_void_p) for x in args])
    r = cuda.cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, None, a, None)
    return r or cuda.cuCtxSynchronize()


def run(m, name, blocks=1, threads=32):
    f, r = function(m, name)
    look(f"cuModuleGetFunction {name}", r)
    if r:
        return
    a = attributes(f)
    look(f"cuFuncGetAttribute {name}", 0, **a)
    r = launch(f, blocks, threads)
    look(f"launch {name} {blocks}x{threads}", r, **a)


def ctx_driver():
    context()
    look("limits", 0, **limits())
    for i in range(3):
        c = C.c_void_p()
        r = cuda.cuCtxCreate_v2(C.byref(c), 0, 0)
        look(f"cuCtxCreate {i}", r)


def ctx_runtime():
    rt = runtime()
    look("cudaGetDeviceCount", rt.cudaGetDeviceCount(C.byref(C.c_int())))
    look("cudaSetDevice", rt.cudaSetDevice(0))
    look.last = (0, look.last[1])
    look("cudaFree(0)", rt.cudaFree(None))
    look("limits", 0, **limits())


def runtime():
    rt = C.CDLL("libcudart.so.13", mode=C.RTLD_GLOBAL)
    rt.cudaMalloc.argtypes = [C.c_void_p, C.c_size_t]
    rt.cudaFree.argtypes = [C.c_void_p]
    return rt


def small():
    rt = runtime()
    s = C.CDLL(f"{P}/libsmall.so")
    look("libsmall.so")
    r = rt.cudaFree(None)
    look.last = (0, look.last[1])
    look("cudaFree(0)", r)
    look("empty kernel", s.run_empty())
    look("empty again", s.run_empty())
    look("kernel of a module with 4 MiB of globals", s.run_other())
    for n in (64, 512, 1024, 4096):
        look(f"kernel with {n} B of frame, 1 block", s.run_local(n, 1))
        look(f"kernel with {n} B of frame, 2048 blocks", s.run_local(n, 2048))


def special():
    context()
    m = module("special")
    for n in ("empty", "prints", "asserts", "asserted", "touch1", "mallocs", "empty"):
        run(m, n)
    run(module("nested"), "recursive")
    run(module("g64"), "touch64")


def first_launch():
    context()
    m = module("special")
    run(m, ARGS[0])
    run(m, ARGS[0], 2048, 128)


def assert_module():
    context()
    m = module("asserts")
    run(m, "plain")
    run(m, "plain", 4096, 128)
    run(m, "asserted")
    run(m, "asserted", 4096, 128)
    run(module("special"), "prints")
    run(module("nested"), "recursive")


def local_up():
    context()
    m = module("special")
    for n in (
        16,
        32,
        64,
        96,
        128,
        192,
        256,
        320,
        384,
        448,
        512,
        640,
        768,
        1024,
        1536,
        2048,
        4096,
        8192,
        16384,
        32768,
        65536,
    ):
        run(m, f"l{n}")
    run(m, "l64", 2048, 1024)
    run(m, "l65536", 2048, 1024)


def limit_up():
    context()
    look("limits", 0, **limits())
    m = module("special")
    run(m, "empty")
    for v in (512, 1024, 1280, 1536, 2048, 4096, 8192, 1024):
        look(f"stack limit {v}", cuda.cuCtxSetLimit(0, C.c_size_t(v)), **limits())
        f, _ = function(m, "empty")
        look(f"launch after stack {v}", launch(f))
    for v in (1 << 20, 8 << 20, 16 << 20, 64 << 20):
        look(f"heap limit {v}", cuda.cuCtxSetLimit(2, C.c_size_t(v)))
    run(m, "mallocs")
    look("printf limit 8 MiB", cuda.cuCtxSetLimit(1, C.c_size_t(8 << 20)))
    run(m, "prints")


def modules():
    context()
    m = module(ARGS[0])
    n, step = int(ARGS[1]), int(ARGS[2])
    before = look.last[0]
    for k in range(n):
        f, r = function(m, f"k{k}")
        r = r or launch(f, 1, 32, (C.c_void_p(0),))
        now = look.by_driver()
        if now != before or r or k == n - 1:
            look(f"kernel {k}", r, steps=k + 1, kib=step)
            before = now
        if r:
            break
    cuda.cuModuleUnload(m)
    look("cuModuleUnload")
    m = module(ARGS[0])
    f, r = function(m, "k0")
    look("k0 again", r or launch(f, 1, 32, (C.c_void_p(0),)))


def modules_many():
    context()
    for i in range(8):
        m = module("m1")
        f, r = function(m, "k0")
        look(f"copy {i}, one kernel", r or launch(f, 1, 32, (C.c_void_p(0),)))


def copies():
    context()
    d = C.c_void_p()
    look("cuMemAlloc 64 MiB", cuda.cuMemAlloc_v2(C.byref(d), C.c_size_t(64 << 20)))
    h = C.create_string_buffer(8 << 20)
    for n in (4, 1 << 16, 8 << 20):
        look(f"HtoD pageable {n}", cuda.cuMemcpyHtoD_v2(d, h, C.c_size_t(n)))
        look(f"DtoH pageable {n}", cuda.cuMemcpyDtoH_v2(h, d, C.c_size_t(n)))
    look("DtoD", cuda.cuMemcpyDtoD_v2(C.c_void_p(d.value + (32 << 20)), d, C.c_size_t(1 << 20)))
    look("memset", cuda.cuMemsetD8_v2(d, C.c_ubyte(1), C.c_size_t(1 << 20)))
    look("memset async", cuda.cuMemsetD8Async(d, C.c_ubyte(1), C.c_size_t(1 << 20), None))
    cuda.cuCtxSynchronize()
    p = C.c_void_p()
    look("cuMemHostAlloc 64 MiB", cuda.cuMemHostAlloc(C.byref(p), C.c_size_t(64 << 20), 0))
    look("HtoD pinned async", cuda.cuMemcpyHtoDAsync_v2(d, p, C.c_size_t(8 << 20), None))
    look("synchronize", cuda.cuCtxSynchronize())
    e = C.c_void_p()
    for n in (1, 1000, 10000):
        for _ in range(n):
            cuda.cuEventCreate(C.byref(e), 0)
            cuda.cuEventRecord(e, None)
        look(f"{n} events created and recorded")
    for n in range(1, 6):
        s = C.c_void_p()
        look(f"stream {n}", cuda.cuStreamCreate(C.byref(s), 1))
        look(f"memset on stream {n}", cuda.cuMemsetD8Async(d, C.c_ubyte(1), C.c_size_t(1 << 20), s))
        cuda.cuCtxSynchronize()
    look("cuMemAllocAsync 512 B", cuda.cuMemAllocAsync(C.byref(p), C.c_size_t(512), None))
    look("cuMemAllocAsync 40 MiB", cuda.cuMemAllocAsync(C.byref(p), C.c_size_t(40 << 20), None))
    look("synchronize", cuda.cuCtxSynchronize())


def blas():
    rt = runtime()
    r = rt.cudaFree(None)
    look.last = (0, look.last[1])
    look("cudaFree(0)", r)
    d = [C.c_void_p() for _ in range(3)]
    for x in d:
        look("cudaMalloc 128 MiB", rt.cudaMalloc(C.byref(x), 128 << 20))
    ws = C.c_void_p()
    look("cudaMalloc 32 MiB", rt.cudaMalloc(C.byref(ws), 32 << 20))
    b = C.CDLL("libcublas.so.13", mode=C.RTLD_GLOBAL)
    look("libcublas.so.13")
    hs = []
    for i in range(1 if ARGS[0] != "create" else 4):
        h = C.c_void_p()
        look(f"cublasCreate {i}", b.cublasCreate_v2(C.byref(h)))
        hs.append(h)
    if ARGS[0] == "create":
        look("cublasDestroy", b.cublasDestroy_v2(hs.pop()))
        h = C.c_void_p()
        look("cublasCreate again", b.cublasCreate_v2(C.byref(h)))
        lt = C.CDLL("libcublasLt.so.13")
        h2 = C.c_void_p()
        look("cublasLtCreate", lt.cublasLtCreate(C.byref(h2)))
        return
    h = hs[0]
    if "workspace" in ARGS:
        look("cublasSetWorkspace", b.cublasSetWorkspace_v2(h, ws, C.c_size_t(32 << 20)))
    one, zero = C.c_float(1), C.c_float(0)
    kinds = {"bf16": (14, 2), "fp16": (2, 2), "fp32": (0, 4), "fp64": (1, 8), "int8": (3, 1)}
    t, comp = kinds[ARGS[0]][0], {"fp64": 70, "int8": 72}.get(ARGS[0], 68)
    if ARGS[0] == "fp64":
        one, zero = C.c_double(1), C.c_double(0)
    if ARGS[0] == "int8":
        one, zero = C.c_int(1), C.c_int(0)
    for m, n, k in (
        (64, 64, 64),
        (2048, 2048, 2048),
        (2048, 2048, 2048),
        (4096, 128, 4096),
        (1, 2048, 2048),
        (2048, 1, 2048),
        (4096, 4096, 4096),
        (777, 2048, 512),
    ):
        for ta, tb in ((1, 0), (0, 1), (0, 0)):
            r = b.cublasGemmEx(
                h,
                ta,
                tb,
                m,
                n,
                k,
                C.byref(one),
                d[0],
                t,
                k if ta else m,
                d[1],
                t,
                n if tb else k,
                C.byref(zero),
                d[2],
                10 if ARGS[0] == "int8" else t,
                m,
                comp,
                -1,
            )
            r = r or rt.cudaDeviceSynchronize()
            look(f"gemm {'NT'[ta]}{'NT'[tb]} {m}x{n}x{k}", r)
    r = b.cublasGemmStridedBatchedEx(
        h,
        1,
        0,
        256,
        256,
        64,
        C.byref(one),
        d[0],
        t,
        64,
        C.c_longlong(256 * 64),
        d[1],
        t,
        64,
        C.c_longlong(256 * 64),
        C.byref(zero),
        d[2],
        t,
        256,
        C.c_longlong(65536),
        16,
        comp,
        -1,
    )
    look("batched gemm", r or rt.cudaDeviceSynchronize())
    look("cublasDestroy", b.cublasDestroy_v2(h))


if __name__ == "__main__":
    globals()[PART]()
