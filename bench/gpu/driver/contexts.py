# SPDX-License-Identifier: MIT
"""What cuInit and a context take, by process: contexts.py >> JSON lines. Needs libcuda and NVML alone."""

import ctypes as C
import json
import os
import subprocess
import sys


def nvml_used():
    n = C.CDLL("libnvidia-ml.so.1")
    n.nvmlInit_v2()
    h = C.c_void_p()
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    f = (
        n.nvmlDeviceGetHandleByIndex_v2(int(first), C.byref(h))
        if first.isdigit()
        else n.nvmlDeviceGetHandleByUUID(first.encode(), C.byref(h))
    )
    m = (C.c_ulonglong * 3)()
    return None if f or n.nvmlDeviceGetMemoryInfo(h, m) else m[2]


def child():
    cuda = C.CDLL("libcuda.so.1")
    ctx = C.c_void_p()
    dev = C.c_int()
    for line in sys.stdin:
        what = line.strip()
        r = None
        if what == "init":
            r = cuda.cuInit(0)
        elif what == "context":
            cuda.cuDeviceGet(C.byref(dev), 0)
            r = cuda.cuDevicePrimaryCtxRetain(C.byref(ctx), dev)
            cuda.cuCtxSetCurrent(ctx)
        elif what == "streams":
            r = 0
            for _ in range(34):
                s = C.c_void_p()
                r = r or cuda.cuStreamCreate(C.byref(s), 1)
        elif what == "release":
            r = cuda.cuDevicePrimaryCtxRelease_v2(dev)
        elif what == "end":
            os._exit(0)
        f, t = C.c_size_t(), C.c_size_t()
        used = t.value - f.value if cuda.cuMemGetInfo_v2(C.byref(f), C.byref(t)) == 0 else None
        print(json.dumps([r, used]), flush=True)


if sys.argv[1:] == ["child"]:
    child()
    sys.exit(0)
before = nvml_used()
print(json.dumps({"part": "contexts", "act": "idle", "nvml": before}), flush=True)
names = {}


def act(who, what):
    global before
    if who not in names:
        names[who] = subprocess.Popen(
            [sys.executable, __file__, "child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    p = names[who]
    p.stdin.write(what + "\n")
    p.stdin.flush()
    said = p.stdout.readline()
    if what == "end":
        p.wait()
        names.pop(who)
    r, used = json.loads(said) if said else (None, None)
    now = nvml_used()
    print(
        json.dumps(
            {
                "part": "contexts",
                "act": f"{who} {what}",
                "result": r,
                "cuda_used": used,
                "nvml": now,
                "nvml_more": None if now is None else now - before,
            }
        ),
        flush=True,
    )
    before = now


for line in (
    "a init",
    "b init",
    "a context",
    "b context",
    "c init",
    "c context",
    "a streams",
    "b streams",
    "a end",
    "b end",
    "c end",
    "d init",
    "d context",
    "e init",
    "e context",
    "d end",
    "e release",
    "e context",
    "e end",
):
    act(*line.split())
