# SPDX-License-Identifier: MIT
"""The plugin for vLLM, on a stub of it and of PyTorch, over the fake driver."""

import os
import textwrap
from importlib.metadata import entry_points

import pytest
from conftest import SOURCE
from reveille.vllm import register
from test_regions import run  # noqa: F401

NVML = {"RVL_NVML_LIBRARY": os.environ.get("RVL_TEST_CUDA_FAKE", "")}  # asleep it says what is free

BEGIN = """
import ctypes, gc, logging
import vllm
from reveille.vllm import register
from vllm import device_allocator
from vllm.device_allocator.cumem import CuMemAllocator

def tags():
    # by vLLM's tag: MiB awake, asleep, backed up
    found = reveille.stats().tags.items()
    return {
        name.removeprefix("vllm:"): (
            stats.active_bytes // MIB, stats.paused_bytes // MIB, stats.host_backup_bytes // MIB
        )
        for name, stats in found
        if name.startswith("vllm:")
    }

register()
"""

ENGINE = (
    BEGIN
    + """
worker = vllm.Worker(vllm.config("reveille"))
with worker.pool("weights"):
    weights = full(4, 7)
with worker.pool("kv_cache"):
    cache = full(8, 9)
with worker.pool("runtime"):
    runtime = full(2, 5)
where = [each.data_ptr() for each in (weights, cache, runtime)]
allocator = device_allocator.get_mem_allocator_instance()

def same_addresses():
    assert [each.data_ptr() for each in (weights, cache, runtime)] == where
"""
)


@pytest.fixture
def engine(run):  # noqa: F811
    return lambda program, **more: run(ENGINE + textwrap.dedent(program), **more)


@pytest.fixture
def plugin(run):  # noqa: F811
    return lambda program, **more: run(BEGIN + textwrap.dedent(program), **more)


# ---- Levels and tags ----


def test_level_1_keeps_weights_and_runtime(engine):
    engine("""
    assert used() == 14 and allocator.get_current_usage() == 14 * MIB
    assert worker.backend.state() == "RUNNING"
    worker.backend.suspend(1)
    assert used() == 0 and allocator.get_current_usage() == 14 * MIB
    assert tags() == {"weights": (0, 4, 4), "kv_cache": (0, 8, 0), "runtime": (0, 2, 2)}
    assert worker.backend.state() == "SUSPENDED"
    worker.backend.resume(["weights"])
    assert tags() == {"weights": (4, 0, 0), "kv_cache": (0, 8, 0), "runtime": (2, 0, 0)}
    assert set(weights.tolist()) == {7} and set(runtime.tolist()) == {5}
    assert worker.backend.state() == "SUSPENDED" and used() == 6
    worker.backend.resume(["kv_cache"])
    assert worker.backend.state() == "RUNNING" and used() == 14
    cache.fill_(3)
    assert set(cache.tolist()) == {3}
    same_addresses()
    """)


def test_level_2_keeps_runtime_alone(engine):
    engine("""
    worker.backend.suspend(2)
    assert tags() == {"weights": (0, 4, 0), "kv_cache": (0, 8, 0), "runtime": (0, 2, 2)}
    worker.backend.resume()
    assert used() == 14 and set(runtime.tolist()) == {5}
    assert set(weights.tolist()) != {7}
    weights.fill_(8)
    assert set(weights.tolist()) == {8}
    same_addresses()
    """)


def test_what_sleeps_without_content_stays_so(engine):
    engine("""
    said = []
    logging.getLogger("reveille").addHandler(logging.Handler())
    logging.getLogger("reveille").handlers[0].emit = lambda record: said.append(record.getMessage())
    worker.backend.discard(("kv_cache",))
    assert tags()["kv_cache"] == (0, 8, 0) and tags()["weights"] == (4, 0, 0) and used() == 6
    assert worker.backend.state() == "SUSPENDED" and said == []
    worker.backend.suspend(1)
    assert tags() == {"weights": (0, 4, 4), "kv_cache": (0, 8, 0), "runtime": (0, 2, 2)} and said == []
    allocator.sleep(("kv_cache",))
    assert tags() == {"weights": (0, 4, 4), "kv_cache": (0, 8, 0), "runtime": (0, 2, 2)}
    assert said == [
        'sleep: "kv_cache" is asleep already, without its content, and stays so: wake it up first',
        'sleep: "runtime" is asleep already, with its content, and stays so: wake it up first',
        'sleep: "weights" is asleep already, with its content, and stays so: wake it up first',
    ]
    allocator.discard("weights")
    assert tags()["weights"] == (0, 4, 4) and said[3].startswith('discard: "weights" is asleep')
    worker.backend.resume()
    assert set(weights.tolist()) == {7}
    """)


