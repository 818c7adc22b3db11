# SPDX-License-Identifier: MIT
"""Regions, pause and resume in a process of PyTorch: a stub of it, on the fake driver."""

import os
import sysconfig
import textwrap
from pathlib import Path

import pytest
import reveille
from conftest import SOURCE
from reveille import _c

STUB = SOURCE / "tests/python/stub"
PRELUDE = """
import contextlib, os, sys, torch, reveille
from reveille import ReveilleError
MIB = 1 << 20

def full(mib, value, size=MIB):
    return torch.full((mib * size,), value, dtype=torch.uint8, device="cuda")

def used():
    free, total = torch.cuda.mem_get_info()
    return (total - free) // MIB

def refused(call, *arguments):
    try:
        call(*arguments)
    except ReveilleError as error:
        return error
    raise AssertionError("it was not refused")

def entered(manager):
    with manager:
        pass
"""


def variables():
    """The environment of a process that has the stub, the fake driver and runtime."""
    fake, runtime = os.environ.get("RVL_TEST_CUDA_FAKE"), os.environ.get("RVL_TEST_CUDART_FAKE")
    if not fake or not runtime:
        pytest.skip("the fake CUDA driver was not built: RVL_TEST_CUDA_FAKE is not set")
    path = [str(STUB), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "RVL_CUDA_LIBRARY": fake,
        "RVL_TEST_CUDART_FAKE": runtime,
        "PYTHONPATH": os.pathsep.join(path),
        "FAKE_CUDA_CAPACITY_BYTES": str(64 << 20),
    }


