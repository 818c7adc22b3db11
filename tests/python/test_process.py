# SPDX-License-Identifier: MIT
"""Contexts beside fork, threads and the end of the process; the fake CUDA driver."""

import os
import threading
import time
from pathlib import Path

import pytest
import reveille
from reveille import _c

GIB = 1 << 30


def in_child(work):
    """Forks, runs work there, and answers what it returned as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(work()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return answer


def status_of(call):
    """Name of the exception of a call, "" for none."""
    try:
        call()
    except reveille.ReveilleError as error:
        return type(error).__name__
    return ""


def test_child_is_refused_and_the_parent_goes_on():
    with reveille.Context(memory="accounted") as gpu:
        address = gpu.alloc(GIB, "weights")
        calls = [
            gpu.memory,
            gpu.pause,
            gpu.stats,
            gpu.close,
            lambda: gpu.devices,
            lambda: gpu.clock_ns,
            lambda: gpu.alloc(1),
            lambda: gpu.allocation(address),
            lambda: gpu.tag("weights"),
            lambda: gpu.resume("weights"),
        ]
        answer = in_child(lambda: [status_of(call) for call in calls])
        assert answer == str(["Forked"] * len(calls))
        assert in_child(lambda: reveille.Context(memory="accounted").alloc(1) > 0) == "True"
        gpu.pause("weights")
        assert gpu.allocation(address).state == "paused"


def test_child_sees_that_the_parent_closed():
    gpu = reveille.Context(memory="accounted")
    gpu.close()
    assert in_child(lambda: [status_of(gpu.memory), status_of(gpu.close)]) == str(
        ["InvalidState", ""]
    )


def test_child_of_a_thread_that_is_in_a_call():
    inside, leave = threading.Event(), threading.Event()

    def hold(_tag):
        inside.set()
        leave.wait(30)

    with reveille.Context(memory="accounted") as gpu:
        gpu.tag("weights", before_unmap=hold)
        gpu.alloc(1, "weights")
        thread = threading.Thread(target=gpu.pause)
        thread.start()
        assert inside.wait(30)
        assert in_child(lambda: status_of(gpu.close)) == "Forked"
        leave.set()
        thread.join()


def test_close_waits_for_calls_of_other_threads():
    inside, leave, order = threading.Event(), threading.Event(), []

    def hold(_tag):
        inside.set()
        leave.wait(30)
        order.append("callback")

    gpu = reveille.Context(memory="accounted")
    gpu.tag("weights", before_unmap=hold)
    gpu.alloc(1, "weights")
    pausing = threading.Thread(target=gpu.pause)
    pausing.start()
    assert inside.wait(30)
    closing = threading.Thread(target=lambda: (gpu.close(), order.append("closed")))
    closing.start()
    time.sleep(0.05)
    assert order == []
    leave.set()
    pausing.join()
    closing.join()
    assert order == ["callback", "closed"]


def test_threads_have_their_own_errors():
    failed = []
    with reveille.Context(devices="8GiB", memory="accounted") as gpu:

        def work(number):
            for _round in range(100):
                address = gpu.alloc(1 << 21, f"tag{number}")
                try:
                    gpu.alloc((9 + number) * GIB, f"tag{number}")
                except reveille.OutOfDeviceMemory as error:
                    if (error.tag, error.requested_bytes) != (f"tag{number}", (9 + number) * GIB):
                        failed.append(error)
                gpu.pause(f"tag{number}")
                gpu.free(address)

        threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert list(gpu.allocations()) == []
        assert gpu.stats().devices[0].alloc_calls == 400


def test_end_of_the_process_closes(run_python):
    program = (
        "import reveille\n"
        "gpu = reveille.Context(memory='accounted')\n"
        "recording = gpu.record('run.rvt')\n"
        "recording.__enter__()\n"
        "gpu.alloc('1GiB')\n"
        "import os\n"
        "if os.fork() == 0: raise SystemExit(0)\n"  # leaves by the end of a child
        "os.wait()\n"
    )
    done = run_python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")
    done = run_python("-c", "import reveille; print(reveille.replay('run.rvt').devices[0].fits)")
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_import_neither_loads_the_library_nor_torch(run_python):
    program = (
        "import sys, reveille\nfrom reveille import _c\nprint(_c._core, 'torch' in sys.modules)\n"
    )
    assert run_python("-c", program).stdout == "None False\n"


def test_package_is_typed():
    assert (Path(reveille.__file__).parent / "py.typed").exists()


def test_missing_and_foreign_libraries(run_python, tmp_path):
    done = run_python("-m", "reveille", RVL_LIBRARY_DIR="/nonexistent")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("reveille: /nonexistent/libreveille.so.0 is missing: install")
    (tmp_path / "libreveille.so.0").write_text("not a library")
    done = run_python("-m", "reveille", RVL_LIBRARY_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "libreveille.so.0 cannot be used" in done.stderr


def test_other_version_is_refused(monkeypatch):
    monkeypatch.setattr(_c, "API_VERSION", "7.1")
    monkeypatch.setattr(_c, "_core", None)
    with pytest.raises(ImportError, match="this package was written for 7.1: install both"):
        _c.core()


def test_host_memory_runs_out(run_python):
    program = (
        "import reveille, resource\n"
        "gpu = reveille.Context()\n"
        "address = gpu.alloc('512MiB', 'weights', backup='host')\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), -1))\n"
        "try: gpu.pause('weights')\n"
        "except MemoryError as error: print(type(error).__name__, error.tag)\n"
        "print(gpu.allocation(address).state)\n"
    )
    done = run_python("-c", program)
    assert (done.stdout, done.stderr) == ("OutOfHostMemory weights\nactive\n", "")


# ---- CUDA ----


def test_no_driver(run_python):
    program = (
        "import reveille\n"
        "try: reveille.Context('cuda')\n"
        "except (reveille.NoDriver, reveille.NoBackend) as error: print(type(error).__name__)\n"
    )
    done = run_python("-c", program, RVL_CUDA_LIBRARY="/nonexistent")
    assert done.stdout in ("NoDriver\n", "NoBackend\n"), done.stderr


def test_on_the_fake_driver(run_python):
    fake = os.environ.get("RVL_TEST_CUDA_FAKE")
    if not fake:
        pytest.skip("the fake CUDA driver was not built: RVL_TEST_CUDA_FAKE is not set")
    program = (
        "import reveille\n"
        "with reveille.Context('cuda', devices=[0], host_keep=1 << 20) as gpu:\n"
        "    free = gpu.memory()[0]\n"
        "    address = gpu.alloc('4MiB', 'weights', backup='host')\n"
        "    gpu.pause('weights')\n"
        "    assert gpu.memory()[0] == free\n"
        "    gpu.resume('weights', timeout=0.5)\n"
        "    assert gpu.memory()[0] == free - (4 << 20)\n"
        "    try: gpu.alloc(free)\n"
        "    except reveille.OutOfDeviceMemory as error:\n"
        "        print(error.device, error.native_code, error.native_name)\n"
        "        print(' free on cuda:0' in str(error))\n"
        "print([reveille.Context('cuda', devices=n) for n in (0,)])\n"
        "try: reveille.Context('cuda', devices=77)\n"
        "except reveille.NoDevice as error: print('no device')\n"
    )
    done = run_python("-c", program, RVL_CUDA_LIBRARY=fake)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "0 2 CUDA_ERROR_OUT_OF_MEMORY",
        "True",
        "[<reveille.Context cuda open>]",
        "no device",
    ]
