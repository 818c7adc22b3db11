# SPDX-License-Identifier: MIT
"""All ranks move, or none: each rank fails, dies and is late in turn."""

import contextlib
import random
import signal
import threading
import time

import pytest
import reveille
from job import MIB, FileStore, Member, Ranks, facts_of

PAUSED, ACTIVE = ["paused", "paused"], ["active", "active"]


def run(tmp_path, world_size, body, **options):
    ranks = Ranks(tmp_path / "job", world_size, **options)
    return ranks.run(body), ranks


def all_same(answers):
    assert all(answer == answers[0] for answer in answers), answers
    return answers[0]


def test_all_move_together_and_leave_nothing_in_the_store(tmp_path):
    def body(rank, store):
        member = Member(rank, store, 4)
        member.context.pause(group=member.job)
        assert member.states() == PAUSED
        forecast = member.context.fits(group=member.job)
        assert forecast and len(forecast.ranks) == 4
        assert {each.needed_bytes for each in forecast.ranks} == {12 * MIB}
        member.context.resume("weights", group=member.job)
        member.context.resume("cache", group=member.job)
        return member.states()

    answers, ranks = run(tmp_path, 4, body)
    assert answers == [ACTIVE] * 4
    assert ranks.store.keys() == []


# Which rank fails in each round: of few ranks each, of many the first and last, and those between that pair off.
IN_TURN = [pytest.param(16, range(16), id="each of 16"), pytest.param(64, (0, 1, 7, 31, 32, 63), id="of 64")]


@pytest.mark.parametrize("size,failing", IN_TURN)
def test_a_rank_runs_out_of_memory_in_turn(tmp_path, size, failing):
    def body(rank, store):
        member, seen = Member(rank, store, size), []
        member.context.pause()
        for one in failing:
            if rank == one:
                member.context.external("neighbour", "58MiB")
            seen.append(member.aborted("resume"))
            assert member.agreed
            if rank == one:
                member.context.external("neighbour", 0)
        member.context.resume(group=member.job)
        assert member.states() == ACTIVE
        return seen

    answers, _ranks = run(tmp_path, size, body)
    rounds = all_same(answers)
    assert [each[1] for each in rounds] == list(failing)
    message, _rank, reason, status, requested = rounds[list(failing).index(7)]
    assert message.startswith(f"no rank has moved: rank 7 of {size} cannot resume(): ")
    assert reason in message and status == reveille.OutOfDeviceMemory.STATUS
    assert requested == 12 * MIB


class Failing:
    """A store of which one call fails, once."""

    def __init__(self, store):
        self._store = store
        self.until = 0  # it fails: 0 is never
        self.failed = ""

    def __getattr__(self, name):
        usual = getattr(self._store, name)

        def call(*arguments):
            self.until -= 1
            if self.until == 0:
                self.failed = name
                raise OSError(f"{name}: the connection was closed")
            return usual(*arguments)

        return call


@pytest.mark.parametrize("size,failing", IN_TURN)
def test_each_call_of_the_store_fails_in_turn(tmp_path, size, failing):
    """One failed call is no reason to differ: either all have moved, or none has."""
    calls = 6

    def body(rank, store):
        store = Failing(store)
        member, seen, failed = Member(rank, store, size), [], ""
        assert member.context.fits(group=member.job)  # asks what was counted before
        for round_, one in enumerate(failing):
            moves = ("pause", "resume")[member.states() == PAUSED]
            if rank == one:
                store.until = 2 + round_ % calls  # the first counts the rounds
            try:
                getattr(member.context, moves)(group=member.job)
                seen.append("moved")
            except reveille.JobAborted as error:
                seen.append(str(error))
            store.until, failed, store.failed = 0, failed or store.failed, ""
            assert member.states() in (PAUSED, ACTIVE)
        return [seen, failed]

    answers, _ranks = run(tmp_path, size, body)
    for one, outcomes in zip(failing, zip(*(seen for seen, _failed in answers))):
        failed = answers[one][1]
        told = set(outcomes)
        assert len(told) == 1, (one, failed, told)
        if told != {"moved"}:
            (message,) = told
            assert f"rank {one} of {size} cannot " in message
            assert f"its store failed: OSError: {failed}: the connection was closed" in message
    assert {failed for _seen, failed in answers} >= {"compare_set", "set", "add", "check"}