@pytest.fixture(params=["torch", "preload"])
def run(request, run_python):
    """Runs a program in either mode; answers what it printed."""

    def run(program, **more):
        environment = {**variables(), "MODE": request.param, **more}
        if request.param == "preload":
            environment["LD_PRELOAD"] = str(_c.hook_library_path("preload"))
        done = run_python("-c", PRELUDE + textwrap.dedent(program), **environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    return run


def test_content_and_memory_over_a_cycle(run):
    run("""
    with reveille.region("weights", backup="host"):
        weights = full(4, 7)
    with reveille.region("kv_cache"):
        cache = full(8, 9)
    other = full(2, 1)
    assert reveille.hook_mode() == os.environ["MODE"]
    assert used() == 14
    where = weights.data_ptr(), cache.data_ptr()
    reveille.pause("kv_cache")
    assert used() == 6
    reveille.pause()
    assert used() == 2
    assert set(reveille.backup_of(weights).tolist()) == {7}
    reveille.resume("weights", "kv_cache")
    assert used() == 14
    assert set(weights.tolist()) == {7}
    assert set(other.tolist()) == {1}
    assert where == (weights.data_ptr(), cache.data_ptr())
    """)


def test_all_ranks_or_none(run, tmp_path):
    """A job of one rank; tests/python/test_job.py has those of many."""
    run(
        """
    sys.path.insert(0, os.environ["HELPERS"])
    from job import FileStore
    job = reveille.Job(FileStore(os.environ["STORE"]), 0, 1)
    with reveille.region("weights", backup="host"):
        weights = full(4, 7)
    with reveille.region("kv_cache"):
        cache = full(8, 9)
    reveille.pause("kv_cache", "weights", group=job)
    assert used() == 0
    assert reveille.fits(group=job).ranks[0].needed_bytes == 12 * MIB
    other = full(60, 1)
    error = refused(lambda: reveille.resume(group=job))
    assert isinstance(error, reveille.JobAborted)
    assert (error.rank, error.status) == (0, reveille.OutOfDeviceMemory.STATUS)
    assert error.requested_bytes == 12 * MIB
    assert str(error).startswith("no rank has moved: rank 0 of 1 cannot resume(): ")
    assert isinstance(error.__cause__, reveille.OutOfDeviceMemory)
    assert used() == 60
    del other
    torch.cuda.empty_cache()
    reveille.resume(group=job)
    assert set(weights.tolist()) == {7}
    error = refused(lambda: reveille.pause("typo", group=job))
    assert error.status == reveille.NotFound.STATUS and 'tag "typo"' in str(error)
    """,
        HELPERS=str(SOURCE / "tests/python"),
        STORE=str(tmp_path),
    )


def test_replicas_without_digests_restore_alone(run, tmp_path):
    """Two ranks, forked before anything is used. The fake driver computes no digests, as cards do:
    tests/python/test_replicas.py has what replicas bring each other, on simulated devices."""
    run(
        """
    sys.path.insert(0, os.environ["HELPERS"])
    from job import FileStore
    from test_replicas import Files
    child = os.fork()
    rank = int(child == 0)
    job = reveille.Job(FileStore(os.environ["STORE"]), rank, 2)
    with reveille.region("weights", backup="host"):
        weights, more = full(6, 7), full(2, 9)
    reveille.pause("weights", group=job)
    assert used() == 0
    links = reveille.resume("weights", group=job, replicas=Files(os.environ["STORE"], job))
    assert links.alone == "nothing that has digests was to be restored"
    assert (links.restored_bytes, links.filled_bytes, links.wrong_bytes) == (0, 0, 0)
    assert set(weights.tolist()) == {7} and set(more.tolist()) == {9}
    refusal = refused(lambda: reveille.resume("nccl", group=job, replicas=Files("", job)))
    assert isinstance(refusal, reveille.InvalidArgument) and "in a call of its own" in str(refusal)
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """,
        HELPERS=str(SOURCE / "tests/python"),
        STORE=str(tmp_path),
    )


def test_disk_backups(run, tmp_path):
    run(
        """
    reveille.set_disk_directory("backups/deep")
    with reveille.region("weights", backup="disk"):
        weights = full(4, 7)
    with reveille.region("weights", backup="host"):
        more = full(2, 8)
    reveille.pause("weights")
    assert used() == 0
    assert len(os.listdir("backups/deep")) == 1
    assert reveille.fits("weights").needed_bytes == 6 * MIB
    assert [c.ordinal for c in reveille.contexts()] == [0, 0]
    assert "is in host memory" in str(refused(reveille.backup_of, weights))
    reveille.resume("weights")
    assert set(weights.tolist()) == {7} and set(more.tolist()) == {8}
    stats = reveille.stats()
    assert stats.tags["weights"].active_bytes == 6 * MIB
    assert [device.backup_out_bytes for device in stats.devices] == [4 * MIB, 2 * MIB]
    """
    )
    assert (tmp_path / "backups/deep").is_dir()


def test_a_pool_for_each_tag_backup_and_device(run):
    run("""
    with reveille.region("a"):
        first = full(2, 1)
    address = first.data_ptr()
    del first
    with reveille.region("b"):
        assert full(2, 1).data_ptr() != address
    with reveille.region("a", backup="host"):
        assert full(2, 1).data_ptr() != address
    torch.cuda.set_device(1)
    with reveille.region("a"):
        assert full(2, 1).data_ptr() != address
    torch.cuda.set_device(0)
    with reveille.region("a"):
        assert full(2, 1).data_ptr() == address
    assert [context.ordinal for context in reveille.contexts()] == [0, 1]
    """)


def test_out_of_memory_has_the_numbers_and_loses_nothing(run):
    run("""
    with reveille.region("weights", backup="host"):
        weights = full(4, 7)
    with reveille.region("kv_cache"):
        cache = full(40, 9)
    reveille.pause()
    copy = full(30, 5)
    assert reveille.fits("weights")
    forecast = reveille.fits("kv_cache")
    assert not forecast
    assert (forecast.needed_bytes, forecast.free_bytes) == (40 * MIB, 34 * MIB)
    error = refused(reveille.resume, "kv_cache")
    assert isinstance(error, reveille.OutOfDeviceMemory) and isinstance(error, MemoryError)
    text = 'resume of "kv_cache" needs 40.0 MiB, 34.0 MiB free on cuda:0'
    assert str(error).startswith(text), error
    assert (error.requested_bytes, error.free_bytes) == (40 * MIB, 34 * MIB)
    assert (error.tag, error.device) == ("kv_cache", 0)
    error = refused(reveille.resume, "weights", "kv_cache")
    both = text.replace('"kv', '"weights", "kv').replace("40.0", "44.0")
    assert str(error) == f"{both}: free memory there, or resume fewer tags, and call it again"
    assert (error.requested_bytes, error.free_bytes) == (44 * MIB, 34 * MIB)
    assert used() == 30
    del copy
    torch.cuda.empty_cache()
    reveille.resume("weights", "kv_cache")
    assert set(weights.tolist()) == {7}
    """)


def test_second_device_is_named(run):
    run("""
    torch.cuda.set_device(1)
    with reveille.region("kv_cache"):
        cache = full(40, 9)
    reveille.pause("kv_cache")
    copy = full(30, 5)
    forecast, error = reveille.fits("kv_cache"), refused(reveille.resume, "kv_cache")
    assert (forecast.device, bool(forecast)) == (1, False)
    assert 'needs 40.0 MiB, 34.0 MiB free on cuda:1' in str(error), error
    assert error.device == 1
    assert f"Reveille {reveille.version()}, device 1 (" in error.summary, error.summary
    assert "34.0 MiB free; held here: kv_cache 40.0 MiB paused; by all else" in error.summary
    assert "; CUDA driver " in error.summary
    assert reveille.stats().devices[0].index == 1
    """)


def test_what_is_refused(run):
    run("""
    for tag in ("", "a" * 256, "a\\0b", 3):
        assert isinstance(refused(reveille.region, tag), reveille.InvalidArgument)
        graph = torch.cuda.CUDAGraph()
        error = refused(lambda: reveille.cuda_graph(graph, tag=tag))
        assert isinstance(error, reveille.InvalidArgument)
    error = refused(reveille.region, "a", "tape")
    assert str(error) == "backup must be one of none, host, disk, not 'tape'"
    for path in (None, "", 3, "a\\0b", b""):
        error = refused(reveille.record, path)
        assert isinstance(error, reveille.InvalidArgument)
        assert str(error) == f"the file of a recording must be a path, not {path!r}"
        error = refused(reveille.set_disk_directory, path)
        assert isinstance(error, reveille.InvalidArgument)
        assert str(error) == f"the folder of backups must be a path, not {path!r}"
    for path in ("/proc/none", "/proc/version/none"):
        error = refused(reveille.set_disk_directory, path)
        assert isinstance(error, reveille.InputOutputError) and error.native_code != 0
        assert str(error).startswith(path + " cannot be made: ")
        remedy = ": name a folder that is there, or one with a parent that you may write to"
        assert str(error).endswith(remedy)
    error = refused(reveille.backup_of, 3)
    assert isinstance(error, reveille.InvalidArgument)
    assert str(error) == "a backup is that of a tensor, not of 3"
    error = refused(entered, reveille.disable())
    assert isinstance(error, reveille.InvalidState)
    with reveille.region("weights"):
        weights = full(2, 1)
    for call in (reveille.pause, reveille.resume, reveille.fits):
        error = refused(call, "wieghts")
        assert isinstance(error, reveille.NotFound) and error.tag == "wieghts"
        assert 'no region ever had the tag "wieghts"; there are: "weights".' in str(error)
    refused(reveille.pause, "weights", "wieghts")
    assert used() == 2
    weights.contiguous_here = False
    assert "contiguous" in str(refused(reveille.backup_of, weights))
    """)


EXPANDABLE = """
    def graph():
        return entered(reveille.cuda_graph(torch.cuda.CUDAGraph(), tag="graph"))
    refusals = [str(refused(call)) for call in (lambda: entered(reveille.region("weights")), graph)]
    assert len(set(refusals)) == 1, refusals
    assert "expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF" in refusals[0]
    assert refusals[0].endswith("ALLOC_CONF, or start the program without LD_PRELOAD") == (
        os.environ["MODE"] == "preload"), refusals
    torch.cuda.empty_cache()  # of what was tried
    assert used() == 0
"""


def test_expandable_segments(run):
    """PyTorch leaves them out of pools with an allocator, which regions have in torch mode."""
    program = """
    with reveille.region("weights", backup="host"):
        weights = full(4, 7)
    plain = full(2, 1)
    with reveille.cuda_graph(torch.cuda.CUDAGraph(), tag="graph"):
        inner = full(2, 3)
    torch.cuda.empty_cache()
    assert used() == 8
    reveille.pause()
    assert used() == 2 and set(plain.tolist()) == {1}
    reveille.resume()
    assert set(weights.tolist()) == {7} and used() == 8
    """
    run(
        f"""
    if os.environ["MODE"] == "preload":
        {textwrap.indent(textwrap.dedent(EXPANDABLE), "        ").strip()}
        sys.exit()
    {program}
    """,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments: True",
    )


def test_expandable_segments_in_all_pools(run):
    """A PyTorch that has them there, too, is found out and refused."""
    run(
        EXPANDABLE,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
        STUB_EXPANDABLE_IN_ALL_POOLS="1",
    )


def test_settings_are_back_after_an_exception(run):
    run("""
    with contextlib.suppress(KeyError):
        with reveille.region("weights", backup="host"):
            with reveille.region("inner"):
                raise KeyError
    plain = full(2, 1)
    reveille.pause()
    assert set(plain.tolist()) == {1} and used() == 2
    """)


def test_disable_within_a_region(run):
    run("""
    with reveille.region("weights"):
        weights = full(2, 1)
        with reveille.disable():
            plain = full(4, 2)
        more = full(2, 3)
    assert reveille.stats().tags["weights"].active_bytes == 4 * MIB
    reveille.pause()
    assert set(plain.tolist()) == {2} and used() == 4
    """)


def test_graphs(run):
    run("""
    graph, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with reveille.region("weights"):
        weights = full(2, 1)
    with reveille.cuda_graph(graph):
        inner = full(4, 1)
        for call in (reveille.pause, reveille.resume):
            error = refused(call, "weights")
            assert isinstance(error, reveille.Busy), error
    with reveille.cuda_graph(second, pool=graph.pool()):
        more = full(4, 1)
    with reveille.cuda_graph(torch.cuda.CUDAGraph(), tag="other"):
        others = full(4, 1)
    assert reveille.stats().tags["cuda_graph"].active_bytes == 8 * MIB
    reveille.pause("cuda_graph")
    assert used() == 6
    reveille.resume("cuda_graph")
    foreign = torch.cuda.MemPool()
    if os.environ["MODE"] == "torch":
        error = refused(entered, reveille.cuda_graph(torch.cuda.CUDAGraph(), pool=foreign.id))
        assert "leave pool out" in str(error)
    """)


def test_a_capture_of_another_thread(run):
    run("""
    import threading
    with reveille.region("weights"):
        weights = full(2, 1)
    inside, leave = threading.Event(), threading.Event()

    def capture():
        with reveille.cuda_graph(torch.cuda.CUDAGraph()):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=capture)
    thread.start()
    assert inside.wait(30)
    assert not torch.cuda.is_current_stream_capturing()
    errors = [refused(call, "weights") for call in (reveille.pause, reveille.resume)]
    leave.set()
    thread.join()
    assert [type(error) for error in errors] == [reveille.Busy] * 2, errors
    assert used() == 2
    reveille.pause("weights")
    assert used() == 0
    """)


def test_a_capture_that_fails_ends(run):
    run("""
    with reveille.region("weights"):
        weights = full(2, 1)
    with contextlib.suppress(KeyError), reveille.cuda_graph(torch.cuda.CUDAGraph()):
        raise KeyError
    reveille.pause("weights")
    assert used() == 0
    """)


def test_tags_in_errors_are_whole(run):
    run("""
    tags = ["cache of " + "x" * 100 + str(number) for number in range(2)]
    for tag in tags:
        with reveille.region(tag):
            kept = full(40, 1)
        reveille.pause(tag)
        del kept
    other = full(30, 5)
    assert refused(reveille.resume, tags[1]).tag == tags[1]
    assert refused(reveille.contexts()[0].resume, tags[1]).tag == tags[1]
    assert refused(reveille.contexts()[0].resume).tag == tags[0][:47]  # it may be either
    """)


def test_pytorch_that_lacks_pools(run):
    run("""
    del torch.cuda.use_mem_pool
    error = refused(entered, reveille.region("weights"))
    assert isinstance(error, reveille.NotSupported)
    assert str(error) == ("PyTorch 2.11.0+stub has no torch.cuda.use_mem_pool, which regions are "
                          "made with: install a newer one")
    """)


def test_no_pytorch(run_python):
    environment = variables()
    environment["PYTHONPATH"] = environment["PYTHONPATH"].replace(str(STUB), "")
    program = """
    import reveille, sys
    sys.modules["torch"] = None
    for manager in (reveille.region("a"), reveille.record("run.rvt"), reveille.cuda_graph(None)):
        try:
            manager.__enter__()
        except ModuleNotFoundError as error:
            print(error.name, str(error).startswith("regions are memory of PyTorch, and /"))
    """
    done = run_python("-c", textwrap.dedent(program), **environment)
    assert (done.stdout, done.stderr) == ("torch True\n" * 3, "")


def test_stages_and_recording(run, tmp_path):
    run("""
    with reveille.record("run.rvt"):
        reveille.step()
        reveille.stage("rollout")
        with reveille.region("kv_cache"):
            cache = full(8, 1)
        reveille.stage("training")
        reveille.pause("kv_cache")
    stages = reveille.contexts()[0].stats().stages
    assert [(each.name, each.peak_bytes >= 8 * MIB) for each in stages][-2:] == [
        ("rollout", True), ("training", True)]
    result = reveille.replay("run.rvt", device="80GiB")
    assert result.devices[0].stage("rollout").peak_bytes >= 8 * MIB
    error = refused(entered, reveille.record("missing/run.rvt"))
    assert isinstance(error, reveille.InputOutputError) and "missing/run.rvt" in str(error)
    assert isinstance(refused(reveille.stage, "a\\0b"), reveille.InvalidArgument)
    with reveille.region("on_disk", backup="disk"):
        more = full(2, 1)
    with reveille.record("two.rvt"):
        reveille.pause()
        reveille.resume()
    assert reveille.replay("two.rvt", device="80GiB").event_count > 0
    assert reveille.replay("two.1.rvt", device="80GiB").event_count > 0
    """)


def test_nothing_used_yet(run):
    run("""
    reveille.pause()
    reveille.resume()
    assert reveille.fits()
    assert reveille.contexts() == ()
    assert "none yet" in str(refused(reveille.pause, "weights"))
    assert (reveille.stats().tags, reveille.stats().devices) == ({}, ())
    """)


def test_contexts_belong_to_the_library(run):
    run("""
    with reveille.region("weights"):
        weights = full(2, 1)
    context, = reveille.contexts()
    assert context.tags == ("weights",)
    assert context.allocation(weights).tag == "weights"
    assert isinstance(refused(context.close), reveille.InvalidState)
    assert isinstance(refused(context.alloc, "1GiB"), reveille.OutOfDeviceMemory)
    del context
    assert reveille.contexts()[0].memory() == (62 * MIB, 64 * MIB)
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(refused(reveille.pause, "weights"), reveille.Forked) else 1)
    assert os.waitpid(child, 0)[1] == 0
    """)


# ---- Modes ----


def test_preload_mode_without_the_library(run_python):
    program = """
    from reveille.torch_memory_saver import torch_memory_saver
    torch_memory_saver.hook_mode = "preload"
    error = refused(entered, torch_memory_saver.region())
    assert isinstance(error, reveille.InvalidState)
    assert "reveille.configure_subprocess()" in str(error) and "LD_PRELOAD=" in str(error)
    """
    done = run_python("-c", PRELUDE + textwrap.dedent(program), **variables())
    assert (done.returncode, done.stderr) == (0, "")


def test_libraries_that_were_not_built(run_python, tmp_path):
    for name in ("libreveille.so.0", "libreveille-replay.so.0"):
        (tmp_path / name).symlink_to(_c.library_directory() / name)
    program = """
    for call in (reveille.pause, lambda: entered(reveille.configure_subprocess())):
        error = refused(call)
        assert isinstance(error, reveille.NotFound) and "CUDA headers" in str(error)
    """
    environment = {**variables(), "RVL_LIBRARY_DIR": str(tmp_path)}
    done = run_python("-c", PRELUDE + textwrap.dedent(program), **environment)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("before", [None, "/usr/lib/other.so"])
def test_configure_subprocess(monkeypatch, before):
    if not _c.hook_library_path("preload").exists():
        pytest.skip("the hook libraries were not built")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    if before is not None:
        monkeypatch.setenv("LD_PRELOAD", before)
    with pytest.raises(KeyError), reveille.configure_subprocess():
        paths = os.environ["LD_PRELOAD"].split(":")
        assert paths == [str(_c.hook_library_path("preload")), *filter(None, [before])]
        with reveille.configure_subprocess():
            assert os.environ["LD_PRELOAD"].split(":") == paths
        raise KeyError
    assert os.environ.get("LD_PRELOAD") == before


def test_a_subprocess_has_the_library(run_python):
    program = """
    import subprocess, sys
    command = [sys.executable, "-c", "import reveille; print(reveille.hook_mode())"]
    with reveille.configure_subprocess():
        print(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    print(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    """
    done = run_python("-c", PRELUDE + textwrap.dedent(program), **variables())
    assert (done.stdout, done.stderr) == ("preload\ntorch\n", "")


# ---- In the place of torch_memory_saver ----


def test_the_other_interface(run):
    run("""
    from reveille.torch_memory_saver import torch_memory_saver as saver
    assert saver.hook_mode is None and saver.enabled
    saver.hook_mode = os.environ["MODE"]
    with saver.region():
        plain = full(2, 1)
    assert saver.hook_mode == os.environ["MODE"]
    with saver.region(tag="weights", enable_cpu_backup=True, cpu_backup_backend="mmap"):
        weights = full(4, 7)
        with saver.disable():
            outside = full(2, 3)
    with saver.cuda_graph(torch.cuda.CUDAGraph(), tag="graph"):
        inner = full(2, 1)
    assert used() == 10
    saver.pause("nobody")
    saver.pause("weights")
    assert used() == 6
    assert set(saver.get_cpu_backup(weights).tolist()) == {7}
    assert saver.get_cpu_backup(plain) is None
    view = saver.get_cpu_backup(weights, zero_copy=True)
    assert view.data_ptr() == saver.get_cpu_backup(weights, zero_copy=True).data_ptr()
    saver.pause()
    assert used() == 2
    saver.resume("nobody")
    saver.resume()
    assert set(weights.tolist()) == {7} and used() == 10
    saver.pause("weights")
    rest = full(56, 1)
    error = refused(saver.resume, "weights")
    assert isinstance(error, reveille.OutOfDeviceMemory)
    del rest
    torch.cuda.empty_cache()
    saver.resume("weights")
    """)


def test_settings_of_the_other_interface(run):
    run("""
    from reveille.torch_memory_saver import torch_memory_saver as saver
    assert saver.retain_cpu_backup is False
    saver.retain_cpu_backup = True
    assert saver.retain_cpu_backup is True
    saver.set_disk_backup_dir("backups")
    with saver.region(enable_disk_backup=True):
        weights = full(4, 7)
    saver.pause()
    assert len(os.listdir("backups")) == 1
    saver.resume()
    assert set(weights.tolist()) == {7}
    saver.memory_margin_bytes = 32 * MIB
    try:
        with saver.region():
            full(40, 1)
    except torch.cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError("the margin was not kept")
    for call in (
        lambda: setattr(saver, "memory_margin_bytes", -1),
        lambda: setattr(saver, "hook_mode", "both"),
        lambda: entered(saver.region(enable_cpu_backup=True, enable_disk_backup=True)),
        lambda: entered(saver.region(cpu_backup_backend="mmap")),
        lambda: entered(saver.region(enable_cpu_backup=True, cpu_backup_backend="tape")),
        lambda: entered(saver.disable(dispose_mem_pool_after_use=False)),
    ):
        assert isinstance(refused(call), reveille.InvalidArgument)
    other = {"torch": "preload", "preload": "torch"}[os.environ["MODE"]]
    assert isinstance(refused(setattr, saver, "hook_mode", other), reveille.InvalidState)
    """)


def test_the_insides_of_the_other_package(run, run_python):
    folder = run_python("-m", "reveille", "--torch-memory-saver").stdout.strip()
    path = os.pathsep.join([folder, variables()["PYTHONPATH"]])
    program = """
    from torch_memory_saver.binary_wrapper import BinaryWrapper
    from torch_memory_saver.entrypoint import TorchMemorySaver, _TorchMemorySaverImpl
    assert isinstance(reveille.torch_memory_saver.torch_memory_saver, TorchMemorySaver)
    assert _TorchMemorySaverImpl is reveille.torch_memory_saver._TorchMemorySaverImpl
    from torch_memory_saver.hooks.base import HookMode, HookUtilBase
    from torch_memory_saver.hooks.mode_preload import HookUtilModePreload
    from torch_memory_saver.hooks.mode_torch import HookUtilModeTorch
    mode = os.environ["MODE"]
    kinds = {"preload": HookUtilModePreload, "torch": HookUtilModeTorch}
    util = HookUtilBase.create(hook_mode=mode)
    assert type(util) is kinds[mode]
    path = util.get_path_binary()
    assert os.path.basename(path) == f"libreveille-{mode}.so" and os.path.exists(path)
    assert (util.get_allocator() is None) == (mode == "preload")
    if mode == "torch":
        assert isinstance(refused(HookUtilModePreload().get_path_binary), reveille.InvalidState)
    assert isinstance(refused(HookUtilBase.create, "both"), reveille.InvalidArgument)
    library = BinaryWrapper(path)
    library.set_config(tag="raw", interesting_region=True, enable_cpu_backup=True)
    with torch.cuda.use_mem_pool(torch.cuda.MemPool(allocator=util.get_allocator())):
        raw = full(4, 7)
    library.set_config(tag="default", interesting_region=False, enable_cpu_backup=False)
    assert library.cdll.tms_pause(b"raw") == 0 and used() == 0
    assert library.cdll.tms_resume(b"raw") == 0 and set(raw.tolist()) == {7}
    import importlib.metadata
    assert importlib.metadata.version("torch_memory_saver") == "0.0.10+reveille"
    """
    run(program, PYTHONPATH=path)


def test_settings_through_the_insides(run):
    """As programs of slime and miles change them, for what must not be given up."""
    run("""
    from reveille.torch_memory_saver import _TorchMemorySaverImpl, torch_memory_saver as saver
    if os.environ["MODE"] == "torch":
        assert saver._impl is None and saver.hook_mode is None  # asking has opened nothing
        saver._ensure_initialized()
    inner = saver._impl
    assert type(inner) is _TorchMemorySaverImpl and inner is saver._impl
    assert inner._hook_mode == os.environ["MODE"]
    inner._mark = ["kept"]
    assert saver._impl._mark == ["kept"]
    _TorchMemorySaverImpl._with_region_config = None  # regions may lie in regions anyway
    cdll = inner._binary_wrapper.cdll

    with saver.region(tag="weights", enable_cpu_backup=True):
        assert cdll.tms_get_interesting_region() and cdll.tms_get_enable_cpu_backup()
        weights = full(4, 7)
        with saver.region(tag="gradients"):
            gradients = full(8, 9)
        before = cdll.tms_get_interesting_region()
        cdll.tms_set_interesting_region(False)
        assert not cdll.tms_get_interesting_region()
        cdll.tms_set_interesting_region(before)
        more = full(2, 5)
    assert not cdll.tms_get_interesting_region()
    assert {name: tag.active_bytes // MIB for name, tag in reveille.stats().tags.items()} == {
        "weights": 6, "gradients": 8}

    inner._binary_wrapper.set_config(tag="raw", interesting_region=True, enable_cpu_backup=True,
                                     cpu_backup_backend="mmap")
    assert cdll.tms_get_current_tag() == b"raw" and cdll.tms_get_cpu_backup_backend() == b"mmap"
    inner._binary_wrapper.set_config(tag="default", interesting_region=False,
                                     enable_cpu_backup=False, enable_disk_backup=True)
    assert cdll.tms_get_enable_disk_backup() and cdll.tms_get_cpu_backup_backend() == b"mmap"
    cdll.tms_set_enable_disk_backup(False)
    inner.pause("weights")
    assert [set(saver.get_cpu_backup(each, zero_copy=True).tolist()) for each in (weights, more)] == [
        {7}, {5}]
    assert saver.get_cpu_backup(gradients, zero_copy=True) is None  # not backed up, and not paused
    inner.resume("weights")
    assert saver.get_cpu_backup(weights, zero_copy=True) is None
    assert [set(each.tolist()) for each in (weights, more, gradients)] == [{7}, {5}, {9}]
    """)


def test_a_launcher_finds_disk_backups_in_the_file():
    """miles looks for the setting's name in the bytes of the library that it preloads."""
    if not _c.hook_library_path("preload").exists():
        pytest.skip("the hook libraries were not built")
    assert b"TMS_INIT_ENABLE_DISK_BACKUP" in _c.hook_library_path("preload").read_bytes()


@pytest.mark.parametrize("value", ["maybe", ""])
def test_an_environment_that_is_not_understood_raises(run_python, value):
    """In torch mode: its library comes late; the preload library ends a program at its start."""
    program = """
    for _ in range(2):
        error = refused(lambda: entered(reveille.region("weights")))
        assert isinstance(error, reveille.InvalidArgument), error
        assert "environment variable TMS_INIT_ENABLE_CPU_BACKUP has the value" in str(error)
    os.environ["TMS_INIT_ENABLE_CPU_BACKUP"] = "1"  # it was read, and that is that
    refused(lambda: entered(reveille.region("weights")))
    """
    environment = {**variables(), "TMS_INIT_ENABLE_CPU_BACKUP": value}
    done = run_python("-c", PRELUDE + textwrap.dedent(program), **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


SAVER_PROGRAM = """
from torch_memory_saver import configure_subprocess, torch_memory_saver
import torch_memory_saver as package
from torch_memory_saver.utils import get_binary_path_from_package
from torch_memory_saver.hooks.mode_preload import configure_subprocess as same
import os, reveille.torch_memory_saver
assert torch_memory_saver is reveille.torch_memory_saver.torch_memory_saver
assert configure_subprocess is same is reveille.configure_subprocess
print(get_binary_path_from_package("torch_memory_saver_hook_mode_preload").name)
"""


def test_one_setting_puts_it_in_the_place_of_the_package(run_python, tmp_path):
    if not (Path(sysconfig.get_paths()["purelib"]) / "reveille.pth").exists():
        pytest.skip("the package is not installed")
    (tmp_path / "torch_memory_saver.py").write_text("torch_memory_saver = 'the other'\n")
    environment = {**variables(), "REVEILLE_AS_TORCH_MEMORY_SAVER": "1"}
    done = run_python("-c", SAVER_PROGRAM, **environment)
    assert (done.stdout, done.stderr) == ("libreveille-preload.so\n", "")
    beside = Path(reveille.__file__).parent / "alias"
    assert (beside / "torch_memory_saver_hook_mode_preload.abi3.so").exists()
    simple = "from torch_memory_saver import torch_memory_saver; print(torch_memory_saver)"
    version = "from importlib.metadata import version; print(version('torch-memory-saver'))"
    assert run_python("-c", version, **environment).stdout == "0.0.10+reveille\n"
    for value in ("0", ""):
        environment["REVEILLE_AS_TORCH_MEMORY_SAVER"] = value
        done = run_python("-c", version, **environment)
        assert "PackageNotFoundError" in done.stderr
        assert run_python("-c", simple, **environment).stdout == "the other\n"
    environment["REVEILLE_AS_TORCH_MEMORY_SAVER"] = "maybe"
    done = run_python("-c", simple, **environment)
    assert "ImportError: REVEILLE_AS_TORCH_MEMORY_SAVER='maybe' is not understood" in done.stderr
    assert run_python("-c", "print(1)", **environment).stdout == "1\n"


def test_by_the_folder_alone(run_python):
    folder = run_python("-m", "reveille", "--torch-memory-saver").stdout.strip()
    environment = variables()
    environment["PYTHONPATH"] = os.pathsep.join([folder, environment["PYTHONPATH"]])
    done = run_python("-c", SAVER_PROGRAM, **environment)
    assert (done.stdout, done.stderr) == ("libreveille-preload.so\n", "")


def test_the_preload_library_by_its_other_name(run_python):
    """As launchers start it, which put the file into LD_PRELOAD that lies beside the package."""
    library = Path(reveille.__file__).parent / "alias/torch_memory_saver_hook_mode_preload.abi3.so"
    if not library.exists():
        pytest.skip("the package is not installed")
    program = """
    from reveille.torch_memory_saver import torch_memory_saver as saver
    weights = full(4, 7)
    with saver.region(tag="disposable", enable_cpu_backup=False):
        gradients = full(8, 9)
    cdll = saver._impl._binary_wrapper.cdll
    assert cdll.tms_get_interesting_region() and cdll.tms_get_enable_cpu_backup()
    with saver.disable():
        reduced = full(2, 5)
    saver.pause()
    assert used() == 2 and set(reduced.tolist()) == {5}
    assert set(saver.get_cpu_backup(weights, zero_copy=True).tolist()) == {7}
    assert saver.get_cpu_backup(gradients, zero_copy=True) is None
    saver.resume()
    assert set(weights.tolist()) == {7} and used() == 14
    """
    environment = {**variables(), "LD_PRELOAD": str(library)}
    environment.update({"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"})
    done = run_python("-c", PRELUDE + textwrap.dedent(program), **environment)
    assert (done.returncode, done.stderr) == (0, "")
