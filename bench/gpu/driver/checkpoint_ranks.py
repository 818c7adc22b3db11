# SPDX-License-Identifier: MIT
"""Processes on several cards that are connected, and the driver's process checkpoint: what comes back, in which order.

usage: checkpoint_ranks.py [--ranks N] [--seconds S] [--nccl LIBRARY] [--out FILE] [CASE...]

A case is a list of steps for rank processes of its own, one on each card: all of them at once, or one of them. The parent
has no CUDA. It gives each step a time limit and kills what does not answer, so a process that is lost costs no more than that.
Prints a JSON line for each step, and one for the case: "back" says whether all that was asked of it afterwards was right.
Cases stand in the order of their value. None begins when S seconds are over.
"""

import argparse
import ctypes as C
import json
import os
import re
import select
import socket
import subprocess
import sys
import time

MIB = 1 << 20
SIZE = (2 if "REVEILLE_MACHINE" in os.environ else 64) * MIB  # simulated GPUs keep contents slowly
P, U64, SZ = C.c_void_p, C.c_uint64, C.c_size_t
FLOAT32, SUM = 7, 0
STEP_S = 10.0  # a step that takes longer has hung
CALLS = ("Lock", "Checkpoint", "Restore", "Unlock")

# ---- A rank ----


class Prop(C.Structure):
    _fields_ = [("type", C.c_int), ("handles", C.c_int), ("loc", C.c_int), ("id", C.c_int), ("win", P), ("flags", U64)]


class Access(C.Structure):
    _fields_ = [("loc", C.c_int), ("id", C.c_int), ("flags", C.c_int)]


class Handle(C.Structure):
    _fields_ = [("bytes", C.c_byte * 64)]


class UniqueId(C.Structure):
    _fields_ = [("bytes", C.c_char * 128)]


def need(answer, what):
    if answer != 0:
        raise RuntimeError(f"{what} answers {answer}")


