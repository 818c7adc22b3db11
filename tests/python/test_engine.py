# SPDX-License-Identifier: MIT
"""Engines of several ranks: all move or none, and communicators sleep with their memory.

The ranks are processes, over the fake driver and a stand-in for NCCL in which they wait for each
other (fake_nccl.py). The engines are vLLM by the plugin, and programs of torch_memory_saver.
"""

import textwrap

import pytest
from conftest import SOURCE
from test_regions import run  # noqa: F401

RANKS = """
    sys.path.insert(0, os.environ["HELPERS"])
    import pathlib, torch.distributed, fake_nccl, reveille._engine
    from fake_nccl import FakeNccl
    from job import FileStore
    from torch.distributed.distributed_c10d import Group
    from vllm.v1.executor import Executor
    RANKS = 2
    FOLDER = pathlib.Path(os.environ["STORE"])
    reveille._engine.RANKS_TIMEOUT_S = 30

    class Rank:
        # what all engines have here
        def __init__(self, rank):
            self.rank = rank
            torch.distributed.begin(rank, RANKS, FileStore(FOLDER))
            self.fake = FakeNccl(FOLDER, os.environ.get("NCCL", "2.30.7"))
            fake_nccl.use(setattr, self.fake)
            self.group = Group(self.add("torch", rank, RANKS), range(RANKS))
            self.other = Group(self.add("wide", rank, RANKS + 1), range(RANKS + 1))
            self.gloo = Group(None, range(RANKS))
        def add(self, *of_it):
            return self.fake.add(*of_it, suspendable=MIB)
        def suspended(self):
            return [each.name for each in self.fake.comms.values() if each.suspended]
        def fail(self, rank, function, name):
            self.fake.fail = {(function, name): "error"} if rank == self.rank else {}
        def occupy(self, rank, mib):
            self.neighbour = full(mib, 1) if rank == self.rank else None
            torch.cuda.empty_cache()
        def used(self):
            return used()
        def reduce(self, pointer):
            return self.fake.reduce(pointer)

    class All(Executor):
        # reads the answers of all ranks, whatever they are
        def collective_rpc(self, method, *arguments):
            for pipe in self._pipes:
                pipe.send((method, arguments))
            assert all(pipe.poll(60) for pipe in self._pipes), f"{method} is not answered"
            answers = [pipe.recv() for pipe in self._pipes]
            for succeeded, answer in answers:
                if not succeeded:
                    raise RuntimeError(answer)
            return [answer for _, answer in answers]
    def refused(method, *arguments):
        try:
            executor.collective_rpc(method, *arguments)
        except RuntimeError as error:
            return str(error)
        raise AssertionError("it was not refused")
    def all_ranks(method, expected, *arguments):
        got = executor.collective_rpc(method, *arguments)
        assert got == [expected] * RANKS, got
"""

VLLM = """
    import logging, vllm
    from reveille.vllm import register
    from vllm import device_allocator
    from vllm.distributed.parallel_state import Group as Parallel
    register()
    OPTIONS = {"ranks": RANKS, "suspend_communicators": True}

    class Worker(Rank):
        def __init__(self, rank):
            super().__init__(rank)
            own = self.add("tp", rank, RANKS)
            self.tp = Parallel("tp", list(range(RANKS)), own, self.fake)
            self.pp = Parallel("pp", [rank], None, self.fake)
            self.dp = Parallel("dp", [rank, RANKS + rank], self.add("dp", 0, 2), self.fake)
            self.worker = vllm.Worker(vllm.config("reveille", **OPTIONS))
            with self.worker.pool("weights"):
                self.weights = full(4, 7)
            with self.worker.pool("kv_cache"):
                self.cache = full(8, 9)
        def sleep(self, level):
            self.worker.backend.suspend(level)
        def discard(self, *tags):
            self.worker.backend.discard(tags)
        def wake_up(self, tags):
            self.worker.backend.resume(tags)
        def noted(self):
            return [each.suspended for each in (self.tp, self.dp)]
        def known(self):
            return [each.pointer for each in reveille.communicators()]
        def value(self):
            return set(self.weights.tolist()) == {7}
        def refuse_by_hook(self, rank):
            def before(_allocations, _tags):
                if rank == self.rank:
                    raise reveille.Busy("a transfer runs")
            self.begun = []
            device_allocator.run_before_unmap_hooks = before
            device_allocator.run_after_map_hooks = lambda _allocations: self.begun.append(1)
        def begun_again(self):
            return len(self.begun)
        def forget_how(self):
            del self.tp.device_communicator.pynccl_comm._suspended
        def load_another(self):
            self.tp.device_communicator.pynccl_comm.nccl.lib = type("Other", (), {"_handle": 1})()

    executor = All(RANKS, Worker)
"""