def test_each_of_64_ranks_is_killed(tmp_path):
    """Sixteen at a time, while they prepare and before they vote, until one is left. The others
    name them, have moved nothing, and go on without them."""
    size, at_once, timeout_s = 64, 16, 5

    def body(rank, store):
        member, seen = Member(rank, store, size), []
        for first in range(0, size, at_once):
            member.job = reveille.Job(store, rank - first, size - first, name=f"from {first}")
            if rank < min(first + at_once, size - 1):
                if rank % 2:
                    member.context.tag("weights", before_unmap=store.clock.die)
                else:
                    store.set = store.clock.die
            seen.append(member.aborted("pause", "weights", group_timeout=timeout_s))
            assert not member.agreed
        return seen

    answers, _ranks = run(tmp_path, size, body)
    assert answers[:-1] == [signal.SIGKILL] * (size - 1)
    for round_, (message, rank, _reason, status, _bytes) in enumerate(answers[-1]):
        left = size - round_ * at_once
        dead = list(range(min(at_once, left - 1)))
        assert (rank, status) == (0, reveille.TimedOut.STATUS)
        assert message == (
            f'no rank has moved: rank 0 of {left} cannot pause("weights"): it did not answer '
            f"within {timeout_s} s ({len(dead)} ranks did not: {dead}): it is late, stuck or dead"
        )


def test_the_content_of_all_survives_an_abort(tmp_path):
    import ctypes

    def body(rank, store):
        member = Member(rank, store, 3)
        ctypes.memset(member.weights, 65 + rank, 4 * MIB)
        if rank == 1:  # the last one that prepares refuses

            def refuse(_tag):
                store.clock.await_others()
                raise RuntimeError("the engine is in the middle of a request")

            member.context.tag("weights", before_unmap=refuse)
        seen = member.aborted("pause", "weights")
        member.context.tag("weights")
        member.context.pause("weights", group=member.job)
        member.context.resume("weights", group=member.job)
        assert ctypes.string_at(member.weights, 4 * MIB) == bytes([65 + rank]) * (4 * MIB)
        return seen

    answers, _ranks = run(tmp_path, 3, body)
    message, rank, _reason, status, _bytes = all_same(answers)
    assert rank == 1 and status == reveille.Vetoed.STATUS
    assert 'rank 1 of 3 cannot pause("weights")' in message


@pytest.mark.parametrize("moment", ["before", "voting", "deciding"])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_and_the_others_go_on(tmp_path, moment, victim):
    """Before it prepares, before it votes, and between the last vote and the decision."""
    size = 3

    def body(rank, store):
        member = Member(rank, store, size)

        def die(*_arguments):
            store.clock.await_others()  # they have voted
            store.clock.die()

        if rank == victim and moment == "before":
            member.context.tag("weights", before_unmap=die)
        elif rank == victim:
            if moment == "deciding":
                store.clock.await_others()  # the last one decides
            named = {"voting": "set", "deciding": "compare_set"}[moment]
            usual = getattr(store, named)
            setattr(
                store,
                named,
                lambda key, *rest: die() if not key.endswith("plan") else usual(key, *rest),
            )
        seen = member.aborted("pause", "weights", group_timeout=5)
        others = reveille.Job(store, sorted({0, 1, 2} - {victim}).index(rank), 2, name="rest")
        member.context.pause("weights", group=others)
        assert member.states() == ["paused", "active"]
        return seen

    answers, _ranks = run(tmp_path, size, body)
    assert answers.pop(victim) == signal.SIGKILL
    message, rank, reason, status, _bytes = all_same(answers)
    assert status == reveille.TimedOut.STATUS
    if moment == "deciding":
        assert rank == -1 and "all ranks were ready" in message
    else:
        assert rank == victim and "late, stuck or dead" in reason