class Rank:
    """What one process has. Its methods are the steps; what they return is said to the parent."""

    def __init__(self, number, ranks, link):
        self.number, self.ranks, self.link = number, ranks, link
        self.cuda = C.CDLL("libcuda.so.1")
        self.comms, self.nccl, self.buffer, self.executable = [], None, None, None
        self.kept = []

    # Contexts and memory

    def context(self, device=None):
        device = self.number if device is None else device
        made = P()
        need(self.cuda.cuInit(0), "cuInit")
        need(self.cuda.cuDevicePrimaryCtxRetain(C.byref(made), device), "cuDevicePrimaryCtxRetain")
        need(self.cuda.cuCtxSetCurrent(made), "cuCtxSetCurrent")
        self.device, self.stream = device, P()
        need(self.cuda.cuStreamCreate(C.byref(self.stream), 1), "cuStreamCreate")
        self.buffer = self._alloc()
        return made.value

    def _alloc(self, size=SIZE):
        at = U64()
        need(self.cuda.cuMemAlloc_v2(C.byref(at), SZ(size)), "cuMemAlloc")
        return at.value

    def fill(self, value, at=None):
        need(self.cuda.cuMemsetD32_v2(U64(at or self.buffer), value, SZ(SIZE // 4)), "cuMemsetD32")
        need(self.cuda.cuCtxSynchronize(), "cuCtxSynchronize")

    def renew(self):
        """The buffer is freed, and another one made."""
        need(self.cuda.cuMemFree_v2(U64(self.buffer)), "cuMemFree")
        self.buffer = self._alloc()

    def word(self, at=None):
        value = C.c_uint32()
        need(self.cuda.cuMemcpyDtoH_v2(C.byref(value), U64((at or self.buffer) + SIZE // 2), SZ(4)), "cuMemcpyDtoH")
        return value.value

    def is_word(self, value, at=None):
        """Whether memory still has, or shows, what it should."""
        found = self.word(at)
        if found != value:
            raise RuntimeError(f"reads {found:#x}, not {value:#x}")

    def pid(self):
        return os.getpid()

    # The driver's checkpoint

    def call(self, name, pid=None):
        begin = time.perf_counter()
        answer = getattr(self.cuda, "cuCheckpointProcess" + name)(pid or os.getpid(), None)
        return {"answer": answer, "s": round(time.perf_counter() - begin, 4)}

    def state(self):
        value = C.c_int(-1)
        answer = self.cuda.cuCheckpointProcessGetState(os.getpid(), C.byref(value))
        return value.value if answer == 0 else f"error {answer}"

    def traces(self):
        """What of the driver and of shared memory shows in this process's maps and descriptors: counts and bytes."""
        found = {}
        for line in open("/proc/self/maps"):
            words = line.split(None, 5)
            name = words[5].strip() if len(words) > 5 else ""
            if name.startswith(("/dev", "/memfd", "anon_inode")):
                begin, end = (int(x, 16) for x in words[0].split("-"))
                key = "map " + re.sub(r"[0-9A-Za-z]{6,}|\d{3,}", "N", name)
                count, size = found.get(key, (0, 0))
                found[key] = (count + 1, size + end - begin)
        for number in os.listdir("/proc/self/fd"):
            try:
                name = os.readlink(f"/proc/self/fd/{number}")
            except OSError:
                continue
            if name.startswith(("/dev", "/memfd", "anon_inode", "socket")):
                key = "fd " + re.sub(r"\d{3,}", "N", name)
                found[key] = (found.get(key, (0, 0))[0] + 1, 0)
        return found

    def shared_host_memory(self):
        """Bytes of mappings that the driver has here, by the properties of their allocation: what reveille.sleep() looks at."""
        found = {}
        for line in open("/proc/self/maps"):
            words = line.split(None, 5)
            if len(words) < 6 or not words[5].startswith("/dev/nvidia"):
                continue
            begin, end = (int(x, 16) for x in words[0].split("-"))
            handle, properties = U64(), Prop()
            answer = self.cuda.cuMemRetainAllocationHandle(C.byref(handle), P(begin))
            if answer == 0:
                need(self.cuda.cuMemGetAllocationPropertiesFromHandle(C.byref(properties), handle), "cuMemGetAllocationPropertiesFromHandle")
                need(self.cuda.cuMemRelease(handle), "cuMemRelease")
            key = f"{words[5].strip()}: handle types {properties.handles}, location {properties.loc}" if answer == 0 else f"answers {answer}"
            count, size = found.get(key, (0, 0))
            found[key] = (count + 1, size + end - begin)
        return found

    # NCCL

    def load(self, library):
        self.nccl = C.CDLL(library, mode=C.RTLD_GLOBAL)
        self.nccl.ncclGetErrorString.restype = C.c_char_p
        version = C.c_int()
        self._nccl("ncclGetVersion", C.byref(version))
        return version.value

    def _nccl(self, name, *arguments):
        answer = getattr(self.nccl, name)(*arguments)
        if answer != 0:
            raise RuntimeError(f"{name} answers {answer}: {self.nccl.ncclGetErrorString(answer).decode()}")

    def unique(self):
        unique = UniqueId()
        self._nccl("ncclGetUniqueId", C.byref(unique))
        return bytes(unique).hex()

    def make(self, unique):
        comm = P()
        make = self.nccl.ncclCommInitRank
        make.argtypes = [P, C.c_int, UniqueId, C.c_int]
        given = UniqueId.from_buffer_copy(bytes.fromhex(unique))
        self._nccl("ncclCommInitRank", C.byref(comm), self.ranks, given, self.number)
        self.comms.append(comm)

    def _reduce(self, comm):
        count = SZ(SIZE // 4)
        self._nccl("ncclAllReduce", P(self.buffer), P(self.buffer), count, FLOAT32, SUM, comm, self.stream)

    def _check_sum(self):
        """Ranks bring 1, 2, ... as floats."""
        need(self.cuda.cuStreamSynchronize(self.stream), "cuStreamSynchronize")
        found = C.c_float.from_buffer_copy(C.c_uint32(self.word())).value
        expected = self.ranks * (self.ranks + 1) / 2
        if found != expected and "REVEILLE_MACHINE" not in os.environ:
            raise RuntimeError(f"the sum is {found}, not {expected}")
        return found

    def _bring(self):
        self.fill(C.c_uint32.from_buffer_copy(C.c_float(self.number + 1)).value)

    def reduce(self, number=0):
        self._bring()
        self._reduce(self.comms[number])
        return self._check_sum()

    def send(self, number=0):
        """To the next rank, from the one before: connections that no collective makes."""
        comm, count = self.comms[number], SZ(SIZE // 8)
        self._nccl("ncclGroupStart")
        half = self.buffer + SIZE // 2
        self._nccl("ncclSend", P(self.buffer), count, FLOAT32, (self.number + 1) % self.ranks, comm, self.stream)
        self._nccl("ncclRecv", P(half), count, FLOAT32, (self.number - 1) % self.ranks, comm, self.stream)
        self._nccl("ncclGroupEnd")
        need(self.cuda.cuStreamSynchronize(self.stream), "cuStreamSynchronize")

    def capture(self):
        graph, self.executable = P(), P()
        need(self.cuda.cuStreamBeginCapture_v2(self.stream, 2), "cuStreamBeginCapture")
        self._reduce(self.comms[0])
        need(self.cuda.cuStreamEndCapture(self.stream, C.byref(graph)), "cuStreamEndCapture")
        need(self.cuda.cuGraphInstantiateWithFlags(C.byref(self.executable), graph, U64(0)), "cuGraphInstantiate")

    def replay(self):
        self._bring()
        need(self.cuda.cuGraphLaunch(self.executable, self.stream), "cuGraphLaunch")
        return self._check_sum()

    def suspend(self):
        for comm in self.comms:
            self._nccl("ncclCommSuspend", comm, 1)

    def resume(self):
        for comm in self.comms:
            self._nccl("ncclCommResume", comm)

    def destroy(self):
        for comm in self.comms:
            self._nccl("ncclCommFinalize", comm)
            self._nccl("ncclCommDestroy", comm)
        self.comms = []

    def abort(self):
        for comm in self.comms:
            self._nccl("ncclCommAbort", comm)
        self.comms = []

    def used(self):
        free, total = SZ(), SZ()
        need(self.cuda.cuMemGetInfo_v2(C.byref(free), C.byref(total)), "cuMemGetInfo")
        return (total.value - free.value) // MIB

    # Memory of another process

    def ipc_give(self):
        handle = Handle()
        need(self.cuda.cuIpcGetMemHandle(C.byref(handle), U64(self.buffer)), "cuIpcGetMemHandle")
        return bytes(handle).hex()

    def ipc_open(self, handle):
        at = U64()
        given = Handle.from_buffer_copy(bytes.fromhex(handle))
        need(self.cuda.cuIpcOpenMemHandle_v2(C.byref(at), given, 1), "cuIpcOpenMemHandle")
        self.theirs = at.value

    def ipc_close(self):
        need(self.cuda.cuIpcCloseMemHandle(U64(self.theirs)), "cuIpcCloseMemHandle")

    def theirs_is(self, value):
        self.is_word(value, self.theirs)

    def event_give(self):
        event, handle = P(), Handle()
        need(self.cuda.cuEventCreate(C.byref(event), 2 | 4), "cuEventCreate")
        need(self.cuda.cuIpcGetEventHandle(C.byref(handle), event), "cuIpcGetEventHandle")
        return bytes(handle).hex()

    def event_open(self, handle):
        event = P()
        given = Handle.from_buffer_copy(bytes.fromhex(handle))
        need(self.cuda.cuIpcOpenEventHandle(C.byref(event), given), "cuIpcOpenEventHandle")
        self.kept.append(event)

    def _map(self, handle, devices):
        at, access = U64(), (Access * len(devices))(*(Access(1, d, 3) for d in devices))
        need(self.cuda.cuMemAddressReserve(C.byref(at), SZ(SIZE), SZ(0), U64(0), U64(0)), "cuMemAddressReserve")
        need(self.cuda.cuMemMap(at, SZ(SIZE), SZ(0), handle, U64(0)), "cuMemMap")
        need(self.cuda.cuMemSetAccess(at, SZ(SIZE), access, SZ(len(devices))), "cuMemSetAccess")
        return at.value

    def _create(self, exportable):
        properties, handle = Prop(1, 1 if exportable else 0, 1, self.device, None, 0), U64()
        need(self.cuda.cuMemCreate(C.byref(handle), SZ(SIZE), C.byref(properties), U64(0)), "cuMemCreate")
        return handle

    def vmm_give(self):
        """Maps a handle here, and sends its descriptor to the other rank."""
        handle, number = self._create(True), C.c_int()
        self.buffer = self._map(handle, [self.device])
        need(self.cuda.cuMemExportToShareableHandle(C.byref(number), handle, 1, U64(0)), "cuMemExportToShareableHandle")
        socket.send_fds(self.link, [b"x"], [number.value])
        os.close(number.value)

    def vmm_open(self):
        self.link.settimeout(STEP_S)
        _, numbers, _, _ = socket.recv_fds(self.link, 1, 1)
        handle = U64()
        need(self.cuda.cuMemImportFromShareableHandle(C.byref(handle), P(numbers[0]), 1), "cuMemImportFromShareableHandle")
        os.close(numbers[0])
        self.imported, self.theirs = handle, self._map(handle, [self.device])

    def vmm_close(self):
        need(self.cuda.cuMemUnmap(U64(self.theirs), SZ(SIZE)), "cuMemUnmap")
        need(self.cuda.cuMemRelease(self.imported), "cuMemRelease")

    # Two cards in one process, and host memory of two processes

    def second(self, how):
        """Card 1 in this process, too, which reaches memory of card 0."""
        first, made = P(), P()
        need(self.cuda.cuCtxGetCurrent(C.byref(first)), "cuCtxGetCurrent")
        need(self.cuda.cuDevicePrimaryCtxRetain(C.byref(made), 1), "cuDevicePrimaryCtxRetain")
        need(self.cuda.cuCtxSetCurrent(made), "cuCtxSetCurrent")
        if how == "peer access":
            need(self.cuda.cuCtxEnablePeerAccess(first, 0), "cuCtxEnablePeerAccess")
        self.own = self._alloc()
        need(self.cuda.cuCtxSetCurrent(first), "cuCtxSetCurrent")
        if how == "mapped for both":
            self.buffer = self._map(self._create(False), [0, 1])
        self.contexts = first, made

    def across(self, value):
        """Card 1 copies what card 0 has, by its own context."""
        self.fill(value)
        need(self.cuda.cuCtxSetCurrent(self.contexts[1]), "cuCtxSetCurrent")
        try:
            need(self.cuda.cuMemcpyDtoD_v2(U64(self.own), U64(self.buffer), SZ(SIZE)), "cuMemcpyDtoD")
            need(self.cuda.cuCtxSynchronize(), "cuCtxSynchronize")
            self.is_word(value, self.own)
        finally:
            need(self.cuda.cuCtxSetCurrent(self.contexts[0]), "cuCtxSetCurrent")

    def host(self, path):
        """Host memory that all ranks map and register, as NCCL's transport through shared memory does."""
        import mmap

        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(number, SIZE)
        self.shared = mmap.mmap(number, SIZE)
        self.shared_at = C.addressof(C.c_byte.from_buffer(self.shared))
        need(self.cuda.cuMemHostRegister_v2(P(self.shared_at), SZ(SIZE), 3), "cuMemHostRegister")

    def host_put(self, value):
        self.fill(value)
        need(self.cuda.cuMemcpyDtoH_v2(P(self.shared_at), U64(self.buffer), SZ(SIZE)), "cuMemcpyDtoH")

    def host_is(self, value):
        need(self.cuda.cuMemcpyHtoD_v2(U64(self.buffer), P(self.shared_at), SZ(SIZE)), "cuMemcpyHtoD")
        self.is_word(value)


def be_rank(number, ranks, descriptor):
    link = socket.socket(fileno=descriptor) if descriptor >= 0 else None
    rank = Rank(number, ranks, link)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what NCCL prints is no answer
    for line in sys.stdin:
        name, arguments = json.loads(line)
        begin = time.perf_counter()
        try:
            said = {"value": getattr(rank, name)(*arguments)}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        said["s"] = round(time.perf_counter() - begin, 4)
        answers.write(json.dumps(said) + "\n")
        answers.flush()
    os._exit(0)  # not by the driver's way out, in which a lost process waits


# ---- The parent ----


class Lost(Exception):
    """A step that failed or hung: the case ends."""


class Cards:
    """What NVML says is in use on every card, beyond what was before any rank came."""

    class Memory(C.Structure):
        _fields_ = [("total", C.c_ulonglong), ("free", C.c_ulonglong), ("used", C.c_ulonglong)]

    def __init__(self, count):
        self.nvml, self.cards = C.CDLL("libnvidia-ml.so.1"), []
        need(self.nvml.nvmlInit_v2(), "nvmlInit")
        for number in range(count):
            card = P()
            need(self.nvml.nvmlDeviceGetHandleByIndex_v2(number, C.byref(card)), "nvmlDeviceGetHandleByIndex")
            self.cards.append(card)
        self.idle = self._used()

    def _used(self):
        memory, found = self.Memory(), []
        for card in self.cards:
            need(self.nvml.nvmlDeviceGetMemoryInfo(card, C.byref(memory)), "nvmlDeviceGetMemoryInfo")
            found.append(memory.used)
        return found

    def used_mib(self):
        return [(now - before) // MIB for now, before in zip(self._used(), self.idle)]

    def settle(self):
        """A process that was killed leaves its card a little later."""
        deadline = time.monotonic() + 5
        while any(self.used_mib()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.used_mib()


class Ranks:
    """The processes of one case."""

    def __init__(self, case, count, environment, given):
        self.case, self.given = case, given
        self.made = 0
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.processes, pipe = [], subprocess.PIPE
        for number in range(count):
            link = ends[number].fileno() if number < 2 else -1
            words = [sys.executable, "-S", __file__, "--rank", str(number), str(count), str(link)]
            passed = [link] if link >= 0 else []
            self.processes.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=given.errors, pass_fds=passed, bufsize=0,
                                                   env={**os.environ, **environment}))
        for end in ends:
            end.close()

    def begin(self, rank, name, *arguments):
        self.processes[rank].stdin.write((json.dumps([name, arguments]) + "\n").encode())

    def answer(self, rank, name, deadline):
        output = self.processes[rank].stdout
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return {"hung": True}
            more = os.read(output.fileno(), 65536)
            if not more:
                return {"died": self.processes[rank].wait()}
            text += more
        return json.loads(text)

    def step(self, name, *arguments, ranks=None, quiet=False):
        """On these ranks at once, or all. Arguments may be a function of the rank. Raises Lost unless all did it."""
        ranks = range(len(self.processes)) if ranks is None else ranks
        for rank in ranks:
            own = arguments[0](rank) if arguments and callable(arguments[0]) else arguments
            self.begin(rank, name, *own)
        deadline = time.monotonic() + self.given.step_s
        said = {rank: self.answer(rank, name, deadline) for rank in ranks}
        if not quiet:
            self.tell(step=name, ranks={str(rank): each for rank, each in said.items()})
        failed = [f"rank {rank}, {name}: {_why(each)}" for rank, each in said.items() if _why(each)]
        if failed:
            raise Lost("; ".join(failed))
        return [each.get("value") for each in said.values()]

    def call(self, name, ranks=None):
        """A call of the checkpoint on these ranks at once. The slowest one's seconds."""
        said = self.step("call", name, ranks=ranks, quiet=True)
        numbers = list(range(len(self.processes)) if ranks is None else ranks)
        self.tell(call=name, answers={str(n): s["answer"] for n, s in zip(numbers, said)}, s=max(s["s"] for s in said),
                  used_mib=self.given.cards.used_mib())
        bad = [f"rank {n}, cuCheckpointProcess{name} answers {s['answer']}" for n, s in zip(numbers, said) if s["answer"]]
        if bad:
            raise Lost("; ".join(bad))

    def off(self, ranks=None):
        self.call("Lock", ranks)
        self.call("Checkpoint", ranks)

    def back(self, ranks=None):
        self.call("Restore", ranks)
        self.call("Unlock", ranks)

    def communicators(self, count=1):
        """Makes communicators of all ranks, each used once."""
        for number in range(count):
            self.step("make", *self.step("unique", ranks=[0], quiet=True), quiet=True)
            self.step("reduce", number, quiet=True)
        self.made = count

    def kill(self, ranks=None):
        for rank in range(len(self.processes)) if ranks is None else ranks:
            self.processes[rank].kill()
            self.processes[rank].wait()

    def tell(self, **facts):
        self.given.tell(case=self.case, **facts)


def _why(said):
    if said.get("hung"):
        return "does not answer"
    if "died" in said:
        return f"died with {said['died']}"
    return said.get("error")


CASES = {}


def case(ranks=None, **environment):
    def add(function):
        CASES[function.__name__] = (function, ranks, environment)
        return function

    return add


def begun(r, communicators=0):
    """All ranks with a context, and NCCL if it is wanted."""
    r.step("context", quiet=True)
    if communicators:
        version = r.step("load", r.given.nccl, quiet=True)[0]
        r.communicators(communicators)
        r.tell(nccl=version, used_mib=r.given.cards.used_mib())


# ---- NCCL: suspended, destroyed, as it is ----


def suspended(r, communicators=1, graph=True):
    begun(r, communicators)
    r.step("send", quiet=True)
    if graph:
        r.step("capture")
        r.step("replay")
    r.step("suspend")
    r.tell(suspended_mib=r.given.cards.used_mib())
    r.step("traces")
    r.step("shared_host_memory")


def works_again(r, graph=True):
    r.step("resume")
    for number in range(r.made):
        r.step("reduce", number)
    r.step("send")
    if graph:
        r.step("replay")


def alive(r):
    begun(r, 1)
    r.step("traces")
    r.off()
    r.back()
    r.step("reduce")


@case()
def nccl_suspended(r):
    """Communicators suspended, all ranks off at once and back at once; a graph of before replays."""
    suspended(r)
    r.off()
    r.step("state", quiet=True)
    r.back()
    works_again(r)


@case()
def nccl_destroyed(r):
    """Communicators destroyed before, and made again afterwards."""
    begun(r, 1)
    r.step("destroy")
    r.step("traces")
    r.off()
    r.back()
    r.communicators()


@case()
def nccl_alive(r):
    """Nothing is done to the communicator. Through peer memory of the other card."""
    alive(r)


@case(NCCL_CUMEM_HOST_ENABLE="0")
def nccl_suspended_host_by_files(r):
    """As suspended, with NCCL's host memory in files of /dev/shm and not of the driver."""
    suspended(r)
    r.off()
    r.back()
    works_again(r)


@case(NCCL_P2P_DISABLE="1")
def nccl_alive_through_host(r):
    alive(r)


@case(NCCL_P2P_DISABLE="1", NCCL_CUMEM_HOST_ENABLE="0")
def nccl_alive_through_host_by_files(r):
    alive(r)


@case(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_IB_DISABLE="1")
def nccl_alive_through_sockets(r):
    alive(r)


@case(NCCL_CUMEM_ENABLE="0")
def nccl_alive_legacy_ipc(r):
    alive(r)


@case(NCCL_P2P_DISABLE="1")
def nccl_suspended_through_host(r):
    suspended(r)
    r.off()
    r.back()
    works_again(r)


@case(NCCL_P2P_DISABLE="1", NCCL_CUMEM_HOST_ENABLE="0")
def nccl_suspended_through_host_by_files(r):
    suspended(r)
    r.off()
    r.back()
    works_again(r)


# ---- Memory of the other process ----


def shared(r, give, open_):
    begun(r)
    r.step("fill", 7, ranks=[0])
    handle = r.step(give, ranks=[0], quiet=True)
    r.step("fill", 7, ranks=[0])
    r.step(open_, *[each for each in handle if each], ranks=[1])
    r.step("theirs_is", 7, ranks=[1])


def closed_and_opened(r, give, open_, close):
    shared(r, give, open_)
    r.step(close, ranks=[1])
    r.off()
    r.back()
    r.step("is_word", 7, ranks=[0])
    handle = r.step(give, ranks=[0], quiet=True)
    r.step("fill", 9, ranks=[0])
    r.step(open_, *[each for each in handle if each], ranks=[1])
    r.step("theirs_is", 9, ranks=[1])


@case(2)
def ipc_closed(r):
    """The importer closes before all sleep, and opens again after the wake."""
    closed_and_opened(r, "ipc_give", "ipc_open", "ipc_close")


@case(2)
def vmm_closed(r):
    closed_and_opened(r, "vmm_give", "vmm_open", "vmm_close")


@case(2)
def ipc_same_handle(r):
    """Closed before, and opened by the handle of before the sleep."""
    begun(r)
    handle = r.step("ipc_give", ranks=[0], quiet=True)
    r.step("ipc_open", *handle, ranks=[1])
    r.step("ipc_close", ranks=[1])
    r.off()
    r.back()
    r.step("fill", 9, ranks=[0])
    r.step("ipc_open", *handle, ranks=[1])
    r.step("theirs_is", 9, ranks=[1])


def opened_after(r, sleepers, new):
    """Nothing is open while these sleep. Then rank 1 opens what rank 0 gives: memory of before the sleep, or new."""
    begun(r)
    r.off(sleepers)
    r.back(sleepers)
    if new:
        r.step("renew", ranks=[0])
    r.step("fill", 9, ranks=[0])
    r.step("ipc_open", *r.step("ipc_give", ranks=[0]), ranks=[1])
    r.step("theirs_is", 9, ranks=[1])


@case(2)
def ipc_new_memory_after(r):
    """Memory that is made after the wake."""
    opened_after(r, [0, 1], True)


@case(2)
def ipc_old_memory_exporter_slept(r):
    opened_after(r, [0], False)


@case(2)
def ipc_new_memory_exporter_slept(r):
    opened_after(r, [0], True)


@case(2)
def ipc_old_memory_importer_slept(r):
    opened_after(r, [1], False)


@case(2)
def ipc_open_both(r):
    """Open while both sleep, and both come back at once."""
    shared(r, "ipc_give", "ipc_open")
    r.off()
    r.back()
    r.step("theirs_is", 7, ranks=[1])


@case(2)
def ipc_open_exporter_first(r):
    """The exporter is back before the importer begins."""
    shared(r, "ipc_give", "ipc_open")
    r.off()
    r.back([0])
    r.back([1])
    r.step("theirs_is", 7, ranks=[1])


@case(2)
def vmm_open_exporter_first(r):
    shared(r, "vmm_give", "vmm_open")
    r.off()
    r.back([0])
    r.back([1])
    r.step("theirs_is", 7, ranks=[1])


@case(2)
def ipc_open_exporter_alone(r):
    """The exporter sleeps; the importer stays awake with the memory open."""
    shared(r, "ipc_give", "ipc_open")
    r.off([0])
    r.step("theirs_is", 7, ranks=[1])
    r.back([0])
    r.step("fill", 9, ranks=[0])
    r.step("theirs_is", 9, ranks=[1])


@case(2)
def event_open(r):
    """An event of the other process is open."""
    begun(r)
    r.step("event_open", *r.step("event_give", ranks=[0], quiet=True), ranks=[1])
    r.off()
    r.back()
    r.step("fill", 5)
    r.step("is_word", 5)


# ---- Without another process's device memory ----


def across(r, how):
    r.step("context", 0, quiet=True)
    r.step("second", how)
    r.step("across", 5)
    r.off()
    r.back()
    r.step("across", 6)


@case(1)
def peer_access(r):
    """One process with contexts on two cards, of which one has access to the other."""
    across(r, "peer access")


@case(1)
def mapped_for_both(r):
    """One process, and memory of card 0 that is mapped for card 1, too."""
    across(r, "mapped for both")


@case(2)
def host_memory_of_both(r):
    """Both have registered the same shared host memory, and nothing else connects them."""
    begun(r)
    path = f"/dev/shm/checkpoint-{os.getpid()}"
    try:
        r.step("host", path)
        r.step("host_put", 5, ranks=[0])
        r.step("host_is", 5, ranks=[1])
        r.off()
        r.back()
        r.step("host_is", 5, ranks=[1])
        r.step("host_put", 6, ranks=[1])
        r.step("host_is", 6, ranks=[0])
    finally:
        if os.path.exists(path):
            os.unlink(path)


# ---- NCCL once more: in other orders, several times, with a rank that is killed ----


@case()
def nccl_suspended_one_by_one(r):
    """Off in order of ranks, back in the opposite order."""
    suspended(r, graph=False)
    ranks = list(range(len(r.processes)))
    for rank in ranks:
        r.off([rank])
    for rank in reversed(ranks):
        r.back([rank])
    works_again(r, graph=False)


@case()
def nccl_suspended_one_sleeps(r):
    """Rank 0 alone is off the card; the others only have their communicators suspended."""
    suspended(r, graph=False)
    r.off([0])
    r.back([0])
    works_again(r, graph=False)


@case()
def nccl_suspended_twice(r):
    """Two communicators, three cycles."""
    suspended(r, communicators=2)
    for cycle in range(3):
        if cycle:
            r.step("suspend", quiet=True)
        r.off()
        r.back()
        works_again(r)


@case()
def nccl_suspended_killed(r):
    """The last rank is killed while all sleep. The others wake, abort the communicator, and make one without it."""
    suspended(r, graph=False)
    r.off()
    last = len(r.processes) - 1
    rest = list(range(last))
    r.kill([last])
    r.back(rest)
    r.step("abort", ranks=rest)
    r.step("fill", 5, ranks=rest)
    r.step("is_word", 5, ranks=rest)
    r.off(rest)
    r.back(rest)


@case()
def nccl_aborted(r):
    """ncclCommAbort() instead of ncclCommDestroy()."""
    begun(r, 1)
    r.step("abort")
    r.off()
    r.back()
    r.communicators()


# ---- The command line ----


class Given:
    """What the command line says, and where facts go."""

    def __init__(self, arguments):
        self.nccl, self.step_s = arguments.nccl, arguments.step_s
        self.out = open(arguments.out, "a", encoding="utf-8") if arguments.out else sys.stdout
        self.errors = open(arguments.errors, "ab") if arguments.errors else subprocess.DEVNULL
        self.cards = Cards(arguments.ranks)

    def tell(self, **facts):
        self.out.write(json.dumps({"part": "checkpoint_ranks", **facts}) + "\n")
        self.out.flush()


def run(name, given, arguments):
    function, ranks, environment = CASES[name]
    begin = time.monotonic()
    before = given.cards.settle()
    r = Ranks(name, ranks or arguments.ranks, environment, given)
    why = ""
    try:
        function(r)
    except Lost as error:
        why = str(error)
    finally:
        r.kill()
    seconds = round(time.monotonic() - begin, 1)
    given.tell(case=name, back=not why, why=why, s=seconds, env=environment, before_mib=before, after_mib=given.cards.settle())
    return not why


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all of them")
    parser.add_argument("--ranks", type=int, default=2, help="cards (default: 2)")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins later")
    parser.add_argument("--step-s", type=float, default=STEP_S, help=f"a step that takes longer has hung (default: {STEP_S:g})")
    parser.add_argument("--nccl", default="libnccl.so.2", help="the library (default: libnccl.so.2)")
    parser.add_argument("--out", help="where lines are appended (default: standard output)")
    parser.add_argument("--errors", help="where ranks' standard error is appended (default: nowhere)")
    arguments = parser.parse_args()
    given, begin, back = Given(arguments), time.monotonic(), []
    names = arguments.cases or list(CASES)
    for number, name in enumerate(names):
        if time.monotonic() - begin > arguments.seconds:
            given.tell(left_out=names[number:])
            break
        if run(name, given, arguments):
            back.append(name)
    given.tell(back=back, s=round(time.monotonic() - begin, 1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_rank(*map(int, sys.argv[2:5]))
    else:
        main()
