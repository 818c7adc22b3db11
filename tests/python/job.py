# SPDX-License-Identifier: MIT
"""A job for tests: a store of files, and ranks that are processes of their own."""

import contextlib
import fcntl
import json
import mmap
import os
import pathlib
import signal
import sys
import threading
import time
import traceback

import reveille

DEADLINE_S = 800


class Clock:
    """Time that passes only while all ranks wait: a second each time, as nothing else can go on.

    So a rank is late only if it is dead, stuck or never called, however slow the machine is. A rank
    waits if it has slept twice while no rank has written anything: in between it looked in vain.
    For a process that has not joined, it is the time of the machine.
    """

    def __init__(self, world_size):
        self._page = mmap.mmap(-1, 8 * (1 + 4 * world_size))  # children share it
        words = memoryview(self._page).cast("Q")
        self._seconds = words[:1]
        self._written, self._seen, self._slept, self._gone = (
            words[1 + i * world_size : 1 + (i + 1) * world_size] for i in range(4)
        )
        self._rank = None

    def join(self, rank):
        """Reveille's waits in this process go by this clock."""
        self._rank = rank
        reveille._job.time = reveille._replicas.time = self

    def monotonic(self):
        return time.monotonic() if self._rank is None else float(self._seconds[0])

    def sleep(self, seconds):
        """Also what lets the time pass, on one of the ranks."""
        if self._rank is None:
            time.sleep(seconds)
            return
        time.sleep(min(seconds, 0.02))
        rank, now = self._rank, self._now()
        if self._seen[rank] != now:
            self._slept[rank] = 0
            self._seen[rank] = now
        self._slept[rank] += 1
        if rank == min(self._here()) and self._wait(self._here(), now):
            self._seconds[0] += 1

    @contextlib.contextmanager
    def writing(self):
        """Around what other ranks may wait for: they look once more before and after it."""
        if self._rank is not None:
            self._written[self._rank] += 1
        yield
        if self._rank is not None:
            self._written[self._rank] += 1

    def await_others(self):
        """Until all other ranks wait."""
        others = [rank for rank in self._here() if rank != self._rank]
        while not self._wait(others, self._now()):
            time.sleep(0.001)

    def leave(self):
        """The others no longer wait for this rank to wait."""
        if self._rank is not None:
            self._gone[self._rank] = 1

    def die(self, *_arguments):
        self.leave()
        os.kill(os.getpid(), signal.SIGKILL)

    def _now(self):
        """Rises with all that is written, and with the time."""
        return sum(self._written) + self._seconds[0]

    def _here(self):
        return [rank for rank, gone in enumerate(self._gone) if not gone]

    def _wait(self, ranks, now):
        at_rest = all(self._seen[rank] == now and self._slept[rank] >= 2 for rank in ranks)
        return at_rest and self._now() == now


class FileStore:
    """What reveille.Job uses of torch.distributed.Store. A key is a file."""

    def __init__(self, folder, clock=None):
        self.folder = pathlib.Path(folder)
        self.clock = clock or Clock(0)

    def _path(self, key):
        return self.folder / key.replace("/", "|")

    def set(self, key, value):
        draft = self.folder / f".draft-{os.getpid()}-{threading.get_ident()}"
        draft.write_text(value)
        with self.clock.writing():
            draft.rename(self._path(key))

    def get(self, key):
        return self._path(key).read_bytes()

    def check(self, keys):
        return all(self._path(key).exists() for key in keys)

    def add(self, key, amount):
        with self.clock.writing(), open(self._path(key), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            total = int(file.read() or 0) + amount
            file.truncate(0)
            file.write(str(total))
            return total

    def compare_set(self, key, expected, desired):
        assert expected == ""
        draft = self.folder / f".draft-{os.getpid()}-{threading.get_ident()}"
        draft.write_text(desired)
        with self.clock.writing(), contextlib.suppress(FileExistsError):
            os.link(draft, self._path(key))
        draft.unlink()
        return self.get(key)

    def await_decision(self, round_):
        """Until the ranks have decided in this round."""
        while not self.check([f"reveille/{round_}/decision"]):
            time.sleep(0.002)

    def delete_key(self, key):
        self._path(key).unlink(missing_ok=True)

    def keys(self):
        """Those that are left, except for the counts of rounds."""
        return [path.name for path in self.folder.iterdir() if "|rounds|" not in path.name]


class Ranks:
    """Runs body(rank, store) in world_size processes; what each returns, or how it died.

    By a clock of their own, unless they are to see that real time passes.
    """

    def __init__(self, folder, world_size, *, real_time=False):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.world_size = world_size
        self.real_time = real_time
        self.store = FileStore(self.folder, Clock(world_size))

    def run(self, body):
        """A list by rank: what body returned, or the number of the signal that killed it."""
        out = self.folder.parent / f"{self.folder.name}-out"
        out.mkdir()
        children = [self._start(body, rank, out / str(rank)) for rank in range(self.world_size)]
        answers = []
        for rank, child in enumerate(children):
            status = self._wait(child)
            if os.WIFSIGNALED(status):
                answers.append(os.WTERMSIG(status))
            else:
                assert os.WEXITSTATUS(status) == 0, f"rank {rank} failed: see above"
                answers.append(json.loads((out / str(rank)).read_text()))
        return answers

    def _start(self, body, rank, path):
        child = os.fork()
        if child == 0:
            signal.alarm(DEADLINE_S)
            try:
                if not self.real_time:
                    self.store.clock.join(rank)
                path.write_text(json.dumps(body(rank, self.store)))
                self.store.clock.leave()
                os._exit(0)
            except BaseException:
                self.store.clock.leave()
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        return child

    @staticmethod
    def _wait(child):
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return status
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError(f"process {child} does not end")


def facts_of(aborted):
    """What all ranks must agree on."""
    return [str(aborted), aborted.rank, aborted.reason, aborted.status, aborted.requested_bytes]


MIB = 1 << 20


class Member:
    """A rank's own context: weights with content, and a cache."""

    def __init__(self, rank, store, world_size, room=64):
        self.rank = rank
        self.job = reveille.Job(store, rank, world_size)
        self.context = reveille.Context("sim", devices=f"{room}MiB")
        self.weights = self.context.alloc("4MiB", "weights", backup="host")
        self.cache = self.context.alloc("8MiB", "cache")

    def states(self):
        return [self.context.allocation(at).state for at in (self.weights, self.cache)]

    def used(self):
        return self.context.stats().devices[0].used_bytes // MIB

    def aborted(self, function, *tags, **options):
        """What it raises on this rank, as all ranks must have it; states and use are as before."""
        before = self.states(), self.used()
        try:
            getattr(self.context, function)(*tags, group=self.job, **options)
        except reveille.JobAborted as error:
            assert (self.states(), self.used()) == before
            self.agreed = error.agreed
            return facts_of(error)
        raise AssertionError(f"{function} did not abort")
