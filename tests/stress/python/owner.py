# SPDX-License-Identifier: MIT
"""The model: the tags and allocations of one thread in a context that all share."""

import ctypes
import os
import random

import reveille

CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/configs")
GRANULE = 2 << 20
SLOTS = 4
TAGS = 3
POLICIES = ("none", "host", "host", "disk")


class Failure(AssertionError):
    """The library answers something else than the model."""


class NoNeighbour(reveille.Exchange):
    """Of a job of one rank: nobody is asked for anything."""

    def place(self):
        return None

    def apart(self, own, other):
        raise AssertionError("there is no other rank")

    def run(self, transfers, timeout, stop):
        raise AssertionError("there is nothing to bring")


class MemoryStore(dict):
    """What reveille.Job uses of torch.distributed.Store, for a job of one rank."""

    set = dict.__setitem__
    compare_set = lambda self, key, _unless, value: self.setdefault(key, value)  # noqa: E731
    check = lambda self, keys: all(key in self for key in keys)  # noqa: E731
    delete_key = lambda self, key: self.pop(key, None) is not None  # noqa: E731

    def add(self, key, amount):
        self[key] = self.get(key, 0) + amount
        return self[key]


class Owner:
    """Random calls of a thread. Nobody else touches its tags, so that all of them are known."""

    def __init__(self, context, seed, thread, *, roomy, folder, backed=True, alone=False):
        self.context = context
        self.random = random.Random(f"{seed}/{thread}")
        self.thread, self.roomy, self.folder = thread, roomy, folder
        self.backed, self.alone = backed, alone
        self.names = [f"thread{thread}-{i}" for i in range(TAGS)]
        self.retained = dict.fromkeys(self.names, False)
        self.veto = dict.fromkeys(self.names, False)
        self.callbacks = dict.fromkeys(self.names, False)
        self.slots = {}
        self.moves = 0  # of the process, when it was looked at last
        self.job = reveille.Job(MemoryStore(), 0, 1)
        self.steps = 0
        self.last = ""
        for name in self.names:
            context.tag(name)

    # ---- Comparing ----

    def expect(self, got, wanted, what):
        if got != wanted:
            raise Failure(f"{what} is {got!r}, the model has {wanted!r}")

    def refused(self, error, call, *arguments, **named):
        try:
            got = call(*arguments, **named)
        except error as raised:
            return raised
        raise Failure(f"it answered {got!r}, the model has {error.__name__}")

    def may_run_out(self, call, *arguments, **named):
        """(True, answer), or (False, None) where there was no room and there need not be."""
        try:
            return True, call(*arguments, **named)
        except (reveille.OutOfDeviceMemory, reveille.TimedOut):
            if self.roomy:
                raise
            return False, None
        except reveille.JobAborted as aborted:
            ran_out = (reveille.OutOfDeviceMemory, reveille.TimedOut)
            if self.roomy or not isinstance(aborted.__cause__, ran_out):
                raise
            return False, None

    # ---- Allocations ----

    def alloc(self):
        if len(self.slots) == SLOTS:
            return
        tag, policy = self.random.choice(self.names), self.random.choice(POLICIES)
        granules, paused = self.random.randint(1, 2), self.random.random() < 0.2
        size = granules * GRANULE - self.random.randrange(GRANULE)
        done, address = self.may_run_out(
            self.context.alloc, size, tag, backup=policy, paused=paused,
            exportable=self.random.random() < 0.1, rdma=self.random.random() < 0.1)  # fmt: skip
        if done:
            self.slots[address] = {
                "tag": tag, "policy": policy, "size": granules * GRANULE, "active": not paused,
                "content": None, "backup": None, "held": False}  # fmt: skip
            self.compare(address)

    def free(self):
        if self.slots:
            address = self.random.choice(list(self.slots))
            self.compare(address)
            del self.slots[address]
            self.context.free(address)

    def compare(self, address):
        slot = self.slots[address]
        found = self.context.allocation(address + self.random.randrange(slot["size"]))
        self.expect(found.addr, address, "addr")
        self.expect(found.size_bytes, slot["size"], "size_bytes")
        self.expect(found.tag, slot["tag"], "tag")
        self.expect(found.backup, slot["policy"], "backup")
        self.expect(found.state, "active" if slot["active"] else "paused", "state")
        if self.backed and slot["active"] and slot["content"] is not None:
            got = ctypes.string_at(address, slot["size"])
            self.expect(got == bytes([slot["content"]]) * slot["size"], True, "content")

    def touch(self):
        for address, slot in self.slots.items():
            self.compare(address)
            if self.backed and slot["active"]:
                slot["content"] = self.random.randrange(256)
                ctypes.memset(address, slot["content"], slot["size"])

    def backup(self):
        for address, slot in self.slots.items():
            held = slot["held"] and not slot["active"] and slot["policy"] == "host"
            if not held:
                self.refused(reveille.NotFound, self.context.backup, address)
            elif not self.backed:
                self.refused(reveille.NotSupported, self.context.backup, address)
            elif slot["backup"] is not None:
                got = self.context.backup(address, 4096)
                self.expect(got, bytes([slot["backup"]]) * 4096, "backup")

    # ---- Tags and transitions ----

    def tag(self):
        name = self.random.choice(self.names)
        self.retained[name] = self.random.random() < 0.3
        self.callbacks[name] = self.random.random() < 0.5

        def before(tag):
            self.expect(tag, name, "tag of a callback")
            self.refused(reveille.InvalidState, self.context.alloc, 1)
            if self.veto[name]:
                raise ValueError(name)

        self.context.tag(
            name, block_bytes=self.random.choice((0, GRANULE)), retain_backups=self.retained[name],
            before_unmap=before if self.callbacks[name] else None)  # fmt: skip

    def some_tags(self):
        count = self.random.randint(0 if self.alone else 1, TAGS)
        return self.random.sample(self.names, count)

    def moved(self, tags, active):
        chosen = tags or self.names
        return [s for s in self.slots.values() if s["tag"] in chosen and s["active"] == active]

    def pause(self):
        tags, discard = self.some_tags(), self.random.random() < 0.2
        moved = self.moved(tags, True)
        self.veto = {name: self.random.random() < 0.1 for name in self.names}
        vetoed = any(self.veto[s["tag"]] and self.callbacks[s["tag"]] for s in moved)
        forecast = self.context.pause_forecast(*tags, discard=discard)
        self.expect(forecast.allocation_count, len(moved), "allocation_count")
        if vetoed:
            error = self.refused(reveille.Vetoed, self.context.pause, *tags, discard=discard)
            self.expect(type(error.__cause__), ValueError, "__cause__")
            return
        self.context.pause(*tags, discard=discard, **self.some_group())
        for slot in moved:
            held = not discard and slot["policy"] != "none"
            slot.update(active=False, held=held, backup=slot["content"] if held else None,
                        content=None)  # fmt: skip

    def some_group(self):
        """Now and then all ranks move together; this is the only one."""
        return {"group": self.job} if self.random.random() < 0.4 else {}

    def resume(self):
        tags, restore = self.some_tags(), self.random.random() < 0.8
        moved = self.moved(tags, False)
        first = self.random.sample(list(self.slots), len(self.slots) // 2)
        forecast = self.context.fits(*tags, restore=restore, order=first)
        self.expect(forecast.allocation_count, len(moved), "allocation_count")
        timeout = self.random.choice((None, 0.001))
        together = self.context.fits(*tags, restore=restore, order=first, group=self.job)
        self.expect([each.allocation_count for each in together.ranks], [len(moved)], "ranks")
        in_order = self.random.random() < 0.3
        how = {**self.some_group(), **(self.some_order() if in_order else {})}
        if "group" in how and not in_order and self.random.random() < 0.8:
            how["replicas"] = NoNeighbour()
        done, wake = self.may_run_out(self.context.resume, *tags, restore=restore, timeout=timeout,
                                      **how)  # fmt: skip
        if in_order and done:
            self.arrive(tags, wake)
        for slot in moved if done else ():
            slot.update(active=True, content=slot["backup"] if restore and slot["held"] else None,
                        held=slot["held"] and self.retained[slot["tag"]])  # fmt: skip

    def some_order(self):
        """One after the other, some of them first."""
        return {"wait": False, "order": self.random.sample(list(self.slots), len(self.slots) // 2)}

    def arrive(self, tags, wake):
        for address, slot in self.slots.items():
            if not tags or slot["tag"] in tags:
                self.context.wait(address)
                self.expect(self.context.ready(address), True, "ready")
        self.random.choice((wake.wait, self.context.wait))()

    # ---- Reading ----

    def look(self):
        stats = self.context.stats()
        for name in self.names:
            active = sum(s["size"] for s in self.moved([name], True))
            paused = sum(s["size"] for s in self.moved([name], False))
            found = stats.tags[name]
            self.expect((found.active_bytes, found.paused_bytes), (active, paused), name)
        mine = {a for a, s in self.slots.items()}
        there = {each.addr for each in self.context.allocations()}
        self.expect(mine - there, set(), "allocations that are missing")
        free, total = self.context.memory()
        self.expect(0 <= free <= total, True, "free")
        self.expect(self.context.devices[0].capacity_bytes, total, "capacity_bytes")
        self.expect(self.context.clock_ns >= stats.clock_ns, True, "clock_ns")
        self.expect(set(self.names) <= set(self.context.tags), True, "tags")
        self.expect((self.context.backend, self.context.closed), ("sim", False), "backend")
        self.watch(stats)

    def watch(self, stats):
        """The process holds what this context holds, or more; what it has moved only grows."""
        found = reveille.metrics()
        for name in self.names:
            there = sum(each.active_bytes for each in found.tags if each.tag == name)
            self.expect(there >= stats.tags[name].active_bytes, True, f"metrics of {name}")
        moves = sum(each.count for each in found.transitions)
        self.expect(moves >= self.moves, True, "transitions")
        self.moves = moves

    def marks(self):
        self.context.stage(f"stage{self.random.randrange(3)}")
        self.context.step()
        self.may_run_out(self.context.external, "driver", self.random.randrange(GRANULE))
        self.context.holders("start")

    def texts(self):
        self.expect(reveille.parse_size(reveille.format_size(3 << 30).replace(" ", "")), 3 << 30, "size")
        self.expect(reveille.version().count("."), 2, "version")
        each = self.random.choice(reveille.profiles())
        self.expect(reveille.profile(each.name), each, "profile")

    def mistakes(self):
        self.refused(reveille.InvalidArgument, self.context.alloc, 0)
        self.refused(reveille.NoDevice, self.context.alloc, 1, device=9)
        self.refused(reveille.NotFound, self.context.pause, "never")
        self.refused(reveille.NotFound, self.context.allocation, 1)
        self.refused(reveille.InvalidArgument, self.context.free, 1)
        self.refused(reveille.InvalidArgument, reveille.parse_size, "12 apples")
        self.refused(reveille.InputOutputError, reveille.replay, os.path.join(self.folder, "none"))

    def replay(self):
        """A recording of a context of its own, replayed: it ends with what is in use there."""
        path = os.path.join(self.folder, f"own-{self.thread}.rvt")
        with reveille.Context(devices="64MiB", memory="accounted") as own, own.record(path):
            own.stage("begin")
            sizes = [self.random.randint(1, 30) * GRANULE for _ in range(3)]
            refused = False
            for size in sizes:
                try:
                    own.alloc(size, "weights")
                    refused = False
                except reveille.OutOfDeviceMemory:
                    refused = True
            used = own.stats().devices[0].used_bytes
        result = reveille.replay(path, budgets={"begin": GRANULE}, wake="together")
        self.expect(result.devices[0].stage("begin").end_bytes, used, "end_bytes")
        # The trace does not say that the program went on after a refusal that was its last request.
        self.expect(result.fits, not refused, "fits")
        self.expect(reveille.replay(path, device="2MiB").fits, used <= GRANULE, "fits")
        if refused:  # what the program would have needed after that is not known
            self.refused(reveille.InvalidArgument, reveille.plan, path, "weights")
        else:
            self.expect(reveille.plan(path, "weights", headroom=0).largest_bytes, 64 << 20, "largest")
        with open(path, "rb+") as file:
            file.truncate(os.path.getsize(path) - 3)
        self.refused(reveille.CorruptTrace, reveille.replay, path)
        reveille.replay(path, partial=True)
        os.unlink(path)

    def predict(self):
        """A step of a model: what a plan calls the peak is what its replay has."""
        config = os.path.join(CONFIGS, "qwen2.5-0.5b.json")
        self.expect("micro-batch" in [each.name for each in reveille.settings()], True, "settings")
        chosen = {"device": "h100-80g", "train": "fsdp:2", "micro_batch": self.random.randint(1, 2)}
        step = reveille.model(config, **chosen)
        planned = reveille.plan_model(config, **chosen)
        self.expect(planned.peak_bytes, step.replay.devices[0].peak_bytes, "peak")
        self.refused(reveille.InvalidArgument, reveille.model, config, micro_batch="many")

    def overcommit(self):
        with reveille.Context(devices="4MiB", memory="accounted", overcommit=True) as own:
            own.alloc("8MiB", "weights")
            self.expect(own.stats().devices[0].oom.tag, "weights", "oom")

    ACTIONS = ((alloc, 20), (free, 8), (pause, 10), (resume, 12), (touch, 8), (backup, 6), (tag, 4),
               (look, 3), (marks, 1), (texts, 1), (mistakes, 2), (replay, 1), (predict, 1),
               (overcommit, 1))  # fmt: skip

    def run(self, action):
        self.steps += 1
        self.last = action.__name__
        action(self)

    def step(self):
        """One action, drawn at random."""
        actions, weights = zip(*self.ACTIONS)
        self.run(self.random.choices(actions, weights)[0])

    def tour(self):
        """All of them, some times."""
        for _ in range(5):
            for action, _weight in self.ACTIONS:
                self.run(action)