def test_a_late_rank_hears_what_was_decided(tmp_path):
    """In real time."""

    def body(rank, store):
        member = Member(rank, store, 2)
        if rank == 1:
            store.await_decision(1)
        begin = time.monotonic()
        first = member.aborted("pause", group_timeout=0.4)
        assert time.monotonic() - begin >= (0.4 if rank == 0 else 0)
        assert not member.agreed
        member.context.pause(group=member.job)
        return [first, member.states()]

    answers, _ranks = run(tmp_path, 2, body, real_time=True)
    messages = [first.pop(0) for first, _states in answers]
    (rank, _reason, _status, _bytes), states = all_same(answers)
    assert rank == 1 and "within 0.4 s" in messages[0]
    assert messages[1].startswith(messages[0] + ". This is rank 1")
    assert states == PAUSED


# ---- Ranks that miss a call ----

SOON_S = 5  # of the ranks' clock, after which one is given up that does not come


def until(store, round_, key):
    """While this rank waits for that, the time of the others passes."""
    while not store.check([f"reveille/{round_}/{key}"]):
        store.clock.sleep(0.002)


def begun(store, round_):
    until(store, round_, "plan")


def given_up(store, round_):
    until(store, round_, "decision")


@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("missed", [1, 3])
def test_a_rank_that_misses_calls_goes_to_the_newest(tmp_path, size, missed, caplog):
    """An exception comes before them. The others give it up each time, and wait in the next. It
    hears that once, and goes there at once."""

    def body(rank, store):
        member = Member(rank, store, size)
        for _ in range(missed if rank else 0):
            member.aborted("pause", group_timeout=SOON_S)
        if rank == 0:
            begun(store, missed + 1)
            member.aborted("pause")
        member.context.pause(group=member.job)
        said = [record.getMessage() for record in caplog.records]
        member.context.resume(group=member.job)
        return [member.states(), said]

    answers, ranks = run(tmp_path, size, body)
    told = (
        f"rank 0 of {size} comes to pause(), and has missed 2 calls before it of its group: it was "
        "given up there"
    )
    assert answers == [[ACTIVE, [told] if missed == 3 else []]] + [[ACTIVE, []]] * (size - 1)
    assert ranks.store.keys() == []


def test_a_rank_that_misses_a_call_and_comes_first(tmp_path):
    """Nobody has begun another: it hears that it was given up, and the next call is one of all."""

    def body(rank, store):
        member = Member(rank, store, 3)
        if rank == 1:
            given_up(store, 1)
        message = member.aborted("pause", group_timeout=SOON_S)[0]
        if rank != 1:
            begun(store, 2)
        member.context.pause(group=member.job)
        return message

    answers, ranks = run(tmp_path, 3, body)
    assert answers[0] == answers[2] and answers[1].startswith(answers[0])
    assert answers[1].endswith(
        ". This is rank 1: it comes after that, or has missed that call (an exception before it?). "
        "Its next call goes with the next of the others"
    )
    assert ranks.store.keys() == []


def test_a_late_rank_does_not_take_part_in_another_call(tmp_path):
    """The others have gone on to another one: they are not disturbed, and wait for it there."""

    def body(rank, store):
        member = Member(rank, store, 3)
        if rank == 1:
            begun(store, 2)
        seen = member.aborted("pause", group_timeout=SOON_S)
        member.context.pause("weights", group=member.job)
        return [seen[1:], member.states()]

    answers, _ranks = run(tmp_path, 3, body)
    (rank, *_rest), states = all_same(answers)
    assert rank == 1 and states == ["paused", "active"]


def test_a_rank_does_not_pass_what_another_has_refused(tmp_path):
    """All raise the same, however late one of them comes, also where the others try it again."""

    def body(rank, store):
        member = Member(rank, store, 3)
        member.context.pause(group=member.job)
        if rank == 0:
            member.context.external("neighbour", "58MiB")
        if rank == 1:
            begun(store, 3)
        seen = member.aborted("resume")
        assert member.agreed
        if rank == 0:
            member.context.external("neighbour", 0)
        member.context.resume(group=member.job)
        return [seen, member.states()]

    answers, _ranks = run(tmp_path, 3, body)
    (_message, rank, *_rest), states = all_same(answers)
    assert rank == 0 and states == ACTIVE


