# SPDX-License-Identifier: MIT
"""A wake in order of all ranks: all have their memory, or none. Contents come to each by itself."""

import ctypes
import threading

import pytest
import reveille
from job import MIB, FileStore, Member, Ranks, facts_of

PAUSED, ACTIVE = ["paused", "paused"], ["active", "active"]
OUT_OF_MEMORY = reveille.OutOfDeviceMemory.STATUS


def run(tmp_path, world_size, body):
    ranks = Ranks(tmp_path / "job", world_size)
    answers = ranks.run(body)
    assert ranks.store.keys() == []
    return answers


class Sleeper(Member):
    """Its weights hold the rank, and all of it is paused."""

    def __init__(self, rank, store, world_size):
        super().__init__(rank, store, world_size)
        ctypes.memset(self.weights, rank + 1, 4 * MIB)
        self.context.pause()

    def wake(self, *tags, **options):
        return self.context.resume(*tags, wait=False, group=self.job, **options)

    def refused(self, *tags, **options):
        """As aborted(), and nothing is left of the memory that was made."""
        free = self.context.memory()
        seen = self.aborted("resume", *tags, wait=False, **options)
        assert self.context.memory() == free
        assert self.context.stats().devices[0].prepared_bytes == 0
        return seen

    def is_whole(self):
        content = bytes([self.rank + 1]) * (4 * MIB)
        return self.states() == ACTIVE and ctypes.string_at(self.weights, 4 * MIB) == content

    def damage(self):
        """A bit of its backup. A second time it is right again."""
        host, size = ctypes.c_void_p(), ctypes.c_uint64()
        self.context._handle.call(
            "rvl_backup_find", self.weights, ctypes.byref(host), ctypes.byref(size)
        )
        ctypes.c_ubyte.from_address(host.value).value ^= 1


def test_all_wake_each_in_its_own_order(tmp_path):
    def body(rank, store):
        member = Sleeper(rank, store, 4)
        first = (member.weights, member.cache)[rank % 2]
        wake = member.wake(order=[first])
        member.context.wait(first)
        assert member.context.ready(first)
        wake.wait()
        assert member.is_whole()
        done = [each for each in reveille.metrics().transitions if each.operation == "resume"]
        assert [(each.count, each.bytes) for each in done] == [(1, 12 * MIB)]
        member.context.pause("weights", group=member.job)
        member.wake("weights")
        member.context.wait()
        return member.is_whole()

    assert run(tmp_path, 4, body) == [True] * 4


def test_each_rank_runs_out_of_memory_in_turn(tmp_path):
    size = 8

    def body(rank, store):
        member, seen = Sleeper(rank, store, size), []
        for round_ in range(size):
            if rank == round_:
                member.context.external("neighbour", "58MiB")
            seen.append(member.refused())
            assert member.agreed
            if rank == round_:
                member.context.external("neighbour", 0)
        member.wake().wait()
        assert member.is_whole()
        failed = {each.error: each.count for each in reveille.metrics().failures}
        assert failed["JobAborted"] == size
        return seen

    answers = run(tmp_path, size, body)
    assert all(answer == answers[0] for answer in answers)
    for round_, (message, rank, _reason, status, requested) in enumerate(answers[0]):
        assert (rank, status, requested) == (round_, OUT_OF_MEMORY, 12 * MIB)
        assert message.startswith(
            f"no rank has moved: rank {round_} of {size} cannot resume(wait=False): "
        )


@pytest.mark.parametrize("victim", [0, 2])
def test_content_that_does_not_arrive_is_one_ranks_own(tmp_path, victim):
    """It sleeps on, with its backup. The others go on, and the next resume brings the rest."""

    def body(rank, store):
        member = Sleeper(rank, store, 3)
        if rank == victim:
            member.damage()
        wake = member.wake("weights")
        if rank == victim:
            with pytest.raises(reveille.DigestMismatch):
                wake.wait()
            assert member.states() == PAUSED
            member.damage()
        else:
            wake.wait()
            assert member.states() == ["active", "paused"]
        member.wake().wait()
        return member.is_whole()

    assert run(tmp_path, 3, body) == [True] * 3