def test_default_tags_and_bad_ones(engine):
    engine("""
    with allocator.use_memory_pool():
        plain = full(2, 6)
    allocator.sleep()
    assert tags()["default"] == (0, 2, 2) and tags()["weights"] == (0, 4, 0)
    allocator.wake_up([])
    assert tags()["default"] == (2, 0, 0) and tags()["weights"] == (0, 4, 0)
    allocator.wake_up("weights")
    assert tags()["weights"] == (4, 0, 0) and tags()["kv_cache"] == (0, 8, 0)
    allocator.wake_up(["nobody", "kv_cache"])
    assert used() == 16 and set(plain.tolist()) == {6}
    for call in (allocator.sleep, allocator.discard, allocator.wake_up):
        error = refused(call, [3])
        assert isinstance(error, reveille.InvalidArgument) and "[3]" in str(error)
    assert used() == 16
    """)


def test_other_regions_do_not_sleep_with_the_engine(engine):
    engine("""
    with reveille.region("weights", backup="host"):
        own = full(2, 4)
    worker.backend.suspend(2)
    assert used() == 2 and set(own.tolist()) == {4}
    assert allocator.get_current_usage() == 14 * MIB
    reveille.pause("weights")
    assert used() == 0
    worker.backend.resume()
    assert used() == 14 and reveille.stats().tags["weights"].paused_bytes == 2 * MIB
    """)


# ---- Memory that is not used any more ----


def test_freed_memory_goes_back(engine):
    engine("""
    with worker.pool("runtime"):
        half = full(4, 1)
        whole = full(2, 2)
        del half
    gc.collect()
    assert used() == 16 and allocator.get_current_usage() == 16 * MIB
    del whole
    worker.backend.suspend(1)
    assert tags()["runtime"] == (0, 2, 2), tags()
    del cache
    allocator.release_pools()
    assert allocator.get_current_usage() == 6 * MIB
    worker.backend.resume()
    assert used() == 6
    del weights, runtime
    allocator.close()
    assert used() == 0 and allocator.get_current_usage() == 0
    with worker.pool("weights"):  # another engine may begin
        pass
    """)


def test_pools_within_pools(engine):
    engine("""
    with worker.pool("kv_cache"):
        outer = full(2, 1)
        with worker.pool("runtime"):
            inner = full(2, 2)
        more = full(2, 3)
    assert tags() == {"weights": (4, 0, 0), "kv_cache": (12, 0, 0), "runtime": (4, 0, 0)}
    worker.backend.suspend(1)
    worker.backend.resume()
    assert set(inner.tolist()) == {2}
    """)


def test_graphs_keep_their_memory(plugin):
    plugin(
        """
    worker = vllm.Worker(vllm.config("cumem"))
    graph = torch.cuda.CUDAGraph()
    with vllm.capture_pool(worker.vllm_config) as pool, torch.cuda.graph(graph, pool=pool):
        inner = full(4, 3)
        error = refused(worker.backend.suspend, 1)
        assert isinstance(error, reveille.Busy)
    with vllm.capture_pool(worker.vllm_config) as again:
        assert again == pool
    assert type(worker.backend).__name__ == "CuMemBackend"
    where = inner.data_ptr()
    worker.backend.suspend(1)
    assert tags() == {"cudagraph": (0, 4, 4)} and used() == 0
    worker.backend.resume([])
    assert set(inner.tolist()) == {3} and inner.data_ptr() == where and used() == 4
    del inner, graph
    CuMemAllocator.get_instance().release_pools()
    assert used() == 0
    """,
        REVEILLE_AS_CUMEM="1",
    )


# ---- Hooks of tags, which versions of vLLM after 0.33.0 have ----

