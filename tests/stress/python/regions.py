# SPDX-License-Identifier: MIT
"""Regions of a stub of PyTorch on the fake driver, against a model of what each tensor holds."""

import os
import random

import reveille

MIB = 1 << 20
TENSORS = 5


class Regions:
    """Random calls over tensors of several tags, on the main thread."""

    def __init__(self, seed, folder):
        import torch  # the stub, which needs the fake driver

        self.torch, self.folder = torch, folder
        self.random = random.Random(f"{seed}/regions")
        self.tensors = []  # tag, backup, tensor, value or None
        self.paused = set()
        self.last = ""
        reveille.set_disk_directory(os.path.join(folder, "regions"))

    def full(self, mib, value):
        return self.torch.full((mib * MIB,), value, dtype=self.torch.uint8, device="cuda")

    def alloc(self):
        tag = self.random.choice(("weights", "kv_cache"))
        if tag in self.paused or len(self.tensors) == TENSORS:
            return
        backup, value = self.random.choice(("none", "host", "disk")), self.random.randrange(256)
        with reveille.region(tag, backup=backup):
            with reveille.disable():
                assert self.full(1, value).tolist()[0] == value
            tensor = self.full(2, value)
        self.tensors.append([tag, backup, tensor, value])

    def graph(self):
        with reveille.cuda_graph(self.torch.cuda.CUDAGraph(), tag="cuda_graph"):
            inner = self.full(2, 1)
        assert inner.tolist()[0] == 1

    def drop(self):
        if self.tensors:
            self.tensors.pop(self.random.randrange(len(self.tensors)))

    def pause(self):
        for tag in {each[0] for each in self.tensors} - self.paused:
            reveille.pause(tag)
            self.paused.add(tag)
            for each in self.tensors:
                if each[0] == tag and each[1] == "none":
                    each[3] = None
                if each[0] == tag and each[1] == "host" and each[3] is not None:
                    assert set(reveille.backup_of(each[2]).tolist()) == {each[3]}

    def resume(self):
        for tag in sorted(self.paused):
            tensors = [each[2] for each in self.tensors if each[0] == tag]
            assert reveille.fits(tag, order=reversed(tensors))
            if self.random.random() < 0.5:
                reveille.resume(tag)
                continue
            reveille.resume(tag, wait=False, order=reversed(tensors))
            for tensor in tensors:
                reveille.wait(tensor)
                assert reveille.ready(tensor)
            reveille.wait()
        self.paused.clear()
        for _tag, _backup, tensor, value in self.tensors:
            assert value is None or set(tensor.tolist()) == {value}

    def sleep(self):
        discard = self.random.random() < 0.5
        reveille.sleep(discard=discard)
        assert reveille.asleep()
        for each in self.tensors:
            if each[0] not in self.paused and (discard or each[1] == "none"):
                each[3] = None
        reveille.wake()
        assert not reveille.asleep()
        for tag, _backup, tensor, value in self.tensors:
            assert tag in self.paused or value is None or set(tensor.tolist()) == {value}

    def look(self):
        assert reveille.hook_mode() == "torch"
        reveille.stage("rollout")
        reveille.step()
        reveille.stats()
        contexts = reveille.contexts()
        assert all(each.ordinal == 0 for each in contexts)
        with reveille.configure_subprocess():
            assert "libreveille-preload" in os.environ["LD_PRELOAD"]

    def record(self):
        path = os.path.join(self.folder, "regions.rvt")
        with reveille.record(path):
            self.alloc()
        reveille.replay(path)

    ACTIONS = (alloc, alloc, alloc, pause, resume, sleep, drop, graph, look, record)

    def step(self):
        self.run(self.random.choice(self.ACTIONS))

    def run(self, action):
        self.last = action.__name__
        action(self)

    def tour(self):
        """All of them, once; and leaves nothing."""
        for action in self.ACTIONS:
            self.run(action)

    def end(self):
        """Frees all. Then only what the regions' pools keep is in use: PyTorch gives that back when a pool goes."""
        self.resume()
        self.tensors.clear()
        self.torch.cuda.empty_cache()
        kept = sum(size * len(each) for (_pool, size, _device), each in self.torch.cuda._free.items())
        assert sum(each.active_bytes for each in reveille.stats().tags.values()) == kept
