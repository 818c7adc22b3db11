# SPDX-License-Identifier: MIT
"""A program that opens another process's memory through CUDA itself must not sleep until it closes the memory.

usage: asleep_foreign.py COMMAND PRELOAD SOURCE      runs itself on a simulated GPU, with the preload library
"""

import array
import ctypes as C
import os
import socket
import subprocess
import sys

P, U64, SZ = C.c_void_p, C.c_uint64, C.c_size_t
SIZE = 4 << 20


class Handle(C.Structure):
    _fields_ = [("bytes", C.c_byte * 64)]


class Prop(C.Structure):
    _fields_ = [("type", C.c_int), ("handles", C.c_int), ("loc", C.c_int), ("id", C.c_int), ("win", P), ("flags", U64)]


def need(answer):
    assert answer == 0, answer


def context(cuda):
    made = P()
    need(cuda.cuInit(0))
    need(cuda.cuDevicePrimaryCtxRetain(C.byref(made), 0))
    need(cuda.cuCtxSetCurrent(made))


def export(number):
    """The other process: gives away a handle of each kind, and waits."""
    cuda, s = C.CDLL("libcuda.so.1"), socket.socket(fileno=number)
    context(cuda)
    at, handle, made, fd = U64(), Handle(), U64(), C.c_int()
    need(cuda.cuMemAlloc_v2(C.byref(at), SZ(SIZE)))
    need(cuda.cuIpcGetMemHandle(C.byref(handle), at))
    s.send(bytes(handle))
    need(cuda.cuMemCreate(C.byref(made), SZ(SIZE), C.byref(Prop(1, 1, 1, 0, None, 0)), U64(0)))
    need(cuda.cuMemExportToShareableHandle(C.byref(fd), made, 1, U64(0)))
    s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd.value]))])
    s.recv(1)


def refused(reveille):
    try:
        reveille.sleep()
    except reveille.Busy as error:
        assert "memory of another process is open here (a communicator of NCCL, cudaIpcOpenMemHandle()," in str(error), error
        return True
    return False


def sleeper():
    import reveille

    a, b = socket.socketpair()
    other = subprocess.Popen([sys.executable, __file__, "export", str(b.fileno())], pass_fds=[b.fileno()])
    gpu = reveille.Context(backend="cuda")
    gpu.alloc(SIZE, tag="weights", backup="host")
    cuda = C.CDLL("libcuda.so.1")
    context(cuda)
    handle, at, imported = Handle.from_buffer_copy(a.recv(64)), U64(), U64()
    need(cuda.cuIpcOpenMemHandle_v2(C.byref(at), handle, 1))
    assert refused(reveille)
    need(cuda.cuIpcCloseMemHandle(at))
    reveille.sleep()
    reveille.wake()
    fd = array.array("i", a.recvmsg(8, 1024)[1][0][2])[0]
    need(cuda.cuMemImportFromShareableHandle(C.byref(imported), P(fd), 1))
    assert refused(reveille)
    need(cuda.cuMemRelease(imported))
    reveille.sleep()
    assert reveille.asleep()
    reveille.wake()
    a.send(b"x")
    assert other.wait() == 0
    print("refused while open, by handle and by descriptor; asleep afterwards")


def main():
    if sys.argv[1] == "export":
        return export(int(sys.argv[2]))
    if sys.argv[1] == "sleeper":
        return sleeper()
    command, preload, source = sys.argv[1:4]
    run = [command, "run", "--device", "h100-80g", "--", "env", f"LD_PRELOAD={preload}", f"PYTHONPATH={source}/python",
           f"RVL_LIBRARY_DIR={os.path.dirname(preload)}", sys.executable, "-B", __file__, "sleeper"]
    return subprocess.run(run, timeout=120).returncode


sys.exit(main())
