# SPDX-License-Identifier: MIT
"""Two processes, one on each of two GPUs: what NCCL takes. nccl.py LABEL >> lines of JSON."""

import ctypes as C
import glob
import json
import multiprocessing as mp
import os
import sys
import time

os.environ.pop("TURN", None)
import probe


def libnccl():
    for p in sys.path:
        for f in glob.glob(f"{p}/nvidia/nccl/lib/libnccl.so.2"):
            return f
    return "libnccl.so.2"


class Id(C.Structure):
    _fields_ = [("b", C.c_char * 128)]


def work(rank, n, barrier, ids):
    rt = C.CDLL("libcudart.so.13", mode=C.RTLD_GLOBAL)
    rt.cudaMalloc.argtypes = [C.c_void_p, C.c_size_t]
    rt.cudaFree.argtypes = [C.c_void_p]
    nccl = C.CDLL(libnccl(), mode=C.RTLD_GLOBAL)
    rt.cudaSetDevice(rank)
    rt.cudaFree(None)
    C.CDLL("libcuda.so.1")
    last = [0]
    seen = [probe.libs()]
    start = time.time()

    def used():
        f, t = C.c_size_t(), C.c_size_t()
        return t.value - f.value if rt.cudaMemGetInfo(C.byref(f), C.byref(t)) == 0 else 0

    def say(what, r=0):
        rt.cudaDeviceSynchronize()
        barrier.wait(60)
        now, libs = used(), probe.libs()
        os.write(
            1,
            (
                json.dumps(
                    {
                        "part": "nccl " + " ".join(sys.argv[1:]),
                        "rank": rank,
                        "what": what,
                        "bytes": now - last[0],
                        "used": now,
                        "result": r,
                        "loaded": sorted(libs - seen[0]),
                        "s": round(time.time() - start, 2),
                        "env": {k: v for k, v in os.environ.items() if k.startswith("NCCL_")},
                    }
                )
                + "\n"
            ).encode(),
        )
        last[0], seen[0] = now, libs
        barrier.wait(60)

    say("context")
    v = C.c_int()
    nccl.ncclGetVersion(C.byref(v))
    say(f"version {v.value}")
    d = C.c_void_p()
    e = C.c_void_p()
    say(
        "cudaMalloc 2 x 256 MiB",
        rt.cudaMalloc(C.byref(d), 256 << 20) or rt.cudaMalloc(C.byref(e), 256 << 20),
    )
    s = C.c_void_p()
    say("stream", rt.cudaStreamCreateWithFlags(C.byref(s), 1))

    def comm(name):
        i = Id()
        if rank == 0:
            nccl.ncclGetUniqueId(C.byref(i))
            ids[:] = list(C.string_at(C.byref(i), 128))
        barrier.wait(60)
        i = Id.from_buffer_copy(bytes(b & 255 for b in ids))
        c = C.c_void_p()
        r = nccl.ncclCommInitRank(C.byref(c), n, i, rank)
        say(name, r)
        return c

    Z = C.c_size_t
    f32, bf16, ADD = 7, 9, 0
    other = 1 - rank if n == 2 else (rank + 1) % n

    def run(c, tag):
        for size in (4, 1 << 20, 64 << 20):
            say(f"{tag}all_reduce {size} B", nccl.ncclAllReduce(d, e, Z(size // 4), f32, ADD, c, s))
        say(f"{tag}all_reduce bf16 64 MiB", nccl.ncclAllReduce(d, e, Z(32 << 20), bf16, ADD, c, s))
        for size in (4, 64 << 20):
            say(f"{tag}all_gather {size} B", nccl.ncclAllGather(d, e, Z(size // 4), f32, c, s))
        say(f"{tag}reduce_scatter", nccl.ncclReduceScatter(d, e, Z(8 << 20), f32, ADD, c, s))
        say(f"{tag}broadcast", nccl.ncclBroadcast(d, e, Z(8 << 20), f32, 0, c, s))
        nccl.ncclGroupStart()
        nccl.ncclSend(d, Z(4 << 20), f32, other, c, s)
        r = nccl.ncclRecv(e, Z(4 << 20), f32, other, c, s)
        say(f"{tag}send and recv", nccl.ncclGroupEnd() or r)

    a = comm("comm 1")
    run(a, "")
    b = comm("comm 2")
    run(b, "2: ")
    c = comm("comm 3")
    for name, x in (("3", c), ("2", b), ("1", a)):
        say(f"destroy {name}", nccl.ncclCommFinalize(x) or nccl.ncclCommDestroy(x))
    a = comm("comm after all were destroyed")
    say("destroy", nccl.ncclCommDestroy(a))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    n = int(os.environ.get("NRANKS", 2))
    ctx = mp.get_context("fork")
    b, ids = ctx.Barrier(n), ctx.Array("i", 128)
    ps = [ctx.Process(target=work, args=(r, n, b, ids)) for r in range(n)]
    [p.start() for p in ps]
    [p.join(40) for p in ps]
    [p.kill() for p in ps if p.is_alive()]