HOOKS = """
    called = []
    def mapped(allocations):
        return {each.tag for each in allocations if not each.is_asleep}
    def before(allocations, tags=None):
        called.append(("before", sorted(mapped(allocations) & (tags or mapped(allocations)))))
        assert used() == mib_awake()
    def after(allocations):
        asleep = {each.tag for each in allocations if each.is_asleep}
        called.append(("after", sorted(mapped(allocations) - asleep)))
    def mib_awake():
        return sum(awake for awake, _, _ in tags().values())
    device_allocator.run_before_unmap_hooks = before
    device_allocator.run_after_map_hooks = after
    every = ["kv_cache", "runtime", "weights"]
"""


def test_hooks_of_tags_are_called(engine):
    engine(
        textwrap.dedent(HOOKS)
        + textwrap.dedent("""
    worker.backend.discard(("kv_cache",))
    assert called == [("before", ["kv_cache"]), ("after", ["runtime", "weights"])], called
    called.clear()
    worker.backend.suspend(1)
    assert called == [("before", ["runtime", "weights"]), ("after", [])], called
    called.clear()
    worker.backend.resume(["weights"])
    assert called == [("after", ["runtime", "weights"])], called
    called.clear()
    worker.backend.resume()
    assert called == [("after", every)] and set(weights.tolist()) == {7}, called
    """)
    )


def test_hooks_begin_again_after_a_refused_sleep(engine):
    engine(
        textwrap.dedent(HOOKS)
        + textwrap.dedent("""
    fake = ctypes.CDLL(os.environ["RVL_CUDA_LIBRARY"])
    fake.fake_fail(b"cuMemUnmap", ctypes.c_uint64(1), 1, False)
    refused(worker.backend.suspend, 1)
    assert called == [("before", every), ("after", every)], called
    assert used() == 14 and set(weights.tolist()) == {7}
    def raises(allocations, tags=None):
        raise reveille.Busy("a transfer runs")
    device_allocator.run_before_unmap_hooks = raises
    error = refused(worker.backend.suspend, 1)
    assert isinstance(error, reveille.Busy) and used() == 14
    assert worker.backend.state() == "RUNNING"
    """)
    )


# ---- Failures change nothing ----


def test_no_room_to_wake_up(engine):
    engine("""
    worker.backend.suspend(1)
    other = full(56, 1)
    error = refused(worker.backend.resume)
    assert isinstance(error, reveille.OutOfDeviceMemory) and isinstance(error, RuntimeError)
    assert error.requested_bytes == 14 * MIB and error.free_bytes == 8 * MIB, vars(error)
    assert str(error) == (
        'resume of "vllm:kv_cache", "vllm:runtime", "vllm:weights" needs 14.0 MiB, 8.0 MiB free on cuda:0'
        ": free memory there, or resume fewer tags, and call it again"
    ), str(error)
    assert worker.backend.state() == "SUSPENDED" and used() == 56
    assert tags() == {"weights": (0, 4, 4), "kv_cache": (0, 8, 0), "runtime": (0, 2, 2)}
    worker.backend.resume(["weights"])
    assert set(weights.tolist()) == {7} and used() == 62
    del other
    torch.cuda.empty_cache()
    worker.backend.resume()
    same_addresses()
    """)


def test_a_wake_up_collects_garbage_only_where_there_is_no_room(engine):
    engine("""
    gc.disable()
    class Loop:
        pass
    def garbage(mib):
        loop = Loop()
        loop.itself, loop.tensor = loop, full(mib, 1)
    worker.backend.suspend(1)
    garbage(2)
    worker.backend.resume(["weights"])
    assert used() == 8
    garbage(50)
    assert used() == 58
    worker.backend.resume()
    assert used() == 14 and set(weights.tolist()) == {7}
    """)


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("call", ["cuMemcpyDtoHAsync", "cuMemUnmap"])
def test_a_sleep_that_fails_in_the_driver(engine, call, nth):
    """Each unmapping in turn: those of what is kept, and those of what is discarded."""
    engine(
        """
    fake = ctypes.CDLL(os.environ["RVL_CUDA_LIBRARY"])
    fake.fake_failures.restype = ctypes.c_uint64
    what = os.environ["FAILS"].encode()
    fake.fake_fail(what, ctypes.c_uint64(int(os.environ["NTH"])), 1, False)
    if what == b"cuMemcpyDtoHAsync" and os.environ["NTH"] == "3":  # two tags are copied
        worker.backend.suspend(1)
        assert fake.fake_failures() == 0
        sys.exit()
    error = refused(worker.backend.suspend, 1)
    assert fake.fake_failures() == 1, error
    assert worker.backend.state() == "RUNNING" and used() == 14, (error, used())
    assert tags() == {"weights": (4, 0, 0), "kv_cache": (8, 0, 0), "runtime": (2, 0, 0)}
    assert [set(each.tolist()) for each in (weights, cache, runtime)] == [{7}, {9}, {5}]
    worker.backend.suspend(1)
    worker.backend.resume()
    assert set(weights.tolist()) == {7}
    """,
        FAILS=call,
        NTH=str(nth),
    )


