#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks `reveille snapshot` on random recordings under many settings against a second model of the allocator.

usage: snapshot_oracle.py REVEILLE [SEEDS]

The model here is written for clearness alone: sets are lists, searched from end to end. It records a snapshot, and the
peaks of every stage with what lay between reserved and requested then. Verification must then find no divergence and
the same values; so must a prediction, with and without the device's size, and with and without entries that say where
segments begin. A recording that has lost its oldest entries must still be verified, and be predicted with the same
values from the first stage on that is whole.
"""
import json
import pickle
import random
import subprocess
import sys
import tempfile

MIB = 1 << 20
SMALL, LARGE = 2 * MIB, 20 * MIB
KEYS = ("peak_allocated_bytes", "peak_reserved_bytes", "end_reserved_bytes", "num_alloc_retries")
BEGINS = ("segment_alloc", "segment_map")


class Block:
    def __init__(self, addr, size, stream, small, mapped=True, base=None, pool=0):
        self.addr, self.size, self.stream, self.small, self.mapped, self.base = addr, size, stream, small, mapped, base
        self.pool = pool
        self.state, self.prev, self.next, self.requested, self.born = "free", None, None, 0, 0

    def whole(self):
        return self.prev is None and self.next is None


class Model:
    def __init__(self, rng, settings):
        self.rng, self.set = rng, settings
        self.blocks, self.trace, self.pending = [], [], []
        self.calls = {True: 0, False: 0}
        self.reserved = self.allocated = self.retries = self.clock = 0
        self.top = 1 << 46
        self.peaks = [0, 0]
        self.gap, self.pool, self.gone = None, 0, {}

    # ---- Recording ----
    def note(self, action, addr, size, stream, pool=0):
        self.clock += 10
        self.trace.append({"action": action, "addr": addr, "size": size, "stream": stream, "time_us": self.clock,
                           "compile_context": "N/A", "user_metadata": ""})
        if self.set["pool_ids"]:
            self.trace[-1]["pool_id"] = (0, pool)

    def gap_now(self):
        """What reserved is more than requested, by cause."""
        gap = {"rounding_bytes": 0, "split_bytes": 0, "cached_bytes": 0, "pending_bytes": 0}
        for block in self.blocks:
            if block.state == "live":
                gap["rounding_bytes"] += block.size - block.requested
            elif block.state == "pending":
                gap["pending_bytes"] += block.size
            elif block.mapped:
                first, last = self.pages(block) if block.base is not None else (block.addr, block.addr)
                kept = block.size if block.base is None else 0
                cached = kept if block.base is None and block.whole() else max(last - first, 0)
                gap["cached_bytes"] += cached
                gap["split_bytes"] += block.size - cached
        assert sum(gap.values()) == self.reserved - sum(b.requested for b in self.blocks if b.state == "live")
        return gap

    def step(self):
        """Behind whatever one entry says: the first instant at which reserved is at its peak."""
        if self.gap is None or self.reserved > self.gap[0]:
            self.gap = (self.reserved, self.gap_now())

    def change(self, reserved=0, allocated=0):
        self.reserved += reserved
        self.allocated += allocated
        self.peaks = [max(self.peaks[0], self.allocated), max(self.peaks[1], self.reserved)]

    # ---- Rules ----
    def rounded(self, size):
        if size < 512:
            return 512
        divisions = self.set["divisions"][min(max(size.bit_length() - 21, 0), 15)]
        if divisions > 1 and size > 512 * divisions:
            power = 1 << (size.bit_length() - 1)
            if power == size:
                return size
            step = power // divisions
            return -(-size // step) * step if step else 2 * power
        return -(-size // 512) * 512

    def free_blocks(self, stream=None, small=None, mapped=True):
        found = [b for b in self.blocks if b.state == "free" and b.mapped == mapped and b.pool == self.pool and
                 stream in (None, b.stream) and small in (None, b.small)]
        return sorted(found, key=lambda b: (b.stream, b.size if mapped else 0, b.addr))

    def find(self, size, stream):
        small = size <= MIB
        if self.set["gc"] and self.pool == 0:
            self.calls[small] += 1
        fits = [b for b in self.free_blocks(stream, small) if b.size >= size]
        if not fits:
            return None
        block = fits[0]
        if self.set["expandable"]:
            room = lambda b: b.size + (b.next.size if b.next and not b.next.mapped else 0)
            for other in fits[1:]:
                if room(other) >= room(block):
                    break
                block = other
        split = self.set["max_split"]
        if size < split <= block.size or size >= split and block.size >= size + 20 * MIB:
            return None
        return block

    def malloc(self, size, stream):
        """The block, or None."""
        size_asked, size = size, self.rounded(size)
        block = self.find(size, stream)
        if block is None:
            if self.set["gc"] and self.set["allowed"]:
                self.collect()
            block = self.segment(size, stream)
            if block is None and self.set["max_split"] < 1 << 60 and self.release_oversize(size, stream):
                block = self.segment(size, stream)
            if block is None:
                self.empty_cache()
                self.retries += 1
                block = self.segment(size, stream)
        if block is None:
            self.note("oom", 0, size, stream)
            return None
        rest = block.size - size
        divided = rest >= 512 if block.small or self.set["expandable"] else size < self.set["max_split"] and rest > MIB
        if divided:
            tail = Block(block.addr + size, rest, stream, block.small, True, block.base, block.pool)
            self.link(tail, block, block.next)
            tail.born = self.calls[tail.small]
            self.blocks.append(tail)
            block.size = size
        block.state, block.requested = "live", size_asked
        self.note("alloc", block.addr, size_asked, stream, block.pool)
        self.change(allocated=block.size)
        self.step()
        return block

    def link(self, block, before, after):
        block.prev, block.next = before, after
        if before:
            before.next = block
        if after:
            after.prev = block

    def address(self, size):
        if self.set["reuse"] and self.gone.get(size): # as drivers do
            return self.gone[size].pop()
        self.top -= size + (self.rng.randrange(4) * SMALL if self.set["gaps"] else 0)
        return self.top

    def segment(self, size, stream):
        small = size <= MIB
        whole = SMALL if small else LARGE if size < 10 * MIB else -(-size // SMALL) * SMALL
        if self.set["allowed"] and self.reserved + whole > self.set["allowed"]:
            return None
        if self.set["expandable"]:
            return self.expand(size, stream, small)
        if self.set["capacity"] and self.reserved + whole > self.set["capacity"]:
            return None
        block = Block(self.address(whole), whole, stream, small, pool=self.pool)
        self.blocks.append(block)
        self.change(reserved=whole)
        self.note("segment_alloc", block.addr, whole, stream, block.pool)
        return block

    def merge(self, block):
        for other in (block.prev, block.next):
            if other and other.state == "free" and other.mapped == block.mapped:
                if other is block.prev:
                    block.addr = other.addr
                    self.link(block, other.prev, block.next)
                else:
                    self.link(block, block.prev, other.next)
                block.size += other.size
                self.blocks.remove(other)
        block.born = self.calls[block.small]

    # ---- Expandable segments ----
    def map(self, block, size):
        page = SMALL if block.small else LARGE
        mapped = -(-size // page) * page
        if self.set["capacity"] and self.reserved + mapped > self.set["capacity"]:
            return False
        if mapped < block.size:
            rest = Block(block.addr + mapped, block.size - mapped, block.stream, block.small, False, block.base, block.pool)
            self.link(rest, block, block.next)
            self.blocks.append(rest)
            block.size = mapped
        block.mapped = True
        self.change(reserved=mapped)
        self.note("segment_map", block.addr, mapped, block.stream, block.pool)
        self.merge(block)
        return True

    def expand(self, size, stream, small):
        block = None
        for at in self.free_blocks(stream, small, mapped=False):
            first = at.prev if at.prev and at.prev.state == "free" else at
            room, chain = 0, first
            while chain and chain.state == "free":
                room += chain.size
                chain = chain.next
            if room >= size:
                block = first
                break
        if block is None:
            length = self.set["capacity"] * 9 // 8 or 1 << 40
            page = SMALL if small else LARGE
            length = -(-length // page) * page
            block = Block(self.address(length), length, stream, small, False, True, self.pool)
            self.blocks.append(block)
        if not block.mapped and not self.map(block, min(block.size, size)):
            return None
        while block.size < size:
            after = block.next
            if not self.map(after, min(size - block.size, after.size)):
                return None
            block = after
        return block

    def pages(self, block):
        """Where the whole pages of a block begin and end."""
        page = SMALL if block.small else LARGE
        start = block
        while start.prev:
            start = start.prev
        base = start.addr
        return base + -(-(block.addr - base) // page) * page, base + (block.addr + block.size - base) // page * page

    def unmap(self, block):
        first, last = self.pages(block)
        if first >= last:
            return
        if first > block.addr:
            before = Block(block.addr, first - block.addr, block.stream, block.small, True, True, block.pool)
            self.link(before, block.prev, block)
            before.born = self.calls[block.small]
            self.blocks.append(before)
        if last < block.addr + block.size:
            after = Block(last, block.addr + block.size - last, block.stream, block.small, True, True, block.pool)
            self.link(after, block, block.next)
            after.born = self.calls[block.small]
            self.blocks.append(after)
        block.addr, block.size, block.mapped = first, last - first, False
        self.merge(block)
        self.change(reserved=first - last)
        self.note("segment_unmap", first, last - first, block.stream)
        if block.whole():
            self.blocks.remove(block)

    # ---- Giving back ----
    def release(self, block):
        self.note("segment_free", block.addr, block.size, block.stream)
        self.gone.setdefault(block.size, []).append(block.addr)
        self.blocks.remove(block)
        self.change(reserved=-block.size)

    def empty_cache(self):
        for block in list(self.pending):
            self.complete(block)
        for small in (False, True):
            free = self.free_blocks(small=small)
            for block in free:
                if block.base is None and block.whole():
                    self.release(block)
            for block in free:
                if block.base is not None:
                    self.unmap(block)

    def collect(self):
        bound = int(self.set["gc"] * self.set["allowed"])
        if self.reserved <= bound:
            return
        target, reclaimed, freed = self.reserved - bound, 0, True
        free = [b for b in self.free_blocks(small=False) if b.base is None and b.whole()]
        age = lambda b: self.calls[False] - b.born
        while reclaimed < target and freed and free:
            mean, freed = sum(map(age, free)) / len(free), False
            for block in list(free):
                if age(block) >= mean:
                    freed = True
                    reclaimed += block.size
                    free.remove(block)
                    self.release(block)

    def release_oversize(self, size, stream):
        key, small = max(size, self.set["max_split"]), size <= MIB
        free = self.free_blocks(stream, small)
        enough = [b for b in free if b.size >= key]
        if enough:
            self.release(enough[0])
            return True
        total = 0
        while free and total < key and free[-1].size >= self.set["max_split"]:
            total += free[-1].size
            self.release(free.pop())
        return total >= key

    # ---- Frees ----
    def free(self, block, wait):
        self.note("free_requested", block.addr, block.requested, block.stream, block.pool)
        self.change(allocated=-block.size)
        block.state = "pending"
        if wait:
            self.pending.append(block)
        else:
            self.complete(block)

    def complete(self, block):
        if block in self.pending:
            self.pending.remove(block)
        self.note("free_completed", block.addr, block.requested, block.stream, block.pool)
        block.state = "free"
        self.merge(block)


def some_size(rng):
    kind = rng.random()
    if kind < 0.4:
        return rng.randrange(1, MIB + 1)
    if kind < 0.8:
        return rng.randrange(MIB, 12 * MIB)
    return rng.randrange(12 * MIB, 120 * MIB)


def capture(model, rng, live):
    """Allocations as of a graph's capture: of a private pool, behind empty_cache."""
    model.empty_cache()
    model.pool = rng.choice((1, 2))
    for _ in range(rng.randrange(4, 12)):
        block = model.malloc(some_size(rng), 0)
        if block and rng.random() < 0.6:
            model.free(block, False)
        elif block:
            live.append(block)
    model.pool = 0


