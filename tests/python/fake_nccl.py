# SPDX-License-Identifier: MIT
"""A stand-in for NCCL's library in one rank: the ranks of a communicator wait for each other.

As NCCL does it: suspending waits for all ranks before it gives memory back, resuming takes memory
and then waits. A rank that is missing is waited for without an end.
"""

import contextlib
import os
import signal
import threading
import time

from reveille import _communicators

MIB = 1 << 20
OK, CUDA_ERROR, INVALID_USAGE = 0, 1, 5


class Comm:
    def __init__(self, fake, pointer, name, rank, size, device, suspendable):
        self.fake, self.pointer, self.name = fake, pointer, name
        self.rank, self.size, self.device = rank, size, device
        self.suspendable = suspendable
        self.suspended = False
        self.meetings = 0

    def meet(self):
        """Waits until all ranks have come as often as this one."""
        self.meetings += 1
        there = self.fake.folder / f"{self.name}-{self.meetings}"
        there.mkdir(exist_ok=True)
        (there / str(self.rank)).touch()
        while len(list(there.iterdir())) < self.size:
            time.sleep(0.005)


class FakeNccl:
    """What ctypes.CDLL would be. fail: {(function, name of the communicator): "error" or "die"}."""

    def __init__(self, folder, version="2.30.7"):
        self.folder = folder
        self.thread = threading.local()
        self.comms = {}
        self.fail = {}
        self.calls = []
        self.version = [int(part) for part in version.split(".")]
        if self.version < [2, 29, 7]:
            self.hidden = {"ncclCommSuspend", "ncclCommResume", "ncclCommMemStats"}
        else:
            self.hidden = set()

    @contextlib.contextmanager
    def current(self, device):
        """The device of the calling thread, which a call of NCCL must have."""
        self.thread.device = device
        yield
        self.thread.device = None

    def add(self, name, rank, size, device=0, suspendable=484 * MIB):
        pointer = 4096 * (len(self.comms) + 1)
        self.comms[pointer] = Comm(self, pointer, name, rank, size, device, suspendable)
        return pointer

    def __getattr__(self, name):
        if not name.startswith("nccl") or name in self.__dict__.get("hidden", ()):
            raise AttributeError(name)
        return Function(getattr(self, f"_{name}"))

    def _fails(self, function, comm):
        assert self.thread.device == comm.device
        self.calls.append((function, comm.name))
        how = self.fail.get((function, comm.name))
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return how == "error"

    def _ncclGetVersion(self, out):
        major, minor, patch = self.version
        return answer(out, major * 10000 + minor * 100 + patch)

    def _ncclCommCuDevice(self, pointer, out):
        return answer(out, self.comms[pointer].device)

    def _ncclCommUserRank(self, pointer, out):
        return answer(out, self.comms[pointer].rank)

    def _ncclCommCount(self, pointer, out):
        return answer(out, self.comms[pointer].size)

    def _ncclCommMemStats(self, pointer, what, out):
        comm = self.comms[pointer]
        return answer(out, (comm.suspendable, int(comm.suspended), 7 * MIB)[what])

    def _ncclGetLastError(self, _pointer):
        return b"the fake was told to fail"

    def _ncclCommSuspend(self, pointer, flags):
        comm = self.comms[pointer]
        assert flags == 1
        if self._fails("suspend", comm):
            return CUDA_ERROR
        if comm.suspended:
            return INVALID_USAGE
        comm.meet()
        comm.suspended = True
        return OK

    def _ncclCommResume(self, pointer):
        comm = self.comms[pointer]
        if self._fails("resume", comm):
            return CUDA_ERROR
        if not comm.suspended:
            return INVALID_USAGE
        comm.meet()
        comm.suspended = False
        return OK

    def reduce(self, pointer):
        """A collective: all ranks meet, and none is suspended."""
        comm = self.comms[pointer]
        assert not comm.suspended
        comm.meet()
        return comm.rank


class Function:
    def __init__(self, body):
        self.body = body

    def __call__(self, *arguments):
        return self.body(*arguments)


def answer(out, value):
    out._obj.value = value
    return OK


def use(put, fake, free_bytes=1 << 40):
    """Lets Reveille find this one. put: setattr, or what puts it back later."""
    put(_communicators, "loaded", lambda: _communicators.Nccl(fake))
    put(_communicators, "GRACE_S", 0.5)
    put(_communicators, "current", fake.current)
    put(_communicators, "free_bytes", lambda _device: free_bytes)
