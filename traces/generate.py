#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the traces that ship with Reveille, from model shapes and published breakdowns.

The same bytes every time. `--check` compares the files that are there with what would be written;
`--table` replays the generated lines with a few lines of Python and prints the end of every stage
beside the published figure, so that what is checked is the file and not an intermediate value.

Sources of the figures: sglang-project issues 7009 and 7099 (multi-stage awake, H200, tensor
parallel 2, mem_fraction_static 0.9), and the breakdown published with it for Qwen 7B on 8 x H200
with FSDP. Another model is one more entry in MODELS.
"""
import argparse
import pathlib
import sys
from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30
GB = 10**9
BF16 = 2

H200_CAPACITY = 150109880320  # total of cuMemGetInfo on an H200
GRANULARITY = 2 * MIB
FREE_BEFORE = 149557477376  # free on an H200 with one CUDA context, before weights are loaded
MEM_FRACTION_PERCENT = 90
TENSOR_PARALLEL = 2
TRAINER_CONTEXT = int(0.45 * GIB)
TRAINER_RESIDUE = int(0.55 * GIB)


@dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    qkv_bias: bool
    asleep_gib: float  # given: what the device holds while the engine sleeps
    published_gib: tuple  # ends of the five stages
    together_gib: float  # peak when everything wakes at once


MODELS = {
    "qwen2.5-32b": Model("Qwen2.5-32B", 5120, 64, 40, 8, 128, 27648, 152064, True, 5.80,
                         (5.8, 36.6, 98.1, 37.6, 131.8), 192.0),
    "llama-3.1-8b": Model("Llama-3.1-8B", 4096, 32, 32, 8, 128, 14336, 128256, False, 7.10,
                          (7.1, 14.7, 30.1, 15.7, 134.5), 148.9),
}
STAGES = ("asleep", "weights_awake", "training_copy_loaded", "training_copy_freed",
          "kv_cache_awake")


# ---- Tensors ----

def engine_tensors(m, tp):
    """Bytes of the tensors of one rank as an inference engine allocates them: fused, split."""
    q, kv = m.heads * m.head_dim // tp, m.kv_heads * m.head_dim // tp
    yield m.vocabulary // tp * m.hidden
    for _ in range(m.layers):
        yield (q + 2 * kv) * m.hidden
        if m.qkv_bias:
            yield q + 2 * kv
        yield m.hidden * q
        yield 2 * m.intermediate // tp * m.hidden
        yield m.hidden * m.intermediate // tp
        yield m.hidden
        yield m.hidden
    yield m.hidden
    yield m.vocabulary // tp * m.hidden


def training_tensors(m):
    """Bytes of all parameters as a trainer holds them: whole, unfused."""
    q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
    yield m.vocabulary * m.hidden
    for _ in range(m.layers):
        for rows in (q, kv, kv):
            yield rows * m.hidden
            if m.qkv_bias:
                yield rows
        yield m.hidden * q
        yield m.intermediate * m.hidden
        yield m.intermediate * m.hidden
        yield m.hidden * m.intermediate
        yield m.hidden
        yield m.hidden
    yield m.hidden
    yield m.vocabulary * m.hidden


def round_up(value, step):
    return (value + step - 1) // step * step


def segments(parameter_counts):
    """What PyTorch's caching allocator asks the device for, to hold bf16 tensors for good.

    Requests of 10 MiB and more get a segment of their own, rounded to 2 MiB; up to 1 MiB are packed
    into segments of 2 MiB, those between into segments of 20 MiB: into the smallest remainder that
    holds them.
    """
    remainders = {2 * MIB: [], 20 * MIB: []}
    for count in parameter_counts:
        size = round_up(count * BF16, 512)
        if size >= 10 * MIB:
            yield round_up(size, 2 * MIB)
            continue
        segment = 2 * MIB if size <= MIB else 20 * MIB
        fitting = [r for r in remainders[segment] if r >= size]
        if fitting:
            remainder = min(fitting)
            remainders[segment].remove(remainder)
        else:
            remainder = segment
            yield segment
        remainders[segment].append(remainder - size)


def kv_cache_buffers(m, tp, weight_bytes):
    """One K and one V buffer a layer, as many tokens as fit into what is left for the cache."""
    room = FREE_BEFORE * MEM_FRACTION_PERCENT // 100 - weight_bytes
    token_bytes = m.kv_heads // tp * m.head_dim * BF16  # of one buffer
    tokens = room // (2 * m.layers * token_bytes)
    return [tokens * token_bytes] * (2 * m.layers)


# ---- Writing ----

class Trace:
    """Lines of a trace. Time is made up: events follow each other by a microsecond, marks by a
    second, since only their order matters to a prediction."""

    def __init__(self, comments, processes):
        self.time_ns = 0
        self.events = 0
        self.last_id = {name: 0 for name in processes}
        self.live = {}  # (process, tag) -> ids
        self.lines = ["reveille-trace 1.0"]
        self.lines += [f"# {line}".rstrip() for line in comments]
        self.lines.append("clock boot=- mono_ns=0 wall_ns=0")
        self.lines.append(f"device 0 profile=h200 capacity_bytes={H200_CAPACITY} "
                          f"granularity_bytes={GRANULARITY}")
        self.lines += [f"process {name} pid=0" for name in processes]

    def event(self, kind, process, *fields, step_ns=1000):
        self.lines.append(" ".join(map(str, (kind, self.time_ns, process, 0) + fields)))
        self.time_ns += step_ns
        self.events += 1

    def note(self, text):
        self.lines.append(f"# {text}")

    def step(self, process):
        self.event("step", process)

    def stage(self, process, name):
        self.time_ns += 10**9
        self.event("stage", process, name)

    def alloc(self, process, tag, size, *options):
        self.last_id[process] += 1
        self.live.setdefault((process, tag), []).append(self.last_id[process])
        self.event("alloc", process, self.last_id[process], 0, size, tag, *options)

    def free_tag(self, process, tag):
        for number in self.live.pop((process, tag)):
            self.event("free", process, number)

    def pause(self, process, tag):
        self.event("pause", process, tag)

    def resume(self, process, tag, *options):
        self.event("resume", process, tag, *options)

    def external(self, process, size, cause):
        self.event("external", process, 0, size, cause)

    def text(self):
        return "\n".join(self.lines + [f"end {self.events}"]) + "\n"


def gib(size):
    return f"{size / GIB:.2f}"


def multi_stage(m):
    """One step of an engine and a trainer that share a GPU, woken in stages."""
    weights = list(segments(engine_tensors(m, TENSOR_PARALLEL)))
    raw_weights = BF16 * sum(engine_tensors(m, TENSOR_PARALLEL))
    copy = list(segments(training_tensors(m)))
    raw_copy = BF16 * sum(training_tensors(m))
    raw_cache = kv_cache_buffers(m, TENSOR_PARALLEL, sum(weights))
    cache = [round_up(size, GRANULARITY) for size in raw_cache]
    trace = Trace((
        f"One step of reinforcement learning, {m.name}, GPU 0 of tensor parallel "
        f"{TENSOR_PARALLEL} on H200,",
        "engine and trainer on the same card. Written by traces/generate.py.",
        "Given: the bytes in use while the engine sleeps (cause asleep), the bytes free before",
        f"the weights are loaded ({FREE_BEFORE}), the trainer's CUDA context and what it",
        "leaves behind. All else follows from the model's shape. The engine's allocations are",
        "there from the start, without memory (flags=paused): the trace begins with it asleep.",
        "Nothing is backed up: weights are overwritten by the update, the cache is filled anew.",
        "",
        "An allocation here is one that PyTorch makes of the device, not a tensor. Requests of 10",
        "MiB and more get a segment of their own, rounded up to 2 MiB; smaller ones are packed",
        "into segments of 2 and 20 MiB. These sums are never below the bare tensors (GiB):",
        f"  weights        tensors {gib(raw_weights):>6}, segments {gib(sum(weights)):>6}",
        f"  training copy  tensors {gib(raw_copy):>6}, segments {gib(sum(copy)):>6}",
        f"The KV cache is {len(cache)} buffers, one for K and one for V a layer, each rounded up",
        "to 2 MiB:",
        f"  kv_cache       tokens  {gib(sum(raw_cache)):>6}, buffers  {gib(sum(cache)):>6}",
        f"Its room is {MEM_FRACTION_PERCENT} % of the bytes free before, less the segments of the",
        "weights: what rounding adds to those, it takes from the cache; their sum hardly moves.",
    ), ("engine", "trainer"))
    trace.step("engine")
    trace.stage("engine", "asleep")
    trace.external("engine", int(m.asleep_gib * GIB), "asleep")
    for size in weights:
        trace.alloc("engine", "weights", size, "flags=paused")
    for size in cache:
        trace.alloc("engine", "kv_cache", size, "flags=paused")
    trace.stage("engine", "weights_awake")
    trace.resume("engine", "weights", "no_restore")
    trace.stage("engine", "training_copy_loaded")
    trace.external("trainer", TRAINER_CONTEXT, "trainer_context")
    for size in copy:
        trace.alloc("trainer", "training_copy", size)
    trace.stage("engine", "training_copy_freed")
    trace.free_tag("trainer", "training_copy")
    trace.external("trainer", TRAINER_RESIDUE, "trainer_residue")
    trace.stage("engine", "kv_cache_awake")
    trace.resume("engine", "kv_cache", "no_restore")
    return trace.text()


# ---- Four ways to share a GPU ----

# Qwen 7B, FSDP on 8 x H200 and an engine on each, a GPU's share, as published; middles of ranges.
WEIGHTS = ("weights", 15.4)
KV_CACHE = ("kv_cache", 90)
CUDA_GRAPH = ("cuda_graph", 3)
BUFFERS = ("buffers", 7.5)
ENGINE = (WEIGHTS, KV_CACHE, CUDA_GRAPH, BUFFERS)
SHARDED_WEIGHTS = ("sharded_weights", 1.9)
GRADIENTS = ("gradients", 1.9)
OPTIMIZER = ("optimizer", 3.9)
ACTIVATIONS = ("activations", 30)
ALL_GATHER = ("all_gather", 15.4)
TRAINER_STATE = (SHARDED_WEIGHTS, OPTIMIZER)  # what lives from step to step


class Sharing:
    """The moves of one GPU's trainer and engine."""

    def __init__(self, strategy, about):
        self.trace = Trace((
            f"One full step of Qwen2.5-7B on 8 x H200, FSDP and an engine on each GPU; GPU 0. "
            f"Strategy {strategy}:",
        ) + about + (
            "Figures: those published, per GPU, decimal GB (10^9 bytes), middles of ranges where a",
            "range was published: activations 30 (20-40), KV cache 90 (80-100), graphs 3 (2-4),",
            "buffers 7.5 (5-10). CUDA contexts are not in them, nor in this trace.",
            "A step mark stands where a version of the weights begins: before the first rollout",
            "and before the update. Written by traces/generate.py.",
        ), ("engine", "trainer"))

    def allocate(self, process, *parts, options=()):
        for tag, size in parts:
            self.trace.alloc(process, tag, int(size * GB), *options)

    def free(self, process, *parts):
        for tag, _ in parts:
            self.trace.free_tag(process, tag)

    def step(self):
        self.trace.step("trainer")

    def stage(self, name):
        self.trace.stage("trainer", name)

    def note(self, text):
        self.trace.note(text)

    def pause(self, process, *parts):
        for tag, _ in parts:
            self.trace.pause(process, tag)

    def load(self, process, *parts):
        """With content, from the backup on the host."""
        for tag, _ in parts:
            self.trace.resume(process, tag)

    def wake_engine(self, *parts):
        """Without content: weights are overwritten by the update, the rest is filled anew."""
        for tag, _ in parts:
            self.trace.resume("engine", tag, "no_restore")

    def gather(self):
        """The whole weights, for as long as a pass over them takes."""
        self.allocate("trainer", ALL_GATHER)
        self.free("trainer", ALL_GATHER)

    def train(self):
        self.allocate("trainer", GRADIENTS, ALL_GATHER, ACTIVATIONS)
        self.free("trainer", ACTIVATIONS, ALL_GATHER, GRADIENTS)


