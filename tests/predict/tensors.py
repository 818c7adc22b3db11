# SPDX-License-Identifier: MIT
"""Snapshots with stacks, made up; and what `reveille snapshot --tensors` says, decoded."""
import base64
import json
import random
import subprocess

MIB = 1 << 20
NEVER = 1 << 32
SIGNED = ("time_us", "addr", "begin", "segment_addr")


def numbers(text):
    value = shift = 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def differences(values, last=0):
    for value in values:
        last += value >> 1 ^ -(value & 1)
        yield last


class Tensors:
    """One object an instant can be asked of: addresses in bytes, stacks from the innermost frame outwards."""

    def __init__(self, text):
        raw = json.loads(text)
        assert raw["schema"] == 1, raw["schema"]
        self.origin_us, self.entries, self.texts = raw["origin_us"], raw["entries"], raw["texts"]
        column = {name: list(numbers(value)) for name, value in raw.items() if isinstance(value, str)}
        for name in SIGNED:
            column[name] = list(differences(column[name], raw["origin_us"] if name == "time_us" else 0))
        self.time_us, unit = column["time_us"], raw["unit_bytes"]
        self.frames = [(self.texts[file], self.texts[name], line) for file, name, line in
                       zip(column["frame_file"], column["frame_name"], column["frame_line"])]
        self.calls = [None]
        for i, (back, frame) in enumerate(zip(column["call_caller"], column["call_frame"])):
            self.calls.append((self.frames[frame], self.calls[i + 1 - back]))
        ends = [begin + more - 1 if more else NEVER for begin, more in zip(column["begin"], column["end"])]
        self.tensors = [(addr * unit, size, begin, end, end + done - 1 if done else NEVER, self.stack(call), self.texts[label])
                        for addr, size, begin, end, done, call, label in
                        zip(column["addr"], column["bytes"], column["begin"], ends, column["done"], column["call"],
                            column["label"])]
        self.segments = [(addr * unit, size, begin, begin + more - 1 if more else NEVER) for addr, size, begin, more in
                         zip(column["segment_addr"], column["segment_bytes"], column["segment_begin"],
                             column["segment_end"])]
        assert (len(self.time_us), len(self.tensors), len(self.segments), len(self.frames), len(self.calls) - 1) == \
            tuple(raw[name] for name in ("entries", "tensors", "segments", "frames", "calls"))

    def stack(self, call):
        frames = []
        node = self.calls[call]
        while node:
            frames.append(node[0])
            node = node[1]
        return tuple(frames)

    def live(self, instant):
        return sorted((addr, size, stack, label) for addr, size, begin, end, _, stack, label in self.tensors
                      if begin <= instant < end)

    def mapped(self, instant):
        """Ranges, neighbours joined."""
        joined = []
        for addr, size in sorted((addr, size) for addr, size, begin, end in self.segments if begin <= instant < end):
            if joined and joined[-1][1] == addr:
                joined[-1][1] = addr + size
            else:
                joined.append([addr, addr + size])
        return [tuple(each) for each in joined]


def listed(command, path):
    done = subprocess.run([command, "snapshot", "--tensors", path], capture_output=True, text=True, check=True)
    return Tensors(done.stdout)


# ---- Snapshots that are made up ----