# ---- Which allocator ----


def test_the_option_chooses(plugin):
    plugin("""
    register()  # again
    worker = vllm.Worker(vllm.config("cumem"))
    with worker.pool("weights"):
        weights = full(4, 7)
    assert type(CuMemAllocator.instance) is CuMemAllocator
    worker.backend.suspend(1)
    assert CuMemAllocator.instance.calls == [
        ("use_memory_pool", "weights"), ("sleep", ("runtime", "cudagraph", "weights"))
    ]
    assert used() == 4
    error = refused(lambda: vllm.Worker(vllm.config("reveille")).backend)
    assert isinstance(error, reveille.InvalidState) and "CuMemAllocator" in str(error)
    """)


def test_nobody_asks_with_a_config(plugin):
    plugin("""
    CuMemAllocator.get_instance().release_pools()
    assert type(CuMemAllocator.instance) is CuMemAllocator
    assert CuMemAllocator.instance.calls == [("release_pools",)]
    """)


def test_a_variable_that_is_not_understood(plugin):
    plugin(
        """
    error = refused(lambda: CuMemAllocator.get_instance().close())
    assert isinstance(error, reveille.InvalidArgument)
    assert str(error).startswith("REVEILLE_AS_CUMEM='perhaps' is not understood: set it to 1 ")
    """,
        REVEILLE_AS_CUMEM="perhaps",
    )


def test_graphs_are_offered_to_cumem_alone(plugin):
    plugin("""
    said = []
    logging.getLogger("reveille").warning = lambda text, *more: said.append(text % more)
    with vllm.Worker(vllm.config("reveille", offload_graphs=True)).pool("weights"):
        pass
    assert len(said) == 1 and "leave --sleep-mode-offload-cudagraph out" in said[0]
    """)


def test_expandable_segments_are_turned_off_for_pools(engine):
    engine(
        """
    worker.backend.suspend(1)
    worker.backend.resume()
    assert set(weights.tolist()) == {7}
    """,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )


# ---- Versions ----


def test_another_version_with_the_same_interface_is_said(plugin):
    plugin(
        """
    said = []
    logging.getLogger("reveille").warning = lambda text, *more: said.append(text % more)
    with vllm.Worker(vllm.config("reveille")).pool("weights"):
        weights = full(2, 1)
    assert said == [
        f"Reveille {reveille.version()} was run with vLLM 0.24 and 0.33; this is vLLM 0.34.1, "
        "which has the same interface"
    ]
    assert tags() == {"weights": (2, 0, 0)}
    """,
        STUB_VLLM_VERSION="0.34.1",
    )


