# SPDX-License-Identifier: MIT
"""Contexts of two processes with one store: host bytes counted once, and what is refused."""

import ctypes
import signal
import subprocess
import sys

import pytest

import reveille
from reveille import _command

BYTES = 4 << 20
CONTENT = bytes(range(256)) * (BYTES // 256)
USER = f"""
import ctypes, reveille, sys
with reveille.Context(devices="64MiB", store=sys.argv[1]) as gpu:
    address = gpu.alloc({BYTES}, "weights", backup="host")
    ctypes.memmove(address, bytes(range(256)) * {BYTES // 256}, {BYTES})
    gpu.pause("weights")
    host = gpu.stats().host
    print(host.store_bytes, host.store_found_bytes, host.used_bytes, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path):
    """Starts a store; answers its path."""
    running = []

    def start(budget):
        path = tmp_path / "store"
        process = subprocess.Popen(
            [_command.PROGRAM, "store", "--budget", budget, path], stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stdout.readline() == f"store at {path}\n"
        return path

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        process.stdout.close()


def test_two_processes_keep_one_backup(store):
    path = store("4MiB")  # one content
    other = subprocess.Popen(
        [sys.executable, "-c", USER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == f"{BYTES} 0 0\n"
    with reveille.Context(devices="64MiB", store=path) as gpu:
        address = gpu.alloc(BYTES, "weights", backup="host")
        ctypes.memmove(address, CONTENT, BYTES)
        gpu.pause("weights")
        host = gpu.stats().host
        assert (host.store_bytes, host.store_found_bytes, host.used_bytes) == (BYTES, BYTES, 0)
        assert gpu.stats().devices[0].backup_out_bytes == 0  # it was asked for, and not copied
        assert gpu.backup(address, 256) == CONTENT[:256]
        other.communicate()
        assert other.returncode == 0
        gpu.resume("weights")
        assert ctypes.string_at(address, BYTES) == CONTENT
        assert gpu.stats().host.store_bytes == 0


def test_a_full_store_changes_nothing(store, tmp_path):
    path = store("1MiB")
    with reveille.Context(devices="64MiB", store=path) as gpu:
        address = gpu.alloc(BYTES, "weights", backup="host")
        ctypes.memmove(address, CONTENT, BYTES)
        with pytest.raises(reveille.OutOfHostMemory, match="the store has no room"):
            gpu.pause("weights")
        assert ctypes.string_at(address, BYTES) == CONTENT
    (tmp_path / "disk").mkdir()
    with reveille.Context(
        devices="64MiB",
        store=path,
        store_overflow=True,
        disk_directory=tmp_path / "disk",
        disk_tmpfs=True,
    ) as gpu:
        address = gpu.alloc(BYTES, "weights", backup="host")
        ctypes.memmove(address, CONTENT, BYTES)
        gpu.pause("weights")
        assert gpu.stats().devices[0].disk_backup_bytes == BYTES
        gpu.resume("weights")
        assert ctypes.string_at(address, BYTES) == CONTENT


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(reveille.ReveilleError, match="no store of this user answers"):
        reveille.Context(store=tmp_path / "none")
    with pytest.raises(reveille.InvalidArgument, match="107 bytes"):
        reveille.Context(store=tmp_path / ("x" * 120))
    with pytest.raises(reveille.InvalidArgument, match="store_path"):
        reveille.Context(store_overflow=True)
