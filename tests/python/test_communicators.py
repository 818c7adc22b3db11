# SPDX-License-Identifier: MIT
"""Communicators as the tag "nccl", on a stand-in for NCCL in which ranks wait for each other."""

import os
import signal
import time

import fake_nccl
import pytest
import reveille
from conftest import SOURCE
from fake_nccl import MIB, FakeNccl
from job import Ranks, facts_of
from reveille import _c, _communicators, _watch

SIZE = 3
BYTES = 484 * MIB


@pytest.fixture
def one(tmp_path, monkeypatch):
    """A communicator of one rank, which this process has added."""
    fake = FakeNccl(tmp_path)
    fake_nccl.use(monkeypatch.setattr, fake)
    _communicators.COMMUNICATORS.forget()
    pointer = fake.add("alone", 0, 1)
    reveille.add_communicator(pointer)
    yield fake, pointer
    _communicators.COMMUNICATORS.forget()


def states():
    """Of all communicators, as Reveille tells them."""
    return [each.state for each in reveille.communicators()]


def test_paused_and_resumed(one):
    fake, pointer = one
    assert reveille.communicators() == (
        reveille.Communicator(pointer, 0, 0, 1, "active", BYTES, 7 * MIB),
    )
    reveille.pause("nccl")
    assert fake.comms[pointer].suspended and states() == ["paused"]
    reveille.resume("nccl")
    assert not fake.comms[pointer].suspended and states() == ["active"]
    assert fake.calls == [("suspend", "alone"), ("resume", "alone")]
    fake.reduce(pointer)


def test_twice_does_nothing(one):
    fake, _pointer = one
    reveille.resume("nccl")
    reveille.pause("nccl")
    reveille.pause("nccl")
    assert fake.calls == [("suspend", "alone")] and states() == ["paused"]
    reveille.resume("nccl")
    reveille.resume("nccl")
    assert fake.calls[1:] == [("resume", "alone")]


def test_what_another_has_suspended_is_known(one):
    fake, pointer = one
    fake.comms[pointer].suspended = True
    assert states() == ["paused"]
    reveille.resume("nccl")
    assert states() == ["active"]


def test_destroyed_asleep(one):
    fake, pointer = one
    other = fake.add("other", 0, 1)
    reveille.add_communicator(other)
    reveille.pause("nccl")
    reveille.remove_communicator(pointer)
    del fake.comms[pointer]
    reveille.resume("nccl")
    assert [each.pointer for each in reveille.communicators()] == [other]
    assert states() == ["active"]


def test_numbers_of_it(one, monkeypatch):
    fake, _pointer = one
    reveille.add_communicator(fake.add("second", 0, 1, device=1, suspendable=100 * MIB))
    monkeypatch.setattr(_communicators, "free_bytes", lambda device: 99 * MIB + device * BYTES)
    before = {each.tag: each for each in reveille.metrics().tags if each.device == "cuda:1"}
    assert before["nccl"] == reveille.TagMetrics("cuda:1", "nccl", 100 * MIB, 0, 0)
    _watch.MOVES.forget()
    reveille.pause("nccl")
    now = {each.device: each for each in reveille.metrics().tags if each.tag == "nccl"}
    assert now["cuda:0"].paused_bytes == BYTES and now["cuda:0"].active_bytes == 0
    moved = reveille.metrics().transitions[-1]
    assert (moved.operation, moved.tags, moved.bytes) == ("pause", ("nccl",), BYTES + 100 * MIB)
    forecast = reveille.fits("nccl")
    assert not forecast
    assert (forecast.device, forecast.needed_bytes, forecast.free_bytes) == (0, BYTES, 99 * MIB)
    with pytest.raises(reveille.OutOfDeviceMemory, match="484.0 MiB, 99.0 MiB free on cuda:0"):
        reveille.resume("nccl")
    assert states() == ["paused", "paused"]
    monkeypatch.setattr(_communicators, "free_bytes", lambda _device: BYTES)
    reveille.resume("nccl")
    assert states() == ["active", "active"]


@pytest.fixture
def old(one, monkeypatch, tmp_path):
    """One of an NCCL that cannot suspend."""
    fake = FakeNccl(tmp_path, "2.28.9")
    assert fake.add("old", 0, 1) == one[1]
    fake_nccl.use(monkeypatch.setattr, fake)
    return fake


def refused():
    """What a pause of an old one says; nothing was called."""
    with pytest.raises(reveille.NotSupported) as raised:
        reveille.pause("nccl")
    assert raised.value.tag == "nccl"
    assert not any(each.tag == "nccl" for each in reveille.metrics().tags)
    return str(raised.value)


