# SPDX-License-Identifier: MIT
"""Sleep and wake-up through vLLM's backends of its sleep mode, without a model.

It asks for memory as vLLM's worker does: weights in tensors of five sizes, and a KV cache of twice as much. Each cycle
sleeps at level 1, wakes the weights, wakes the KV cache and replays a captured graph. Then every tensor is compared
with what was written. At last comes level 2, and a wake-up that has room for the half of the weights.

    python bench/gpu/vllm_sleep.py BACKEND OUT.json [--gib 20]     BACKEND: cumem, reveille

Needs a GPU, PyTorch, and vLLM, of which device_allocator and its C extension are enough.
"""
import argparse
import json
import time
from types import SimpleNamespace

import torch
from vllm.device_allocator import get_mem_allocator_instance
from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

MIB, GIB = 1 << 20, 1 << 30
SIZES = (256 * MIB, 96 * MIB, 32 * MIB, 3 * MIB, 14336)  # of a layer's tensors
CYCLES = 4


class Worker:
    """What vLLM's worker is to the allocator: it has the config."""

    def __init__(self, backend):
        model = SimpleNamespace(sleep_mode_backend=backend, sleep_mode_offload_cudagraph=False)
        parallel = SimpleNamespace(world_size=1)
        self.vllm_config = SimpleNamespace(model_config=model, parallel_config=parallel)

    def pool(self, tag):
        return get_mem_allocator_instance().use_memory_pool(tag=tag)

    def backend(self):
        return SleepModeBackendFactory.create_backend(self.vllm_config.model_config)


def used():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def seconds(call, *arguments):
    begin = time.perf_counter()
    call(*arguments)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def random_bytes(size, seed):
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda", generator=generator)


def sizes_of(total):
    sizes = []
    while sum(sizes) < total:
        sizes.append(min(total - sum(sizes), SIZES[len(sizes) % len(SIZES)]))
    return sizes


class Memory:
    def __init__(self, worker, total):
        self.bytes = total
        with worker.pool("weights"):
            self.weights = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes_of(total)]
        with worker.pool("kv_cache"):
            self.cache = torch.ones(2 * total, dtype=torch.uint8, device="cuda")
        self.sum = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.fill(0)
        self.expected = int(self.weights[0][:1024].sum(dtype=torch.int64))
        self.step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        torch.cuda.empty_cache()

    def step(self):
        self.sum.copy_(self.weights[0][:1024].sum(dtype=torch.int64))
        self.cache[:4].fill_(5)

    def replays(self):
        self.sum.zero_()
        self.graph.replay()
        torch.cuda.synchronize()
        return int(self.sum) == self.expected and self.cache[:4].tolist() == [5] * 4

    def fill(self, seed):
        for at, each in enumerate(self.weights):
            each.copy_(random_bytes(each.numel(), seed + at))

    def differing(self, seed):
        """How many tensors have another content."""
        wrong = [not torch.equal(each, random_bytes(each.numel(), seed + at)) for at, each in enumerate(self.weights)]
        torch.cuda.empty_cache()
        return sum(wrong)

    def addresses(self):
        return [each.data_ptr() for each in (*self.weights, self.cache)]


def cycle(backend, memory):
    sleep_s = seconds(backend.suspend, 1)
    asleep = used()
    wake_s = seconds(backend.resume, ["weights"])
    weights_awake = used()
    return {
        "sleep_s": sleep_s,
        "wake_weights_s": wake_s,
        "wake_kv_s": seconds(backend.resume, ["kv_cache"]),
        "sleep_gb_per_s": memory.bytes / sleep_s / 1e9,
        "wake_gb_per_s": memory.bytes / wake_s / 1e9,
        "asleep_bytes": asleep,
        "weights_awake_bytes": weights_awake,
        "graph_replays": memory.replays(),
    }


def without_room(backend, memory):
    """A wake-up that cannot succeed: what it says, and what it has taken all the same."""
    free = torch.cuda.mem_get_info()[0]
    neighbour = torch.empty(free - memory.bytes // 2, dtype=torch.uint8, device="cuda")
    before = used()
    try:
        backend.resume()
        said = "it woke up"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    taken = used() - before
    del neighbour
    torch.cuda.empty_cache()
    return {"said": said, "taken_bytes": taken, "state": backend.state()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("backend", choices=("cumem", "reveille"))
    parser.add_argument("out")
    parser.add_argument("--gib", type=float, default=20)
    arguments = parser.parse_args()
    if arguments.backend == "reveille":
        from reveille.vllm import register

        register()
    worker = Worker(arguments.backend)
    memory = Memory(worker, int(arguments.gib * GIB))
    where, backend = memory.addresses(), worker.backend()
    result = {
        "backend": arguments.backend,
        "bytes": memory.bytes,
        "tensors": len(memory.weights),
        "cycles": [cycle(backend, memory) for _ in range(CYCLES)],
        "differing_tensors": memory.differing(0),
        "same_addresses": where == memory.addresses(),
        "level_2_sleep_s": seconds(backend.suspend, 2),
        "without_room": without_room(backend, memory),
    }
    with open(arguments.out, "w", encoding="utf-8") as out:
        json.dump(result, out, indent=1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
