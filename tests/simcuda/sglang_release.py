# SPDX-License-Identifier: MIT
"""SGLang on simulated GPUs, with its memory saver on Reveille: start, generate, release and resume by tags.

stages: one engine, its tags in stages and all at once, an update of a weight, and a second release.
instances: two engines, each on its own GPUs, and the end of one that is told to resume what is not released.

SGLang is unmodified. The figures come from its scheduler processes, through SGLang's own extension (a custom weight loader), and from
the simulated driver.

    python sglang_release.py [stages|instances] [--gpus N] [--graphs none|default|released] [--backup] [-o FILE]
"""

import argparse
import gc
import importlib.metadata
import json
import multiprocessing
import os
import tempfile
import time

from vllm_sleep import BLOCK_TOKENS, MODELS, PAGE, block_bytes, check, config_folder, weight_bytes

FIGURES = "REVEILLE_FIGURES"  # the folder to which scheduler processes write their figures
GIB = 1 << 30
MODEL = MODELS["small"]
PROMPT, TOKENS = [5, 6, 7, 8], 8
# The stages of SGLang's own test, and its third tag.
RELEASES = (("kv_cache",), ("weights",), ("cuda_graph",))
RESUMES = (("cuda_graph",), ("weights",), ("kv_cache",))
MARK, UPDATED = 3.0, 5.0
NCCL = "nccl"  # Reveille's tag of communicators
END_S = 60  # for the processes of an engine to end
# CUDA graphs of decode steps, and of prefill. SGLang releases its graphs if SGLANG_MEMORY_SAVER_CUDA_GRAPH is set, and then refuses its
# default for prefill.
SIZES = {"cuda_graph_max_bs_decode": 8, "cuda_graph_max_bs_prefill": 256}
GRAPHS = {
    "none": {"disable_cuda_graph": True},
    "default": SIZES,
    "released": {**SIZES, "cuda_graph_backend_prefill": "disabled"},
}


# ---- In a scheduler process ----


def the_runner(model):
    return next(each for each in gc.get_objects() if type(each).__name__ == "ModelRunner" and each.model is model)


def held_by_tag():
    """What Reveille's regions hold: bytes by tag, and each allocation."""
    import reveille

    tags = {
        name: {"active": each.active_bytes, "paused": each.paused_bytes, "host": each.host_backup_bytes}
        for name, each in reveille.stats().tags.items()
    }
    pieces = [
        (each.addr, each.size_bytes, each.tag) for context in reveille.contexts() for each in context.allocations()
    ]
    return tags, pieces


def mark_of(model, named):
    """Writes the mark to a small parameter, or reads its value."""
    norm = model.model.norm.weight.data
    if "write" in named:
        norm.fill_(MARK)
    return norm[:4].tolist() if "write" in named or "read" in named else None


def figures(model, named_tensors):
    """SGLang calls this as a loader of weights. It loads none, and reports what the process holds instead."""
    import torch

    runner = the_runner(model)
    mark = mark_of(model, dict(named_tensors))
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    tags, pieces = held_by_tag()
    weights = {name: (each.data_ptr(), each.nbytes) for name, each in model.named_parameters()}
    pool = runner.token_to_kv_pool
    caches = [(each.data_ptr(), each.nbytes) for each in (*pool.k_buffer, *pool.v_buffer)]
    said = {
        "used": total - free,
        "reserved": torch.cuda.memory_reserved(),
        "tags": tags,
        "pieces": pieces,
        "weights": weights,
        "kv_cache": caches,
        "tokens": pool.size,
        "page": pool.page_size,
        "before load": int(runner.pre_model_load_memory * GIB),
        "mark": mark,
    }
    path = os.path.join(os.environ[FIGURES], str(torch.cuda.current_device()))
    with open(path + ".part", "w", encoding="utf-8") as out:
        json.dump(said, out)
    os.rename(path + ".part", path)


# ---- Outside the scheduler process ----