class Maker:
    """
    An allocator without a model: segments come and go, and blocks lie in them one behind the other. What it knows at
    every instant is kept, if asked for: `known` has (live, mapped, segments) behind every entry.
    """

    def __init__(self, seed, keep=False):
        self.rng, self.keep = random.Random(seed), keep
        self.trace, self.live, self.segments, self.known = [], {}, {}, []
        self.next_addr, self.time_us = 1 << 40, 10_000_000
        self.stacks, self.least_us = [], 0

    def frame(self, name, file, line):
        return {"name": name, "filename": file, "line": line}

    def make_stacks(self, count, depth):
        """They share who called: main, a step, a phase, a layer."""
        main = [self.frame("<module>", "/job/train.py", 3), self.frame("step", "/job/train.py", 40)]
        frames = {}
        for i in range(count):
            phase, layer, op = ("forward", "backward", "optimizer")[i % 3], i // 3 % 24, i // 72
            calls = [("forward" if phase != "optimizer" else "adamw", f"/torch/{phase}.py", 100 + layer),
                     (f"layer_{layer}", "/job/model.py", 200 + layer), (f"op_{op}", "/torch/ops.py", 300 + op)]
            calls += [(f"inner_{k}", "/torch/inner.py", 1000 + k) for k in range(depth)]
            stack = [frames.setdefault(call, self.frame(*call)) for call in reversed(calls)] + main[::-1]
            self.stacks.append(stack)

    def entry(self, action, addr, size, stack=None, label=""):
        self.time_us += self.rng.randrange(self.least_us, 40)
        self.trace.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.time_us,
                           "frames": stack or [], "compile_context": "N/A", "user_metadata": label})
        if self.keep:
            self.known.append((sorted((a, s, tuple((f["filename"], f["name"], f["line"]) for f in k), label_)
                                      for a, (s, k, label_, _) in self.live.items()), self.ranges(),
                               sorted((base, base + size) for base, (size, _) in self.segments.items())))

    def ranges(self):
        joined = []
        for addr, (size, _) in sorted(self.segments.items()):
            if joined and joined[-1][1] == addr:
                joined[-1] = (joined[-1][0], addr + size)
            else:
                joined.append((addr, addr + size))
        return joined

    def allocate(self, size, label=""):
        room = -(-size // 512) * 512
        found = next((base for base, (total, used) in self.segments.items() if total - used >= room), None) \
            if self.rng.random() < 0.9 else None
        if found is None:
            total = max(2 * MIB, -(-room // (2 * MIB)) * 2 * MIB)
            found, self.next_addr = self.next_addr, self.next_addr + total + self.rng.choice((0, 2 * MIB))
            self.segments[found] = (total, 0)
            self.entry("segment_alloc", found, total)
        total, used = self.segments[found]
        self.segments[found] = (total, used + room)
        stack = self.rng.choice(self.stacks) if self.stacks else []
        self.live[found + used] = (size, stack, label, found)
        self.entry("alloc", found + used, size, stack, label)
        return found + used

    def free(self, addr, late=False):
        size, stack, _, base = self.live.pop(addr)
        self.entry("free_requested", addr, size, self.rng.choice(self.stacks) if self.stacks else [])
        if not late:
            self.entry("free_completed", addr, size)
        if not any(each[3] == base for each in self.live.values()):
            total, _ = self.segments.pop(base)
            self.entry("segment_free", base, total)

    def snapshot(self, since=0):
        """As it was dumped; entries before `since` were lost."""
        segments = []
        for base, (total, used) in self.segments.items():
            blocks, at = [], base
            for addr, (size, stack, label, _) in sorted((a, e) for a, e in self.live.items() if e[3] == base):
                if addr > at:
                    blocks.append(self.block(at, addr - at, 0, "inactive", [], ""))
                room = -(-size // 512) * 512
                blocks.append(self.block(addr, room, size, "active_allocated", stack, label))
                at = addr + room
            if at < base + total:
                blocks.append(self.block(at, base + total - at, 0, "inactive", [], ""))
            segments.append({"device": 0, "address": base, "total_size": total, "stream": 0, "segment_pool_id": (0, 0),
                             "segment_type": "large", "is_expandable": False, "frames": [], "blocks": blocks})
        return {"segments": segments, "device_traces": [self.trace[since:]], "external_annotations": [],
                "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                                       "garbage_collection_threshold": 0.0, "expandable_segments": False,
                                       "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}}

    @staticmethod
    def block(addr, size, requested, state, stack, label):
        return {"address": addr, "size": size, "requested_size": requested, "state": state, "frames": stack,
                "user_metadata": label}


def random_run(seed, entries, keep=True, together=True):
    """With `together`, entries share microseconds."""
    maker = Maker(seed, keep)
    maker.least_us = 0 if together else 1
    maker.make_stacks(200, 4)
    while len(maker.trace) < entries:
        if maker.live and maker.rng.random() < 0.45:
            maker.free(maker.rng.choice(list(maker.live)), maker.rng.random() < 0.1)
        else:
            maker.allocate(maker.rng.choice((1, 512, 1000, 70_000, 3 * MIB, 21 * MIB)),
                           maker.rng.choice(("", "", "weights", "<b>&\"</script>")))
    return maker