@pytest.mark.parametrize(
    "change, said",
    [
        (
            "del device_allocator.DEFERRABLE_TAGS",
            "vllm.device_allocator.DEFERRABLE_TAGS is missing",
        ),
        (
            "device_allocator.MemAllocator.defragment = lambda self: None",
            "MemAllocator.defragment() is new",
        ),
        (
            "CuMemAllocator.sleep = lambda self, offload_tags, streams: None",
            "CuMemAllocator.sleep() has a new streams",
        ),
        (
            "from vllm.device_allocator.sleep_mode_backend import SleepModeBackend as S; "
            "S.__abstractmethods__ = frozenset({'suspend', 'resume', 'migrate'})",
            "a backend must have migrate, resume, suspend",
        ),
        ("del CuMemAllocator.get_instance", "CuMemAllocator.get_instance is missing"),
    ],
)
def test_an_unknown_interface_is_refused_with_both_versions(plugin, change, said):
    plugin(
        f"""
    {change}
    def allocate():
        with CuMemAllocator.instance.use_memory_pool("weights"):
            pass
    def begin(vllm_config):
        allocate()
    for again in range(2):
        error = refused(begin, vllm.config("reveille"))
        assert isinstance(error, reveille.NotSupported)
        assert str(error) == (
            f"Reveille {{reveille.version()}} does not know the sleep mode of vLLM 0.99.0 ({said}): "
            "install vllm==0.33.0, or a Reveille that knows this vLLM, or leave "
            "--sleep-mode-backend at cumem"
        ), str(error)
    assert used() == 0
    """,
        STUB_VLLM_VERSION="0.99.0",
    )


OLDER = """
import sys
for name in "alloc_conf", "sleep_mode_backend":  # as in 0.24: modules that came later
    sys.modules["vllm.device_allocator." + name] = None
import torch, vllm
from vllm import device_allocator
del device_allocator.DEFERRABLE_TAGS
"""


def test_an_older_vllm_keeps_its_own_allocator(run):  # noqa: F811
    run(
        OLDER
        + BEGIN
        + """
said = []
logging.getLogger("reveille").warning = lambda text, *more: said.append(text % more)
with CuMemAllocator.get_instance().use_memory_pool("weights"):
    pass
own = CuMemAllocator.get_instance()
assert type(own) is CuMemAllocator and own.calls == [("use_memory_pool", "weights")] and said == []
"""
    )


def test_an_older_vllm_has_reveille_by_the_variable(run):  # noqa: F811
    """Nothing names a backend there, and a wake by tags wakes these alone."""
    run(
        OLDER
        + BEGIN
        + """
def settings(text):
    torch.cuda.memory.settings["expandable_segments"] = text == "expandable_segments:True"
torch.cuda.memory._set_allocator_settings = settings
settings("expandable_segments:True")
allocator = device_allocator.get_mem_allocator_instance()
with allocator.use_memory_pool("weights"):
    assert torch.cuda.memory.settings["expandable_segments"] is False
    weights = full(4, 7)
assert torch.cuda.memory.settings["expandable_segments"] is True
with allocator.use_memory_pool("kv_cache"):
    cache = full(8, 9)
with allocator.use_memory_pool("other"):
    other = full(2, 5)
allocator.sleep(offload_tags=("weights",))
assert used() == 0 and tags() == {"weights": (0, 4, 4), "kv_cache": (0, 8, 0), "other": (0, 2, 0)}
allocator.wake_up(["weights"])
assert tags() == {"weights": (4, 0, 0), "kv_cache": (0, 8, 0), "other": (0, 2, 0)}
assert set(weights.tolist()) == {7}
allocator.wake_up()
assert used() == 14
""",
        REVEILLE_AS_CUMEM="1",
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
        STUB_VLLM_VERSION="0.24.0",
    )


def test_vllm_finds_the_plugin():
    """The entry point of the installed package."""
    found = [each for each in _entry_points("vllm.general_plugins") if each.name == "reveille"]
    assert {each.value for each in found} == {"reveille.vllm:register"}
    assert {each.load() for each in found} == {register}


def _entry_points(group):
    found = entry_points()  # Python 3.9 has no choice by group
    return found.select(group=group) if hasattr(found, "select") else found[group]


# ---- Ranks ----


def test_ranks_sleep_and_wake_as_one(engine, tmp_path):
    """A job of one rank that misses another; tests/python/test_job.py has those of many."""
    engine(
        """
    sys.path.insert(0, os.environ["HELPERS"])
    from job import FileStore
    import reveille._engine, reveille.vllm
    reveille._engine.RANKS_TIMEOUT_S = 0.2
    def ranks(size):
        job = reveille.Job(FileStore(os.environ["STORE"]), 0, size, name=f"of {size}")
        return reveille.vllm.Allocator(reveille._engine.Engine(lambda: reveille._engine.Ranks(job)))
    ranks(1).sleep(("weights",))
    assert tags() == {"weights": (0, 4, 4), "kv_cache": (0, 8, 0), "runtime": (0, 2, 0)}
    error = refused(ranks(2).wake_up, ["weights"])
    assert isinstance(error, reveille.JobAborted)
    assert str(error).startswith("no rank has moved: rank 1 of 2 cannot wake_up(['weights']): "), error
    assert used() == 0
    ranks(1).wake_up()
    assert used() == 14 and set(weights.tolist()) == {7}
    refused(ranks(2).sleep, ("weights",))
    assert used() == 14 and set(weights.tolist()) == {7}
    """,
        STORE=str(tmp_path),
        HELPERS=str(SOURCE / "tests/python"),
    )


