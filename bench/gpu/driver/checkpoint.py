# SPDX-License-Identifier: MIT
"""What the driver's process checkpoint answers and takes: a JSON line for each fact. Needs libcuda alone, version 12.8 or newer.

usage: checkpoint.py [CASE...]   a process each; without one: all of them
"""

import array
import ctypes as C
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

cuda = C.CDLL("libcuda.so.1")
P, U64, SZ = C.c_void_p, C.c_uint64, C.c_size_t
GIB = 1 << 30
CASES = {}
STEPS = ("Lock", "Checkpoint", "Restore", "Unlock")


class LockArgs(C.Structure):
    _fields_ = [("timeout_ms", C.c_uint), ("reserved0", C.c_uint), ("reserved1", U64 * 7)]


class Prop(C.Structure):
    _fields_ = [("type", C.c_int), ("handles", C.c_int), ("loc", C.c_int), ("id", C.c_int), ("win", P), ("flags", U64)]


class Access(C.Structure):
    _fields_ = [("loc", C.c_int), ("id", C.c_int), ("flags", C.c_int)]


def case(function):
    CASES[function.__name__] = function
    return function


def tell(**facts):
    print(json.dumps({"case": os.environ.get("CASE", "?"), **facts}), flush=True)


def context():
    assert cuda.cuInit(0) == 0
    made = P()
    assert cuda.cuDevicePrimaryCtxRetain(C.byref(made), 0) == 0
    assert cuda.cuCtxSetCurrent(made) == 0
    return made


def state(pid=None):
    value = C.c_int(-1)
    answer = cuda.cuCheckpointProcessGetState(pid or os.getpid(), C.byref(value))
    return value.value if answer == 0 else f"error {answer}"


def step(name, pid=None, args=None):
    begin = time.perf_counter()
    answer = getattr(cuda, "cuCheckpointProcess" + name)(pid or os.getpid(), args)
    return {"call": name, "answer": answer, "s": round(time.perf_counter() - begin, 4)}


class NvmlMemory(C.Structure):
    _fields_ = [("total", C.c_ulonglong), ("free", C.c_ulonglong), ("used", C.c_ulonglong)]


def used_mib():
    """Of the card, by NVML without what it keeps for itself."""
    nvml, card, memory = C.CDLL("libnvidia-ml.so.1"), P(), NvmlMemory()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(card)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(card, C.byref(memory)) == 0
    return memory.used >> 20


def alloc(size):
    at = U64()
    assert cuda.cuMemAlloc_v2(C.byref(at), SZ(size)) == 0
    return at.value


def word(at):
    value = U64()
    answer = cuda.cuMemcpyDtoH_v2(C.byref(value), U64(at), SZ(8))
    return hex(value.value) if answer == 0 else f"error {answer}"