def strategy_v0(s):
    s.step()
    s.stage("rollout")
    s.note("Launched once; caching allocators keep what they have for good.")
    s.allocate("engine", *ENGINE)
    s.allocate("trainer", *TRAINER_STATE, GRADIENTS, ALL_GATHER, ACTIVATIONS)
    for stage in ("log_probabilities", "train"):
        s.stage(stage)
    s.step()
    for stage in ("update_weights", "rollout"):
        s.stage(stage)


def strategy_v1(s):
    s.step()
    s.stage("rollout")
    s.allocate("engine", *ENGINE)
    s.note("The engine is shut down.")
    s.free("engine", *ENGINE)
    s.stage("log_probabilities")
    s.note("The trainer is launched; it loads its state from disk.")
    s.allocate("trainer", *TRAINER_STATE)
    s.gather()
    s.stage("train")
    s.train()
    s.step()
    s.stage("update_weights")
    s.note("The trainer gathers the weights and saves them and its state to disk, then it ends.")
    s.gather()
    s.free("trainer", *TRAINER_STATE)
    s.note("The engine is launched again; it loads the weights from disk and captures its graphs.")
    s.allocate("engine", *ENGINE)
    s.stage("rollout")


def up_to_the_update(s):
    """What v2 and v3 have in common."""
    s.step()
    s.stage("rollout")
    s.note("The trainer's state is offloaded to the host before the engine starts.")
    s.allocate("trainer", *TRAINER_STATE, options=("backup=host",))
    s.pause("trainer", *TRAINER_STATE)
    s.allocate("engine", *ENGINE)
    s.note("Generation has ended: the engine releases all it has, without a backup.")
    s.pause("engine", *ENGINE)
    s.stage("log_probabilities")
    s.load("trainer", SHARDED_WEIGHTS)
    s.gather()
    s.stage("train")
    s.load("trainer", OPTIMIZER)
    s.train()
    s.pause("trainer", OPTIMIZER)
    s.step()
    s.stage("update_weights")


