# SPDX-License-Identifier: MIT
"""Ranks that hold the same restore a part each and bring each other the rest: each step fails in turn."""

import ctypes
import logging
import pathlib
import signal
import time

import pytest
import reveille
from job import MIB, Member, Ranks

SIZE = 4 * MIB  # of the weights: two granules


class Files:
    """An exchange by files in a folder. A fault is a step at which this rank does something else."""

    def __init__(self, folder, job, fault=None):
        self.folder = pathlib.Path(folder)
        self.rank = job.rank
        self.clock = job.store.clock
        self.fault = fault or (lambda step: None)
        self.received = 0
        self.where = "here"

    def place(self):
        self.fault("place")
        return self.where

    def apart(self, own, other):
        return "" if own == other else f"{other} is far away"

    def run(self, transfers, timeout, stop):
        self.fault("run")
        end = self.clock.monotonic() + timeout
        for number, each in enumerate(transfers):
            if each.sending:
                self._send(each)
            self.fault(f"sent {number}")
        for each in transfers:
            if not each.sending:
                self._receive(each, end, stop)
        self.fault("received")

    def _file(self, source, target, each):
        # Both sides number the pieces between them alike: by the order of the transfers.
        key = source, target
        counts = self.__dict__.setdefault("counts", {})
        counts[key] = counts.get(key, -1) + 1
        return self.folder / f"{source}-{target}-{counts[key]}-{each.size_bytes}"

    def _send(self, each):
        path = self._file(self.rank, each.peer, each)
        content = bytearray(ctypes.string_at(each.address, each.size_bytes))
        if self.fault("content") == "wrong":
            content[len(content) // 2] ^= 1
        draft = path.with_suffix(".draft")
        draft.write_bytes(content)
        with self.clock.writing():
            draft.rename(path)

    def _receive(self, each, end, stop):
        path = self._file(each.peer, self.rank, each)
        while not path.exists():
            if stop() or self.clock.monotonic() >= end:
                raise reveille.TimedOut(f"rank {each.peer} has not sent {path.name}")
            self.clock.sleep(0.001)
        ctypes.memmove(each.address, path.read_bytes(), each.size_bytes)
        self.received += each.size_bytes


def fill(address, size, seed=0):
    """Content that differs from granule to granule."""
    for at in range(0, size, 4096):
        ctypes.memset(address + at, (at // 4096 * 7 + seed) % 251, 4096)


def content(member):
    return ctypes.string_at(member.weights, SIZE)


def replica(rank, store, world_size, seed=0):
    member = Member(rank, store, world_size)
    fill(member.weights, SIZE, seed)
    member.wanted = content(member)
    member.context.pause("weights", "cache", group=member.job)
    return member


def whole(member):
    """Active, with the content from before."""
    return member.context.allocation(member.weights).state == "active" and (
        content(member) == member.wanted
    )


def resume(member, exchange, timeout=30):
    """What it answers, as JSON has it."""
    links = member.context.resume(
        "weights", group=member.job, replicas=exchange, group_timeout=timeout
    )
    return [links.restored_bytes // MIB, links.filled_bytes // MIB, links.wrong_bytes // MIB,
            links.alone]  # fmt: skip


def run(tmp_path, world_size, body, **options):
    (tmp_path / "files").mkdir()
    ranks = Ranks(tmp_path / "job", world_size, **options)
    return ranks.run(body), ranks


def test_each_rank_restores_its_part_and_gets_the_rest(tmp_path):
    def body(rank, store):
        member = replica(rank, store, 2)
        exchange = Files(tmp_path / "files", member.job)
        said = resume(member, exchange)
        device = member.context.stats().devices[0]
        (row,) = [each for each in reveille.metrics().transitions if each.operation == "resume"]
        counted = [device.backup_in_bytes, device.filled_in_bytes]
        assert counted == [row.copied_bytes, row.filled_bytes] == [2 * MIB, 2 * MIB]
        member.context.pause("weights", group=member.job)
        member.context.resume("weights", group=member.job)  # without replicas, as before
        return [said, exchange.received, whole(member)]

    answers, ranks = run(tmp_path, 2, body)
    assert answers == [[[2, 2, 0, ""], 2 * MIB, True]] * 2
    assert ranks.store.keys() == []


def test_more_ranks_than_granules(tmp_path):
    def body(rank, store):
        member = replica(rank, store, 8)
        said = resume(member, Files(tmp_path / "files", member.job))
        return [said, whole(member)]

    answers, _ranks = run(tmp_path, 8, body)
    assert all(whole for _said, whole in answers)
    assert sum(said[0] for said, _whole in answers) == 4  # each granule was restored once in all
    assert sum(said[1] for said, _whole in answers) == 28
    assert {said[3] for said, _whole in answers} == {""}


def test_wrong_content_is_caught_by_the_digest(tmp_path):
    def body(rank, store):
        member = replica(rank, store, 2)
        wrong = rank == 1

        def fault(step):
            return "wrong" if wrong and step == "content" else ""

        said = resume(member, Files(tmp_path / "files", member.job, fault))
        return [said, whole(member)]

    answers, _ranks = run(tmp_path, 2, body)
    assert answers == [[[4, 0, 2, ""], True], [[2, 2, 0, ""], True]]


def test_ranks_with_other_content_fall_back_alone(tmp_path):
    """Of three ranks the last has trained on: the first two share, and all are right."""

    def body(rank, store):
        member = replica(rank, store, 3, seed=100 * (rank == 2))
        return [resume(member, Files(tmp_path / "files", member.job)), whole(member)]

    answers, _ranks = run(tmp_path, 3, body)
    assert all(right for _said, right in answers)
    assert answers[2][0] == [4, 0, 0, "no other rank holds the same content"]
    assert [said[0] + said[1] for said, _right in answers] == [4, 4, 4]
    assert [said[1] for said, _right in answers[:2]] != [0, 0]


@pytest.mark.parametrize("how", ["layout", "far", "cannot"])
def test_ranks_that_cannot_share_say_why(tmp_path, how):
    def body(rank, store):
        def fault(step):
            if how == "cannot" and rank == 0 and step == "place":
                raise reveille.NotSupported("no links here")

        member = replica(rank, store, 2)
        exchange = Files(tmp_path / "files", member.job, fault)
        exchange.where = f"machine {rank}" if how == "far" else "here"
        if how == "layout" and rank == 1:
            member.context.resume()
            member.context.alloc("2MiB", "weights", backup="host")
            member.context.pause()
        return [resume(member, exchange), whole(member)]

    answers, _ranks = run(tmp_path, 2, body)
    why = {
        "layout": "their allocations differ: replicas make the same ones in the same order",
        "far": "{} is far away",
        "cannot": "no links here",
    }[how]
    for rank, (said, right) in enumerate(answers):
        assert right
        assert said[:3] == [4 + 2 * (how == "layout" and rank == 1), 0, 0]
        assert said[3] == f"rank {1 - rank}: " + why.format(f"machine {1 - rank}")


STEPS = ["place", "run", "sent 0", "received"]


@pytest.mark.parametrize("step", STEPS)
def test_each_step_fails_on_each_rank(tmp_path, step):
    """An exchange that fails costs time: all ranks move, with their own backups."""
    size = 3

    def body(rank, store):
        seen = []
        for round_ in range(size):
            member = replica(rank, store, size) if round_ == 0 else member  # noqa: F821
            if round_ > 0:
                member.context.pause("weights", group=member.job)

            def fault(name, here=rank == round_):
                if here and name == step:
                    raise RuntimeError("the link is down")

            folder = tmp_path / "files" / f"{round_}"
            folder.mkdir(exist_ok=True)
            try:
                said = resume(member, Files(folder, member.job, fault))
                seen.append([said, whole(member)])
            except reveille.JobAborted as error:
                seen.append(str(error))
                assert member.states() == ["paused", "paused"]
                member.context.resume("weights", group=member.job)
                assert whole(member)
        return seen

    answers, _ranks = run(tmp_path, size, body)
    for round_, outcomes in enumerate(zip(*answers)):
        if step == "place":  # no answer of an exchange, but a fault of it: the ranks refuse
            assert len(set(outcomes)) == 1
            assert f"rank {round_} of {size} cannot resume" in outcomes[0]
            assert "the link is down" in outcomes[0]
            continue
        for rank, (said, right) in enumerate(outcomes):
            assert right, (round_, rank)
            assert said[0] + said[1] == 4
            if rank == round_ and said[1] == 0:
                assert said[3] == "the exchange failed: RuntimeError: the link is down"


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_rank_is_named_and_nothing_is_lost(tmp_path, step):
    size, timeout_s = 3, 10

    def body(rank, store):
        member = replica(rank, store, size)

        def fault(name):
            if rank == 1 and name == step:
                store.clock.die()

        begin = store.clock.monotonic()
        try:
            resume(member, Files(tmp_path / "files", member.job, fault), timeout_s)
        except reveille.JobAborted as error:
            assert store.clock.monotonic() - begin <= 2 * timeout_s  # it votes twice
            assert member.states() == ["paused", "paused"]
            assert member.used() == 0
            said = [error.rank, error.status, error.agreed]
            member.context.resume()  # the other ranks are gone
            return [said, whole(member)]
        raise AssertionError("it went on without rank 1")

    answers, _ranks = run(tmp_path, size, body)
    assert answers[1] == signal.SIGKILL
    assert answers[0] == answers[2] == [[1, reveille.TimedOut.STATUS, False], True]


# ---- In the middle: some pieces are exchanged, others are still to be restored ----


class Steps(Files):
    """Files, and a place to say how often it has run."""

    def __init__(self, folder, job, fault=None):
        super().__init__(folder, job, fault)
        self.runs, self.given_up = [], 0

    def run(self, transfers, timeout, stop):
        self.fault(f"step {len(self.runs)}")
        super().run(transfers, timeout, stop)
        self.runs.append(sum(not each.sending for each in transfers))

    def give_up(self):
        self.given_up += 1


LAYERS = 6  # of SIZE each: with three ranks two of each, four granules, and so two steps


def stepping(rank, store, world_size):
    """A replica of several allocations that exchanges a granule of each rank in a step."""
    reveille._replicas.STEP_BYTES = 2 * MIB
    member = Member(rank, store, world_size)
    member.layers = [member.weights] + [
        member.context.alloc(SIZE, "weights", backup="host") for _ in range(LAYERS - 1)
    ]
    for number, address in enumerate(member.layers):
        fill(address, SIZE, number)
    member.wanted = layers(member)
    member.context.pause("weights", "cache", group=member.job)
    return member


def layers(member):
    return [ctypes.string_at(address, SIZE) for address in member.layers]


def all_right(member):
    states = {member.context.allocation(each).state for each in member.layers}
    return states == {"active"} and layers(member) == member.wanted


def asleep(member):
    states = {member.context.allocation(each).state for each in member.layers}
    return states == {"paused"} and member.used() == 0


def test_pieces_are_exchanged_while_later_ones_are_restored(tmp_path):
    """When the first step is exchanged, the last piece of the part is not there yet."""

    def body(rank, store):
        member = stepping(rank, store, 3)
        own, seen = range(2 * rank, 2 * rank + 2), []

        def look(step):
            if step.startswith("step"):
                here = [ctypes.string_at(member.layers[i], SIZE) == member.wanted[i] for i in own]
                seen.append(here)

        # A device's memory is host memory here, and a copy is done when it is queued. So only what
        # was waited for counts, and that is what the core says.
        loads = []
        plain = reveille._job.Prepared.load_next

        def counting(prepared):
            number = plain(prepared)
            loads.append((number, len(seen)))
            return number

        reveille._job.Prepared.load_next = counting
        exchange = Steps(tmp_path / "files", member.job, look)
        said = resume(member, exchange)
        return [said, all_right(member), exchange.runs, [step for _number, step in loads]]

    answers, _ranks = run(tmp_path, 3, body)
    for said, right, runs, steps in answers:
        assert said == [8, 16, 0, ""]
        assert right
        assert runs == [2, 2]  # a piece of each other rank: a whole allocation, twice
        assert steps == [0, 1]  # the second is waited for after the first exchange


def damage(member, layer):
    """The content of a backup changes in host memory."""
    host, there = ctypes.c_void_p(), ctypes.c_uint64()
    member.context._handle.call(
        "rvl_backup_find", member.layers[layer], ctypes.byref(host), ctypes.byref(there)
    )
    at = ctypes.c_ubyte.from_address(host.value)
    at.value ^= 1
    return at


@pytest.mark.parametrize("step", [0, 1])
def test_a_piece_that_cannot_be_restored_makes_all_abort(tmp_path, step):
    """Its digest is wrong; others have had the pieces before it. Once it is right, all resume."""
    size = 3

    def body(rank, store):
        member = stepping(rank, store, size)
        exchange = Steps(tmp_path / "files", member.job)
        at = damage(member, 2 * rank + step) if rank == 1 else None
        try:
            resume(member, exchange)
        except reveille.JobAborted as error:
            said = [error.rank, error.status, error.agreed, asleep(member)]
        if at is not None:
            at.value ^= 1
        folder = tmp_path / "again"
        folder.mkdir(exist_ok=True)
        again = resume(member, Steps(folder, member.job))
        return [said, again, all_right(member), exchange.given_up, len(exchange.runs)]

    answers, ranks = run(tmp_path, size, body)
    for rank, (said, again, right, given_up, runs) in enumerate(answers):
        assert said == [1, reveille.DigestMismatch.STATUS, True, True]
        assert again == [8, 16, 0, ""]
        assert right
        assert given_up == (rank == 1)
        assert runs <= step
    assert answers[1][4] == step  # what came before it was exchanged
    assert ranks.store.keys() == []


MIDDLE = ["step 1", "sent 0", "received"]


@pytest.mark.parametrize("step", MIDDLE)
def test_the_exchange_fails_in_its_second_step(tmp_path, step):
    """What had come stays, the rest comes from the own backup, and all move."""

    def body(rank, store):
        member = stepping(rank, store, 3)
        exchange = Steps(tmp_path / "files", member.job)

        def fault(name):
            if rank == 1 and name == step and len(exchange.runs) == 1:
                raise RuntimeError("the link is down")

        exchange.fault = fault
        return [resume(member, exchange), all_right(member)]

    answers, _ranks = run(tmp_path, 3, body)
    for said, right in answers:
        assert right
        assert said[0] + said[1] == 24
        assert said[1] % 4 == 0  # the others may give up in their first step, if it is not done when rank 1 is
    assert answers[1][0][1] == (16 if step == "received" else 8)


@pytest.mark.parametrize("step", MIDDLE)
def test_a_rank_is_killed_in_the_second_step(tmp_path, step):
    size, timeout_s = 3, 10

    def body(rank, store):
        member = stepping(rank, store, size)
        exchange = Steps(tmp_path / "files", member.job)

        def fault(name):
            if rank == 1 and name == step and len(exchange.runs) == 1:
                store.clock.die()

        exchange.fault = fault
        try:
            resume(member, exchange, timeout_s)
        except reveille.JobAborted as error:
            said = [error.rank, error.status, error.agreed, asleep(member)]
        member.context.resume()  # the other ranks are gone
        return [said, all_right(member)]

    answers, _ranks = run(tmp_path, size, body)
    assert answers[1] == signal.SIGKILL
    assert answers[0] == answers[2] == [[1, reveille.TimedOut.STATUS, False, True], True]


def test_a_corrupted_piece_of_the_second_step_is_restored(tmp_path):
    def body(rank, store):
        member = stepping(rank, store, 3)
        exchange = Steps(tmp_path / "files", member.job)

        def fault(name):
            wrong = rank == 1 and name == "content" and len(exchange.runs) == 1
            return "wrong" if wrong else ""

        exchange.fault = fault
        return [resume(member, exchange), all_right(member)]

    answers, _ranks = run(tmp_path, 3, body)
    assert [said for said, _right in answers] == [[12, 12, 4, ""], [8, 16, 0, ""], [12, 12, 4, ""]]
    assert all(right for _said, right in answers)


def test_a_late_rank_makes_all_abort(tmp_path):
    """In real time: what it is late for was decided a second after the others had begun."""
    size = 2

    def body(rank, store):
        member = replica(rank, store, size)

        def late(step):
            if rank == 1 and step == "place":
                store.await_decision(3)  # 1: the pause; 2: all have prepared

        begin = time.monotonic()
        try:
            resume(member, Files(tmp_path / "files", member.job, late), 1)
        except reveille.JobAborted as error:
            assert time.monotonic() - begin >= (1 if rank == 0 else 0)
            assert member.states() == ["paused", "paused"]
            seen = [error.rank, error.status]
        member.context.resume("weights", group=member.job)  # it comes later, and all is well
        return [seen, whole(member)]

    answers, _ranks = run(tmp_path, size, body, real_time=True)
    assert answers == [[[1, reveille.TimedOut.STATUS], True]] * 2


def test_a_rank_without_room_aborts_before_the_exchange(tmp_path):
    def body(rank, store):
        member = replica(rank, store, 2)
        if rank == 1:
            member.context.external("neighbour", "62MiB")
        exchange = Files(tmp_path / "files", member.job)
        with pytest.raises(reveille.JobAborted) as aborted:
            resume(member, exchange)
        assert exchange.received == 0
        assert member.states() == ["paused", "paused"]
        if rank == 1:
            member.context.external("neighbour", 0)
        said = resume(member, Files(tmp_path / "files", member.job))
        return [aborted.value.rank, said, whole(member)]

    answers, _ranks = run(tmp_path, 2, body)
    assert answers == [[1, [2, 2, 0, ""], True]] * 2


def test_one_rank_is_alone_and_the_log_says_so(tmp_path, caplog):
    (tmp_path / "store").mkdir()
    from job import FileStore

    member = replica(0, FileStore(tmp_path / "store"), 1)
    with caplog.at_level(logging.INFO, "reveille"):
        exchange = Files(tmp_path, member.job)
        links = member.context.resume("weights", group=member.job, replicas=exchange)
    assert links.alone == "nothing that has digests was to be restored"
    assert "alone: nothing that has digests" in caplog.text
    assert whole(member)


def test_what_is_refused(tmp_path):
    context = reveille.Context("sim", devices="64MiB")
    job = reveille.Job(_store(tmp_path), 0, 1)
    context.alloc("2MiB", "weights", backup="host")
    context.pause()
    for options, words in [
        ({"replicas": True}, "give group= as well"),
        ({"replicas": True, "group": job}, "an exchange of your own"),
        ({"replicas": 3, "group": job}, "needs place, apart, run"),
    ]:
        with pytest.raises(reveille.InvalidArgument, match=words):
            context.resume(**options)
    with pytest.raises(reveille.InvalidArgument, match="give group= as well"):
        reveille.resume("weights", replicas=True)
    assert context.stats().tags["weights"].state == "paused"
    context.close()


def _store(tmp_path):
    from job import FileStore

    folder = tmp_path / "refused"
    folder.mkdir()
    return FileStore(folder)


class Cards:
    """As much of PyTorch as an exchange between GPUs takes; its sends end when they are told to."""

    def __init__(self, backend="ProcessGroupNCCL", done=True, **methods):
        self.aborted, self.begun = 0, []
        methods.setdefault("abort", self._abort)
        self.backend = type(backend, (), {k: staticmethod(v) for k, v in methods.items()})()
        self.done = done
        self.cuda = self
        self.isend, self.irecv = "send", "receive"

    def _abort(self):
        self.aborted += 1

    def exchange(self):
        exchange = object.__new__(reveille._replicas.TorchExchange)
        exchange._torch = exchange._dist = exchange._group = self
        return exchange

    def device(self, name):
        return name

    def _get_backend(self, _device):
        if self.backend.__class__.__name__ == "none":
            raise RuntimeError("no backend for cuda")
        return self.backend

    def as_tensor(self, memory, device):
        return memory.__cuda_array_interface__["data"][0], device

    def get_process_group_ranks(self, _group):
        return [4, 6]

    def P2POp(self, *operation):
        return operation[:3]

    def batch_isend_irecv(self, operations):
        self.begun += operations
        return [self]

    def is_completed(self):
        return self.done

    def wait(self):
        if self.done == "badly":
            raise RuntimeError("NCCL: remote process exited")


PAIR = [
    reveille.Transfer(4096, 8, "cuda:1", 1, True),
    reveille.Transfer(8192, 8, "cuda:1", 1, False),
]


def test_an_exchange_between_cards_goes_to_the_ranks_of_the_group():
    cards = Cards()
    cards.exchange().run(PAIR, 1, lambda: False)
    assert cards.begun == [("send", (4096, "cuda:1"), 6), ("receive", (8192, "cuda:1"), 6)]
    assert cards.aborted == 0


@pytest.mark.parametrize(
    ("done", "stop", "error", "words"),
    [
        (False, False, reveille.TimedOut, "has not ended within 0.01 s"),
        (False, True, reveille.TimedOut, "another rank has given the exchange up"),
        ("badly", False, RuntimeError, "remote process exited"),
    ],
)
def test_an_exchange_between_cards_that_fails_ends_the_communicators(done, stop, error, words):
    """Nothing may write to memory that is then filled from the backup."""
    cards = Cards(done=done)
    with pytest.raises(error, match=words):
        cards.exchange().run(PAIR, 0.01, lambda: stop)
    assert cards.aborted == 1


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        (Cards(backend="none"), "another backend"),
        (Cards(backend="ProcessGroupGloo"), "another backend"),
        (Cards(abort=None), "cannot end an exchange"),
    ],
)
def test_an_exchange_between_cards_without_a_way_to_end_it_is_not_begun(cards, words):
    cards.backend.__class__.abort = None if "cannot" in words else staticmethod(cards._abort)
    with pytest.raises(reveille.NotSupported, match=words):
        cards.exchange().run(PAIR, 1, lambda: False)
    assert cards.begun == []


def test_cards_out_of_reach_stay_apart():
    exchange = Cards().exchange()
    one = {"machine": "a", "gpu": "x", "reaches": ["y"]}
    two = {"machine": "a", "gpu": "y", "reaches": []}
    assert exchange.apart(one, two) == ""
    assert "cannot be reached" in exchange.apart(two, one)
    assert exchange.apart(one, {**two, "machine": "b"}) == "it is on another machine"