def fill(at, size, value=7):
    assert cuda.cuMemsetD32_v2(U64(at), value, SZ(size // 4)) == 0
    assert cuda.cuCtxSynchronize() == 0


def created(size, exportable=True):
    properties, handle = Prop(1, 1 if exportable else 0, 1, 0, None, 0), U64()
    assert cuda.cuMemCreate(C.byref(handle), SZ(size), C.byref(properties), U64(0)) == 0
    return handle


def mapped(handle, size):
    at, access = U64(), Access(1, 0, 3)
    assert cuda.cuMemAddressReserve(C.byref(at), SZ(size), SZ(0), U64(0), U64(0)) == 0
    assert cuda.cuMemMap(at, SZ(size), SZ(0), handle, U64(0)) == 0
    assert cuda.cuMemSetAccess(at, SZ(size), C.byref(access), SZ(1)) == 0
    return at.value


def traces():
    """What of the driver shows in this process's maps and descriptors, counted."""
    found = {}
    for line in open("/proc/self/maps"):
        name = line.split(None, 5)[5].strip() if len(line.split(None, 5)) > 5 else ""
        if "nvidia" in name and "/dev" in name or "nvidia" in name and "lib" not in name or "memfd" in name or "/dev/shm" in name:
            key = "map " + re.sub(r"\d{3,}", "N", name)
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            count, size = found.get(key, (0, 0))
            found[key] = (count + 1, size + end - begin)
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        key = "fd " + re.sub(r"\d{3,}", "N", name)
        count, size = found.get(key, (0, 0))
        found[key] = (count + 1, size)
    return found


def changed(before, after):
    keys = sorted({*before, *after})
    return {k: [before.get(k, (0, 0)), after.get(k, (0, 0))] for k in keys if before.get(k) != after.get(k)}


@case
def orders():
    """Each call in each state."""
    context()
    tell(state=state(), step="running")
    for name in ("Checkpoint", "Restore", "Unlock"):
        tell(in_state="running", **step(name), state=state())
    tell(in_state="running", **step("Lock"), state=state())
    for name in ("Lock", "Restore"):
        tell(in_state="locked", **step(name), state=state())
    tell(in_state="locked", **step("Unlock"), state=state())
    tell(in_state="running", **step("Lock"), state=state())
    tell(in_state="locked", **step("Checkpoint"), state=state())
    for name in ("Lock", "Checkpoint", "Unlock"):
        tell(in_state="checkpointed", **step(name), state=state())
    tell(in_state="checkpointed", traces=sorted(traces().items()), mib=used_mib())
    tell(in_state="checkpointed", **step("Restore"), state=state())
    for name in ("Restore",):
        tell(in_state="restored", **step(name), state=state())
    tell(in_state="restored", **step("Unlock"), state=state())
    full = LockArgs(1000)
    full.reserved0 = 1
    tell(args="reserved is 1", **step("Lock", args=C.byref(full)), state=state())
    if state() == 1:
        tell(**step("Unlock"))
    for pid, what in ((1, "pid 1"), (999999, "no such process"), (os.getppid(), "a process without CUDA")):
        tell(of=what, **step("Lock", pid), state=state(pid))
    tell(get_state_of_nothing=cuda.cuCheckpointProcessGetState(os.getpid(), None))


MEANWHILE = {
    "cuDriverGetVersion": lambda: cuda.cuDriverGetVersion(C.byref(C.c_int())),
    "cuGetErrorName": lambda: cuda.cuGetErrorName(2, C.byref(C.c_char_p())),
    "cuInit": lambda: cuda.cuInit(0),
    "cuDeviceGetCount": lambda: cuda.cuDeviceGetCount(C.byref(C.c_int())),
    "cuDeviceGetAttribute": lambda: cuda.cuDeviceGetAttribute(C.byref(C.c_int()), 16, 0),
    "cuCtxGetCurrent": lambda: cuda.cuCtxGetCurrent(C.byref(P())),
    "cuCtxGetDevice": lambda: cuda.cuCtxGetDevice(C.byref(C.c_int())),
    "cuDevicePrimaryCtxGetState": lambda: cuda.cuDevicePrimaryCtxGetState(0, C.byref(C.c_uint()), C.byref(C.c_int())),
    "cuMemGetInfo": lambda: cuda.cuMemGetInfo_v2(C.byref(SZ()), C.byref(SZ())),
    "cuMemAlloc": lambda: cuda.cuMemAlloc_v2(C.byref(U64()), SZ(1 << 21)),
    "cuMemAddressReserve": lambda: cuda.cuMemAddressReserve(C.byref(U64()), SZ(1 << 21), SZ(0), U64(0), U64(0)),
    "cuMemHostAlloc": lambda: cuda.cuMemHostAlloc(C.byref(P()), SZ(1 << 21), 0),
    "cuCtxSynchronize": lambda: cuda.cuCtxSynchronize(),
    "cuStreamQuery": lambda: cuda.cuStreamQuery(None),
    "cuStreamIsCapturing": lambda: cuda.cuStreamIsCapturing(None, C.byref(C.c_int())),
    "cuEventCreate": lambda: cuda.cuEventCreate(C.byref(P()), 0),
    "cuPointerGetAttribute": lambda: cuda.cuPointerGetAttribute(C.byref(C.c_int()), 2, U64(4096)),
    "cuGetProcAddress": lambda: cuda.cuGetProcAddress_v2(b"cuMemAlloc", C.byref(P()), 12000, U64(0), None),
    "cuThreadExchangeStreamCaptureMode": lambda: cuda.cuThreadExchangeStreamCaptureMode(C.byref(C.c_int(1))),
    "cuCheckpointProcessGetState": lambda: cuda.cuCheckpointProcessGetState(os.getpid(), C.byref(C.c_int())),
}


@case
def meanwhile():
    """What other threads' calls do while the process is locked, and while it is off the card."""
    current = context()
    for asleep in (False, True):
        answers, threads, ready = {}, {}, threading.Event()

        def go(name, call, inside):
            if inside:
                cuda.cuCtxSetCurrent(current)
                ready.wait()
            answers[name] = call()

        for name, call in MEANWHILE.items():
            name += ", with a context"
            threads[name] = threading.Thread(target=go, args=(name, call, True), daemon=True)
            threads[name].start()
        time.sleep(0.2)
        tell(**step("Lock"))
        if asleep:
            tell(**step("Checkpoint"))

        for name, call in MEANWHILE.items():
            threads[name] = threading.Thread(target=go, args=(name, call, False), daemon=True)
            threads[name].start()
        ready.set()
        time.sleep(1.0)
        tell(asleep=asleep, answered=dict(sorted(answers.items())), waits=sorted(set(threads) - set(answers)))
        seen = dict(answers)
        if asleep:
            tell(**step("Restore"))
        tell(**step("Unlock"))
        for thread in threads.values():
            thread.join(3)
        tell(asleep=asleep, afterwards={k: v for k, v in sorted(answers.items()) if k not in seen})


def watch_alone(name, call):
    """A child that makes one call with a context while it is off the card: it answers, waits or dies."""
    child = os.fork()
    if child == 0:
        current = context()
        for each in STEPS[:2]:
            step(each)
        answers = []

        def go():
            cuda.cuCtxSetCurrent(current)
            answers.append(call())

        threading.Thread(target=go, daemon=True).start()
        time.sleep(0.5)
        os._exit(100 if answers and answers[0] else 0 if answers else 99)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    tell(call=name, asleep={0: "answers 0", 99: "waits", 100: "answers an error"}.get(code, f"ends the process: {code}"))


@case
def one_by_one():
    """What single calls do, with a context, while the process is off the card."""
    for name in ("cuMemGetInfo", "cuMemAlloc", "cuCtxSynchronize", "cuStreamQuery", "cuStreamIsCapturing", "cuEventCreate", "cuMemHostAlloc",
                 "cuPointerGetAttribute", "cuMemAddressReserve"):
        watch_alone(name, MEANWHILE[name])


@case
def busy():
    """A lock with a time limit while the card works: a callback on a stream holds it for 3 s."""
    context()
    function = C.CFUNCTYPE(None, P)(lambda _: time.sleep(3))
    stream = P()
    assert cuda.cuStreamCreate(C.byref(stream), 1) == 0
    assert cuda.cuLaunchHostFunc(stream, function, None) == 0
    tell(timeout_ms=500, **step("Lock", args=C.byref(LockArgs(500))), state=state())
    if state() == 1:
        tell(**step("Checkpoint"), state=state())
        if state() == 2:
            tell(**step("Restore"), state=state())
        tell(**step("Unlock"), state=state())
    assert cuda.cuStreamSynchronize(stream) == 0
    assert cuda.cuLaunchHostFunc(stream, function, None) == 0
    tell(timeout_ms=0, **step("Lock"), state=state())
    tell(**step("Unlock"), state=state())
    # A thread that waits inside the driver.
    assert cuda.cuLaunchHostFunc(stream, function, None) == 0
    waiter = threading.Thread(target=lambda: cuda.cuStreamSynchronize(stream))
    waiter.start()
    time.sleep(0.2)
    tell(timeout_ms=500, waiter=True, **step("Lock", args=C.byref(LockArgs(500))), state=state())
    if state() == 1:
        tell(**step("Unlock"))
    waiter.join()


@case
def full():
    """A restore where others have taken the card meanwhile, and once more when they have given it back."""
    context()
    at = alloc(4 * GIB)
    fill(at, 4 * GIB)
    tell(**step("Lock"))
    tell(**step("Checkpoint"))
    other = subprocess.Popen([sys.executable, __file__, "--take"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    tell(other=other.stdout.readline().strip(), mib=used_mib())
    tell(**step("Restore"), state=state())
    tell(again=True, **step("Restore"), state=state())
    other.stdin.close()
    other.wait()
    tell(free=True, **step("Restore"), state=state())
    tell(**step("Unlock"), state=state())
    if state() == 0:
        tell(reads=word(at))
    os._exit(0)  # a process that is lost would wait for its next call


def take():
    context()
    free, total = SZ(), SZ()
    cuda.cuMemGetInfo_v2(C.byref(free), C.byref(total))
    at = U64()
    answer = cuda.cuMemAlloc_v2(C.byref(at), SZ(free.value - GIB))
    print("took", (free.value - GIB) >> 20, "MiB:", answer, flush=True)
    sys.stdin.read()


@case
def seconds():
    """Of each call, by what is left on the card and in pinned host memory."""
    context()
    pinned = []
    for device_gib, host_gib in ((0, 0), (0, 0), (1, 0), (2, 0), (4, 0), (8, 0), (0, 8)):
        at = alloc(device_gib * GIB) if device_gib else 0
        if at:
            fill(at, device_gib * GIB)
        if host_gib:
            host = P()
            begin = time.perf_counter()
            answer = cuda.cuMemHostAlloc(C.byref(host), SZ(host_gib * GIB), 0)
            tell(host_alloc=answer, s=round(time.perf_counter() - begin, 3))
            pinned.append(host)
        rows = [step(name) for name in STEPS]
        tell(device_gib=device_gib, host_gib=host_gib, answers=[r["answer"] for r in rows], **{r["call"]: r["s"] for r in rows})
        if at:
            assert word(at) == "0x700000007"
            assert cuda.cuMemFree_v2(U64(at)) == 0
    for many in (64, 1024):
        handles = [created(2 << 20, False) for _ in range(many)]
        rows = [step(name) for name in STEPS]
        tell(blocks_of_2_mib=many, **{r["call"]: r["s"] for r in rows})
        for handle in handles:
            assert cuda.cuMemRelease(handle) == 0
    ranges = []
    for _ in range(64):
        range_at = U64()
        assert cuda.cuMemAddressReserve(C.byref(range_at), SZ(GIB), SZ(0), U64(0), U64(0)) == 0
        ranges.append(range_at)
    rows = [step(name) for name in STEPS]
    tell(reserved_gib=64, **{r["call"]: r["s"] for r in rows})


def share(kind, sleeper):
    """A pair of processes that share; traces of it in the importer; and the sleep of one of them."""
    context()
    a, b = socket.socketpair()
    size = GIB // 2
    other = subprocess.Popen([sys.executable, __file__, "--other", kind, str(b.fileno()), sleeper], pass_fds=[b.fileno()])
    if kind == "ipc":
        at, handle = alloc(size), (C.c_byte * 64)()
        assert cuda.cuIpcGetMemHandle(C.byref(handle), U64(at)) == 0
        before = traces()
        a.send(bytes(handle))
    elif kind == "event":
        event, handle = P(), (C.c_byte * 64)()
        assert cuda.cuEventCreate(C.byref(event), 2 | 4) == 0
        before = traces()
        tell(handle_answer=cuda.cuIpcGetEventHandle(C.byref(handle), event))
        a.send(bytes(handle))
    else:
        handle, fd = created(size), C.c_int()
        before = traces()
        assert cuda.cuMemExportToShareableHandle(C.byref(fd), handle, 1, U64(0)) == 0
        at = mapped(handle, size)
        a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd.value]))])
        os.close(fd.value)
    a.recv(4)
    tell(kind=kind, exporter_traces=changed(before, traces()))
    if sleeper == "exporter":
        for name in STEPS:
            tell(who="exporter", **step(name), state=state(), mib=used_mib())
    a.send(b"x")
    a.settimeout(30)
    try:
        a.recv(4)
    except OSError as error:
        tell(other=str(error))
    a.send(b"x")
    try:
        tell(other_exit=other.wait(20))
    except subprocess.TimeoutExpired:
        other.kill()
        tell(other_exit="hung, killed")