def test_an_older_one_says_what_is_needed(old):
    (known,) = reveille.communicators()
    assert known == reveille.Communicator(known.pointer, 0, 0, 1, "active", None, None)
    assert refused() == (
        "NCCL 2.28.9 cannot give its memory back; 2.29.7 and later can. Its 1 communicator here "
        "keeps an unknown number of bytes: `reveille record` tells it as nccl:PID. Install a newer "
        "libnccl.so.2 (of PyPI's nvidia-nccl-cu13 or nvidia-nccl-cu12), or leave out the tag "
        '"nccl"'
    )
    assert old.calls == []


def test_an_older_one_says_what_it_keeps(old, monkeypatch):
    """As the recording of the process has it, for each device of a communicator."""
    reveille.add_communicator(old.add("second", 0, 1, device=1))
    recorded = {0: BYTES, 1: 4 * MIB}
    monkeypatch.setattr(_communicators, "recorded_bytes", recorded.get)
    assert "Its 2 communicators here keep 484.0 MiB on cuda:0, 4.0 MiB on cuda:1. In" in refused()
    del recorded[1]
    assert "Its 2 communicators here keep an unknown number of bytes: `reveille rec" in refused()


RECORDED = """
import ctypes, os, pathlib, sys

sys.path.insert(0, os.environ["HELPERS"])
import fake_nccl, reveille
from reveille import _communicators

cuda = ctypes.CDLL(os.environ["RVL_CUDA_LIBRARY"])
nccl = ctypes.CDLL(os.environ["RVL_TEST_NCCL_FAKE"])  # what calls from it is NCCL's memory
create, handle = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuGetProcAddress_v2(
    b"cuMemCreate", ctypes.byref(create), 12000, ctypes.c_uint64(0), None
) == 0
fake = fake_nccl.FakeNccl(pathlib.Path("."), "2.28.9")
fake_nccl.use(setattr, fake)
reveille.add_communicator(fake.add("old", 0, 1))
assert _communicators.recorded_bytes(0) is None  # the device was not used yet
assert nccl.fake_nccl_take(create, 0, ctypes.c_size_t(8 << 20), ctypes.byref(handle)) == 0
assert _communicators.recorded_bytes(0) == 8 << 20
try:
    reveille.pause("nccl")
except reveille.NotSupported as error:
    assert "communicator here keeps 8.0 MiB on cuda:0. Install" in str(error), error
else:
    raise AssertionError("nothing was refused")
"""


