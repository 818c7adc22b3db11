# SPDX-License-Identifier: MIT
"""What host memory costs a process that sleeps, by how the driver knows it: a JSON line for each fact. Needs libcuda alone.

usage: host_asleep.py [MIB]   of host memory, default 16384; a multiple of 256

  alone        the four calls of the driver with no host memory
  books        threads that register and unregister chunks of 64 MiB: seconds of each
  asleep       the four calls with all of it registered in one way; `way` names it
  copy         to the card and back, by how the driver knows the host memory meanwhile:
    registered   it does
    beside       12 threads register (or unregister) each chunk before (after) its copy
    pageable     it does not, and cuMemcpyAsync() is called all the same
    rings        it does not, and threads copy through two registered buffers of 8 MiB each
"""

import ctypes as C
import json
import os
import queue
import sys
import threading
import time

MIB, GIB = 1 << 20, 1 << 30
CHUNK, PIECE, BUFFER = 64 * MIB, 8 * MIB, 8 * MIB
HUGE, NO_HUGE, POPULATE = 14, 15, 23  # madvise(): MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_POPULATE_WRITE
PORTABLE, READ_ONLY = 1, 8  # cuMemHostRegister()
STEPS = ("Lock", "Checkpoint", "Restore", "Unlock")

libc = C.CDLL(None, use_errno=True)
libc.mmap.restype = C.c_void_p
libc.mmap.argtypes = [C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.c_int, C.c_long]
libc.madvise.argtypes = [C.c_void_p, C.c_size_t, C.c_int]
libc.munmap.argtypes = [C.c_void_p, C.c_size_t]
cuda = C.CDLL("libcuda.so.1")
cuda.cuMemHostRegister_v2.argtypes = [C.c_void_p, C.c_size_t, C.c_uint]
cuda.cuMemHostUnregister.argtypes = [C.c_void_p]
cuda.cuMemcpyHtoDAsync_v2.argtypes = [C.c_uint64, C.c_void_p, C.c_size_t, C.c_void_p]
cuda.cuMemcpyDtoHAsync_v2.argtypes = [C.c_void_p, C.c_uint64, C.c_size_t, C.c_void_p]
cuda.cuStreamSynchronize.argtypes = [C.c_void_p]

SIZE = (int(sys.argv[1]) if len(sys.argv) > 1 else 16384) * MIB
CORES = os.cpu_count() or 1
MANY = min(12, CORES)


def tell(what, **facts):
    print(json.dumps({"what": what, **{k: round(v, 4) if isinstance(v, float) else v for k, v in facts.items()}}), flush=True)


def need(answer, what):
    if answer != 0:
        sys.exit(f"host_asleep.py: {what} answered {answer}")


def enter():
    need(cuda.cuCtxSetCurrent(CONTEXT), "cuCtxSetCurrent")


def shared(count, pieces, work):
    """Seconds in which so many threads have done all pieces, in order."""
    waiting = queue.SimpleQueue()
    for piece in pieces:
        waiting.put(piece)

    def run():
        enter()
        while True:
            try:
                piece = waiting.get_nowait()
            except queue.Empty:
                return
            work(piece)

    threads = [threading.Thread(target=run) for _ in range(count)]
    begin = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return time.perf_counter() - begin


def made(size, advice=HUGE):
    base = libc.mmap(None, size + 2 * CHUNK, 3, 0x22, -1, 0)
    at = (base + CHUNK - 1) // CHUNK * CHUNK
    need(libc.madvise(at, size, advice), "madvise")
    shared(MANY, range(at, at + size, PIECE), lambda piece: need(libc.madvise(piece, PIECE, POPULATE), "populating"))
    return at


def chunks(at, size, chunk=CHUNK):
    return range(at, at + size, chunk)


def register(at, chunk=CHUNK, flags=PORTABLE):
    need(cuda.cuMemHostRegister_v2(at, chunk, flags), "registering")


def unregister(at):
    need(cuda.cuMemHostUnregister(at), "unregistering")


def four_calls():
    """Seconds of each."""
    found = {}
    for step in STEPS:
        begin = time.perf_counter()
        need(getattr(cuda, f"cuCheckpointProcess{step}")(os.getpid(), None), step)
        found[step.lower() + "_s"] = time.perf_counter() - begin
    return found


def asleep(way, at, size, chunk=CHUNK, flags=PORTABLE):
    answer = cuda.cuMemHostRegister_v2(at, chunk, flags)
    if answer != 0:
        tell("asleep", way=way, refused=answer)
        return
    shared(MANY, chunks(at + chunk, size - chunk, chunk), lambda each: register(each, chunk, flags))
    tell("asleep", way=way, gib=size / GIB, **four_calls())
    shared(MANY, chunks(at, size, chunk), unregister)


# ---- Copies ----


class Stream:
    def __init__(self):
        self.it = C.c_void_p()
        need(cuda.cuStreamCreate(C.byref(self.it), 1), "cuStreamCreate")

    def copy(self, host, device, size, to_device):
        if to_device:
            need(cuda.cuMemcpyHtoDAsync_v2(device, host, size, self.it), "copying to the device")
        else:
            need(cuda.cuMemcpyDtoHAsync_v2(host, device, size, self.it), "copying to the host")

    def wait(self):
        need(cuda.cuStreamSynchronize(self.it), "waiting for copies")