def other_side(kind, number, sleeper):
    s = socket.socket(fileno=int(number))
    context()
    size = GIB // 2
    alloc(1 << 21)
    before = traces()
    if kind == "ipc":
        class Handle(C.Structure):
            _fields_ = [("bytes", C.c_byte * 64)]
        at = U64()
        handle = Handle.from_buffer_copy(s.recv(64))
        tell(opened=cuda.cuIpcOpenMemHandle_v2(C.byref(at), handle, 1))
    elif kind == "event":
        class Handle(C.Structure):
            _fields_ = [("bytes", C.c_byte * 64)]
        event = P()
        handle = Handle.from_buffer_copy(s.recv(64))
        tell(opened=cuda.cuIpcOpenEventHandle(C.byref(event), handle))
    else:
        _, sent, *_ = s.recvmsg(8, 1024)
        fd, handle = array.array("i", sent[0][2])[0], U64()
        tell(imported=cuda.cuMemImportFromShareableHandle(C.byref(handle), P(fd), 1))
        before_close = traces()
        os.close(fd)
        tell(kind=kind, imported_fd_closed=changed(before_close, traces()))
        at = mapped(handle, size).__int__()
        at = U64(at)
    tell(kind=kind, importer_traces=changed(before, traces()))
    s.send(b"open")
    s.recv(1)
    if sleeper == "importer":
        for name in STEPS:
            tell(who="importer", **step(name), state=state())
        if state() != 0:
            s.send(b"lost")
            s.recv(1)
            os._exit(3)
    if kind == "ipc":
        tell(closed=cuda.cuIpcCloseMemHandle(at))
    elif kind == "fd":
        cuda.cuMemUnmap(at, SZ(size))
        cuda.cuMemRelease(handle)
    tell(kind=kind, importer_closed_traces=changed(before, traces()))
    for name in STEPS if sleeper == "importer" else ():
        tell(who="importer, closed", **step(name), state=state())
    s.send(b"shut")
    s.recv(1)


