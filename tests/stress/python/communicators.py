# SPDX-License-Identifier: MIT
"""The model: communicators of one rank, made, moved, failed and destroyed at random."""

import contextlib
import pathlib
import random
import sys

import reveille
from reveille import _communicators

sys.path.append(str(pathlib.Path(__file__).parents[2] / "python"))
import fake_nccl  # noqa: E402

MOST = 4
BYTES = 1 << 20


class Communicators:
    """Random calls. NCCL is a stand-in."""

    def __init__(self, seed, folder):
        self.random = random.Random(f"{seed}/communicators")
        self.fake = fake_nccl.FakeNccl(pathlib.Path(folder))
        self.active = {}  # by pointer
        self.made = 0
        self.put_back = []

    def put(self, module, name, value):
        self.put_back.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def expect(self):
        found = {each.pointer: each.state for each in reveille.communicators()}
        states = {True: "active", False: "paused"}
        model = {pointer: states[active] for pointer, active in self.active.items()}
        assert found == model, f"{found}, the model has {model}"
        sums = [BYTES * list(self.active.values()).count(active) for active in (True, False)]
        for each in reveille.metrics().tags:
            if each.tag == "nccl":
                assert [each.active_bytes, each.paused_bytes] == sums, each

    def add(self):
        if len(self.active) < MOST:
            self.made += 1
            pointer = self.fake.add(f"{self.made}", 0, 1, suspendable=BYTES)
            reveille.add_communicator(pointer)
            self.active[pointer] = True

    def remove(self):
        if self.active:
            pointer = self.random.choice(list(self.active))
            reveille.remove_communicator(pointer)
            del self.active[pointer]
            with contextlib.suppress(reveille.InvalidArgument):
                reveille.remove_communicator(pointer)
                raise AssertionError("it was removed twice")

    def move(self, function, active):
        names = [self.fake.comms[pointer].name for pointer in self.active]
        bad = self.random.choice([*names, "", ""]) if names else ""
        step = {"pause": "suspend", "resume": "resume"}[function]
        self.fake.fail = {(step, bad): "error"} if bad else {}
        moved = [self.fake.comms[p].name for p, was in self.active.items() if was != active]
        try:
            getattr(reveille, function)("nccl")
            assert bad not in moved, f"{bad} was to fail"
            self.active = dict.fromkeys(self.active, active)
        except reveille.InvalidState:
            assert bad in moved, f"nothing was to fail, {bad!r}"
        self.fake.fail = {}

    def step(self):
        """One call, and all states after it."""
        call = self.random.choice(("add", "remove", "pause", "resume", "resume"))
        if call in ("pause", "resume"):
            self.move(call, call == "resume")
        else:
            getattr(self, call)()
        self.expect()

    def run(self, steps):
        """So many, and nothing is left."""
        fake_nccl.use(self.put, self.fake)
        try:
            for _ in range(steps):
                self.step()
            while self.active:
                self.remove()
            self.expect()
        finally:
            for each in reversed(self.put_back):
                setattr(*each)
            _communicators.COMMUNICATORS.forget()