def test_what_it_keeps_is_recorded(run_python, tmp_path):
    """By the preload library, which sees the calls of NCCL's library."""
    fakes = {name: os.environ.get(name) for name in ("RVL_TEST_CUDA_FAKE", "RVL_TEST_NCCL_FAKE")}
    if not all(fakes.values()):
        pytest.skip("the fake CUDA driver was not built: RVL_TEST_CUDA_FAKE is not set")
    done = run_python(
        "-c",
        RECORDED,
        RVL_CUDA_LIBRARY=fakes["RVL_TEST_CUDA_FAKE"],
        LD_PRELOAD=str(_c.hook_library_path("preload")),
        RVL_RECORD=str(tmp_path / "run.rvt"),
        HELPERS=str(SOURCE / "tests/python"),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_any_there_is_nothing_to_do(monkeypatch):
    monkeypatch.setattr(_communicators, "loaded", lambda: None)
    assert reveille.communicators() == ()
    reveille.pause("nccl")
    reveille.resume("nccl")
    with pytest.raises(reveille.InvalidState, match="has not loaded libnccl.so.2"):
        reveille.add_communicator(4096)


def test_bad_arguments(one):
    for bad in (0, -1, "x", True):
        with pytest.raises(reveille.InvalidArgument):
            reveille.add_communicator(bad)
    with pytest.raises(reveille.InvalidArgument, match="0x7 was not added"):
        reveille.remove_communicator(7)
    with pytest.raises(reveille.InvalidArgument, match='the tag "nccl" means'):
        reveille.region("nccl")
    with pytest.raises(reveille.InvalidArgument, match="group_timeout"):
        reveille.pause("nccl", group_timeout=0)
    assert states() == ["active"]


@pytest.mark.parametrize("function", ["suspend", "resume"])
def test_one_of_two_fails_and_the_other_goes_back(one, function):
    fake, _pointer = one
    second = fake.add("second", 0, 1)
    reveille.add_communicator(second)
    move, other = {"suspend": "pause resume", "resume": "resume pause"}[function].split()
    if function == "resume":
        reveille.pause("nccl")
    before = states()
    fake.fail = {(function, "second"): "error"}
    with pytest.raises(reveille.InvalidState, match="ncclUnhandledCudaError: the fake was told"):
        getattr(reveille, move)("nccl")
    assert states() == before
    fake.fail = {}
    getattr(reveille, move)("nccl")
    getattr(reveille, other)("nccl")
    assert states() == before


# ---- Several ranks ----


class Member:
    """A rank with two communicators that all share, in another order on each."""

    def __init__(self, rank, store):
        self.job = reveille.Job(store, rank, SIZE)
        self.meetings = store.folder.parent / "meetings"
        self.meetings.mkdir(exist_ok=True)
        self.fake = FakeNccl(self.meetings)
        fake_nccl.use(setattr, self.fake)
        _communicators.COMMUNICATORS.forget()
        names = ["first", "second"] if rank % 2 else ["second", "first"]
        for name in names:
            reveille.add_communicator(self.fake.add(name, rank, SIZE))

    def aborted(self, function, **options):
        try:
            getattr(reveille, function)("nccl", group=self.job, **options)
        except reveille.JobAborted as error:
            return facts_of(error)
        raise AssertionError(f"{function} did not abort")

    def reduce(self):
        return sum(self.fake.reduce(pointer) for pointer in sorted(
            self.fake.comms, key=lambda pointer: self.fake.comms[pointer].name
        ))


def run(tmp_path, body, size=SIZE):
    return Ranks(tmp_path / "job", size, real_time=True).run(body)


def test_all_ranks_together(tmp_path):
    def body(rank, store):
        member = Member(rank, store)
        for _ in range(3):
            reveille.pause("nccl", group=member.job)
            assert states() == ["paused", "paused"]
            reveille.resume("nccl", group=member.job)
            assert states() == ["active", "active"]
            member.reduce()
        return True

    assert run(tmp_path, body) == [True] * SIZE


def test_contents_come_when_all_have_their_communicators(tmp_path):
    """resume(wait=False): a rank that fails in NCCL keeps all from starting."""

    def body(rank, store):
        member = Member(rank, store)
        reveille.pause("nccl", group=member.job)
        if rank == 1:
            member.fake.fail = {("resume", "first"): "error"}
        seen = member.aborted("resume", wait=False)
        assert states().count("active") == 0
        member.fake.fail = {}
        wake = reveille.resume("nccl", wait=False, group=member.job)
        wake.wait()
        assert states() == ["active", "active"]
        member.reduce()
        return seen[1:4]

    for rank, reason, status in run(tmp_path, body):
        assert (rank, status) == (1, reveille.InvalidState.STATUS)
        assert "ncclUnhandledCudaError: the fake was told to fail" in reason


def test_without_a_group_all_make_the_call(tmp_path):
    def body(rank, store):
        member = Member(rank, store)
        time.sleep(0.1 * rank)
        reveille.pause("nccl")
        assert states() == ["paused", "paused"]
        reveille.resume("nccl")
        member.reduce()
        return states()

    assert run(tmp_path, body) == [["active", "active"]] * SIZE


@pytest.mark.parametrize("victim", range(SIZE))
@pytest.mark.parametrize("function", ["suspend", "resume"])
def test_each_rank_fails_in_each_step(tmp_path, function, victim):
    """The others take back what they can. NCCL's own call for the one that failed stays under way
    on them, and ends with the same call, which then succeeds."""
    move, back = {"suspend": ("pause", "resume"), "resume": ("resume", "pause")}[function]

    def body(rank, store):
        member, seen = Member(rank, store), []
        if move == "resume":
            reveille.pause("nccl", group=member.job)
        before = states()[0]
        for name in ("first", "second"):
            if rank == victim:
                member.fake.fail = {(function, name): "error"}
            seen.append(member.aborted(move, group_timeout=60))
            stand = {
                member.fake.comms[each.pointer].name: each.state
                for each in reveille.communicators()
            }
            failed = stand.pop(name)
            under_way = {"pause": "pausing", "resume": "resuming"}[move]
            assert failed == (before if rank == victim else under_way)
            assert list(stand.values()) == [before]
            member.fake.fail = {}
            getattr(reveille, move)("nccl", group=member.job)
            getattr(reveille, back)("nccl", group=member.job)
            assert states() == [before, before]
        if move == "resume":
            reveille.resume("nccl", group=member.job)
        member.reduce()
        return seen

    for answer in zip(*run(tmp_path, body)):
        for message, rank, reason, status, _bytes in answer:
            assert rank == victim and status == reveille.InvalidState.STATUS
            assert "ncclUnhandledCudaError: the fake was told to fail" in reason
            assert f"rank {victim} of {SIZE} cannot {move}" in message
        others = [each[0] for at, each in enumerate(answer) if at != victim]
        assert all("could not undo all" in message for message in others)


@pytest.mark.parametrize("victim", range(SIZE))
@pytest.mark.parametrize("function", ["suspend", "resume"])
def test_a_killed_rank_is_named_and_nobody_hangs(tmp_path, function, victim):
    move = {"suspend": "pause", "resume": "resume"}[function]

    def body(rank, store):
        member = Member(rank, store)
        if move == "resume":
            reveille.pause("nccl", group=member.job)
        if rank == victim:
            member.fake.fail = {(function, "first"): "die"}
        started = time.monotonic()
        seen = member.aborted(move, group_timeout=1)
        assert time.monotonic() - started < 120
        return seen

    answers = run(tmp_path, body)
    assert answers.pop(victim) == signal.SIGKILL
    for message, _rank, reason, status, _bytes in answers:
        assert status == reveille.TimedOut.STATUS
        assert "not" in reason and move in message


def test_a_rank_that_never_comes_is_named(tmp_path):
    def body(rank, store):
        member = Member(rank, store)
        if rank == 1:  # dies between the two votes
            _communicators.Communicators.begin = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        return member.aborted("pause", group_timeout=1)

    answers = run(tmp_path, body)
    assert answers.pop(1) == signal.SIGKILL
    assert all(answer[3] == reveille.TimedOut.STATUS for answer in answers)


def test_a_late_rank_without_a_group(tmp_path):
    """The others raise. The call of NCCL stays, and ends when the late rank comes."""

    def body(rank, store):
        member = Member(rank, store)
        if rank == 0:
            while not all(store.check([f"refused/{other}"]) for other in range(1, SIZE)):
                time.sleep(0.01)
            reveille.pause("nccl")
        else:
            with pytest.raises(reveille.TimedOut, match="has not returned on 2 communicators"):
                reveille.pause("nccl", group_timeout=0.3)
            assert states() == ["pausing", "pausing"]
            with pytest.raises(reveille.InvalidState, match="has not returned: a rank"):
                reveille.resume("nccl", group_timeout=0.3)
            store.set(f"refused/{rank}", "")
            reveille.pause("nccl")
        assert states() == ["paused", "paused"]
        reveille.resume("nccl")
        member.reduce()
        return member.fake.calls.count(("suspend", "first"))

    assert run(tmp_path, body) == [1] * SIZE


def test_a_call_that_came_late_is_the_next_moves(one):
    """Aborting that takes it back; a move that has ended takes nothing back."""
    fake, alone = one
    reveille.remove_communicator(alone)
    reveille.add_communicator(fake.add("pair", 0, 2))

    def other_rank(meeting):
        (fake.folder / f"pair-{meeting}").mkdir(exist_ok=True)
        (fake.folder / f"pair-{meeting}" / "1").touch()

    with pytest.raises(reveille.TimedOut):
        reveille.pause("nccl", group_timeout=0.1)
    other_rank(1)
    deadline = time.monotonic() + 60
    while states() != ["paused"] and time.monotonic() < deadline:
        time.sleep(0.01)
    other_rank(2)
    for state in ("active", "paused"):
        movement = _communicators.COMMUNICATORS.begin("pause", 60)
        movement.start()
        movement.wait()
        movement.abort()
        assert states() == [state]
        if state == "active":
            other_rank(3)
            reveille.pause("nccl", group_timeout=60)


def test_an_older_one_on_one_rank_stops_all(tmp_path):
    def body(rank, store):
        member = Member(rank, store)
        if rank == 2:
            member.fake.__init__(member.meetings, "2.28.9")
            member.fake.add("second", rank, SIZE)
            member.fake.add("first", rank, SIZE)
        seen = member.aborted("pause")
        assert states() == ["active", "active"]
        return seen

    answers = run(tmp_path, body)
    assert all(answer == answers[0] for answer in answers)
    message, rank, _reason, status, _bytes = answers[0]
    assert rank == 2 and status == reveille.NotSupported.STATUS and "NCCL 2.28.9 cannot" in message
