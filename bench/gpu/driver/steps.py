# SPDX-License-Identifier: MIT
"""PyTorch step by step: what is in use beyond what its allocator has reserved. steps.py PART [ARG] >> lines of JSON."""

import json
import os
import sys
import threading
import time

import probe
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

PART, ARGS = sys.argv[1], sys.argv[2:]
LABEL = (
    "torch "
    + " ".join(sys.argv[1:])
    + "".join(
        f" {k}"
        for k in ("PYTORCH_CUDA_ALLOC_CONF")
        if k in os.environ
    )
    + (" eager" if os.environ.get("CUDA_MODULE_LOADING") == "EAGER" else "")
)
try:
    import torchvision
except Exception:
    torchvision = None
try:
    nvml = probe.Look()
except Exception as e:
    nvml = None
    print(json.dumps({"part": LABEL, "what": f"no NVML: {e}"}), flush=True)
start, last, seen = time.time(), 0, set()


def say(what, always=True, **more):
    global last, seen
    free, total = torch.cuda.mem_get_info()
    used, reserved = total - free, torch.cuda.memory_reserved()
    own = used - reserved
    if own != last or always:
        libs = probe.libs()
        print(
            json.dumps(
                {
                    "part": LABEL,
                    "what": what,
                    "bytes": own - last,
                    "own": own,
                    "used": used,
                    "reserved": reserved,
                    "used_nvml": nvml.by_nvml() if nvml else None,
                    "loaded": sorted(libs - seen),
                    "s": round(time.time() - start, 2),
                    **more,
                }
            ),
            flush=True,
        )
        last, seen = own, libs


def do(what, f):
    try:
        r = f()
        torch.cuda.synchronize()
        say(what)
        return r
    except Exception as e:
        say(what, error=f"{type(e).__name__}: {str(e)[:200]}")


