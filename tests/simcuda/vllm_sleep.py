# SPDX-License-Identifier: MIT
"""vLLM on simulated GPUs, under `reveille run`: start, generate, sleep and wake by tags, with every figure compared.

vLLM is unmodified. The figures come from its workers, through vLLM's own extension (worker_extension_cls): figures of its profiling run,
its sleep-mode allocator, and CUDA's.

    python vllm_sleep.py MODEL [--gpus N] [--graphs] [--backend NAME] [--communicators] [-o FILE]      MODEL: small, 7b
"""
import argparse
import collections
import json
import os
import tempfile

MIB, GIB = 1 << 20, 1 << 30
PAGE = 2 * MIB  # of physical memory
REVEILLE_CODE = PAGE  # its digest kernel
BFLOAT16 = 2  # bytes
BLOCK_TOKENS = 16
PROMPT, TOKENS = [5, 6, 7, 8], 8
DEFERRED = ("weights", "kv_cache")  # what a wake by tags may leave asleep; everything else always wakes

MODELS = {
    "small": {
        "hidden_size": 2048,
        "intermediate_size": 5504,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
    },
    # Qwen2.5-7B's own sizes.
    "7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
    },
}


Held = collections.namedtuple("Held", "address size tag asleep backup")


def of_cumem():
    """What vLLM's own allocator holds."""
    from vllm.device_allocator.cumem import CuMemAllocator

    data = CuMemAllocator.get_instance().pointer_to_data
    return [
        Held(at, each.handle[1], each.tag, each.is_asleep, getattr(each.cpu_backup_tensor, "nbytes", 0))
        for at, each in data.items()
    ]


def of_reveille():
    """What Reveille's allocator holds."""
    import reveille

    return [
        Held(each.addr, each.size_bytes, each.tag.removeprefix("vllm:"), each.state == "paused", each.backup_bytes)
        for context in reveille.contexts()
        for each in context.allocations()
    ]


def of_communicators():
    """Bytes that NCCL can release, awake and asleep. vLLM's communicators are separate from PyTorch's."""
    import reveille

    found = reveille.communicators()
    return [sum(each.bytes for each in found if each.state == state) for state in ("active", "paused")]