@pytest.mark.parametrize("moment", ["preparing", "voting"])
def test_a_killed_rank_is_named(tmp_path, moment):
    def body(rank, store):
        member = Sleeper(rank, store, 3)
        usual = store.set

        def die(*_arguments):
            store.clock.await_others()
            store.clock.die()

        if rank == 1 and moment == "preparing":
            member.context._prepared_start = die
        elif rank == 1:
            store.set = die
        seen = member.refused(group_timeout=5)
        store.set = usual
        others = reveille.Job(store, rank // 2, 2, name="rest")
        member.context.resume(wait=False, group=others).wait()
        return [seen, member.is_whole()]

    ranks = Ranks(tmp_path / "job", 3)
    (first, whole), killed, second = ranks.run(body)
    assert killed == 9 and whole and second == [first, True]
    assert first[1] == 1 and "late, stuck or dead" in first[2]


def test_each_call_of_the_store_fails(tmp_path):
    """The first counts the rounds; then nobody differs, whichever fails. If it is one of those that
    remove the keys of a round, these stay: how often a rank looks before decides which it is."""
    calls = 5

    def body(rank, store):
        member, seen = Sleeper(rank, store, 2), []

        class Failing:
            left = 0

            def __getattr__(self, name):
                def call(*arguments):
                    Failing.left -= 1
                    if Failing.left == 0:
                        raise OSError("the connection was closed")
                    return getattr(store, name)(*arguments)

                return call

        member.job = reveille.Job(Failing(), rank, 2)
        assert member.context.fits(group=member.job)  # asks what was counted before
        for n in range(2, 2 + calls):
            Failing.left = n if rank == 1 else 0
            try:
                member.wake().wait()
                seen.append("moved")
                assert member.is_whole()
                member.context.pause()
            except reveille.JobAborted as error:
                seen.append(str(error))
                assert member.states() == PAUSED and member.used() == 0
            Failing.left = 0
        return seen

    first, second = Ranks(tmp_path / "job", 2).run(body)
    assert first == second
    assert any("its store failed: OSError: the connection" in each for each in first)


def test_ranks_that_differ_are_told_what_differs(tmp_path):
    def body(rank, store):
        member = Sleeper(rank, store, 2)
        seen = member.aborted("resume", "weights", wait=rank == 0)
        member.wake().wait()
        assert member.is_whole()
        return seen[1:]

    first, second = run(tmp_path, 2, body)
    assert first == second
    assert 'resume("weights", wait=False) in a group' in first[1]
    assert 'resume("weights") in a group' in first[1]


def test_what_waits_for_the_others_belongs_to_the_move(tmp_path):
    """Two ranks in one process. The first has its memory, and nothing may touch it."""
    store = FileStore(tmp_path)
    first, second = (Sleeper(rank, store, 2) for rank in range(2))
    waits, wakes = threading.Event(), []
    usual = store.check

    def check(keys):
        waits.set()
        return usual(keys)

    store.check = check
    thread = threading.Thread(target=lambda: wakes.append(first.wake("weights")))
    thread.start()
    assert waits.wait(30)
    assert first.context.stats().devices[0].prepared_bytes == 4 * MIB
    for call, argument in (
        (first.context.pause, "weights"),
        (first.context.resume, "weights"),
        (first.context.fits, "weights"),
        (first.context.ready, first.weights),
        (first.context.free, first.weights),
    ):
        with pytest.raises(reveille.Busy, match="commit or abort"):
            call(argument)
    assert first.states() == ["resuming", "paused"]
    second.wake("weights").wait()
    thread.join(30)
    wakes[0].wait()
    for each in (first, second):
        each.context.resume("cache")
        assert each.is_whole()


@pytest.mark.parametrize("moment", ["awaiting", "leaving"])
def test_ctrl_c(tmp_path, moment):
    """While the others are awaited nothing moves. Once all have agreed it moves all the same."""

    def body(rank, store):
        member = Sleeper(rank, store, 2)
        if rank == 1 and moment == "awaiting":
            store.await_decision(1)
            return member.refused("weights")[1:3]
        usual = {name: getattr(store, name) for name in ("check", "add")}

        def interrupted(name, key, *rest):
            if name == "check" or key.endswith("/left"):
                raise KeyboardInterrupt
            return usual[name](key, *rest)

        if rank == 0:
            name = {"awaiting": "check", "leaving": "add"}[moment]
            setattr(store, name, lambda *key: interrupted(name, *key))
            with pytest.raises(KeyboardInterrupt):
                member.wake("weights")
            setattr(store, name, usual[name])
        else:
            member.wake("weights").wait()
        states = member.states()
        if moment == "awaiting":
            assert states == PAUSED and member.used() == 0
            member.context.resume()
        else:
            assert states == ["active", "paused"]
            member.context.resume("cache")
        assert member.is_whole()
        member.context.close()  # nothing keeps it open
        return None

    if moment == "awaiting":
        answers = Ranks(tmp_path / "job", 2).run(body)
        assert answers == [None, [0, "interrupted: KeyboardInterrupt"]]
    else:
        assert Ranks(tmp_path / "job", 2).run(body) == [None, None]


class Exchange:
    """What replicas=True would use."""

    def place(self):
        return ""

    apart = run = place


def test_bad_arguments(tmp_path):
    member = Sleeper(0, FileStore(tmp_path), 1)
    for replicas in (True, Exchange()):
        with pytest.raises(reveille.InvalidArgument, match="wait=False, or leave out replicas="):
            member.wake(replicas=replicas)
        with pytest.raises(reveille.InvalidArgument, match="wait=False, or leave out replicas="):
            reveille.resume("weights", wait=False, group=member.job, replicas=replicas)
    with pytest.raises(reveille.InvalidArgument, match="group must be a process group"):
        member.context.resume(wait=False, group="everybody")
    with pytest.raises(reveille.InvalidArgument, match="seconds above 0"):
        member.wake(group_timeout=0)
    with pytest.raises(reveille.InvalidArgument, match="order must be tensors"):
        member.wake(order=5)
    seen = facts_of(pytest.raises(reveille.JobAborted, member.wake, "typo").value)
    assert seen[3] == reveille.NotFound.STATUS and 'no tag "typo"' in seen[2]
    assert member.states() == PAUSED
    member.wake().wait()
    assert member.is_whole()


def test_one_that_is_dropped_is_aborted_or_finished(tmp_path):
    """As after an interruption between two steps of Python."""
    member = Sleeper(0, FileStore(tmp_path), 1)
    order = reveille._wake.addresses_of([])
    for commits in (False, True):
        one = member.context._prepare_resume(("weights",), order=order)
        if commits:
            one.commit()
            one.commit()
            one.abort()  # too late
        else:
            assert member.states()[0] == "resuming"
        del one
        assert member.states()[0] == ("active" if commits else "paused")
    member.context.pause("weights")
    one = member.context._prepare_resume(("weights",), order=order)
    one.abort()
    one.commit()
    one.finish()
    assert member.states()[0] == "paused"
    member.context.close()
