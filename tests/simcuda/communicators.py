# SPDX-License-Identifier: MIT
"""The tag "nccl" on simulated GPUs, with their NCCL: ranks that are processes, and bytes compared.

usage: communicators.py COMMAND SOURCE_DIR      run it directly: it starts `COMMAND run` itself
"""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 3
LIMIT_S = 120
MADE = 196 << 20  # docs/fidelity/libraries.md, for two or more ranks
COLLECTIVE = 288 << 20
FLOAT32 = 7


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Nccl:
    """The calls of the ranks to the simulated library."""

    def __init__(self, folder, rank):
        self.library = ctypes.CDLL("libnccl.so.2")
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.folder, self.rank = folder, rank
        self.made = 0
        context = ctypes.c_void_p()
        assert self.cuda.cuInit(0) == 0
        assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), rank) == 0
        assert self.cuda.cuCtxSetCurrent(context) == 0

    def communicator(self):
        """Makes a communicator of all ranks, which have to come."""
        self.made += 1
        path, comm = self.folder / f"id-{self.made}", ctypes.c_void_p()
        unique = UniqueId()
        if self.rank == 0:
            assert self.library.ncclGetUniqueId(ctypes.byref(unique)) == 0
            draft = path.with_suffix(".draft")
            draft.write_bytes(bytes(unique))
            draft.rename(path)
        while not path.exists():
            time.sleep(0.005)
        unique = UniqueId.from_buffer_copy(path.read_bytes())
        make = self.library.ncclCommInitRank
        make.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        assert make(ctypes.byref(comm), RANKS, unique, self.rank) == 0
        return comm.value

    def reduce(self, comm):
        """Runs a collective, and returns its result."""
        address = ctypes.c_uint64()
        assert self.cuda.cuMemAlloc_v2(ctypes.byref(address), 4096) == 0
        call = self.library.ncclAllReduce
        call.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int,
                         ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]  # fmt: skip
        result = call(address.value, address.value, 1024, FLOAT32, 0, comm, None)
        assert self.cuda.cuMemFree_v2(address) == 0
        return result

    def used(self):
        """Bytes in use on the rank's device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return total.value - free.value

    def fill(self):
        """Takes almost all free memory."""
        free, total, address = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
        assert self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        size = ctypes.c_size_t(free.value - (64 << 20))
        assert self.cuda.cuMemAlloc_v2(ctypes.byref(address), size) == 0
        return address


def be_rank(folder, rank, scenario):
    """What one rank does."""
    import reveille
    from job import FileStore

    nccl = Nccl(folder, rank)
    job = reveille.Job(FileStore(folder), rank, RANKS)
    comms = [nccl.communicator() for _ in range(2)]
    for comm in comms:
        reveille.add_communicator(comm)
        assert nccl.reduce(comm) == 0
    scenario(reveille, nccl, job, comms)


def moved(function, job, **options):
    function("nccl", group=job, group_timeout=options.pop("timeout", 30), **options)


def cycle(reveille, nccl, job, comms):
    """The freed bytes are those announced, and collectives work again."""
    before = nccl.used()
    for _ in range(3):
        assert [each.bytes for each in reveille.communicators()] == [MADE + COLLECTIVE] * 2
        moved(reveille.pause, job)
        assert before - nccl.used() == 2 * (MADE + COLLECTIVE)  # no other rank made a context here
        assert nccl.reduce(comms[0]) != 0  # it is suspended
        moved(reveille.resume, job)
        assert nccl.used() == before
        assert [nccl.reduce(comm) for comm in comms] == [0, 0]


def no_room(reveille, nccl, job, comms):
    """A rank without room keeps all ranks asleep, and nothing has changed."""
    moved(reveille.pause, job)
    taken = nccl.fill() if nccl.rank == 1 else None
    full = nccl.used()
    try:
        moved(reveille.resume, job)
    except reveille.JobAborted as error:
        assert error.rank == 1 and error.requested_bytes == 2 * (MADE + COLLECTIVE), vars(error)
        assert 62 << 20 <= error.free_bytes <= 64 << 20, vars(error)  # in whole pages
    else:
        raise AssertionError("nothing was refused")
    assert nccl.used() == full
    assert {each.state for each in reveille.communicators()} == {"paused"}
    if taken is not None:
        assert nccl.cuda.cuMemFree_v2(taken) == 0
    moved(reveille.resume, job)
    assert [nccl.reduce(comm) for comm in comms] == [0, 0]


def refused(reveille, nccl, job, _comms):
    """An older NCCL, by its version."""
    before = nccl.used()
    try:
        moved(reveille.pause, job)
    except reveille.JobAborted as error:
        assert "NCCL 2.28.9 cannot give its memory back" in str(error), error
    else:
        raise AssertionError("nothing was refused")
    assert nccl.used() == before


def killed(reveille, nccl, job, _comms):
    """A rank dies when the others are already inside NCCL: they raise, and none hangs."""
    if nccl.rank == 2:
        from reveille import _communicators

        def die(*_arguments):
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)

        _communicators.Communicators.begin = die
    started = time.monotonic()
    try:
        moved(reveille.pause, job, timeout=2)
    except reveille.JobAborted as error:
        assert error.rank == 2 and "late, stuck or dead" in str(error), error
    else:
        raise AssertionError("nobody was missed")
    assert time.monotonic() - started < 30
    # The process ends while NCCL's call waits. Its thread may then return, and load libgcc_s.


SCENARIOS = {each.__name__: each for each in (cycle, no_room, refused, killed)}


def main(command, source):
    """Runs each scenario on a separate machine."""
    paths = [str(pathlib.Path(source) / part) for part in ("python", "tests/python")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    for name in SCENARIOS:
        versions = {"REVEILLE_NCCL_VERSION": "2.28.9"} if name == "refused" else {}
        with tempfile.TemporaryDirectory() as folder:
            words = [f'{sys.executable} -B {__file__} --rank {folder} {rank} {name} & p{rank}=$!'
                     for rank in range(RANKS)]  # fmt: skip
            waits = [f"wait $p{rank}; s{rank}=$?" for rank in range(RANKS)]
            said = "; ".join((*words, *waits, 'echo "$s0 $s1 $s2"')).replace("&;", "&")
            done = subprocess.run(
                [command, "run", "--gpus", str(RANKS), "--", "sh", "-c", said],
                env={**environment, **versions}, capture_output=True, text=True,
                timeout=LIMIT_S, check=False)  # fmt: skip
        wanted = "0 0 137" if name == "killed" else "0 0 0"
        assert done.stdout.splitlines()[0] == wanted, f"{name}: {done.stdout}{done.stderr}"
        print(f"{name}: {wanted}")


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        be_rank(pathlib.Path(sys.argv[2]), int(sys.argv[3]), SCENARIOS[sys.argv[4]])
    else:
        main(*sys.argv[1:])