class Each(TorchDispatchMode):
    """A reading after every operator; told where something was taken."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        r = func(*args, **(kwargs or {}))
        Each.count += 1
        torch.cuda.synchronize()
        say(
            f"{func}",
            False,
            n=Each.count,
            shapes=[list(a.shape) for a in args if isinstance(a, torch.Tensor)][:3],
            dtype=str(next((a.dtype for a in args if isinstance(a, torch.Tensor)), ""))[6:],
        )
        return r


def begin():
    torch.cuda.init()
    torch.cuda.mem_get_info()
    say("context")


bf = dict(device="cuda", dtype=torch.bfloat16)


def ops():
    begin()
    a = do("zeros 1 MiB", lambda: torch.zeros(1 << 18, device="cuda"))
    do("zeros again", lambda: torch.zeros(1 << 18, device="cuda"))
    do("copy from host", lambda: torch.ones(1000).cuda())
    do("copy to host", lambda: a.cpu())
    do("add", lambda: a + 1)
    do("mul in place", lambda: a.mul_(2))
    do("exp", lambda: a.exp())
    do("to bf16", lambda: a.bfloat16())
    m = do("strided copy", lambda: a.view(512, 512).t().contiguous())
    do("sum", lambda: a.sum())
    do("max dim", lambda: m.max(1))
    do("argmax", lambda: m.argmax(-1))
    do("cumsum", lambda: m.cumsum(0))
    do("softmax", lambda: m.softmax(-1))
    do("item", lambda: a[0].item())
    do("normal_", lambda: m.normal_())
    do("uniform_", lambda: m.uniform_())
    do("randint", lambda: torch.randint(0, 9, (100,), device="cuda"))
    do("randperm", lambda: torch.randperm(1000, device="cuda"))
    do("arange", lambda: torch.arange(1000, device="cuda"))
    i = torch.arange(100, device="cuda")
    do("index", lambda: m[i])
    do("embedding", lambda: F.embedding(i, m))
    do("cat", lambda: torch.cat([m, m]))
    do("sort", lambda: m.sort())
    do("topk", lambda: m.topk(5))
    do("nonzero", lambda: m.nonzero())
    do("where", lambda: torch.where(m > 0, m, 0))
    do("layer_norm", lambda: F.layer_norm(m, (512,)))
    do("gelu", lambda: F.gelu(m))
    do("dropout", lambda: F.dropout(m))
    do(
        "cross_entropy",
        lambda: F.cross_entropy(m, torch.zeros(512, dtype=torch.long, device="cuda")),
    )
    do("erfinv", lambda: m.erfinv())
    do("lgamma", lambda: m.lgamma())
    do("pow", lambda: m**2.5)
    do("sin", lambda: m.sin())
    do("complex", lambda: m.to(torch.complex64) * 2)
    for t in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        x = torch.zeros(512, 512, device="cuda", dtype=t)
        do(f"mm {t}", lambda: x @ x)
        y = torch.zeros(8, 512, 512, device="cuda", dtype=t)
        do(f"bmm {t}", lambda: y @ y)
        do(f"addmm {t}", lambda: torch.addmm(x[0], x, x))
        do(f"linear gelu {t}", lambda: F.gelu(F.linear(x, x, x[0])))

    def other():
        z = torch.zeros(512, 512, **bf)
        z @ z

    def thread():
        t = threading.Thread(target=other)
        t.start()
        t.join()

    do("mm in another thread", thread)
    do("mm in a third", thread)
    s = torch.cuda.Stream()
    say("34 streams")

    def on():
        with torch.cuda.stream(s):
            other()

    do("mm on another stream", on)
    p = torch.nn.Linear(512, 512, **bf)
    do("backward", lambda: p(torch.ones(4, 512, **bf)).sum().backward())
    for k in ("foreach", "fused"):
        o = torch.optim.AdamW(p.parameters(), lr=1e-3, **{k: True})
        do(f"AdamW {k}", o.step)
    o = torch.optim.SGD(p.parameters(), lr=1e-3, momentum=0.9)
    do("SGD", o.step)
    do("clip_grad_norm_", lambda: torch.nn.utils.clip_grad_norm_(p.parameters(), 1.0))
    do("conv", lambda: F.conv2d(torch.zeros(1, 3, 64, 64, **bf), torch.zeros(8, 3, 3, 3, **bf)))
    do("inverse", lambda: torch.linalg.inv(torch.eye(64, device="cuda")))
    do("fft", lambda: torch.fft.fft(m))
    do("empty_cache", torch.cuda.empty_cache)


def first():
    pass
    begin()
    x = torch.empty(512, 512, **bf)
    say("empty")
    q = torch.empty(2, 16, 512, 64, **bf)
    from torch.nn.attention import SDPBackend as B
    from torch.nn.attention import sdpa_kernel

    def attention(kind):
        with sdpa_kernel(kind):
            return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    def train(kind):
        z = torch.empty_like(q).requires_grad_()
        with sdpa_kernel(kind):
            F.scaled_dot_product_attention(z, z, z, is_causal=True).backward(torch.empty_like(q))

    k = {
        "flash": B.FLASH_ATTENTION,
        "efficient": B.EFFICIENT_ATTENTION,
        "math": B.MATH,
        "cudnn": B.CUDNN_ATTENTION,
    }.get(ARGS[0])
    if k is not None:
        do(f"attention {ARGS[0]}", lambda: attention(k))
        do("again", lambda: attention(k))
        do("backward", lambda: train(k))
        q = torch.empty(2, 16, 777, 64, **bf)
        do("another length", lambda: attention(k))
        do("backward", lambda: train(k))
        return
    todo = {
        "mm": lambda: x @ x,
        "bmm": lambda: torch.bmm(q[0], q[0].transpose(1, 2)),
        "conv": lambda: F.conv2d(
            torch.empty(8, 64, 56, 56, **bf).to(memory_format=torch.channels_last),
            torch.empty(64, 64, 3, 3, **bf).to(memory_format=torch.channels_last),
        ),
        "normal": lambda: x.normal_(),
        "fill": lambda: x.fill_(1),
        "add": lambda: x + x,
        "sum": lambda: x.sum(),
        "backward": lambda: (torch.empty(512, requires_grad=True, **bf) * 2).sum().backward(),
    }
    for n in ARGS[0].split(","):
        do(n, todo[n])
        do(n + " again", todo[n])


class Block(torch.nn.Module):
    def __init__(self, d, inner, heads, kv):
        super().__init__()
        self.h, self.kv, self.e = heads, kv, d // heads
        L = lambda a, b: torch.nn.Linear(a, b, bias=False)
        self.q, self.k, self.v, self.o = L(d, d), L(d, kv * self.e), L(d, kv * self.e), L(d, d)
        self.g, self.u, self.d = L(d, inner), L(d, inner), L(inner, d)
        self.n1, self.n2 = torch.nn.RMSNorm(d), torch.nn.RMSNorm(d)

    def norm(self, n, x):
        y = x.float()
        return n.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def turn(self, x, c, s):
        a, b = x.chunk(2, -1)
        return x * c + torch.cat((-b, a), -1) * s

    def forward(self, x, c, s, cache=None):
        n, t, d = x.shape
        y = self.norm(self.n1, x)
        q, k, v = (p(y).view(n, t, -1, self.e).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = self.turn(q, c, s), self.turn(k, c, s)
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            cache[:] = [k, v]
        y = (
            F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
            .transpose(1, 2)
            .reshape(n, t, d)
        )
        x = x + self.o(y)
        y = self.norm(self.n2, x)
        return x + self.d(F.silu(self.g(y)) * self.u(y))


class Model(torch.nn.Module):
    def __init__(self, layers=4, d=2048, inner=8192, heads=32, kv=8, vocab=128256):
        super().__init__()
        self.e = torch.nn.Embedding(vocab, d)
        self.b = torch.nn.ModuleList(Block(d, inner, heads, kv) for _ in range(layers))
        self.n = torch.nn.RMSNorm(d)
        self.w = d // heads

    def forward(self, x, caches=None, at=0):
        f = 1 / 10000 ** (torch.arange(0, self.w, 2, device=x.device).float() / self.w)
        p = torch.arange(at, at + x.shape[1], device=x.device).float()
        f = torch.cat([p[:, None] * f] * 2, -1)
        c, s = f.cos().to(self.e.weight.dtype), f.sin().to(self.e.weight.dtype)
        h = self.e(x)
        for i, b in enumerate(self.b):
            h = b(h, c, s, None if caches is None else caches[i])
        return F.linear(self.b[0].norm(self.n, h), self.e.weight)


def text():
    begin()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        m = Model()
    torch.set_default_dtype(torch.float32)
    torch.cuda.synchronize()
    say("model made")
    with torch.no_grad():
        for p in m.parameters():
            p.normal_(0, 0.02)
    torch.cuda.synchronize()
    say("weights drawn")
    return m


def train(m, loss_of, opt, batches):
    mode = Each() if "each" in ARGS else None
    for n, b in enumerate(batches):
        if mode:
            mode.__enter__()
        l = loss_of(m, b)
        torch.cuda.synchronize()
        say(f"forward {n}")
        l.backward()
        torch.cuda.synchronize()
        say(f"backward {n}")
        opt.step()
        opt.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if mode:
            mode.__exit__(None, None, None)
        say(f"step {n}")


def sft():
    m = text()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-5)
    train(
        m,
        lambda m, x: F.cross_entropy(m(x).float().flatten(0, 1), x.flatten()),
        opt,
        [torch.randint(0, 128256, (2, n), device="cuda") for n in (1024, 1500, 777)],
    )
    torch.cuda.empty_cache()
    say("emptied")
    m.eval()
    with torch.no_grad():
        m(torch.randint(0, 128256, (16, 512), device="cuda")).argmax(-1)
        torch.cuda.synchronize()
        say("evaluated")


def gen():
    m = text().eval()
    x = torch.randint(0, 128256, (64, 256), device="cuda")
    c = [[] for _ in m.b]
    with torch.no_grad():
        mode = Each() if "each" in ARGS else None
        if mode:
            mode.__enter__()
        y = m(x, c)[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        say("prefill")
        for i in range(16):
            y = m(y, c, 256 + i)[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        if mode:
            mode.__exit__(None, None, None)
        say("generated")
        del c
        torch.cuda.empty_cache()
        say("emptied")
        x = torch.randint(0, 128256, (8, 64), device="cuda")
        st = torch.cuda.Stream()
        say("streams")
        with torch.cuda.stream(st):
            for _ in range(2):
                m(x)
        torch.cuda.synchronize()
        say("on another stream")
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            y = m(x)
        say("captured")
        g.replay()
        torch.cuda.synchronize()
        say("replayed")


class Unit(torch.nn.Module):
    def __init__(self, i, w, stride):
        super().__init__()
        C = torch.nn.Conv2d
        self.c = torch.nn.ModuleList(
            [C(i, w, 1, bias=False), C(w, w, 3, stride, 1, bias=False), C(w, 4 * w, 1, bias=False)]
        )
        self.n = torch.nn.ModuleList(torch.nn.BatchNorm2d(k) for k in (w, w, 4 * w))
        self.d = (
            torch.nn.Sequential(C(i, 4 * w, 1, stride, bias=False), torch.nn.BatchNorm2d(4 * w))
            if stride > 1 or i != 4 * w
            else None
        )

    def forward(self, x):
        y = F.relu(self.n[0](self.c[0](x)), True)
        y = F.relu(self.n[1](self.c[1](y)), True)
        return F.relu(self.n[2](self.c[2](y)).add_(x if self.d is None else self.d(x)), True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.s = torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.n = torch.nn.BatchNorm2d(64)
        u, i = [], 64
        for w, k, s in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for j in range(k):
                u.append(Unit(i, w, s if j == 0 else 1))
                i = 4 * w
        self.u = torch.nn.Sequential(*u)
        self.f = torch.nn.Linear(2048, 1000)

    def forward(self, x):
        return self.f(self.u(F.max_pool2d(F.relu(self.n(self.s(x)), True), 3, 2, 1)).mean((2, 3)))


def conv():
    begin()
    m = Net().cuda().to(memory_format=torch.channels_last)
    torch.cuda.synchronize()
    say("model made")
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def loss(m, b):
        with torch.autocast("cuda", torch.bfloat16):
            return F.cross_entropy(
                m(
                    torch.randn(32, 3, 224, 224, device="cuda").to(
                        memory_format=torch.channels_last
                    )
                ),
                torch.randint(0, 1000, (32,), device="cuda"),
            )

    train(m, loss, opt, range(2))


def eager():
    begin()
    do("zeros", lambda: torch.zeros(10, device="cuda"))
    x = torch.zeros(512, 512, **bf)
    do("mm", lambda: x @ x)


def pools():
    begin()
    do("zeros", lambda: torch.zeros(10, device="cuda"))
    e = [torch.cuda.Event() for _ in range(100)]
    do("events", lambda: [x.record() for x in e])
    _first = torch.cuda.Stream()
    say("first stream")
    _second = torch.cuda.Stream(priority=-1)
    say("first stream of another priority")
    g = torch.cuda.CUDAGraph()
    x = torch.zeros(512, 512, **bf)
    do("mm", lambda: x @ x)
    with torch.cuda.graph(g):
        _y = x @ x
    say("captured")
    do("replayed", g.replay)
    p = torch.cuda.MemPool()
    say("MemPool")
    with torch.cuda.use_mem_pool(p):
        _z = torch.zeros(1 << 20, device="cuda")
    say("memory of the pool")
    do("pinned copy", lambda: torch.ones(1 << 20).pin_memory().cuda(non_blocking=True))


try:
    globals()[PART]()
except Exception as e:
    print(
        json.dumps(
            {"part": LABEL, "what": "failed", "error": f"{type(e).__name__}: {str(e)[:300]}"}
        ),
        flush=True,
    )
say("end", operators=Each.count)
sys.stdout.flush()
os._exit(0)