for _kind in ("ipc", "fd", "event"):
    for _sleeper in ("exporter", "importer", "nobody"):
        CASES[f"{_kind}_{_sleeper}"] = lambda kind=_kind, sleeper=_sleeper: share(kind, sleeper)


@case
def managed():
    context()
    at = U64()
    assert cuda.cuMemAllocManaged(C.byref(at), SZ(1 << 24), 1) == 0
    tell(**step("Lock"), state=state())
    tell(**step("Checkpoint"), state=state())
    tell(**step("Unlock"), state=state())
    tell(traces=sorted(traces().items()))
    assert cuda.cuMemFree_v2(at) == 0
    rows = [step(name) for name in STEPS]
    tell(freed=True, answers=[r["answer"] for r in rows])


@case
def contexts():
    """Two contexts, a stream-ordered pool, an event and a graph with memory nodes."""
    context()
    second = P()
    assert cuda.cuCtxCreate_v2(C.byref(second), 0, 0) == 0
    stream, at = P(), U64()
    assert cuda.cuStreamCreate(C.byref(stream), 1) == 0
    assert cuda.cuMemAllocAsync(C.byref(at), SZ(1 << 25), stream) == 0
    assert cuda.cuStreamSynchronize(stream) == 0
    rows = [step(name) for name in STEPS]
    tell(answers=[r["answer"] for r in rows], s=[r["s"] for r in rows], mib=used_mib())