def test_a_rank_that_is_there_twice(tmp_path):
    """Its second process is alone in the next round: nothing moves there, and the job goes on."""

    def body(process, store):
        member = Member(min(process, 1), store, 2)  # 2 says that it is rank 1
        if process == 2:
            given_up(store, 1)
            return member.aborted("pause", group_timeout=SOON_S)[1]
        if process == 0:
            begun(store, 1)
        member.context.pause(group=member.job)
        given_up(store, 2)
        tries = 0
        while member.states() == PAUSED:
            try:
                member.context.resume(group=member.job, group_timeout=SOON_S)
            except reveille.JobAborted as error:
                assert error.rank in (0, 1) and member.states() == PAUSED
                tries += 1
        return tries

    (zero, one, twin), _ranks = run(tmp_path, 3, body)
    assert twin == 0 and max(zero, one) <= 2


def test_a_rank_that_does_not_try_again(tmp_path):
    """It misses a call and takes no second try: the others miss it twice, and then all is well."""

    def body(rank, store):
        member = Member(rank, store, 2)
        moves = ["pause", "resume", "pause"]
        if rank == 0:
            given_up(store, 1)  # this call is missed
        seen = [member.aborted("pause", group_timeout=SOON_S)[1]]
        if rank == 1:
            seen.append(member.aborted("pause", group_timeout=SOON_S)[1])
        else:
            begun(store, 3)
        for move in moves:
            getattr(member.context, move)(group=member.job)
        return [seen, member.states()]

    answers, ranks = run(tmp_path, 2, body)
    assert answers == [[[0], PAUSED], [[0, 0], PAUSED]]
    assert ranks.store.keys() == []


@pytest.mark.parametrize("size", [2, 4, 16])
def test_ranks_that_miss_calls_at_random(tmp_path, size):
    """Late, gone for a call, or begun again as another object: they agree again, and never differ."""

    def body(rank, store):
        member, dice, moved = Member(rank, store, size), random.Random(rank * 1000 + size), []
        for _ in range(6):
            if dice.random() < 0.3:
                continue  # an exception before the call
            for _ in range(dice.choice([0, 0, 5, 500])):
                store.clock.sleep(0.002)
            if dice.random() < 0.3:
                member.job = reveille.Job(store, rank, size)
            move = member.context.resume if member.states() == PAUSED else member.context.pause
            with contextlib.suppress(reveille.JobAborted):
                move(group=member.job, group_timeout=SOON_S)
                moved.append(member.states())
        while moved[-1:] != [PAUSED]:
            with contextlib.suppress(reveille.JobAborted):
                member.context.pause(group=member.job, group_timeout=SOON_S)
                moved.append(member.states())
        return moved

    answers, _ranks = run(tmp_path, size, body)
    moved = all_same(answers)  # what one has done, all have done, in one order
    assert moved == ([PAUSED, ACTIVE] * len(moved))[: len(moved)]


def test_ranks_that_differ_are_told_what_differs(tmp_path):
    def body(rank, store):
        member = Member(rank, store, 2)
        other_tags = member.aborted("pause", "weights" if rank == 0 else "cache")
        other_call = member.aborted("pause" if rank == 0 else "resume", "weights")
        job, member.job = member.job, reveille.Job(store, rank, 2 + rank)
        other_size = member.aborted("pause")
        member.job = job
        unknown = member.aborted("pause", "weights", "typo") if rank == 1 else None
        if rank == 0:
            member.context.alloc("2MiB", "typo")
            unknown = member.aborted("pause", "weights", "typo")
        return [other_tags[2], other_call[2], other_size[2], unknown[2]]

    answers, _ranks = run(tmp_path, 2, body)
    tags, call, size, unknown = all_same(answers)
    assert "all ranks must make the same call" in tags
    assert 'pause("weights")' in tags and 'pause("cache")' in tags
    assert 'resume("weights")' in call
    assert "in a group of 2" in size and "in a group of 3" in size
    assert unknown.startswith('no tag "typo"')


def closed(*_arguments):
    """A call of a store that is gone."""
    raise OSError("the connection was closed")