class Figures:
    """Methods that the tests call on a worker. vLLM mixes the class into its own."""

    def reveille_memory(self):
        import torch

        torch.accelerator.synchronize()
        free, total = torch.cuda.mem_get_info()
        held = of_reveille() if self.model_config.sleep_mode_backend == "reveille" else of_cumem()
        segments = {each["address"]: each["total_size"] for each in torch.cuda.memory_snapshot()}
        tags = {}
        for each in held:
            before = tags.get(each.tag, (0, 0, 0))
            own = (each.size * (not each.asleep), each.size * each.asleep, each.backup)
            tags[each.tag] = [a + b for a, b in zip(before, own)]
        return {
            "used": total - free,
            "reserved": torch.cuda.memory_reserved(),
            "tags": tags,
            "nccl": of_communicators(),
            "segments": sum(segments[each.address] for each in held),
        }

    def reveille_start(self):
        runner = self.model_runner
        first = self.init_snapshot
        return {
            "total": first.total_memory,
            "used before": first.total_memory - first.free_memory,
            "requested": self.requested_memory,
            "consumed": self.total_consumed,
            "peak activation": self.peak_activation_memory,
            "available": int(self.available_kv_cache_memory_bytes),
            "weights": sum(each.nbytes for each in runner.model.parameters()),
            "kv_cache": sum(
                {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in runner.kv_caches}.values()
            ),
            "blocks": self.cache_config.num_gpu_blocks,
            "graphs": getattr(self, "cudagraph_memory_estimate", 0),
        }

    def reveille_addresses(self):
        weights = {name: each.data_ptr() for name, each in self.model_runner.model.named_parameters()}
        return [weights, [each.data_ptr() for each in self.model_runner.kv_caches]]

    def reveille_occupy(self, rank, free_bytes):
        """Fills a rank's card. None: frees it again."""
        import torch

        if rank is None:
            self.reveille_neighbour = None
            torch.cuda.empty_cache()
        elif self.rank == rank:
            size = torch.cuda.mem_get_info()[0] - free_bytes
            self.reveille_neighbour = torch.empty(size, dtype=torch.uint8, device="cuda")

    def reveille_mark(self, value):
        """Writes to a small parameter. None: returns its value."""
        norm = self.model_runner.model.model.norm.weight.data
        if value is not None:
            norm.fill_(value)
        return norm.tolist()[:4]


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def weight_bytes(model, ranks):
    """Weights of one rank of Qwen2, from the sizes only."""
    hidden, vocab = model["hidden_size"], model["vocab_size"]
    head = hidden // model["num_attention_heads"]
    wide = (model["num_attention_heads"] + 2 * max(model["num_key_value_heads"], ranks)) * head // ranks
    attention = wide * hidden + wide + hidden * hidden // ranks
    mlp = 3 * hidden * model["intermediate_size"] // ranks
    layer = attention + mlp + 2 * hidden
    return BFLOAT16 * (model["num_hidden_layers"] * layer + 2 * vocab * hidden // ranks + hidden)


def block_bytes(model, ranks):
    """Keys and values of 16 tokens in all layers of a rank."""
    head = model["hidden_size"] // model["num_attention_heads"]
    heads = max(model["num_key_value_heads"] // ranks, 1)
    return 2 * BLOCK_TOKENS * heads * head * BFLOAT16 * model["num_hidden_layers"]


def config_folder(model):
    folder = tempfile.mkdtemp(prefix="reveille-model-")
    config = {
        **model,
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out)
    return folder


class Engine:
    def __init__(self, arguments):
        from vllm import LLM

        self.model, self.ranks = MODELS[arguments.model], arguments.gpus
        self.share = 0.9
        self.communicators = arguments.communicators
        self.llm = LLM(
            model=config_folder(self.model),
            load_format="dummy",
            skip_tokenizer_init=True,
            enable_sleep_mode=True,
            sleep_mode_backend=arguments.backend,
            enforce_eager=not arguments.graphs,
            tensor_parallel_size=self.ranks,
            gpu_memory_utilization=self.share,
            max_model_len=2048,
            worker_extension_cls="vllm_sleep.Figures",
            enable_nccl_comm_suspend=self.communicators,
        )

    def ask(self, what, *args):
        return self.llm.collective_rpc("reveille_" + what, args=args)

    def generate(self):
        from vllm import SamplingParams

        wanted = SamplingParams(max_tokens=TOKENS, ignore_eos=True, detokenize=False)
        out = self.llm.generate([{"prompt_token_ids": PROMPT}] * 3, wanted, use_tqdm=False)
        check([len(each.outputs[0].token_ids) for each in out], [TOKENS] * 3, "tokens generated")

    def check_start(self, start, least):
        """KV cache: gpu_memory_utilization x card - what is held - peak activation, in whole blocks.

        All ranks have as many blocks as the one with the least memory.
        """
        check(start["requested"], -int(-start["total"] * self.share // 1), "memory asked for")
        check(
            start["available"],
            start["requested"] - start["consumed"] - start["peak activation"],
            "memory for the KV cache",
        )
        check(start["weights"], weight_bytes(self.model, self.ranks), "weights")
        size = block_bytes(self.model, self.ranks)
        check(start["blocks"], least // size, "blocks of the KV cache")
        check(start["kv_cache"], start["blocks"] * size, "bytes of the KV cache")
        assert start["consumed"] >= start["weights"], "what is held has the weights"

    @staticmethod
    def check_awake(start, now):
        """PyTorch's segments are mapped, each in whole pages of physical memory."""
        for tag in DEFERRED:
            awake, asleep, backup = now["tags"][tag]
            check([asleep, backup], [0, 0], f"{tag} asleep")
            assert awake >= start[tag], f"{tag}: {awake} for {start[tag]}"
            check(awake % PAGE, 0, f"{tag} in whole pages")
        mapped = sum(awake for awake, _, _ in now["tags"].values())
        check(mapped, now["segments"], "mapped, and PyTorch's segments")

    def sleep(self, level):
        """Sleeps, and checks what every rank has released and keeps in host memory."""
        before = self.ask("memory")
        self.llm.sleep(level=level)
        after = self.ask("memory")
        for was, now in zip(before, after):
            kept = {"runtime", "cudagraph"} | ({"weights"} if level == 1 else set())
            given = 0
            for tag, (awake, _, _) in was["tags"].items():
                check(now["tags"][tag], [0, awake, awake if tag in kept else 0], f"{tag} at level {level}")
                given += awake
            given += self.check_communicators(was, now, asleep=True)
            # PyTorch's own cache is freed, too. Its count includes the pool's segments, asleep or not.
            uncached = was["reserved"] - now["reserved"]
            assert given > 0 and uncached >= 0
            check(was["used"] - now["used"], given + uncached, f"given up at level {level}")
        return after

    def check_communicators(self, was, now, asleep):
        """Communicators sleep and wake with the engine, if that was requested. Returns the bytes moved."""
        total = sum(was["nccl"])
        assert total > 0 or self.ranks == 1
        expected = [0, total] if asleep and self.communicators else [total, 0]
        check(now["nccl"], expected, "bytes of communicators, awake and asleep")
        return total if now["nccl"] != was["nccl"] else 0

    def no_room(self):
        """Each rank in turn has no room: none wakes up, and the reason arrives here. Then all do.

        vLLM's executor stops at the first failure, and must have read the other ranks' answers by then.
        """
        for rank in range(self.ranks):
            self.sleep(1)
            self.ask("occupy", rank, GIB)
            before = self.ask("memory")
            try:
                self.llm.wake_up()
            except Exception as error:
                who = f"rank {rank} of {self.ranks} cannot wake_up()" if self.ranks > 1 else "resume of "
                assert who in str(error) and f" free on cuda:{rank}" in str(error), error
            else:
                raise AssertionError("it woke up without room")
            check(self.ask("memory"), before, "memory after a wake-up without room")
            self.ask("occupy", None, 0)
            self.wake(None)

    def wake(self, tags):
        before = self.ask("memory")
        self.llm.wake_up(tags=tags)
        after = self.ask("memory")
        for was, now in zip(before, after):
            taken = 0
            for tag, (_, asleep, _) in was["tags"].items():
                wakes = tags is None or tag in tags or tag not in DEFERRED
                if wakes:
                    check(now["tags"][tag][1:], [0, 0], f"{tag} awake again")
                    taken += asleep
                else:
                    check(now["tags"][tag], was["tags"][tag], f"{tag} still asleep")
            taken += self.check_communicators(was, now, asleep=False)
            uncached = was["reserved"] - now["reserved"]
            check(now["used"] - was["used"], taken - uncached, f"taken by {tags}")
        return after


def compare(rows, others):
    """Each tag's bytes awake, asleep and backed up. Reveille has code on the card, which reduces the KV cache."""
    check([name for name, _ in rows], [name for name, _ in others], "stages")
    for (name, ranks), (_, others_ranks) in zip(rows, others):
        for now, other in zip(ranks, others_ranks, strict=True):
            check(sorted(now["tags"]), sorted(other["tags"]), f"tags {name}")
            for tag, bytes_of in now["tags"].items():
                room = REVEILLE_CODE if tag == "kv_cache" else 0
                for a, b in zip(bytes_of, other["tags"][tag], strict=True):
                    assert (a == 0) == (b == 0) and 0 <= b - a <= room, f"{tag} {name}: {bytes_of}, {other['tags'][tag]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--backend", default="cumem", choices=("cumem", "reveille"))
    parser.add_argument("--communicators", action="store_true", help="NCCL's sleep, too (enable_nccl_comm_suspend)")
    parser.add_argument("--same-as", metavar="FILE", help="what -o has written with cumem: the same bytes in each row")
    parser.add_argument("-o", dest="out")
    arguments = parser.parse_args()
    engine = Engine(arguments)
    starts = engine.ask("start")
    awake = engine.ask("memory")
    print("started:", starts[0], awake[0], flush=True)
    least = min(each["available"] for each in starts)
    for start, now in zip(starts, awake):
        engine.check_start(start, least)
        engine.check_awake(start, now)
    engine.generate()
    addresses = engine.ask("addresses")
    engine.ask("mark", 3.0)

    rows = [("awake", engine.ask("memory"))]
    rows.append(("asleep, level 1", engine.sleep(1)))
    rows.append(("weights awake", engine.wake(["weights"])))
    check(engine.ask("mark", None)[0], [3.0] * 4, "a weight after level 1")
    rows.append(("KV cache awake", engine.wake(["kv_cache"])))
    check(engine.ask("addresses"), addresses, "addresses after level 1")
    engine.generate()

    rows.append(("asleep, level 2", engine.sleep(2)))
    rows.append(("all awake", engine.wake(None)))
    check(engine.ask("addresses"), addresses, "addresses after level 2")
    engine.generate()
    for name, ranks in rows:
        print(f"{name}: {[(each['used'], each['tags'], each['nccl']) for each in ranks]}")
    if arguments.same_as:
        with open(arguments.same_as, encoding="utf-8") as file:
            compare(rows, json.load(file)["rows"])
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as out:
            json.dump({"start": starts, "rows": rows}, out, indent=1)
    if arguments.backend == "reveille":
        engine.ask("mark", 3.0)
        engine.no_room()
        check(engine.ask("mark", None), [[3.0] * 4] * engine.ranks, "a weight after a wake-up without room")
        check(engine.ask("addresses"), addresses, "addresses after it")
        engine.generate()
    print("all is as expected")


if __name__ == "__main__":
    main()