@case
def graph_memory():
    """A graph with nodes that allocate and free."""
    context()
    stream, graph, launchable, at = P(), P(), P(), U64()
    assert cuda.cuStreamCreate(C.byref(stream), 1) == 0
    assert cuda.cuStreamBeginCapture_v2(stream, 2) == 0
    assert cuda.cuMemAllocAsync(C.byref(at), SZ(1 << 25), stream) == 0
    assert cuda.cuMemsetD32Async(at, 5, SZ(1 << 20), stream) == 0
    assert cuda.cuMemFreeAsync(at, stream) == 0
    assert cuda.cuStreamEndCapture(stream, C.byref(graph)) == 0
    assert cuda.cuGraphInstantiateWithFlags(C.byref(launchable), graph, U64(0)) == 0
    for _ in range(2):
        assert cuda.cuGraphLaunch(launchable, stream) == 0
    assert cuda.cuStreamSynchronize(stream) == 0
    rows = [step(name) for name in STEPS]
    tell(answers=[r["answer"] for r in rows], s=[r["s"] for r in rows], state=state())
    if state() == 0:
        tell(launch=cuda.cuGraphLaunch(launchable, stream), wait=cuda.cuStreamSynchronize(stream))


@case
def forked():
    """A sleeping process that ends, and one that is killed at each step, leave the card empty."""
    for last in STEPS[:3]:
        child = os.fork()
        if child == 0:
            context()
            alloc(GIB)
            for name in STEPS:
                step(name)
                if name == last:
                    os.kill(os.getpid(), 9)
        os.waitpid(child, 0)
        time.sleep(0.3)
        tell(killed_after=last, mib=used_mib())
    child = os.fork()
    if child == 0:
        context()
        alloc(GIB)
        step("Lock")
        step("Checkpoint")
        begin = time.perf_counter()
        sys.exit(0)
    begin = time.perf_counter()
    for _ in range(100):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        status = "hung, killed"
    tell(exits_asleep=str(status), s=round(time.perf_counter() - begin, 2), mib=used_mib())