class Engine:
    def __init__(self, arguments, share=0.85, first_gpu=0):
        import sglang

        self.arguments, self.share = arguments, share
        os.environ["SGLANG_MEMORY_SAVER_CUDA_GRAPH"] = str(int(arguments.graphs == "released"))
        self.folder = os.environ[FIGURES] = tempfile.mkdtemp(prefix="reveille-figures-")
        self.loader = f"{__name__ if __name__ != '__main__' else 'sglang_release'}.figures"
        self.engine = sglang.Engine(
            model_path=config_folder(MODEL),
            load_format="dummy",
            skip_tokenizer_init=True,
            random_seed=42,
            enable_memory_saver=True,
            enable_weights_cpu_backup=arguments.backup,
            mem_fraction_static=share,
            tp_size=arguments.gpus,
            base_gpu_id=first_gpu,
            **GRAPHS[arguments.graphs],
            attention_backend="triton",
            sampling_backend="pytorch",
            grammar_backend="none",
            custom_weight_loader=[self.loader],
            log_level="warning",
        )
        # Loaders are only called in a session of updates. It stays open: ending it would touch weights.
        done = self.engine.begin_weight_update()
        assert done[0], done

    def ask(self, *words):
        """What each rank reports, in the order of the devices."""
        import torch

        for each in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, each))
        named = [(word, torch.zeros(1)) for word in words]
        done = self.engine.update_weights_from_tensor(named, load_format=self.loader, flush_cache=False)
        assert done[0], done
        said = []
        for each in sorted(os.listdir(self.folder), key=int):
            with open(os.path.join(self.folder, each), encoding="utf-8") as read:
                said.append(json.load(read))
        check(len(said), self.arguments.gpus, "ranks that answer")
        return said

    def generate(self):
        wanted = {"max_new_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
        out = self.engine.generate(input_ids=[PROMPT] * 3, sampling_params=wanted)
        check([len(each["output_ids"]) for each in out], [TOKENS] * 3, "tokens generated")
        self.engine.flush_cache()  # frees PyTorch's idle memory now, rather than in the middle of a release

    def update(self):
        """A trainer's new value for a small parameter, through SGLang's own call."""
        import torch

        new = torch.full((MODEL["hidden_size"],), UPDATED, dtype=torch.bfloat16)
        done = self.engine.update_weights_from_tensor([("model.norm.weight", new)], flush_cache=False)
        assert done[0], done

    def occupation(self, how, tags):
        getattr(self.engine, f"{how}_memory_occupation")(tags=list(tags))

    def release_again(self, tags):
        """A second release is refused, or SGLang accepts it. Either way, nothing changes. True: it was refused."""
        before, refused = self.ask(), False
        try:
            self.occupation("release", tags)
        except RuntimeError as error:  # SGLang newer than 0.5.23
            assert "already released" in str(error), error
            refused = True
        check(self.ask(), before, f"all figures after a second release of {tags}")
        return refused

    def move(self, how, tags):
        """Releases or resumes, and compares on every rank each tag and the bytes in use on the device."""
        before = self.ask()
        self.occupation(how, tags)
        after = self.ask()
        for was, now in zip(before, after):
            moved = check_tags(how, tags, was["tags"], now["tags"], self.arguments.backup)
            cached = now["reserved"] - was["reserved"]  # PyTorch's own cache, which a flush empties
            check(now["used"] - was["used"], cached + moved, f"in use after {how} of {tags}")
        return after

    def end(self):
        self.engine.shutdown()


def check_tags(how, tags, before, now, backup):
    """Bytes that these tags gave to the device (+) or took from it (-). All other tags are unchanged."""
    goes, comes = ("active", "paused") if how == "release" else ("paused", "active")
    moved = 0
    for name, was in before.items():
        if name == NCCL:
            moved += check_communicators(was, now)
            continue
        if name not in tags:
            check(now[name], was, f"{name}, which did not {how}")
            continue
        size = was[goes]
        assert size > 0 and was[comes] == 0, f"{name} before {how}: {was}"
        backed = name == "cuda_graph" or (backup and name == "weights")  # a graph reads data that its capture wrote
        kept = size if backed and how == "release" else 0
        check(now[name], {goes: 0, comes: size, "host": kept}, f"{name} after {how}")
        moved += size
    return -moved if how == "release" else moved


def check_communicators(before, now):
    """Communicators sleep while all regions do, if that was requested. Returns the bytes moved."""
    asked = os.environ.get("REVEILLE_COMMUNICATORS") == "1"
    asleep = asked and not any(each["active"] for name, each in now.items() if name != NCCL)
    total = before["active"] + before["paused"]
    assert total > 0
    check(now[NCCL], {"active": total * (not asleep), "paused": total * asleep, "host": 0}, "communicators")
    return total if now[NCCL] != before else 0


def check_lies_in(pieces, parts, tag):
    """Every tensor is completely in a region of its tag."""
    own = [(addr, addr + size) for addr, size, of in pieces if of == tag]
    for addr, size in parts:
        assert any(first <= addr and addr + size <= end for first, end in own), f"{tag}: {addr:#x} is elsewhere"


def check_start(said, ranks, share, graphs):
    token = block_bytes(MODEL, ranks) // BLOCK_TOKENS
    weights = sum(size for _, size in said["weights"].values())
    caches = sum(size for _, size in said["kv_cache"])
    check(weights, weight_bytes(MODEL, ranks), "weights")
    check(caches, (said["tokens"] + said["page"]) * token, "bytes of the KV cache")
    check_lies_in(said["pieces"], said["weights"].values(), "weights")
    check_lies_in(said["pieces"], said["kv_cache"], "kv_cache")
    for tag, least in (("weights", weights), ("kv_cache", caches)):
        held = said["tags"][tag]
        check([held["paused"], held["host"], held["active"] % PAGE], [0, 0, 0], f"{tag} in whole pages")
        assert held["active"] >= least, f"{tag}: {held} for {least}"
    # SGLang: the free memory after the weights, minus the part of the card that is not static.
    room = share * said["before load"] - said["tags"]["weights"]["active"]
    assert room - GIB // 4 < caches <= room + PAGE, f"KV cache: {caches}, room for {room}"
    assert (graphs == "released") == (said["tags"].get("cuda_graph", {"active": 0})["active"] > 0), said["tags"]


def places(said):
    return [(each["weights"], each["kv_cache"], sorted(each["pieces"])) for each in said]


def tags_of(said):
    """SGLang's tags, as far as this engine has them. Reveille also has "nccl", which SGLang does not know."""
    return {tag for tags in RELEASES for tag in tags} & set(said[0]["tags"])


def staged(engine, tags_held):
    """Releases in stages, tries a second time in between, and resumes in stages. Returns the figures after each."""
    rows, refused = [], []
    for how, steps in (("release", RELEASES), ("resume", RESUMES)):
        for tags in steps:
            if not set(tags) <= tags_held:
                continue
            rows.append((f"{how} {' '.join(tags)}", engine.move(how, tags)))
            if (how, tags) == ("release", ("kv_cache",)):
                refused.append(engine.release_again(tags))
    print("a second release of kv_cache:", "refused" if refused[0] else "SGLang takes it; nothing changed")
    return rows


def stages(arguments):
    engine = Engine(arguments)
    engine.generate()
    start = engine.ask("write")
    for said in start:
        check_start(said, arguments.gpus, engine.share, arguments.graphs)
    held = tags_of(start)
    rows = [("generated", engine.ask()), *staged(engine, held)]
    check(places(rows[-1][1]), places(start), "addresses")
    check(*([each["used"] - each["reserved"] for each in rows[row][1]] for row in (-1, 0)), "in use beside PyTorch")
    check([each["mark"] for each in engine.ask("read")], [[MARK if arguments.backup else 0.0] * 4] * arguments.gpus,
          "a weight after the cycle")
    engine.update()
    check([each["mark"] for each in engine.ask("read")], [[UPDATED] * 4] * arguments.gpus, "an updated weight")
    engine.generate()
    # All tags at once, as in the call without tags.
    rows.append(("release all", engine.move("release", held)))
    rows.append(("resume all", engine.move("resume", held)))
    engine.generate()
    check(places(engine.ask()), places(start), "addresses after two cycles")
    engine.end()
    for name, ranks in rows:
        print(f"{name}: {[(each['used'], each['tags']) for each in ranks]}")
    return [(name, [{"used": each["used"], "tags": each["tags"]} for each in ranks]) for name, ranks in rows]


# ---- Several instances ----


def serve(pipe, arguments, share, first_gpu):
    """An engine in a separate process that follows orders."""
    engine = Engine(arguments, share, first_gpu)
    engine.generate()
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        name, *words = order
        try:
            pipe.send(getattr(engine, name)(*words))
        except Exception as error:
            pipe.send(error)
    engine.end()
    pipe.send("ended")


class Instance:
    def __init__(self, arguments, share, first_gpu):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, arguments, share, first_gpu))
        self.process.start()
        other.close()
        check(self.pipe.recv(), "ready", f"the engine from GPU {first_gpu} on")

    def tell(self, *order):
        self.pipe.send(order)
        said = self.pipe.recv()
        if isinstance(said, Exception):
            raise said
        return said

    def end(self):
        self.pipe.send(None)
        check(self.pipe.recv(), "ended", "the end of an instance")
        self.process.join()

    def resume_again(self, tags):
        """Resumes what is not released: refused, or SGLang's scheduler fails and ends its engine. True: refused."""
        try:
            self.tell("occupation", "resume", tags)
        except (EOFError, ConnectionResetError):
            self.process.join()
            assert self.process.exitcode != 0, "the engine ended without an error"
            return False
        except RuntimeError as error:  # SGLang newer than 0.5.23
            assert "not currently released" in str(error), error
            return True
        raise AssertionError(f"SGLang resumed {tags}, which were not released")