def timed_copy(way, to_device, size, go):
    begin = time.perf_counter()
    go()
    seconds = time.perf_counter() - begin
    tell("copy", way=way, to="device" if to_device else "host", gib=size / GIB, s=seconds, gb_per_s=round(size / seconds / 1e9, 1))


def plain(at, device, size, to_device):
    """What is on the device repeats in the host's memory: it need not be as large."""
    stream = Stream()
    for each in chunks(at, size):
        stream.copy(each, device.value + (each - at) % DEVICE_BYTES, CHUNK, to_device)
    stream.wait()


def registered_beside(at, device, size):
    """As a wake would: copies wait for the chunk that they come to."""
    there = {each: threading.Event() for each in chunks(at, size)}
    stream = Stream()

    def work(each):
        register(each)
        there[each].set()

    maker = threading.Thread(target=lambda: shared(MANY, chunks(at, size), work))
    maker.start()
    for each in chunks(at, size):
        there[each].wait()
        stream.copy(each, device.value + (each - at) % DEVICE_BYTES, CHUNK, True)
    stream.wait()
    maker.join()


def unregistered_beside(at, device, size):
    """As a sleep would: each chunk is forgotten once its copy has ended."""
    streams = [Stream() for _ in range(2)]
    ended = queue.SimpleQueue()

    def work(_):
        unregister(ended.get())

    forgetter = threading.Thread(target=lambda: shared(MANY, chunks(at, size), work))
    forgetter.start()
    before = None
    for number, each in enumerate(chunks(at, size)):
        streams[number % 2].copy(each, device.value + (each - at) % DEVICE_BYTES, CHUNK, False)
        if before is not None:
            streams[(number - 1) % 2].wait()
            ended.put(before)
        before = each
    streams[(len(chunks(at, size)) - 1) % 2].wait()
    ended.put(before)
    forgetter.join()


def through_rings(count, at, device, size, to_device):
    rings = queue.SimpleQueue()
    for _ in range(count):
        buffers = made(CHUNK)
        register(buffers)
        rings.put((buffers, [Stream(), Stream()]))

    def run(share):
        enter()
        buffers, streams = rings.get()
        pieces = list(chunks(at, size, BUFFER))[share::count]
        for number, each in enumerate(pieces + [None, None]):
            buffer, stream = buffers + number % 2 * BUFFER, streams[number % 2]
            stream.wait()
            if not to_device and number >= 2:
                C.memmove(pieces[number - 2], buffer, BUFFER)
            if each is None:
                continue
            if to_device:
                C.memmove(buffer, each, BUFFER)
            stream.copy(buffer, device.value + (each - at) % DEVICE_BYTES, BUFFER, to_device)

    threads = [threading.Thread(target=run, args=(share,)) for share in range(count)]
    begin = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    seconds = time.perf_counter() - begin
    tell("copy", way=f"rings of {count}", to="device" if to_device else "host", gib=size / GIB, s=seconds, gb_per_s=round(size / seconds / 1e9, 1))


def copies(at):
    device = C.c_uint64()
    need(cuda.cuMemAlloc_v2(C.byref(device), C.c_size_t(DEVICE_BYTES)), "cuMemAlloc")
    for to_device in (True, False):
        timed_copy("pageable", to_device, SIZE // 4, lambda d=to_device: plain(at, device, SIZE // 4, d))
        for count in (4, 8, 12):
            if count <= CORES:
                through_rings(count, at, device, SIZE, to_device)
    for _ in range(2):
        timed_copy("beside", True, SIZE, lambda: registered_beside(at, device, SIZE))
        for to_device in (True, False):
            timed_copy("registered", to_device, SIZE, lambda d=to_device: plain(at, device, SIZE, d))
        timed_copy("beside", False, SIZE, lambda: unregistered_beside(at, device, SIZE))
    need(cuda.cuMemFree_v2(device), "cuMemFree")


def books(at):
    for count in (1, 2, 4, 12):
        if count <= CORES:
            seconds = shared(count, chunks(at, SIZE), register), shared(count, chunks(at, SIZE), unregister)
            tell("books", threads=count, gib=SIZE / GIB, register_s=seconds[0], unregister_s=seconds[1])


need(cuda.cuInit(0), "cuInit")
CONTEXT = C.c_void_p()
need(cuda.cuDevicePrimaryCtxRetain(C.byref(CONTEXT), 0), "cuDevicePrimaryCtxRetain")
enter()
DEVICE_BYTES = min(SIZE, 8 * GIB)
for _ in range(2):
    tell("alone", **four_calls())
begin = time.perf_counter()
memory = made(SIZE)
tell("made", gib=SIZE / GIB, s=time.perf_counter() - begin)
tell("asleep", way="made and not registered", gib=SIZE / GIB, **four_calls())
books(memory)
asleep("chunks of 64 MiB", memory, SIZE)
asleep("chunks of 1 GiB", memory, SIZE, min(SIZE, GIB))
asleep("not portable", memory, SIZE, flags=0)
asleep("read-only", memory, SIZE, flags=READ_ONLY)
asleep("half of it", memory, SIZE // 2)
small_pages = made(SIZE // 4, NO_HUGE)
asleep("small pages", small_pages, SIZE // 4)
libc.munmap(small_pages, SIZE // 4)
copies(memory)