# ---- What else a process may have ----


def across(check, **facts):
    """The four calls, and what check() says of the thing afterwards."""
    rows = [step(name) for name in STEPS]
    tell(answers=[r["answer"] for r in rows], s=[r["s"] for r in rows], state=state(), **facts)
    if state() == 0:
        tell(afterwards=check())


@case
def profiler():
    """CUPTI records kernels and copies, as PyTorch's profiler has it do."""
    places = ("/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*", "/usr/local/cuda*/lib64/libcupti.so*", *(
        f"{each}/nvidia/*/lib/libcupti.so*" for each in sys.path))
    found = [each for place in places for each in sorted(glob.glob(place))]
    if not found:
        return tell(cupti="not found")
    cupti = C.CDLL(found[0])
    records = {"buffers": 0, "bytes": 0}
    kept = []

    def requested(buffer, size, most):
        kept.append(C.create_string_buffer((1 << 20) + 8))
        buffer[0], size[0], most[0] = (C.addressof(kept[-1]) + 7) // 8 * 8, 1 << 20, 0

    def completed(_context, _stream, _buffer, _size, valid):
        records["buffers"] += 1
        records["bytes"] += valid

    ask = C.CFUNCTYPE(None, C.POINTER(U64), C.POINTER(SZ), C.POINTER(SZ))(requested)
    done = C.CFUNCTYPE(None, P, C.c_uint32, P, SZ, SZ)(completed)
    callbacks = cupti.cuptiActivityRegisterCallbacks(ask, done)
    kinds = [cupti.cuptiActivityEnable(kind) for kind in (10, 1, 2)]  # kernels, copies, memsets
    context()
    at = alloc(1 << 24)
    fill(at, 1 << 24)

    def again():
        before = dict(records)
        fill(at, 1 << 24, 9)
        return {"reads": word(at), "flush": cupti.cuptiActivityFlushAll(1), "before": before, "records": records}

    across(again, library=found[0], callbacks=callbacks, enabled=kinds, mib=used_mib())


