#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `reveille run --advise` predicts that gradient checkpointing saves, compared with the same program with checkpointing:
torch_advice.py COMMAND.

A small GPT, with checkpoints of each block, of each MLP, and without, with two kinds of attention; and one that runs out of memory.
"""
import json
import os
import subprocess
import sys
import tempfile

LAYERS, WIDTH, HEADS, WORDS, BATCH, LENGTH = 8, 1024, 16, 8192, 8, 1024


def inside(how, kind):
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    def again(name, module, *inputs):
        return checkpoint(module, *inputs, use_reentrant=False)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            q, k, v = self.qkv(x).view(BATCH, LENGTH, 3 * HEADS, -1).transpose(1, 2).chunk(3, 1)
            if kind == "eager":
                weights = (q @ k.transpose(-2, -1) / 8).softmax(-1)
                mixed = weights @ v
            else:
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            return self.down(F.gelu(self.up(x)))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.attention, self.mlp = Attention(), MLP()

        def forward(self, x):
            x = x + self.attention(self.before(x))
            normed = self.between(x)
            if how == "mlp":
                return x + checkpoint(self.mlp, normed, use_reentrant=False)
            return x + self.mlp(normed)  # the MLP

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, WORDS, bias=False)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

        def forward(self, ids):
            x = self.embed(ids)
            for block in self.blocks:
                if how == "block":
                    x = checkpoint(block, x, use_reentrant=False)
                else:
                    x = block(x)  # the block
            return self.head(self.norm(x))

    model = GPT().cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        ids = torch.randint(0, WORDS, (BATCH, LENGTH), device="cuda")
        F.cross_entropy(model(ids).view(-1, WORDS), ids.view(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    print("reserved", torch.cuda.max_memory_reserved(), "allocated", torch.cuda.max_memory_allocated(), flush=True)


def line_of(comment):
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith("# the " + comment))


def run(command, how, kind, *options):
    done = subprocess.run([command, "run", "--device", "80GiB", *options, "--", sys.executable, __file__, "--inside", how, kind],
                          stdout=subprocess.PIPE, text=True)
    return done, [line.split() for line in done.stdout.splitlines() if line.startswith("reserved ")]


def advised(command, kind, *options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        done, said = run(command, "plain", kind, "--advise", f"--json={path}", *options)
        print(done.stdout)
        with open(path) as file:
            return json.load(file)["advice"], said


def main(command):
    for kind in ("flash", "eager"):
        advice, ((_, plain, *_),) = advised(command, kind)
        plain = int(plain)
        assert advice["reserved_bytes"] == plain, (advice["reserved_bytes"], plain)
        for how, comment in (("block", "block"), ("mlp", "MLP")):
            name = os.path.basename(__file__)
            (change,) = (each for each in advice["saving"] if each["change"].endswith(f"({name}:{line_of(comment)})"))
            _, ((_, real, *_),) = run(command, how, kind)
            off = (change["saved_bytes"] - (plain - int(real))) / (plain - int(real))
            print(f"{kind} {how}: plain {plain}, predicted {change['reserved_bytes']}, real {real}: saving off by {off:+.2%}")
            assert abs(off) < 0.2, change


if __name__ == "__main__":
    inside(*sys.argv[2:4]) if sys.argv[1] == "--inside" else main(sys.argv[1])