def segments_of(model):
    """What the device holds in the end: runs of mapped blocks."""
    segments = []
    for first in model.blocks:
        if not first.mapped or first.prev and first.prev.mapped:
            continue
        run, block = [], first
        while block and block.mapped:
            run.append(block)
            block = block.next
        states = {"live": "active_allocated", "pending": "active_pending_free", "free": "inactive"}
        segments.append({
            "device": 0, "address": first.addr, "total_size": sum(b.size for b in run), "stream": first.stream,
            "segment_type": "small" if first.small else "large", "segment_pool_id": (0, first.pool),
            "is_expandable": first.base is not None, "frames": [],
            "blocks": [{"address": b.addr, "size": b.size, "requested_size": b.requested if b.state != "free" else 0,
                        "state": states[b.state], "frames": []} for b in run]})
    return segments


def record(rng, settings, steps):
    settings = {"pools": False, "pool_ids": False, "reuse": False, **settings}
    if isinstance(settings["divisions"], int):
        settings["divisions"] = [settings["divisions"]] * 16
    model, live, stages, notes = Model(rng, settings), [], [], []
    for step in range(steps):
        name = f"s{step}"
        model.clock += 10
        model.peaks, model.gap = [model.allocated, model.reserved], (model.reserved, model.gap_now())
        notes.append({"stage": "START", "name": "stage:" + name, "device": 0, "time_us": model.clock + 1})
        for _ in range(rng.randrange(40, 120)):
            while model.pending and rng.random() < 0.3:
                model.complete(model.pending[0])
            if live and (rng.random() < 0.48 or len(live) > 60):
                model.free(live.pop(rng.randrange(len(live))), settings["waits"] and rng.random() < 0.2)
            else:
                block = model.malloc(some_size(rng), rng.choice((0, 0, 0, 77)))
                if block:
                    live.append(block)
        if settings["pools"] and rng.random() < 0.4:
            capture(model, rng, live)
        if rng.random() < 0.2:
            model.empty_cache()
        model.clock += 10
        notes.append({"stage": "END", "name": "stage:" + name, "device": 0, "time_us": model.clock})
        stages.append(dict(zip(KEYS, (*model.peaks, model.reserved, model.retries)), name=name, gap=model.gap[1],
                           start=notes[-2]["time_us"]))
    snapshot = {"segments": segments_of(model), "device_traces": [model.trace], "external_annotations": notes,
                "allocator_settings": {
                    "PYTORCH_CUDA_ALLOC_CONF": f"per_process_memory_fraction:{settings['fraction']}"
                                               if settings["fraction"] else "",
                    "max_split_size": settings["max_split"] if settings["max_split"] < 1 << 60 else -1,
                    "garbage_collection_threshold": settings["gc"], "expandable_segments": settings["expandable"],
                    "roundup_power2_divisions": {str(1 << i): settings["divisions"][i] for i in range(16)}}}
    return snapshot, stages