def test_a_store_that_fails_aborts_on_this_rank(tmp_path):
    def body(rank, store):
        member = Member(rank, store, 1)
        store.compare_set, usual = closed, store.compare_set
        seen = member.aborted("pause")
        assert not member.agreed  # the others may have moved
        store.compare_set = usual
        member.context.pause(group=member.job)
        return seen

    answers, _ranks = run(tmp_path, 1, body)
    assert "its store failed: OSError: the connection was closed" in answers[0][2]


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_a_round_that_the_store_does_not_count(tmp_path, counted, again):
    """The rank raises, the others miss it, and all are in step again with the next call.

    again: in a process that was started again, which has counted nothing itself.
    """

    def body(rank, store):
        member = Member(rank, store, 3)
        for move in (member.context.pause, member.context.resume, member.context.pause):
            move(group=member.job)
        if again:
            store = FileStore(store.folder, store.clock)
            member.job = reveille.Job(store, rank, 3)
        usual, failures = store.add, []

        def fail(key, amount):
            if amount and len(failures) < 2 and "/rounds/" in key:
                failures.append(key)
                if counted:
                    usual(key, amount)
                raise OSError("the connection was closed")
            return usual(key, amount)

        if rank == 1:
            store.add = fail
        seen = [member.aborted("resume", group_timeout=5) for _ in range(2)]
        assert not member.agreed
        member.context.resume(group=member.job)
        assert member.context.fits(group=member.job)
        return [seen, member.states()]

    answers, _ranks = run(tmp_path, 3, body)
    assert [states for _seen, states in answers] == [ACTIVE] * 3
    for rank, (seen, _states) in enumerate(answers):
        why = "its store failed: OSError: the" if rank == 1 else "did not answer within 5 s"
        assert all(each[1] == 1 and why in each[2] for each in seen), seen