SAVER = """
    from reveille.torch_memory_saver import torch_memory_saver as saver

    class Worker(Rank):
        def __init__(self, rank):
            super().__init__(rank)
            with saver.region("weights", enable_cpu_backup=True):
                self.weights = full(4, 7)
            with saver.region("kv_cache"):
                self.cache = full(8, 9)
            if rank == 1:
                with saver.region("of one rank"):
                    self.more = full(2, 1)
        def pause(self, *tag):
            saver.pause(*tag)
        def resume(self, *tag):
            saver.resume(*tag)
        def value(self):
            return set(self.weights.tolist()) == {7}

    executor = All(RANKS, Worker)
"""


@pytest.fixture
def engine(run, tmp_path):  # noqa: F811
    def run_it(kind, program, **more):
        parts = (RANKS, kind, program)
        environment = {"STORE": str(tmp_path), "HELPERS": str(SOURCE / "tests/python"), **more}
        run("".join(map(textwrap.dedent, parts)), **environment)

    return run_it


# ---- vLLM ----


def test_communicators_sleep_with_the_engine(engine):
    """Those of its ranks alone: the ones that reach other engines stay awake."""
    engine(
        VLLM,
        """
    all_ranks("known", [4096, 8192, 12288, 16384])  # torch, wide, tp, dp
    for level in (1, 2):
        all_ranks("sleep", None, level)
        all_ranks("suspended", ["torch", "tp"])
        all_ranks("noted", [True, False])
        all_ranks("used", 0)
        all_ranks("wake_up", None, ["weights"])
        all_ranks("suspended", [])
        all_ranks("noted", [False, False])
        all_ranks("used", 4)
        all_ranks("wake_up", None, ["kv_cache"])
        all_ranks("suspended", [])
    all_ranks("discard", None, "kv_cache")
    all_ranks("suspended", [])
    all_ranks("discard", None, "weights")
    all_ranks("suspended", ["torch", "tp"])
    all_ranks("wake_up", None, None)
    all_ranks("suspended", [])
    assert sorted(executor.collective_rpc("reduce", 12288)) == list(range(RANKS))
    """,
    )


def test_communicators_stay_without_the_option(engine):
    engine(
        VLLM.replace('"suspend_communicators": True', '"suspend_communicators": False'),
        """
    all_ranks("sleep", None, 1)
    all_ranks("suspended", [])
    all_ranks("noted", [False, False])
    """,
    )


def test_no_room_leaves_communicators_asleep(engine):
    engine(
        VLLM,
        """
    all_ranks("sleep", None, 1)
    for rank in range(RANKS):
        executor.collective_rpc("occupy", rank, 62)
        said = refused("wake_up", ["weights"])
        assert f"rank {rank} of {RANKS} cannot wake_up(" in said, said
        assert '"vllm:weights", "nccl" needs 6.0 MiB, 2.0 MiB free' in said, said
        all_ranks("suspended", ["torch", "tp"])
        all_ranks("noted", [True, False])
        executor.collective_rpc("occupy", None, 0)
    all_ranks("wake_up", None, None)
    all_ranks("suspended", [])
    all_ranks("value", True)
    """,
    )


@pytest.mark.parametrize(("name", "victim"), [("torch", 0), ("tp", 1)])
@pytest.mark.parametrize("function", ["suspend", "resume"])
def test_a_communicator_that_fails_keeps_all_as_it_was(engine, function, name, victim):
    """The others wait for it in NCCL. The next sleep or wake-up ends that, and all have moved."""
    asleep = ["torch", "tp"] if function == "resume" else []
    engine(
        VLLM,
        f"""
    call, arguments = ("wake_up", [None]) if {asleep} else ("sleep", [1])
    if {asleep}:
        all_ranks("sleep", None, 1)
    executor.collective_rpc("fail", {victim}, "{function}", "{name}")
    said = refused(call, *arguments)
    assert f"rank {victim} of {{RANKS}} cannot {{call}}(" in said, said
    assert "the fake was told to fail" in said, said
    all_ranks("suspended", {asleep})
    all_ranks("noted", [{bool(asleep)}, False])
    all_ranks("used", 0 if {asleep} else 12)
    executor.collective_rpc("fail", None, "", "")
    all_ranks(call, None, *arguments)
    all_ranks("suspended", [] if {asleep} else ["torch", "tp"])
    all_ranks("wake_up", None, None)
    all_ranks("value", True)
    """,
    )


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("call", ["sleep", "discard"])
def test_a_hook_that_raises_on_one_rank_keeps_all_awake(engine, call, victim):
    """All are told at once, and what the other ranks' hooks have ended begins again."""
    engine(
        VLLM,
        f"""
    import time
    arguments = [1] if "{call}" == "sleep" else ["kv_cache"]
    executor.collective_rpc("refuse_by_hook", {victim})
    started = time.monotonic()
    said = refused("{call}", *arguments)
    assert f"rank {victim} of {{RANKS}} cannot {call}(" in said and "a transfer runs" in said, said
    assert time.monotonic() - started < reveille._engine.RANKS_TIMEOUT_S
    all_ranks("used", 12)
    all_ranks("begun_again", 1)
    executor.collective_rpc("refuse_by_hook", None)
    all_ranks("{call}", None, *arguments)
    all_ranks("used", 0 if "{call}" == "sleep" else 4)
    """,
    )