def some_settings(rng):
    expandable = rng.random() < 0.35
    pools = rng.random() < 0.2
    capacity = 0 if pools else rng.choice((0, 1 << 30, 3 << 29, 1 << 31))
    fraction = rng.choice((0, 0.5, 0.75)) if capacity else 0
    gc = rng.choice((0, 0.3, 0.5, 0.8)) if fraction and not expandable else 0
    divisions = rng.choice(([0] * 16, [rng.choice((2, 4, 8))] * 16, [rng.choice((0, 1, 2, 4, 8)) for _ in range(16)]))
    return {"expandable": expandable, "capacity": capacity, "fraction": fraction, "allowed": int(fraction * capacity),
            "gc": gc, "max_split": 1 << 62 if expandable else rng.choice((1 << 62, 32 * MIB, 64 * MIB)),
            "divisions": divisions, "gaps": rng.random() < 0.5, "waits": rng.random() < 0.5, "pools": pools,
            "pool_ids": rng.random() < 0.5, "reuse": rng.random() < 0.5}


def run(command, snapshot, *options):
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump(snapshot, file)
        file.flush()
        done = subprocess.run([command, "snapshot", "--json", *options, file.name], capture_output=True, text=True)
    assert done.stdout, (options, done.stderr)
    return json.loads(done.stdout)