def test_workers_leave_their_gpus_while_the_engine_sleeps(engine):
    engine(
        """
    import reveille.vllm
    extension = reveille.vllm.WorkerExtension()
    error = refused(extension.leave_gpus)
    assert isinstance(error, reveille.InvalidState), error
    assert str(error).startswith("the engine is awake (kv_cache, runtime, weights): "), error
    assert not reveille.asleep() and used() == 14
    worker.backend.suspend(1)
    extension.leave_gpus()
    assert reveille.asleep()
    assert isinstance(refused(allocator.wake_up), reveille.InvalidState)
    extension.return_to_gpus()
    assert not reveille.asleep() and used() == 0
    worker.backend.resume()
    assert used() == 14 and set(weights.tolist()) == {7} and set(runtime.tolist()) == {5}
    same_addresses()
    """,
        **NVML,
    )


def test_a_worker_that_cannot_leave_refuses_for_all(engine, tmp_path):
    """The other rank has a communicator that connects it with this one."""
    engine(
        """
    sys.path.insert(0, os.environ["HELPERS"])
    from job import FileStore
    import threading
    import reveille._asleep, reveille._asleep_nccl, reveille.vllm
    worker.backend.suspend(1)
    def leave(rank, errors):
        job = reveille.Job(FileStore(os.environ["STORE"]), rank, 2)
        try:
            reveille._asleep.sleep(group=job)
        except reveille.JobAborted as error:
            errors[rank] = str(error)
    ranks = {}
    def as_rank(found):
        if ranks[threading.get_ident()] == 1:
            raise reveille.NotSupported("1 communicator of NCCL connects this process with others")
    reveille._asleep_nccl.refuse = as_rank
    errors, threads = {}, []
    def run(rank):
        ranks[threading.get_ident()] = rank
        leave(rank, errors)
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for each in threads: each.start()
    for each in threads: each.join()
    assert sorted(errors) == [0, 1], errors
    assert "1 communicator of NCCL connects" in errors[0], errors
    assert not reveille.asleep() and used() == 0
    worker.backend.resume()
    assert set(weights.tolist()) == {7}
    """,
        STORE=str(tmp_path),
        HELPERS=str(SOURCE / "tests/python"),
        **NVML,
    )


EXECUTOR = """
    sys.path.insert(0, os.environ["HELPERS"])
    from job import FileStore
    from vllm.v1.executor import Executor
    import reveille._engine, reveille.vllm
    RANKS = 3

    class Worker:
        def __init__(self, rank):
            self.rank = rank
            store = FileStore(os.environ["STORE"])
            ranks = reveille._engine.Ranks(reveille.Job(store, rank, RANKS))
            self.allocator = reveille.vllm.Allocator(reveille._engine.Engine(lambda: ranks))
            with self.allocator.use_memory_pool("weights"):
                self.weights = full(4, 7 + rank)
        def sleep(self):
            self.allocator.sleep("weights")
        def discard(self):
            self.allocator.discard("weights")
        def wake_up(self):
            self.allocator.wake_up()
            self.weights.tolist()  # what follows in vLLM uses the memory
        def occupy(self, rank):
            self.other = full(62, 1) if rank == self.rank else None
            torch.cuda.empty_cache()
        def refuse(self, rank, error):
            # what happens on one rank when it prepares
            def raises(*_arguments, **_options):
                raise error
            saver = self.allocator._own._saver
            vars(saver).pop("prepare", None)
            if rank == self.rank:
                saver.prepare = raises
        def state(self):
            return [self.rank, self.allocator.asleep]
        def value(self):
            return set(self.weights.tolist()) == {7 + self.rank}

    executor = Executor(RANKS, Worker)
    def state(asleep):
        return [[rank, asleep] for rank in range(RANKS)]
    def refused_by(rank, method, *arguments):
        error = None
        try:
            executor.collective_rpc(method, *arguments)
        except RuntimeError as raised:
            error = str(raised)
        assert error and f"rank {rank} of {RANKS} cannot {method}(" in error, error
        return error
"""