def test_an_older_nccl_is_refused_before_memory_moves(engine):
    engine(
        VLLM,
        """
    assert "NCCL 2.28.9 cannot give its memory back; 2.29.7 and later can" in refused("sleep", 1)
    all_ranks("used", 12)
    all_ranks("noted", [False, False])
    """,
        NCCL="2.28.9",
    )


def test_a_vllm_that_notes_suspension_otherwise_is_refused(engine):
    engine(
        VLLM,
        """
    executor.collective_rpc("forget_how")
    said = refused("sleep", 1)
    assert "does not know how vLLM 0.33.0 suspends" in said and "--enable-nccl-comm-suspend" in said
    all_ranks("used", 12)
    """,
    )


def test_communicators_of_another_library_are_left_to_vllm(engine):
    """Functions of one NCCL must not be called for a communicator of another."""
    engine(
        VLLM,
        """
    executor.collective_rpc("load_another")
    all_ranks("known", [4096, 8192, 16384])
    all_ranks("sleep", None, 1)
    all_ranks("suspended", ["torch"])
    all_ranks("noted", [False, False])
    """,
    )


# ---- Programs of torch_memory_saver ----


def test_each_rank_moves_by_itself_unless_it_is_asked(engine):
    engine(
        SAVER,
        """
    executor.collective_rpc("pause")
    executor.collective_rpc("occupy", 0, 62)
    assert "no rank has moved" not in refused("resume")
    assert executor.collective_rpc("used")[1] == 14
    all_ranks("suspended", [])
    """,
    )


def test_all_ranks_or_none(engine):
    engine(
        SAVER,
        """
    all_ranks("pause", None, "nobody")
    all_ranks("pause", None, "of one rank")
    assert executor.collective_rpc("used") == [12, 12]
    all_ranks("pause", None)
    all_ranks("used", 0)
    for rank in range(RANKS):
        executor.collective_rpc("occupy", rank, 62)
        said = refused("resume", "weights")
        assert f'rank {rank} of {RANKS} cannot resume("weights"): ' in said, said
        assert "needs 4.0 MiB, 2.0 MiB free on cuda:0" in said, said
        executor.collective_rpc("occupy", None, 0)
        all_ranks("used", 0)
    all_ranks("resume", None)
    assert executor.collective_rpc("used") == [12, 14]
    all_ranks("value", True)
    all_ranks("suspended", [])
    """,
        REVEILLE_TOGETHER="1",
    )


def test_communicators_sleep_while_all_regions_do(engine):
    engine(
        SAVER,
        """
    all_ranks("pause", None, "kv_cache")
    all_ranks("pause", None, "weights")
    all_ranks("suspended", [])  # one rank has more
    all_ranks("pause", None, "of one rank")
    all_ranks("suspended", ["torch"])
    all_ranks("pause", None)
    all_ranks("suspended", ["torch"])
    all_ranks("resume", None, "nobody")
    all_ranks("suspended", ["torch"])
    all_ranks("resume", None, "of one rank")  # which the other rank has not
    all_ranks("suspended", [])
    all_ranks("resume", None)
    all_ranks("value", True)
    executor.collective_rpc("fail", 1, "suspend", "torch")
    assert "the fake was told to fail" in refused("pause")
    assert executor.collective_rpc("used") == [12, 14]
    """,
        REVEILLE_COMMUNICATORS="1",
    )


def test_a_program_of_one_rank_needs_no_others(run):  # noqa: F811
    run(
        """
    from reveille.torch_memory_saver import torch_memory_saver as saver
    with saver.region("weights", enable_cpu_backup=True):
        weights = full(4, 7)
    saver.pause()
    assert used() == 0
    import torch.distributed  # not initialized
    saver.resume("weights")
    assert set(weights.tolist()) == {7}
    torch.distributed.begin(0, 1, object())
    saver.pause()
    saver.resume()
    assert used() == 4
    """,
        REVEILLE_COMMUNICATORS="1",
    )


@pytest.mark.parametrize("variable", ["REVEILLE_TOGETHER", "REVEILLE_COMMUNICATORS"])
def test_a_value_that_is_not_understood(run, variable):  # noqa: F811
    run(
        f"""
    from reveille.torch_memory_saver import torch_memory_saver as saver
    with saver.region("weights"):
        weights = full(4, 7)
    error = refused(saver.pause)
    assert isinstance(error, reveille.InvalidArgument)
    assert str(error) == "{variable}='ja' is not understood: set it to 1, or to 0"
    assert used() == 4
    """,
        **{variable: "ja"},
    )