def compare(about, result, truth, keys, gaps=True):
    for stage, expected in zip(result["stages"], truth):
        for key in keys:
            assert stage[key] == expected[key], (about, stage["name"], key, stage[key], expected[key])
        if gaps:
            assert stage["gap"] == expected["gap"], (about, stage["name"], stage["gap"], expected["gap"])


def without_begins(snapshot):
    return {**snapshot, "device_traces": [[e for e in snapshot["device_traces"][0] if e["action"] not in BEGINS]]}


def check_lost(command, about, rng, snapshot, truth):
    """A ring that has lost its oldest entries; True: nothing else than in the whole recording."""
    trace = snapshot["device_traces"][0]
    kept = trace[rng.randrange(1, len(trace) * 2 // 3):]
    begin = kept[0]["time_us"]
    lost = {**snapshot, "device_traces": [kept],
            "external_annotations": [n for n in snapshot["external_annotations"] if n["time_us"] >= begin]}
    whole = [stage for stage in truth if stage["start"] >= begin]
    same = True
    for options in ((), ("--verify",)):
        result = run(command, lost, *options)
        stages = [s for s in result["stages"] if s["name"] in {w["name"] for w in whole}]
        assert result["confidence"] == "interval" and len(stages) == len(whole), about
        assert result["diverged_at"] is None, (about, "lost", options, result["diverged_at"])
        for stage, expected in zip(stages, whole):
            same = same and all(stage[key] == expected[key] for key in KEYS[:3])
    return same


def check(command, seed):
    rng = random.Random(seed)
    settings = some_settings(rng)
    snapshot, truth = record(rng, settings, 12)
    ran_out = any(entry["action"] == "oom" for entry in snapshot["device_traces"][0])
    about = (seed, settings)
    capacity = ["--capacity", str(settings["capacity"])] if settings["capacity"] else []
    if not (ran_out and settings["expandable"]): # a request that fails may leave a range of addresses behind
        # How long ranges of addresses are depends on the device.
        for options in ([capacity] if settings["expandable"] else [capacity, []]):
            result = run(command, snapshot, "--verify", *options)
            assert ran_out and options or result["diverged_at"] is None, (about, options, result["diverged_at"])
            compare((about, "verified", options), result, truth, KEYS[:3], not ran_out)
    if ran_out: # a request that failed is not in the trace
        return settings, True, None
    for kept in (snapshot, without_begins(snapshot)):
        compare((about, "predicted"), run(command, kept), truth, KEYS[:3])
        # A retry that waits for a block cannot be told from empty_cache where that block would have done.
        keys = KEYS if capacity and not settings["waits"] else KEYS[:3]
        compare((about, "predicted", capacity), run(command, kept, *capacity), truth, keys)
    return settings, False, check_lost(command, about, rng, snapshot, truth)


def main(command, seeds="60"):
    results = [check(command, seed) for seed in range(int(seeds))]
    lost = [result[2] for result in results if result[2] is not None]
    assert sum(lost) >= 0.9 * len(lost), lost
    print(f"{seeds} recordings verified and predicted, {sum(result[1] for result in results)} of them with failed "
          f"requests; {sum(lost)} of {len(lost)} the same without their beginning")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