@case
def mps():
    """A client of NVIDIA's multi-process service, where that is installed."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return tell(mps="nvidia-cuda-mps-control is not installed")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        tell(started=subprocess.run([control, "-d"], env=environment, timeout=20).returncode)
        try:
            done = subprocess.run([sys.executable, __file__, "--steps"], env=environment, timeout=40).returncode
        except subprocess.TimeoutExpired:
            done = "hung, killed"
        tell(client=done)
        subprocess.run([control], input="quit\n", text=True, env=environment, timeout=20)


def plain_steps():
    context()
    at = alloc(1 << 24)
    fill(at, 1 << 24)
    across(lambda: word(at))


@case
def peer():
    """Access from one device to another."""
    count = C.c_int()
    context()
    assert cuda.cuDeviceGetCount(C.byref(count)) == 0
    if count.value < 2:
        return tell(devices=count.value)
    at, other, there = alloc(1 << 24), P(), U64()
    fill(at, 1 << 24)
    mine = P()
    assert cuda.cuCtxGetCurrent(C.byref(mine)) == 0
    assert cuda.cuDevicePrimaryCtxRetain(C.byref(other), 1) == 0
    enabled = cuda.cuCtxEnablePeerAccess(other, 0)
    assert cuda.cuCtxSetCurrent(other) == 0
    back = cuda.cuCtxEnablePeerAccess(mine, 0)
    there.value = alloc(1 << 24)

    def again():
        copied = cuda.cuMemcpyDtoD_v2(there, U64(at), SZ(1 << 24))
        return {"copied": copied, "reads": word(there.value), "enabled_again": cuda.cuCtxEnablePeerAccess(mine, 0)}

    across(again, enabled=[enabled, back])


class PoolProps(C.Structure):
    _fields_ = [("type", C.c_int), ("handles", C.c_int), ("loc", C.c_int), ("id", C.c_int), ("win", P), ("most", SZ), ("rest", C.c_byte * 56)]


class Pointer(C.Structure):  # CUmemPoolPtrExportData
    _fields_ = [("bytes", C.c_byte * 64)]


def exported_pool():
    """A stream-ordered pool that others may open, a block of it, and what they need for that."""
    pool, stream, at, fd, pointer = P(), P(), U64(), C.c_int(), Pointer()
    properties = PoolProps(1, 1, 1, 0)
    assert cuda.cuMemPoolCreate(C.byref(pool), C.byref(properties)) == 0
    assert cuda.cuStreamCreate(C.byref(stream), 1) == 0
    assert cuda.cuMemAllocFromPoolAsync(C.byref(at), SZ(1 << 24), pool, stream) == 0
    assert cuda.cuStreamSynchronize(stream) == 0
    fill(at.value, 1 << 24)
    assert cuda.cuMemPoolExportToShareableHandle(C.byref(fd), pool, 1, U64(0)) == 0
    assert cuda.cuMemPoolExportPointer(C.byref(pointer), at) == 0
    return at.value, fd.value, pointer


@case
def pool_nobody():
    """A pool that could be open elsewhere, and is not."""
    context()
    at, fd, _ = exported_pool()
    os.close(fd)
    across(lambda: word(at))


def pool_shared(sleeper):
    """A pool of this process is open in another, and one of the two sleeps."""
    context()
    at, fd, pointer = exported_pool()
    a, b = socket.socketpair()
    other = subprocess.Popen([sys.executable, __file__, "--pool", str(b.fileno()), sleeper], pass_fds=[b.fileno()])
    a.sendmsg([bytes(pointer)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    a.settimeout(40)
    a.recv(8)
    if sleeper == "exporter":
        across(lambda: word(at), who="exporter")
        if state() == 0:
            fill(at, 1 << 24, 9)
    a.send(b"go")
    try:
        tell(other_exit=other.wait(40))
    except subprocess.TimeoutExpired:
        other.kill()
        tell(other_exit="hung, killed")


def pool_importer(number, sleeper):
    s = socket.socket(fileno=int(number))
    context()
    data, sent, *_ = s.recvmsg(64, 1024)
    pool, at, pointer = P(), U64(), Pointer.from_buffer_copy(data)
    before = traces()
    opened = cuda.cuMemPoolImportFromShareableHandle(C.byref(pool), P(array.array("i", sent[0][2])[0]), 1, U64(0))
    pointed = cuda.cuMemPoolImportPointer(C.byref(at), pool, C.byref(pointer))
    tell(opened=opened, pointed=pointed, reads=word(at.value), traces=changed(before, traces()))
    s.send(b"open")
    s.recv(8)
    if sleeper == "importer":
        across(lambda: word(at.value), who="importer")
        os._exit(0 if state() == 0 else 3)  # one that is lost would wait for its next call
    tell(other_wrote=word(at.value))


for _sleeper in ("exporter", "importer"):
    CASES[f"pool_{_sleeper}"] = lambda sleeper=_sleeper: pool_shared(sleeper)


@case
def mapped_host():
    """Host memory that kernels write to."""
    context()
    host, at = P(), U64()
    assert cuda.cuMemHostAlloc(C.byref(host), SZ(1 << 24), 2) == 0  # DEVICEMAP
    assert cuda.cuMemHostGetDevicePointer_v2(C.byref(at), host, 0) == 0
    fill(at.value, 1 << 24)

    def again():
        kept = C.c_uint64.from_address(host.value).value
        fill(at.value, 1 << 24, 9)
        return {"kept": hex(kept), "written": hex(C.c_uint64.from_address(host.value).value)}

    across(again)


class ArrayOf(C.Structure):
    _fields_ = [("width", SZ), ("height", SZ), ("format", C.c_int), ("channels", C.c_uint)]


@case
def arrays():
    """An array of CUDA's, and limits of the context that take memory."""
    context()
    array_at, content, back = P(), (C.c_uint32 * 1024)(*range(1024)), (C.c_uint32 * 1024)()
    limits = [cuda.cuCtxSetLimit(limit, SZ(size)) for limit, size in ((0, 4096), (1, 8 << 20), (2, 64 << 20))]
    assert cuda.cuArrayCreate_v2(C.byref(array_at), C.byref(ArrayOf(1024, 0, 3, 1))) == 0
    assert cuda.cuMemcpyHtoA_v2(array_at, SZ(0), C.byref(content), SZ(4096)) == 0

    def again():
        answer = cuda.cuMemcpyAtoH_v2(C.byref(back), array_at, SZ(0), SZ(4096))
        kept = [SZ() for _ in range(3)]
        for number, each in enumerate(kept):
            cuda.cuCtxGetLimit(C.byref(each), number)
        return {"answer": answer, "same": list(back) == list(content), "limits": [each.value for each in kept]}

    across(again, limits=limits)


