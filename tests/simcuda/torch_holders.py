#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `reveille run` reports about the peak of a training step, compared with the model's own sizes: torch_holders.py COMMAND.

A small GPT with AdamW; with gradient checkpointing; compiled; and with FSDP2 on two ranks.
"""
import json
import os
import subprocess
import sys


def inside(how):
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(4096, 512), nn.Linear(512, 4096, bias=False)
            self.blocks = nn.ModuleList(Block(512) for _ in range(4))

        def forward(self, ids):
            x = self.embed(ids)
            for block in self.blocks:
                again = how == "checkpoint"
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if again else block(x)
            return self.head(x)

    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    model = GPT().cuda()
    if how == "fsdp":
        from torch.distributed.fsdp import fully_shard

        torch.distributed.init_process_group("nccl")
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    run = torch.compile(model) if how == "compile" else model
    local = [getattr(p, "_local_tensor", p) for p in model.parameters()]
    if int(os.environ.get("RANK", 0)) == 0:
        print("bytes", sum(p.numel() * p.element_size() for p in local), flush=True)
    for _ in range(3):
        ids = torch.randint(0, 4096, (4, 512), device="cuda")
        F.cross_entropy(run(ids).view(-1, 4096), ids.view(-1)).backward()
        big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")  # puts the peak where all gradients exist
        del big
        optimizer.step()
        big = torch.empty((1 << 30) + (1 << 28), dtype=torch.uint8, device="cuda")  # and the optimizer's state
        del big
        optimizer.zero_grad()
    if how == "fsdp":
        torch.distributed.destroy_process_group()


# The history must not import the compiler: it would do so in a thread, concurrently with the program.
LEAN = """
import atexit, sys
atexit.register(lambda: print("compiler", "torch._dynamo" in sys.modules))
import torch
torch.zeros(8, device="cuda")
assert isinstance(torch._inductor.__name__, str) if len(sys.argv) > 1 else True
"""


def is_compiler_imported(command, *arguments):
    done = subprocess.run([command, "run", "--json", "--", sys.executable, "-c", LEAN, *arguments], stdout=subprocess.PIPE,
                          text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["holders"], "nothing was followed"
    return "compiler True" in done.stdout


# os._exit() runs no handlers. The history is written anyway, and the exit status stays.
LEAVES = """
import os
import torch
kept = torch.zeros(8 << 20, device="cuda")
os._exit(3)
"""


def is_told_by_one_that_leaves(command):
    done = subprocess.run([command, "run", "--json", "--", sys.executable, "-c", LEAVES], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 3, done
    return [each["bytes"] for each in json.loads(done.stdout)["holders"][0]["lines"]] == [32 << 20]


# Memory allocated after the last file of a killed process is not attributed to a library.
KILLED = """
import os, signal, time
import torch
first = torch.zeros(8 << 20, device="cuda")
time.sleep(4)
second = torch.zeros(16 << 20, device="cuda")
os.kill(os.getpid(), signal.SIGKILL)
"""


# A pool belongs to graphs if a graph was captured into it. vLLM and others keep weights and caches in pools, too.
POOLS = """
import torch

class Cache:
    def allocate_kv_cache(self):
        return torch.zeros(24 << 20, dtype=torch.uint8, device="cuda")

pool, handle = torch.cuda.MemPool(), torch.cuda.graph_pool_handle()
with torch.cuda.use_mem_pool(pool):
    model = torch.nn.Linear(4096, 2048, bias=False).cuda()
    cache = Cache().allocate_kv_cache()
fixed = torch.zeros(16, 4096, device="cuda")
with torch.no_grad():
    model(fixed)
    graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graphs[0], pool=handle):
        kept = torch.zeros(22 << 20, dtype=torch.uint8, device="cuda")
    with torch.cuda.graph(graphs[1]):
        more = torch.zeros(26 << 20, dtype=torch.uint8, device="cuda")
for pool in torch.cuda.memory_snapshot():
    print("pool", pool["segment_pool_id"], pool["total_size"])