def strategy_v2(s):
    up_to_the_update(s)
    s.note("The engine wakes as a whole, beside the trainer's gathered weights.")
    s.wake_engine(*ENGINE)
    s.gather()
    s.pause("trainer", SHARDED_WEIGHTS)
    s.stage("rollout")


def strategy_v3(s):
    up_to_the_update(s)
    s.note("What the update needs wakes; the trainer leaves before the KV cache comes.")
    s.wake_engine(WEIGHTS, BUFFERS)
    s.gather()
    s.pause("trainer", SHARDED_WEIGHTS)
    s.stage("rollout")
    s.wake_engine(KV_CACHE, CUDA_GRAPH)


STRATEGIES = {
    "v0": (strategy_v0, (
        "nothing is released. Trainer and engine hold all they have, always.",)),
    "v1": (strategy_v1, (
        "one process at a time. The engine is shut down before the trainer starts; the trainer",
        "saves its state to disk and ends before the engine is launched again; nothing is kept on",
        "the host.")),
    "v2": (strategy_v2, (
        "the engine sleeps and wakes as a whole; the trainer's state is offloaded to the host.",)),
    "v3": (strategy_v3, (
        "the engine wakes in stages: weights and buffers, update, then KV cache and graphs; the",
        "trainer's state is offloaded to the host.")),
}