@case
def green():
    """A context with a part of the multiprocessors."""
    context()
    resource, description, made, stream, at = C.create_string_buffer(1024), P(), P(), P(), alloc(1 << 24)
    answers = [
        cuda.cuDeviceGetDevResource(0, resource, 1),
        cuda.cuDevResourceGenerateDesc(C.byref(description), resource, 1),
        cuda.cuGreenCtxCreate(C.byref(made), description, 0, 1),
        cuda.cuGreenCtxStreamCreate(C.byref(stream), made, 1, 0),
    ]

    def again():
        return [cuda.cuMemsetD32Async(U64(at), 5, SZ(1 << 22), stream), cuda.cuStreamSynchronize(stream), word(at)]

    across(again, made=answers)



def main(names):
    if names[:1] == ["--take"]:
        return take()
    if names[:1] == ["--other"]:
        return other_side(*names[1:])
    if names[:1] == ["--pool"]:
        return pool_importer(*names[1:])
    if names[:1] == ["--steps"]:
        return plain_steps()
    if len(names) == 1 and "CASE" in os.environ:
        return CASES[names[0]]()
    version = C.c_int()
    cuda.cuDriverGetVersion(C.byref(version))
    print(json.dumps({"driver": version.value}), flush=True)
    for name in names or CASES:
        begin = time.perf_counter()
        try:
            done = subprocess.run([sys.executable, __file__, name], env={**os.environ, "CASE": name}, timeout=90).returncode
        except subprocess.TimeoutExpired:
            done = "hung, killed"
        print(json.dumps({"case": name, "exit": done, "s": round(time.perf_counter() - begin, 1)}), flush=True)


main(sys.argv[1:])
