# SPDX-License-Identifier: MIT
"""A job for tests: a store of files, and ranks that are processes of their own."""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import sys
import time
import traceback

import reveille

DEADLINE_S = 400


class FileStore:
    """What reveille.Job uses of torch.distributed.Store. A key is a file."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def _path(self, key):
        return self.folder / key.replace("/", "|")

    def set(self, key, value):
        draft = self.folder / f".draft-{os.getpid()}"
        draft.write_text(value)
        draft.rename(self._path(key))

    def get(self, key):
        return self._path(key).read_bytes()

    def check(self, keys):
        return all(self._path(key).exists() for key in keys)

    def add(self, key, amount):
        with open(self._path(key), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            total = int(file.read() or 0) + amount
            file.truncate(0)
            file.write(str(total))
            return total

    def compare_set(self, key, expected, desired):
        assert expected == ""
        draft = self.folder / f".draft-{os.getpid()}"
        draft.write_text(desired)
        with contextlib.suppress(FileExistsError):
            os.link(draft, self._path(key))
        draft.unlink()
        return self.get(key)

    def delete_key(self, key):
        self._path(key).unlink(missing_ok=True)

    def keys(self):
        """Those that are left, except for the counts of rounds."""
        return [path.name for path in self.folder.iterdir() if "|rounds|" not in path.name]


class Ranks:
    """Runs body(rank, store) in world_size processes; what each returns, or how it died."""

    def __init__(self, folder, world_size):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.world_size = world_size
        self.store = FileStore(self.folder)

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
                path.write_text(json.dumps(body(rank, self.store)))
                os._exit(0)
            except BaseException:
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