def full_step(strategy):
    moves, about = STRATEGIES[strategy]
    s = Sharing(strategy, about)
    moves(s)
    return s.trace.text()


# ---- Files ----

def all_traces():
    for key, model in MODELS.items():
        yield f"{key}-tp{TENSOR_PARALLEL}-h200.rvt", multi_stage(model)
    for strategy in STRATEGIES:
        yield f"qwen2.5-7b-fsdp8-{strategy}.rvt", full_step(strategy)


def stage_ends(text):
    """Ends of the stages, in bytes, by the lines of the trace alone."""
    sizes, active, external, ends = {}, {}, {}, {}
    stage = None

    def used():
        return sum(active.values()) + sum(external.values())

    for line in text.splitlines():
        fields = line.split()
        if not fields or fields[0] not in ("alloc", "free", "resume", "pause", "stage", "external"):
            continue
        kind, process = fields[0], fields[2]
        if kind == "alloc":
            key = (process, fields[4])
            sizes[key] = (fields[7], round_up(int(fields[6]), GRANULARITY))
            active[key] = 0 if "flags=paused" in fields else sizes[key][1]
        elif kind == "free":
            active.pop((process, fields[4]))
        elif kind in ("resume", "pause"):
            for key, (tag, size) in sizes.items():
                if key[0] == process and tag == fields[4] and key in active:
                    active[key] = size if kind == "resume" else 0
        elif kind == "external":
            external[fields[6]] = int(fields[5])
        elif kind == "stage":
            stage = fields[4]
        ends[stage] = used()
    return ends


def print_table():
    """False if a figure is more than 1 % off."""
    good = True
    for key, model in MODELS.items():
        ends = stage_ends(multi_stage(model))
        print(f"{model.name}: end of stage in GiB, published, difference")
        for stage, published in zip(STAGES, model.published_gib):
            mine = ends[stage] / GIB
            off = mine / published - 1
            good = good and abs(off) <= 0.01
            print(f"  {stage:22} {mine:8.2f} {published:8.1f} {off:+8.2%}")
        together = (ends["training_copy_loaded"] + ends["kv_cache_awake"] -
                    ends["training_copy_freed"]) / GIB
        off = together / model.together_gib - 1
        good = good and abs(off) <= 0.01
        print(f"  {'all at once':22} {together:8.2f} {model.together_gib:8.1f} {off:+8.2%}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent,
                        help="folder of the traces (default: the script's)")
    parser.add_argument("--check", action="store_true",
                        help="write nothing; exit 1 if a file is not what would be written")
    parser.add_argument("--table", action="store_true",
                        help="write nothing; print stage ends beside the published figures")
    arguments = parser.parse_args()
    if arguments.table:
        return 0 if print_table() else 1
    good = True
    for name, text in all_traces():
        path = arguments.output / name
        try:
            if not arguments.check:
                path.write_bytes(text.encode())
            elif path.read_bytes() != text.encode():
                print(f"{path}: not what traces/generate.py writes; run it again", file=sys.stderr)
                good = False
        except OSError as error:
            print(f"{path}: {error.strerror}", file=sys.stderr)
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
