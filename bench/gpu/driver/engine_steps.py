# SPDX-License-Identifier: MIT
"""The engine of examples/rl_step without hooks, operator by operator: what is in use beyond PyTorch's allocator. engine_steps.py REPOSITORY SCALE >> JSON lines."""

import contextlib
import json
import os
import sys
import types

sys.path.insert(0, os.path.join(sys.argv[1], "examples/rl_step"))
import torch
from torch.utils._python_dispatch import TorchDispatchMode

stub = types.ModuleType("reveille")
stub.region = lambda tag: contextlib.nullcontext()
stub.cuda_graph = lambda g: torch.cuda.graph(g)
sys.modules["reveille"] = stub
last = 0


def say(what, always=True, **more):
    global last
    free, total = torch.cuda.mem_get_info()
    own = total - free - torch.cuda.memory_reserved()
    if own != last or always:
        print(
            json.dumps(
                {
                    "part": "engine",
                    "what": what,
                    "more": own - last,
                    "own": own,
                    "used": total - free,
                    **more,
                }
            ),
            flush=True,
        )
    last = own


class Each(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        r = func(*args, **(kwargs or {}))
        Each.count += 1
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
            say(
                str(func),
                False,
                n=Each.count,
                shapes=[list(a.shape) for a in args if isinstance(a, torch.Tensor)][:3],
            )
        return r


import engine as E

torch.cuda.init()
torch.cuda.mem_get_info()
say("context")
e = E.Engine(float(sys.argv[2]), 2, 0.9, None)
real = E.Engine._capture


def capture(self, torch):
    say("loaded")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    say("side stream")
    with Each():
        with torch.no_grad(), torch.cuda.stream(side):
            self.decoder.begin()
            say("begun")
            self.decoder.step()
    side.synchronize()
    say("stepped")
    self.graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(self.graph):
        self.decoder.step()
    say("captured")
    torch.cuda.empty_cache()
    say("emptied")


E.Engine._capture = capture
with Each():
    e.start()
say("started")
e.decoder.begin()
torch.cuda.synchronize()
say("begun again")
e.graph.replay()
torch.cuda.synchronize()
say("replayed")
e.decoder.token.item()
say("read")
e.graph.replay()
torch.cuda.synchronize()
say("replayed again")
bytes(e.decoder.logits.view(torch.uint8).cpu().tolist())
say("logits")
nodes = None
print(json.dumps({"part": "engine", "what": "end", "operators": Each.count}), flush=True)
sys.stdout.flush()
os._exit(0)