def test_calls_of_several_threads_take_turns(tmp_path):
    """Two at once were counted as one, and this rank was rounds apart from the others forever."""

    def body(rank, store):
        member = Member(rank, store, 2)
        usual, inside = store.add, []

        def add(key, amount):
            if "/rounds/" in key:
                inside.append(threading.get_ident())
                time.sleep(0.01)
                assert inside == [threading.get_ident()]
                inside.clear()
            return usual(key, amount)

        store.add = add
        seen = []

        def move():
            try:
                for _ in range(5):
                    member.context.pause("weights", group=member.job)
                    seen.append("paused")
            except Exception as error:
                seen.append(repr(error))

        threads = [threading.Thread(target=move) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        member.context.resume(group=member.job)
        return [seen, member.states()]

    answers, _ranks = run(tmp_path, 2, body, real_time=True)
    assert answers == [[["paused"] * 20, ACTIVE]] * 2


def test_a_call_within_a_call_is_refused(tmp_path):
    def body(rank, store):
        member = Member(rank, store, 1)
        job = member.job
        causes = []

        def again(_tag):
            try:
                member.context.fits(group=job)
            except reveille.Busy as error:
                causes.append(str(error))

        member.context.tag("asked", before_unmap=again)
        member.context.alloc(MIB, "asked")
        member.context.pause("asked", group=job)
        return causes

    answers, _ranks = run(tmp_path, 1, body)
    assert len(answers[0]) == 1 and "within a move of the same group" in answers[0][0]


def test_what_was_counted_belongs_to_the_store(tmp_path):
    """A new store at the address of one that is gone inherited its rounds."""
    folder, numbers = tmp_path / "job", []
    folder.mkdir()
    addresses = set()
    for number in range(50):
        store = FileStore(folder)
        addresses.add(id(store))
        rounds = reveille._job._rounds_of(reveille.Job(store, 0, 1))
        numbers.append(rounds.last)
        rounds.last = number + 1
        del store, rounds
    assert numbers == [None] * 50 and len(addresses) < 50
    assert len(reveille._job._ROUNDS) <= 2


def test_ctrl_c_while_the_others_are_awaited(tmp_path):
    def body(rank, store):
        member = Member(rank, store, 2)
        if rank == 1:
            return member.aborted("pause")
        usual, calls = store.check, []

        def check(keys):
            calls.append(keys)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return usual(keys)

        store.check = check
        with pytest.raises(KeyboardInterrupt):
            member.context.pause(group=member.job)
        assert member.states() == ACTIVE
        return None

    # The second comes once the first has given up.
    def late(rank, store):
        if rank == 1:
            store.await_decision(1)
        return body(rank, store)

    answers, _ranks = run(tmp_path, 2, late)
    assert answers[1][1] == 0 and "interrupted: KeyboardInterrupt" in answers[1][0]


def test_what_is_no_group_is_refused(tmp_path):
    with reveille.Context("sim", devices="64MiB") as context:
        context.alloc("2MiB", "weights")
        with pytest.raises(reveille.InvalidArgument, match="group must be a process group"):
            context.pause(group="everybody")
        with pytest.raises(reveille.InvalidArgument, match="a store needs set, get"):
            reveille.Job(object(), 0, 2)
        with pytest.raises(reveille.InvalidArgument, match="rank must be from 0 to 1"):
            reveille.Job(Ranks(tmp_path / "job", 2).store, 2, 2)
        job = reveille.Job(Ranks(tmp_path / "one", 1).store, 0, 1)
        with pytest.raises(reveille.InvalidArgument, match="seconds above 0"):
            context.pause(group=job, group_timeout=0)
        context.pause("weights", group=job)
        assert repr(job) == "<reveille.Job 'reveille': rank 0 of 1>"
        forecast = context.fits(group=job)
        assert str(forecast).startswith("rank 0 of 1: fits") and forecast.worst == 0


def test_the_forecast_names_the_worst_rank(tmp_path):
    def body(rank, store):
        member = Member(rank, store, 3)
        member.context.pause()
        if rank == 2:
            member.context.external("neighbour", "60MiB")
        forecast = member.context.fits("weights", "cache", group=member.job)
        return [bool(forecast), forecast.worst, str(forecast)[:12]]

    answers, _ranks = run(tmp_path, 3, body)
    assert all_same(answers) == [False, 2, "rank 2 of 3:"]


def test_each_rank_is_forecast_in_its_own_order(tmp_path):
    """What has no content is made while content is copied, if that is begun first."""

    def body(rank, store):
        member = Member(rank, store, 2)
        member.context.pause()
        first = (member.weights, member.cache)
        alone = [member.context.fits(order=[each]).time_ns for each in first]
        together = member.context.fits(order=iter([first[rank]]), group=member.job)
        return [alone, [each.time_ns for each in together.ranks]]

    answers, ranks = run(tmp_path, 2, body)
    alone, together = all_same(answers)
    assert together == alone and alone[0] != alone[1]
    assert ranks.store.keys() == []


class Unread:
    """A tensor that has no address, as those of FakeTensorMode."""

    def data_ptr(self):
        raise RuntimeError("no address")


@pytest.mark.parametrize(
    "order, kind, reason",
    [
        (["layer"], reveille.InvalidArgument, "an address must be"),
        (5, reveille.InvalidArgument, "order must be tensors or addresses, not 5"),
        ([Unread()], RuntimeError, "RuntimeError: no address"),
    ],
)
def test_all_ranks_hear_of_an_order_that_is_none(tmp_path, order, kind, reason):
    def body(rank, store):
        member = Member(rank, store, 3)
        member.context.pause()
        if rank == 1:
            with pytest.raises(kind):
                member.context.fits(order=order, group=member.job)
            told = None
        else:
            with pytest.raises(reveille.JobAborted) as raised:
                member.context.fits(order=[member.weights], group=member.job)
            told = facts_of(raised.value)
        assert member.states() == PAUSED
        return [told, len(member.context.fits(group=member.job).ranks)]

    answers, ranks = run(tmp_path, 3, body)
    assert [after for _told, after in answers] == [3] * 3
    assert answers[1][0] is None
    _message, rank, why, number, _bytes = all_same([answers[0][0], answers[2][0]])
    assert (rank, number) == (1, getattr(kind, "STATUS", 0)) and why.startswith(reason), why
    assert ranks.store.keys() == []


def test_a_store_that_fails_a_forecast(tmp_path):
    def body(rank, store):
        member = Member(rank, store, 1)
        store.compare_set, usual = closed, store.compare_set
        with pytest.raises(OSError, match="the connection was closed"):
            member.context.fits(group=member.job)
        store.compare_set = usual
        return member.context.fits(group=member.job).worst

    answers, _ranks = run(tmp_path, 1, body)
    assert answers == [0]


def test_facts_of_the_exception():
    error = reveille.JobAborted("message", rank=3, reason="why", status=-6, requested_bytes=5)
    assert facts_of(error) == ["message", 3, "why", -6, 5]
    assert isinstance(error, reveille.ReveilleError)
    assert error.status_name == "RVL_ERR_DEVICE_OOM" and error.agreed
