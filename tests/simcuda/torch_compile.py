# SPDX-License-Identifier: MIT
"""Code that PyTorch compiles, on a simulated GPU: `reveille run -- python torch_compile.py`."""

import os
import tempfile

import torch
import triton
import triton.language as tl

CACHE = tempfile.TemporaryDirectory()  # everything is compiled in each run
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = CACHE.name
WIDTH, BATCH = 1024, 64
FLOAT = 4
SMALLEST = 512  # bytes of the smallest block of PyTorch's allocator


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def train(compiled):
    """Bytes that a model keeps after three steps, and the peak of a step above them."""
    before = torch.cuda.memory_allocated()
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.GELU(),
        torch.nn.LayerNorm(WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(WIDTH, WIDTH),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def loss(x):
        return torch.nn.functional.mse_loss(model(x), x)

    step = torch.compile(loss) if compiled else loss
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        step(torch.randn(BATCH, WIDTH, device="cuda")).backward()
        peak = torch.cuda.max_memory_allocated()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    numbers = sum(p.numel() for p in model.parameters())
    check(numbers, 2 * (WIDTH * WIDTH + WIDTH) + 2 * WIDTH, "numbers of the model")
    kept = torch.cuda.memory_allocated() - before
    return kept, peak - before - kept


def training():
    """A compiled step keeps what an eager step keeps, and needs less in addition."""
    train(False)  # takes the workspaces of cuBLAS, which stay
    tensors = 6
    expected = 3 * FLOAT * (2 * (WIDTH * WIDTH + WIDTH) + 2 * WIDTH) + tensors * SMALLEST
    eager, compiled = train(False), train(True)
    check(
        eager[0],
        expected,
        "bytes that an eager model keeps: parameters and two moments, and a step for each tensor",
    )
    check(compiled[0], expected, "bytes that a compiled model keeps")
    batch = FLOAT * BATCH * WIDTH
    check(
        eager[1] - compiled[1] >= batch,
        True,
        f"peak of a step, eager {eager[1]}, compiled {compiled[1]}: a batch less",
    )


@triton.autotune(
    configs=[
        triton.Config({"SIZE": size}, num_warps=warps)
        for size, warps in ((512, 8), (1024, 4), (256, 2))
    ],
    key=["count"],
)
@triton.jit
def add_one(source, target, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(target + at, tl.load(source + at, mask=at < count) + 1, mask=at < count)


def autotuning():
    """All kernels take the same time, so the first configuration is chosen. Measuring ends."""
    x = torch.ones(1 << 20, device="cuda")
    y = torch.empty_like(x)
    add_one[lambda made: (triton.cdiv(x.numel(), made["SIZE"]),)](x, y, x.numel())
    check(add_one.best_config.kwargs["SIZE"], 512, "the configuration that was taken")
    check(
        round(triton.testing.do_bench(lambda: add_one.fn[(1,)](x, y, 1, SIZE=512)), 2),
        1.0,
        "milliseconds a kernel",
    )


@triton.jit
def add_up(seen, ids, total, KEEP: tl.constexpr):
    number = tl.load(seen) + tl.load(ids)
    if KEEP:
        tl.store(seen, number)
    tl.store(total + tl.load(ids), number)


@triton.jit
def halve(source, target):
    """In device code, which PyTorch does not analyse."""
    half = tl.inline_asm_elementwise("mul.f32 $0, $1, 0.5;", "=f,f", [tl.load(source)], dtype=tl.float32, is_pure=False, pack=1)
    tl.store(target, half)


def what_a_kernel_writes():
    """It becomes unknown, and reads as zero. What the kernel only reads stays known."""
    for keep, expected in (False, 7.0), (True, 0.0):
        seen = torch.full((1,), 7.0, device="cuda")
        ids = torch.tensor([3], device="cuda")
        total = torch.full((8,), float("-inf"), device="cuda")
        add_up[(1,)](seen, ids, total=total, KEEP=keep)
        got = seen.item(), ids.item(), total.tolist()
        check(got, (expected, 3, [0.0] * 8), f"contents behind a kernel, which keeps what it has seen: {keep}")
    whole, half = torch.full((1,), 7.0, device="cuda"), torch.full((1,), 7.0, device="cuda")
    halve[(1,)](whole, half)
    check((whole.item(), half.item()), (0.0, 0.0), "contents behind a kernel that PyTorch cannot read")
    before = torch.cuda.memory_allocated()
    del whole, half, seen, ids, total
    check(before - torch.cuda.memory_allocated(), 5 * SMALLEST, "memory of what kernels were given, which nobody keeps")


def too_much_shared_memory():
    """Triton refuses a kernel that does not fit on the device, after a query of the device."""

    @triton.jit
    def product(a, b, c, N: tl.constexpr):
        at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))

    x = torch.empty(512, 512, device="cuda", dtype=torch.float16)
    try:
        product[(1,)](x, x, x, N=512, num_warps=8)
    except triton.runtime.errors.OutOfResources as error:
        check((error.name, error.limit), ("shared memory", 232448), "what is out of resources")
    else:
        raise AssertionError("a kernel with 1 MiB of shared memory has run")


def by_nvrtc():
    """NVRTC makes code for the device, and the driver loads it."""
    square = torch.cuda.jiterator._create_jit_fn(
        "template <typename T> T square(T x) { return x * x; }"
    )
    x = torch.ones(1000, 1000, device="cuda")
    before = torch.cuda.memory_allocated()
    y = square(x)
    check((y.shape, y.dtype), (x.shape, x.dtype), "result of a function that was compiled")
    check(torch.cuda.memory_allocated() - before, 4000256, "memory of the result")
    check(torch.special.airy_ai(x).shape, x.shape, "result of a special function")


training()
autotuning()
what_a_kernel_writes()
too_much_shared_memory()
by_nvrtc()
print("all is as expected")