"""


def pools_are_named_by_what_is_in_them(command):
    done = subprocess.run([command, "run", "--json", "--", sys.executable, "-c", POOLS], stdout=subprocess.PIPE, text=True, check=True)
    parts = {each["tag"]: each["bytes"] for each in json.loads(done.stdout.splitlines()[-1])["holders"][0]["at_peak"]}
    print(done.stdout.splitlines()[:-1], parts)
    return [parts[tag] >> 20 for tag in ("weights", "KV cache", "graphs")] == [32, 24, 48]


# A step is recorded when it is over.
STEPPED = """
import os, signal
import torch
model = torch.nn.Linear(4096, 2048, bias=False).cuda()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.zeros(8, 4096, device="cuda")).sum().backward()
optimizer.step()
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_followed_to_its_last_step(command):
    done = subprocess.run([command, "run", "--json", "--", sys.executable, "-c", STEPPED], stdout=subprocess.PIPE, text=True)
    parts = {each["tag"]: each["bytes"] for each in json.loads(done.stdout)["holders"][0]["at_peak"]}
    return [parts[tag] >> 20 for tag in ("weights", "gradients", "optimizer")] == [32, 32, 64]


# A peak that is much higher than the last is written, however long files take: a service takes its cache after the weights, and is killed
# much later.
RAISED = """
import os, signal, time
import torch
snapshot, paths = torch.cuda.memory._snapshot, os.environ["REVEILLE_HISTORY"]

def slowly(*args, **kwargs):
    time.sleep(1)
    return snapshot(*args, **kwargs)

def files():
    return len([each for each in os.listdir(paths) if each.endswith(".pickle")])

torch.cuda.memory._snapshot, kept = slowly, []
for file, size in enumerate((1, 64, 4096), 1):
    kept.append(torch.empty(size << 20, dtype=torch.uint8, device="cuda"))
    until = time.monotonic() + 30
    while files() < file and time.monotonic() < until:
        time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_followed_when_it_has_grown(command):
    done = subprocess.run([command, "run", "--json", "--", sys.executable, "-c", RAISED], stdout=subprocess.PIPE, text=True)
    parts = {each["tag"]: each["bytes"] for each in json.loads(done.stdout)["holders"][0]["at_peak"]}
    return done.returncode == 128 + 9 and parts["other tensors"] == 4161 << 20 and "not followed" not in parts


def is_not_followed_when_killed(command):
    done = subprocess.run([command, "run", "--json", "--", sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    parts = {each["tag"]: each["bytes"] for each in json.loads(done.stdout)["holders"][0]["at_peak"]}
    return done.returncode == 128 + 9 and parts["not followed"] == 64 << 20 and "libraries" not in parts


def main(command):
    assert pools_are_named_by_what_is_in_them(command)
    assert is_followed_to_its_last_step(command)
    assert is_not_followed_when_killed(command)
    assert is_followed_when_it_has_grown(command)
    assert is_told_by_one_that_leaves(command)
    assert not is_compiler_imported(command)
    assert is_compiler_imported(command, "asks for it")
    for how in sys.argv[2:] or ("plain", "checkpoint", "compile", "fsdp"):
        many = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if how == "fsdp" else []
        done = subprocess.run([command, "run", "--json", "--gpus", str(1 + (how == "fsdp")), "--", sys.executable, *many, __file__,
                               "--inside", how], stdout=subprocess.PIPE, text=True, check=True)
        said = [line for line in done.stdout.splitlines() if line.startswith("bytes ")]
        size = int(said[0].split()[1])
        shown = json.loads(done.stdout.splitlines()[-1])
        for holder in shown["holders"]:
            parts = {}
            for each in holder["at_peak"]:
                parts[each["tag"]] = parts.get(each["tag"], 0) + each["bytes"]
            (stage,) = (each for each in shown["devices"][holder["device"]]["stages"] if each["name"] == holder["stage"])
            print(how, parts)
            assert sum(parts.values()) == stage["peak_bytes"], (how, parts, stage)
            assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (size, size, 2 * size), (how, size, parts)
            (largest, *_) = holder["lines"]
            assert largest["name"] == "inside" and largest["bytes"] == (1 << 30) + (1 << 28), largest
        assert len(shown["holders"]) == 1 + (how == "fsdp"), shown["holders"]


if __name__ == "__main__":
    inside(sys.argv[2]) if sys.argv[1] == "--inside" else main(sys.argv[1])
