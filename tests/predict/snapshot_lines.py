#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Checks what `reveille snapshot` says a peak is for, and which lines hold it: of a program recorded with PyTorch's
defaults and with stacks="python", which must read alike, and of recordings written by hand.

usage: snapshot_lines.py REVEILLE FOLDER_OF_SNAPSHOTS
"""
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

KIB, MIB = 1 << 10, 1 << 20
X = 1 << 40


def same(found, expected, what):
    assert found == expected, f"{what}:\n{found}\nexpected\n{expected}"


def stages(command, path, *words):
    done = subprocess.run([command, "snapshot", "--json", *words, path], capture_output=True, text=True)
    same((done.returncode, done.stderr), (0, ""), path)
    return json.loads(done.stdout)["stages"]


def lines(stage):
    return [(each["name"], pathlib.Path(each["file"] or "-").name, each["line"], each["tensors"], each["bytes"])
            for each in stage["lines"]]


def check_sum(stage):
    same(sum(each["bytes"] for each in stage["at_peak"]), stage["peak_reserved_bytes"], "the sum of the parts")


def made(command, trace, segments=(), annotations=(), words=()):
    what = {"segments": list(segments), "device_traces": [trace], "external_annotations": list(annotations),
            "allocator_settings": {}}
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump(what, file, 4)
        file.flush()
        (stage,) = stages(command, file.name, *words)
    check_sum(stage)
    return stage


def frame(name, filename, line=1):
    return {"name": name, "filename": filename, "line": line}


MODULE = frame("_call_impl", "venv/lib/python3.12/site-packages/torch/nn/modules/module.py", 1747)
PROGRAM = frame("<module>", "/job/train.py", 90)


class Trace:
    """Blocks one behind the other in one segment."""

    def __init__(self, size=64 * MIB):
        self.entries, self.at, self.label = [], X, ""
        self.add("segment_alloc", X, size)

    def add(self, action, addr, size, frames=()):
        self.entries.append({"action": action, "addr": addr, "size": size, "stream": 0, "frames": list(frames),
                             "time_us": len(self.entries) + 1, "user_metadata": self.label})

    def alloc(self, size, *frames):
        addr, self.at = self.at, self.at + -(-size // 512) * 512
        self.add("alloc", addr, size, frames)
        return addr, size

    def free(self, tensor):
        self.add("free_requested", *tensor)
        self.add("free_completed", *tensor)


def note(text):
    return {"name": "reveille:" + text, "stage": "START", "device": 0, "time_us": 0}


def parts(stage):
    """Without what is cached: the sum shows that."""
    return {(each["tag"], each["module"]): each["bytes"] for each in stage["at_peak"] if each["tag"] != "cached"}


# ---- Frames ----

def test_stacks_of_two_kinds_read_alike(command, folder):
    (plain,) = stages(command, f"{folder}/stacks-python.pickle.gz")
    (full,) = stages(command, f"{folder}/stacks-all.pickle.gz")
    expected = [("forward", "tiny.py", 11, 8, 110100480), (None, "-", 0, 10, 100673600),
                ("train", "tiny.py", 15, 24, 50393088), ("<module>", "tiny.py", 17, 12, 25196544),
                ("<module>", "tiny.py", 21, 1, 4194304)]
    same(lines(plain)[:5], expected, "stacks of Python")
    same(lines(full), lines(plain), "stacks of C++ and Python")
    same(full["at_peak"], plain["at_peak"], "parts")
    check_sum(full)
    (innermost,) = stages(command, f"{folder}/stacks-all.pickle.gz", "--all-frames")
    same({each["name"] for each in innermost["lines"]}, {"torch::unwind::unwind()"}, "--all-frames")


FOLDED = [
    ("", "NativeCachingAllocator::malloc"), ("??", "torch::unwind::unwind()"), ("memory_snapshot.cpp", "gather"),
    ("/build/python/Objects/call.c", "_PyObject_Call"), ("./csu/../csu/libc-start.c", "main"),
    ("venv/lib/libc10_cuda.so", "malloc"), ("/src/pytorch/torch/nn/modules/linear.py", "forward"),
    ("venv/lib/python3.12/site-packages/torch/_tensor.py", "backward"),
    ("/usr/lib/python3.12/threading.py", "run"), ("<frozen runpy>", "_run_code"), ("<eval_with_key>.3", "forward"),
    ("/usr/local/lib/python3.12/dist-packages/transformers/trainer.py", "train"),
    ("/usr/lib/reveille-cuda/python/_reveille_tensors.py", "compute"),
    ("/caches/torchinductor_me/xy/cxy.py", "call"),
]
KEPT = ["/job/train.py", "/job/torch/train.py", "train", "<stdin>", "<string>", "<ipython-input-3-0a>", "model.py"]


def test_frames_of_others_are_folded(command, _):
    for file, name in FOLDED:
        trace = Trace()
        trace.alloc(4 * MIB, frame(name, file, 5), PROGRAM)
        (line,) = made(command, trace.entries)["lines"]
        same((line["name"], line["file"], line["line"]), ("<module>", "/job/train.py", 90), file)
        via = name if "-packages/transformers" in file else None
        same(line["via_name"], via, f"what is called through: {file}")
    for file in KEPT:
        trace = Trace()
        trace.alloc(4 * MIB, frame("malloc", "??"), frame("f", file, 5), PROGRAM)
        (line,) = made(command, trace.entries)["lines"]
        same((line["name"], line["file"], line["line"]), ("f", file, 5), file)


def test_a_thread_of_backward_has_the_line_that_called_it(command, _):
    """Also where `reveille run` has every operator pass by Python."""
    trace = Trace()
    trace.label = "rvl:1"
    trace.alloc(MIB, PROGRAM)
    trace.label = ""
    trace.alloc(4 * MIB, frame("__call__", "venv/lib/python3.11/site-packages/torch/_ops.py", 865),
                frame("compute", "build/simcuda/python/_reveille_tensors.py", 500),
                frame("__call__", "venv/lib/python3.11/site-packages/torch/_ops.py", 865))
    notes = [note("phase 1 between 0 - -"), note("phase 2 backward 41 step /job/train.py")]
    line = made(command, trace.entries, annotations=notes)["lines"][0]
    same((line["name"], line["file"], line["line"], line["bytes"]), ("step", "/job/train.py", 41, 4 * MIB), "a pass of backward")


def test_a_server_that_is_a_package_has_lines(command, _):
    trace = Trace()
    served = frame("load_model", "venv/lib/python3.12/site-packages/vllm/worker.py", 7)
    trace.alloc(4 * MIB, MODULE, served, frame("run", "/usr/lib/python3.12/threading.py", 3))
    (line,) = made(command, trace.entries)["lines"]
    same((line["name"], line["line"], line["via_name"]), ("load_model", 7, None), "a package alone")


# ---- What it is for ----

def test_tags_follow_from_what_was_seen(command, _):
    """Weights; a step of forward, backward and the optimizer, with the peak in the last."""
    trace, notes = Trace(), []
    at = [0]

    def phase(kind, line=0):
        at[0] += 1
        trace.label = f"rvl:{at[0]}"
        notes.append(note(f"phase {at[0]} {kind} {line} {'step /job/train.py' if line else '- -'}"))

    phase("between")
    weight = trace.alloc(3 * MIB, PROGRAM)
    batch = trace.alloc(64 * KIB, PROGRAM)
    forward = frame("forward", "/job/model.py", 23), MODULE, PROGRAM
    kept = trace.alloc(5 * MIB + 100, frame("linear", "venv/lib/python3.12/site-packages/torch/nn/functional.py", 9), *forward)
    gone = trace.alloc(2 * MIB, *forward)
    trace.free(gone)
    phase("backward", 41)
    work = trace.alloc(6 * MIB)
    gradient = trace.alloc(3 * MIB)
    phase("between")
    notes.append(note(f"seen {at[0]} gradients {gradient[0]:x}"))
    notes.append(note(f"seen {at[0]} weights {weight[0]:x},{X - 512:x}"))
    trace.free(work)
    trace.free(kept)
    phase("optimizer", 42)
    state = trace.alloc(3 * MIB + 512, PROGRAM)
    last = trace.alloc(20 * MIB, PROGRAM)
    phase("between")
    notes.append(note(f"seen {at[0]} optimizer {state[0] + 512:x}"))
    notes.append(note("module 20 30 Block /job/model.py"))
    trace.free(last)
    stage = made(command, trace.entries, annotations=notes)
    same(parts(stage), {("weights", None): weight[1], ("gradients", None): gradient[1], ("optimizer", None): state[1],
                        ("temporary", None): last[1], ("other tensors", None): batch[1]},
         "in the optimizer's step")
    # The same run as far as its pass of backward has come.
    end = next(i for i, each in enumerate(trace.entries) if each["user_metadata"] == "rvl:3")
    stage = made(command, trace.entries[:end], annotations=notes)
    same(parts(stage), {("weights", None): weight[1], ("gradients", None): gradient[1], ("temporary", None): work[1],
                        ("activations", "Block"): kept[1], ("other tensors", None): batch[1],
                        ("rounding", None): 412},
         "in the pass of backward")
    found = {(each["tag"], each["name"], each["file"], each["line"], each["module"]) for each in stage["lines"]}
    assert ("gradients", "step", "/job/train.py", 41, None) in found, found
    assert ("activations", "forward", "/job/model.py", 23, "Block") in found, found


def test_what_was_seen_before_the_ring_is_not_placed(command, _):
    """The ring has lost phase 7. Its gradient is long gone, and another tensor lies there when the ring begins."""
    trace = Trace(20 * MIB)
    del trace.entries[:]
    trace.label = "rvl:9"
    trace.alloc(MIB, PROGRAM)
    notes = [note(each) for each in ("phase 7 between 0 - -", "phase 8 optimizer 0 - -", "phase 9 between 0 - -",
                                     f"seen 7 gradients {X + MIB:x}")]
    blocks = [{"address": X + at, "size": size, "requested_size": size if state.startswith("active") else 0, "state": state,
               "frames": [PROGRAM]} for at, size, state in ((0, MIB, "active_allocated"), (MIB, 4 * MIB, "active_allocated"),
                                                            (5 * MIB, 15 * MIB, "inactive"))]
    segment = {"device": 0, "address": X, "total_size": 20 * MIB, "stream": 0, "segment_pool_id": (0, 0), "segment_type": "large",
               "is_expandable": False, "frames": [], "blocks": blocks}
    tags = {tag for tag, _ in parts(made(command, trace.entries, [segment], annotations=notes))}
    assert "gradients" not in tags and "other tensors" in tags, tags


def test_labels_come_first(command, _):
    for said, tag in (("parameter", "weights"), ("optimizer_state", "optimizer"), ("kv blocks", "kv blocks"),
                      ("k\udcff\u00e9", "k%ED%B3%BF\u00e9"), ("\u00e9", "\u00e9"),  # bytes that are no UTF-8, and some that are
                      ("unknown", "tensors"), ("", "tensors")):
        trace = Trace()
        trace.label = said
        trace.alloc(MIB, PROGRAM)
        same(parts(made(command, trace.entries)), {(tag, None): MIB}, said)


def test_pools_of_graphs_are_whole(command, _):
    """A private pool is one of graphs, unless the file says which pools are. A capture makes those with a first number."""
    trace = Trace(20 * MIB)
    served = frame("_allocate_kv_cache", "venv/lib/python3.12/site-packages/vllm/runner.py", 7)
    kept, gone = trace.alloc(MIB + 100, served, PROGRAM), trace.alloc(2 * MIB, PROGRAM)
    trace.free(gone)
    block = {"address": X, "size": MIB + 512, "requested_size": kept[1], "state": "active_allocated", "frames": [PROGRAM]}
    rest = {"address": X + MIB + 512, "size": 19 * MIB - 512, "requested_size": 0, "state": "inactive", "frames": []}
    graphs, other = {("graphs", None): 20 * MIB}, {("KV cache", None): MIB + 100, ("tensors", None): 2 * MIB, ("rounding", None): 412}
    for pool, told, expected in (((0, 1), None, graphs), ((0, 1), ["graphs 0 1"], graphs), ((0, 1), ["graphs"], other),
                                 ((0, 2), ["graphs 0 3", "graphs 0 1", "graphs"], other), ((3, 0), ["graphs"], graphs),
                                 ((0, 0), ["graphs 0 0"], other), ((0, 2), ["graphs 0 3", "graphs 0 2", "graphs"], graphs)):
        segment = {"device": 0, "address": X, "total_size": 20 * MIB, "stream": 0, "segment_pool_id": pool,
                   "segment_type": "large", "is_expandable": False, "frames": [], "blocks": [block, rest]}
        notes = [note(each) for each in told or ()]
        same(parts(made(command, trace.entries, [segment], notes)), expected, f"pool {pool} with {told}")


def test_functions_say_what_memory_is_for(command, _):
    torch = "venv/lib/python3.12/site-packages/torch"
    for name, file, tag in (("foreach_all_gather", torch + "/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "gathered weights"),
                            ("foreach_reduce", torch + "/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "gradients"),
                            ("_ddp_init_helper", torch + "/nn/parallel/distributed.py", "gradients"),
                            ("_allocate_kv_cache", "venv/lib/python3.12/site-packages/vllm/runner.py", "KV cache"),
                            ("update", "venv/lib/python3.12/site-packages/transformers/cache_utils.py", "KV cache"),
                            ("all_gather", "/job/own.py", "tensors")):
        trace = Trace()
        trace.alloc(MIB, frame(name, file, 3), PROGRAM)
        same(parts(made(command, trace.entries)), {(tag, None): MIB}, name)


def test_a_module_that_runs_while_a_cache_is_sized_makes_none(command, _):
    package = "venv/lib/python3.12/site-packages/"
    sized = frame("_initialize_kv_caches", package + "vllm/v1/engine/core.py", 5)
    layer, cache = frame("forward", "/job/model.py", 8), frame("update", package + "transformers/cache_utils.py", 9)
    for frames, tag in (((layer, MODULE, sized), "tensors"), ((sized,), "KV cache"), ((cache, MODULE), "KV cache"),
                        ((cache, layer, MODULE, sized), "KV cache")):
        trace = Trace()
        trace.alloc(MIB, *frames, PROGRAM)
        same(parts(made(command, trace.entries)), {(tag, None): MIB}, [each["name"] for each in frames])


def test_what_is_odd_is_passed_over(command, _):
    trace = Trace()
    trace.label = "rvl:99999999999999999999"
    trace.alloc(MIB, PROGRAM)
    notes = [note(each) for each in ("", "phase", "phase x backward", "seen", "seen 1", "seen 1 weights ,,zz,", "module 9 2 A /a",
                                     "module", "what 3", "phase 0 backward 0 - -", "graphs x", "graphs 0 99999999999")]
    same(parts(made(command, trace.entries, annotations=notes)), {("tensors", None): MIB}, "odd notes")


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(sys.argv[1], sys.argv[2])
            print(f"ok {name}")