@pytest.fixture
def executor(plugin, tmp_path):
    def run_it(program):
        plugin(
            textwrap.dedent(EXECUTOR) + textwrap.dedent(program),
            STORE=str(tmp_path),
            HELPERS=str(SOURCE / "tests/python"),
        )

    return run_it


def test_the_executor_goes_on_after_a_refusal(executor):
    """Each rank in turn has no room. The next calls of the executor get their own answers."""
    executor("""
    for rank in range(RANKS):
        executor.collective_rpc("sleep")
        assert executor.collective_rpc("state") == state(True)
        executor.collective_rpc("occupy", rank)
        error = refused_by(rank, "wake_up")
        assert "needs 4.0 MiB, 2.0 MiB free on cuda:0" in error, error
        assert executor.collective_rpc("state") == state(True)
        refused_by(rank, "wake_up")
        executor.collective_rpc("occupy", None)
        assert executor.collective_rpc("wake_up") == [None] * RANKS
        assert executor.collective_rpc("state") == state(False)
        assert executor.collective_rpc("value") == [True] * RANKS
    """)


@pytest.mark.parametrize("call", ["sleep", "discard"])
def test_the_executor_goes_on_after_a_refused_sleep(executor, call):
    executor(f"""
    for rank in range(RANKS):
        executor.collective_rpc("refuse", rank, reveille.Busy("a stream is being captured"))
        assert "a stream is being captured" in refused_by(rank, "{call}")
        assert executor.collective_rpc("state") == state(False)
        executor.collective_rpc("refuse", None, None)
        executor.collective_rpc("{call}")
        assert executor.collective_rpc("state") == state(True)
        executor.collective_rpc("wake_up")
    """)


def test_a_late_rank_is_told_of_at_once(executor):
    """The executor must not wait for the last rank's answer, which may never come."""
    executor("""
    import time
    class Late(Worker):
        def wake_up(self):
            reveille._engine.RANKS_TIMEOUT_S = 2
            if self.rank == RANKS - 1:
                time.sleep(60)
            super().wake_up()
    executor = Executor(RANKS, Late)
    executor.collective_rpc("sleep")
    started = time.monotonic()
    assert "late, stuck or dead" in refused_by(RANKS - 1, "wake_up")
    assert time.monotonic() - started < 50
    """)


def test_what_a_rank_before_the_last_raises(engine, tmp_path):
    """The same exception, which vLLM's worker takes for an answer. Else it is a plain one."""
    engine(
        """
    from vllm.v1.outputs import AsyncModelRunnerOutput
    import reveille._engine, reveille.vllm
    class Job:
        rank, world_size = 0, 2
        def move(self, what, prepare, timeout):
            cause = reveille.OutOfDeviceMemory("no room", requested_bytes=5)
            raise reveille.JobAborted(
                "none has moved", rank=1, reason="no room", agreed=self.agreed, requested_bytes=5
            ) from cause
    ranks = Job()
    engine = reveille._engine.Engine(lambda: reveille._engine.Ranks(ranks))
    allocator = reveille.vllm.Allocator(engine)
    def raised(agreed, rank=0):
        ranks.agreed, ranks.rank = agreed, rank
        error = refused(allocator.sleep, "weights")
        assert isinstance(error, reveille.JobAborted) and str(error) == "none has moved"
        assert (error.rank, error.reason, error.requested_bytes) == (1, "no room", 5)
        assert isinstance(error.__cause__, reveille.OutOfDeviceMemory)
        return isinstance(error, AsyncModelRunnerOutput)
    assert raised(agreed=True)
    assert not raised(agreed=False)
    assert not raised(agreed=True, rank=1)
    sys.modules["vllm.v1.outputs"] = None  # as in a vLLM that has none
    del sys.modules["reveille._vllm_executor"]
    assert not raised(agreed=True)
    """
    )