def in_use(device):
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return total - free


def use_as_trainer(device, size):
    """Another process can use what an engine has released."""
    import torch

    before = in_use(device)
    copy = torch.empty(size, dtype=torch.uint8, device=device)
    check(in_use(device) - before, copy.nbytes, "in use by the trainer")
    del copy
    torch.cuda.empty_cache()
    check(in_use(device), before, "in use after the trainer")


def await_in_use(expected):
    """SGLang's processes end one after the other. All memory is free when the last has ended."""
    latest = time.monotonic() + END_S
    while (now := [in_use(each) for each in range(len(expected))]) != expected and time.monotonic() < latest:
        time.sleep(0.1)
    check(now, expected, "in use after the end of an engine")


def instances(arguments):
    """Two engines, each on its own GPUs: a release or the end of one does not affect the other."""
    engines = []
    try:
        engines.append(Instance(arguments, 0.83, arguments.gpus))
        free = [in_use(each) for each in range(arguments.gpus)]
        engines.append(Instance(arguments, 0.83, 0))
        rows = each_in_stages(arguments, *engines)
        end_by_misuse(engines[1], engines[0], free)
        engines[0].end()
        return rows
    finally:
        for each in engines:
            each.process.kill()  # no effect if it has ended


def each_in_stages(arguments, *engines):
    rows = []
    for number, one in enumerate(engines):
        other = engines[1 - number]
        first_gpu = (1 - number) * arguments.gpus
        meanwhile, start = other.tell("ask"), one.tell("ask")
        for how, steps in (("release", RELEASES), ("resume", RESUMES)):
            for tags in steps:
                if set(tags) <= tags_of(start):
                    said = one.tell("move", how, tags)
                    rows.append((f"GPU {first_gpu}: {how} {tags[0]}", [each["used"] for each in said]))
            if how == "release":
                use_as_trainer(first_gpu, start[0]["tags"]["kv_cache"]["active"])
        check(places(one.tell("ask")), places(start), "addresses")
        check(other.tell("ask"), meanwhile, "the other engine meanwhile")
        one.tell("generate")
        other.tell("generate")
    for row in rows:
        print(*row)
    return rows


def end_by_misuse(wrong, other, free):
    """An engine that ends leaves its GPUs as they were without it, and does not affect the other engine."""
    meanwhile = held_of(other)
    refused = wrong.resume_again(("kv_cache",))
    print("a resume of what is not released:", "refused" if refused else "SGLang ends this engine")
    if refused:
        wrong.tell("generate")
        wrong.end()
    await_in_use(free)
    check(held_of(other), meanwhile, "the other engine after that")
    other.tell("generate")


def held_of(engine):
    """The figures without the bytes in use by all: SGLang's processes have contexts on each other's GPUs."""
    return [{name: value for name, value in each.items() if name != "used"} for each in engine.tell("ask")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", choices=("stages", "instances"), default="stages")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--graphs", choices=GRAPHS, default="none")
    parser.add_argument("--backup", action="store_true")
    parser.add_argument("-o", dest="out")
    arguments = parser.parse_args()
    began = time.monotonic()
    said = {"stages": stages, "instances": instances}[arguments.what](arguments)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as out:
            json.dump({"version": importlib.metadata.version("sglang"), "rows": said}, out, indent=1)
    print(f"{arguments.what}: all is as expected, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
