# SPDX-License-Identifier: MIT
"""sleep() and wake(): what is asked of the C library and in which order, and all ranks or none.

The C library's own part is in tests/core/test_sleep.c and tests/cuda/test_cuda_sleep.c.
"""

import ctypes
import threading
import types

import pytest
import reveille
from reveille import _asleep, _asleep_nccl, _c, _together, control
from reveille.errors import Busy, InvalidArgument, InvalidState, JobAborted, NotSupported

with_cuda = pytest.mark.skipif(
    not hasattr(_c.core(), "rvl_communicator_check_sleep"), reason="this library was built without CUDA"
)


class Store:
    """What a job needs of one, for threads."""

    def __init__(self):
        self._values, self._changed = {}, threading.Condition()

    def set(self, key, value):
        with self._changed:
            self._values[key] = value.encode() if isinstance(value, str) else value
            self._changed.notify_all()

    def get(self, key):
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, 20)
            return self._values[key]

    def check(self, keys):
        with self._changed:
            return all(key in self._values for key in keys)

    def add(self, key, count):
        with self._changed:
            value = int(self._values.get(key, b"0")) + count
            self._values[key] = str(value).encode()
            self._changed.notify_all()
            return value

    def compare_set(self, key, expected, desired):
        with self._changed:
            if self._values.get(key, b"") == expected.encode():
                self._values[key] = desired.encode()
                self._changed.notify_all()
            return self._values.get(key, expected.encode())

    def delete_key(self, key):
        with self._changed:
            return self._values.pop(key, None) is not None

    def wait(self, keys, *_timeout):
        for key in keys:
            self.get(key)


