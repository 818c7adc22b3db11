# SPDX-License-Identifier: MIT
"""torchrun of two ranks: what is in use beyond PyTorch's allocator, step by step."""

import json
import os
import sys

os.environ.pop("TURN", None)
sys.argv[1:2] = sys.argv[1:2] or ["ranks"]
import probe
import torch
import torch.distributed as dist

R = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(R)
last, seen = 0, set()


def say(what, **more):
    global last, seen
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    used, reserved = total - free, torch.cuda.memory_reserved()
    own = used - reserved
    libs = probe.libs()
    os.write(
        1,
        (
            json.dumps(
                {
                    "part": "torchrun " + " ".join(sys.argv[1:]),
                    "rank": R,
                    "what": what,
                    "bytes": own - last,
                    "own": own,
                    "used": used,
                    "reserved": reserved,
                    "loaded": sorted(libs - seen),
                    "env": {k: v for k, v in os.environ.items() if k.startswith("NCCL_")},
                    **more,
                }
            )
            + "\n"
        ).encode(),
    )
    last, seen = own, libs


def do(what, f):
    try:
        r = f()
        say(what)
        return r
    except Exception as e:
        say(what, error=f"{type(e).__name__}: {str(e)[:200]}")


torch.cuda.mem_get_info()
say("context")
dist.init_process_group("nccl", device_id=torch.device("cuda", R) if "eager" in sys.argv else None)
say("init_process_group")
x = do("zeros", lambda: torch.zeros(1 << 20, device="cuda"))
do("normal_", lambda: x.normal_())
y = torch.zeros(2 << 20, device="cuda")
say("zeros")
do("all_reduce", lambda: dist.all_reduce(x))
do("all_gather", lambda: dist.all_gather_into_tensor(y, x))
do("reduce_scatter", lambda: dist.reduce_scatter_tensor(x, y))
do("broadcast", lambda: dist.broadcast(x, 0))
do("barrier", dist.barrier)
do("send, recv", lambda: dist.send(x, 1) if R == 0 else dist.recv(x, 0))
g = do("new group", lambda: dist.new_group([0, 1]))
do("all_reduce in it", lambda: dist.all_reduce(x, group=g))
z = torch.zeros(512, 512, device="cuda", dtype=torch.bfloat16)
do("mm", lambda: z @ z)
from torch.distributed.fsdp import fully_shard


def fsdp():
    m = (
        torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)))
        .cuda()
        .bfloat16()
    )
    for l in m:
        fully_shard(l)
    fully_shard(m)
    say("sharded")
    o = torch.optim.AdamW(m.parameters())
    for i in range(2):
        m(torch.zeros(64, 2048, device="cuda", dtype=torch.bfloat16)).sum().backward()
        say(f"backward {i}")
        o.step()
        o.zero_grad()
        say(f"step {i}")


do("fsdp", fsdp)
sys.stdout.flush()
os._exit(0)