class Ranks:
    """One libreveille a thread: what it was asked, and what of that fails."""

    def __init__(self, monkeypatch, fails=None):
        self.fails, self.own = fails or {}, threading.local()
        monkeypatch.setattr(_asleep, "_call", self.call)
        monkeypatch.setattr(_asleep, "asleep", lambda: getattr(self.own, "asleep", False))
        monkeypatch.setattr(_asleep.SAVER, "refuse_capture", lambda what: None)
        self.calls = {}

    def call(self, function, *_arguments):
        rank = getattr(self.own, "rank", 0)
        self.calls.setdefault(rank, []).append(function)
        if (rank, function) in self.fails:
            raise self.fails[rank, function]
        if function in ("rvl_sleep", "rvl_wake_up"):
            self.own.asleep = function == "rvl_sleep"

    def run(self, size, work):
        store, raised = Store(), {}

        def go(rank):
            self.own.rank = rank
            try:
                work(reveille.Job(store, rank, size), rank)
            except Exception as error:
                raised[rank] = error

        threads = [threading.Thread(target=go, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return raised


def test_it_looks_before_it_sleeps(monkeypatch):
    ranks = Ranks(monkeypatch)
    reveille.sleep()
    assert ranks.calls[0] == ["rvl_sleep_forecast", "rvl_sleep"]
    reveille.wake()
    assert ranks.calls[0][2:] == ["rvl_wake_up_forecast", "rvl_wake_up"]


def test_what_looking_refuses_is_not_tried(monkeypatch):
    ranks = Ranks(monkeypatch, {(0, "rvl_sleep_forecast"): Busy("memory of process 7 is open")})
    with pytest.raises(Busy, match="memory of process 7"):
        reveille.sleep()
    assert ranks.calls[0] == ["rvl_sleep_forecast"]
    with pytest.raises(InvalidState, match="awake already"):
        reveille.wake()


def test_all_ranks_sleep(monkeypatch):
    ranks = Ranks(monkeypatch)
    assert ranks.run(3, lambda job, rank: reveille.sleep(group=job, group_timeout=20)) == {}
    assert all(calls == ["rvl_sleep_forecast", "rvl_sleep"] for calls in ranks.calls.values())


def test_a_rank_that_cannot_keeps_all_awake(monkeypatch):
    why = NotSupported("the CUDA driver has no process checkpoint")
    ranks = Ranks(monkeypatch, {(1, "rvl_sleep_forecast"): why})
    raised = ranks.run(3, lambda job, rank: reveille.sleep(group=job, group_timeout=20))
    assert sorted(raised) == [0, 1, 2]
    assert all(isinstance(each, JobAborted) and each.rank == 1 for each in raised.values())
    assert "no process checkpoint" in str(raised[0])
    assert all("rvl_sleep" not in calls for calls in ranks.calls.values())


def test_a_rank_that_fails_later_wakes_the_others(monkeypatch):
    ranks = Ranks(monkeypatch, {(2, "rvl_sleep"): NotSupported("managed memory")})
    raised = ranks.run(3, lambda job, rank: reveille.sleep(group=job, group_timeout=20))
    assert sorted(raised) == [0, 1, 2]
    assert all("managed memory" in str(each) for each in raised.values())
    for rank in (0, 1):
        slept = ranks.calls[rank].count("rvl_sleep")
        assert ranks.calls[rank].count("rvl_wake_up") == slept


@with_cuda
def test_communicators_forbid_it(monkeypatch):
    ranks = Ranks(monkeypatch)
    two = reveille.Communicator(1, 0, 0, 2, "active", 0, 0)
    monkeypatch.setattr(_asleep.COMMUNICATORS, "all", lambda: (two,))
    with pytest.raises(NotSupported, match="1 communicator of NCCL connects this process with others.*or destroy them first"):
        reveille.sleep()
    assert ranks.calls == {}


def test_a_library_without_cuda_refuses_them_by_name(monkeypatch):
    ranks = Ranks(monkeypatch)
    monkeypatch.setattr(_c, "core", object)  # with no function
    monkeypatch.setattr(_asleep.COMMUNICATORS, "all", lambda: (reveille.Communicator(1, 0, 0, 1, "active", 0, 0),))
    with pytest.raises(NotSupported, match="this Reveille was built without CUDA"):
        reveille.sleep()
    assert ranks.calls == {}


@with_cuda
def test_a_communicator_of_one_rank_does_not(monkeypatch):
    Ranks(monkeypatch)
    alone = reveille.Communicator(1, 0, 0, 1, "active", 0, 0)
    monkeypatch.setattr(_asleep.COMMUNICATORS, "all", lambda: (alone,))
    reveille.sleep()
    reveille.wake()


class Communicators:
    """One of two ranks in each thread, and what is done with it beside the calls of the library."""

    def __init__(self, monkeypatch, ranks, can_suspend=True):
        self.ranks, self.state = ranks, {}
        self.bytes = (484, 4) if can_suspend else (None, None)
        self.fails = set()
        known = _asleep.COMMUNICATORS
        monkeypatch.setattr(known, "all", self.all)
        monkeypatch.setattr(known, "is_paused", lambda pointer: self.state.get(pointer) == "paused")
        monkeypatch.setattr(known, "begin", lambda move, timeout, pointers: Move(self, move, pointers))
        nccl = types.SimpleNamespace(can_suspend=can_suspend)
        monkeypatch.setattr(_asleep_nccl, "loaded", lambda: nccl)
        monkeypatch.setattr(_asleep_nccl, "_ASLEEP_WITH", PerThread())

    def pointer(self):
        return 1000 + self.ranks.own.rank

    def all(self):
        state = self.state.get(self.pointer(), "active")
        return (reveille.Communicator(self.pointer(), 0, self.ranks.own.rank, 2, state, *self.bytes),)


class Move:
    """A pause or resume of communicators, as one of the things that a job has prepared."""

    def __init__(self, all_, move, pointers):
        self.all, self.move, self.pointers = all_, move, pointers

    def _set(self, move):
        for pointer in self.pointers:
            self.all.state[pointer] = {"pause": "paused", "resume": "active"}[move]
            self.all.ranks.call(f"nccl {move}")

    def together(self, prepared, meeting):
        prepared.append(self)
        meeting.arrive()
        self._set(self.move)

    def commit(self):
        """It is done."""

    def abort(self):
        self._set({"pause": "resume", "resume": "pause"}[self.move])


class PerThread(list):
    """A list for each thread, as each process has one."""

    def __init__(self):
        self._own = threading.local()

    def _list(self):
        return self._own.__dict__.setdefault("list", [])

    def __iter__(self):
        return iter(self._list())

    def extend(self, more):
        self._list().extend(more)

    def clear(self):
        self._list().clear()


def sleep_and_wake(job, _rank):
    reveille.sleep(group=job, group_timeout=20)
    reveille.wake(group=job, group_timeout=20)


@with_cuda
def test_ranks_pause_their_communicators_for_a_sleep(monkeypatch):
    ranks = Ranks(monkeypatch)
    communicators = Communicators(monkeypatch, ranks)
    assert ranks.run(2, sleep_and_wake) == {}
    assert communicators.state == {1000: "active", 1001: "active"}
    wanted = ["nccl pause", "rvl_sleep_forecast", "rvl_sleep", "rvl_wake_up_forecast", "rvl_wake_up",
              "nccl resume"]  # fmt: skip
    assert all(calls == wanted for calls in ranks.calls.values()), ranks.calls


@with_cuda
def test_communicators_that_were_paused_before_stay_so(monkeypatch):
    ranks = Ranks(monkeypatch)
    communicators = Communicators(monkeypatch, ranks)
    communicators.state = {1000: "paused", 1001: "paused"}
    assert ranks.run(2, sleep_and_wake) == {}
    assert communicators.state == {1000: "paused", 1001: "paused"}
    assert all("nccl" not in " ".join(calls) for calls in ranks.calls.values())


@with_cuda
def test_a_sleep_that_fails_resumes_communicators(monkeypatch):
    ranks = Ranks(monkeypatch, {(1, "rvl_sleep"): NotSupported("managed memory")})
    communicators = Communicators(monkeypatch, ranks)
    raised = ranks.run(2, lambda job, rank: reveille.sleep(group=job, group_timeout=20))
    assert sorted(raised) == [0, 1] and "managed memory" in str(raised[0])
    assert communicators.state == {1000: "active", 1001: "active"}


def test_what_forbids_a_sleep_pauses_no_communicator(monkeypatch):
    ranks = Ranks(monkeypatch)
    communicators = Communicators(monkeypatch, ranks)

    def refuse():
        if ranks.own.rank == 1:
            raise Busy("tensors of other processes are open here")

    monkeypatch.setattr(_asleep, "_refuse_tensors_of_others", refuse)
    raised = ranks.run(2, lambda job, rank: reveille.sleep(group=job, group_timeout=20))
    assert all(each.rank == 1 and "tensors of other" in str(each) for each in raised.values())
    assert sorted(raised) == [0, 1] and communicators.state == ranks.calls == {}


@with_cuda
def test_a_communicator_that_is_on_its_way_forbids_it(monkeypatch):
    Ranks(monkeypatch)
    moving = tuple(reveille.Communicator(each, 0, 0, 2, "pausing", 4, 0) for each in (1, 2))
    monkeypatch.setattr(_asleep.COMMUNICATORS, "all", lambda: moving)
    with pytest.raises(NotSupported, match="2 communicators of NCCL connect this") as raised:
        reveille.sleep()
    assert raised.value.tag == "nccl"


@with_cuda
def test_an_older_nccl_is_refused_by_name(monkeypatch):
    ranks = Ranks(monkeypatch)
    Communicators(monkeypatch, ranks, can_suspend=False)
    raised = ranks.run(2, lambda job, rank: reveille.sleep(group=job, group_timeout=20))
    assert sorted(raised) == [0, 1]
    assert "with NCCL 2.29.7 and later" in str(raised[0])
    assert all("rvl_sleep" not in calls for calls in ranks.calls.values())


@with_cuda
def test_a_wake_without_the_group_leaves_communicators_paused_and_says_so(monkeypatch, caplog):
    ranks = Ranks(monkeypatch)
    communicators = Communicators(monkeypatch, ranks)

    def work(job, _rank):
        reveille.sleep(group=job, group_timeout=20)
        reveille.wake()

    assert ranks.run(2, work) == {}
    assert communicators.state == {1000: "paused", 1001: "paused"}
    assert caplog.text.count("communicators stay paused (1)") == 2


class Saver:
    """Regions of two tags, which torch_memory_saver's calls move."""

    def __init__(self):
        self.active = {"weights": 8, "kv_cache": 8}
        self.said = []

    def tags(self):
        return {tag: _Stats(size) for tag, size in self.active.items()}

    def pause(self, tags, ignore=()):
        self._move("pause", tags, 0)

    def resume(self, tags, ignore=()):
        self._move("resume", tags, 8)

    def _move(self, function, tags, size):
        self.said.append((function, *tags))
        for tag in tags or self.active:
            self.active[tag] = size


class _Stats:
    def __init__(self, active_bytes):
        self.active_bytes = active_bytes


def test_a_program_of_torch_memory_saver_sleeps_when_all_is_paused(monkeypatch):
    ranks, saver = Ranks(monkeypatch), Saver()
    monkeypatch.setenv("REVEILLE_SLEEP", "1")
    _together.move(saver, "pause", "kv_cache")
    assert ranks.calls == {}
    _together.move(saver, "pause", "weights")
    assert ranks.calls[0] == ["rvl_sleep_forecast", "rvl_sleep"]
    _together.move(saver, "resume", "weights")
    assert ranks.calls[0][2:] == ["rvl_wake_up_forecast", "rvl_wake_up"]
    _together.move(saver, "resume", "kv_cache")
    assert len(ranks.calls[0]) == 4
    assert saver.said == [("pause", "kv_cache"), ("pause", "weights"), ("resume", "weights"),
                          ("resume", "kv_cache")]  # fmt: skip


def test_it_does_not_sleep_unasked(monkeypatch):
    ranks, saver = Ranks(monkeypatch), Saver()
    monkeypatch.delenv("REVEILLE_SLEEP", raising=False)
    _together.move(saver, "pause", None)
    assert ranks.calls == {}


def test_wrong_timeouts_are_refused(monkeypatch):
    Ranks(monkeypatch)
    with pytest.raises(InvalidArgument):
        reveille.sleep(timeout=-1)


def test_a_process_without_the_library_is_awake():
    assert not _c.opened_core_is_asleep() or reveille.asleep()


def test_requests_from_outside(monkeypatch):
    asked, why = [], ctypes.create_string_buffer(_c.CONTROL_WHY_BYTES)
    monkeypatch.setattr(_asleep, "sleep", lambda **options: asked.append(options))
    monkeypatch.setattr(_asleep, "wake", lambda **options: asked.append(options))
    opened = []

    class Core:
        def rvl_control_open(self, options):
            opened.append(options._obj.move)
            return 0

    monkeypatch.setattr(_c, "core", Core)
    allowed = [True]

    def before(verb):
        if not allowed[0]:
            raise ValueError(f"no {verb}: " + "x" * 300)

    control.open(before)

    def ask(verb, flags=0, timeout_ns=0):
        request = _c.ControlRequest(verb=verb, flags=flags, timeout_ns=timeout_ns)
        why.value = b""
        return opened[-1](None, request, why)

    assert ask(1, _c.SLEEP_DISCARD) == 0
    assert ask(2, _c.WAKE_UP_PAUSED, 2_000_000_000) == 0
    sleeping = {"discard": True, "shared_events": False, "timeout": 10.0}
    assert asked == [sleeping, {"paused": True, "timeout": 2.0}]
    allowed[0] = False
    assert ask(1) == Busy.STATUS and why.value == b"no sleep: " + b"x" * 245
    control.open()
    monkeypatch.setattr(_asleep, "sleep", lambda **_: (_ for _ in ()).throw(NotSupported("managed")))
    assert ask(1) == NotSupported.STATUS and why.value == b"managed"
    monkeypatch.setenv("REVEILLE_CONTROL", "maybe")
    with pytest.raises(InvalidArgument, match="REVEILLE_CONTROL='maybe'"):
        control.open_if_asked()
    monkeypatch.setenv("REVEILLE_CONTROL", "0")
    control.open_if_asked()
    assert len(opened) == 2
