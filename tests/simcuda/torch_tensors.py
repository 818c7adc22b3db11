# SPDX-License-Identifier: MIT
"""Small tensors on a simulated GPU have the values that the CPU computes, under `reveille run`."""

import _thread
import gc
import pickle
import sys
import threading

import torch


def positions(device):
    """What transformers checks to decide whether a mask is needed."""
    ids = torch.arange(3000, device=device).expand(2, -1)
    steps = torch.diff(ids, prepend=ids[:, :1] - 1, dim=-1) != 1
    packed = steps.cumsum(-1)
    return (packed[:, -1] == 0).all(), packed.sum()


def indices(device):
    x = torch.arange(12, device=device).view(3, 4)
    even = x % 2 == 0
    return even.nonzero(), x[even], torch.masked_select(x, even), x[x > 5], x[[0, 2], 1]


def unique(device):
    x = torch.tensor([3, 1, 3, 2], device=device)
    more = torch.unique(x, return_inverse=True, return_counts=True)
    return *more, *torch.unique_consecutive(x.sort().values, return_counts=True), x.bincount()


def in_place(device):
    x = torch.zeros(3, 4, device=device, dtype=torch.int32)
    x[1] = 3
    x[:, 2:] += 1
    x.t()[0] = torch.tensor([7, 8, 9], device=device, dtype=torch.int32)
    x.index_add_(0, torch.tensor([2], device=device), torch.ones_like(x[:1]))
    many = [torch.ones(2, device=device) for _ in range(3)]
    torch._foreach_mul_(many, 3.0)
    out = torch.empty(3, device=device)
    torch.add(many[0].sum(), torch.ones(3, device=device), out=out)
    return x, *many, out


def copies(device):
    x = torch.arange(6, device=device).view(2, 3)
    y = torch.tensor([1.5, -2.5]).to(device)
    z = torch.zeros(2, 3)
    z.copy_(x)
    return x.float(), x.t().contiguous(), y.to(torch.int8), z, x.t().to("cpu", torch.float16), y


def sizes(device):
    counts = torch.tensor([2, 0, 3], device=device)
    hot = torch.nn.functional.one_hot(counts)
    spread = torch.repeat_interleave(torch.arange(3, device=device), counts)
    return spread, hot, counts.topk(2).indices


def numbers(device):
    x = torch.tensor([2, 5], device=device)
    told = x.sum().item(), *x.tolist(), int(x[1]), bool((x > 3).any()), torch.equal(x, x + 0)
    return torch.tensor(told)


def flatten(result):
    return [each.cpu() for each in (result if isinstance(result, tuple) else (result,))]


def check(case):
    for got, expected in zip(flatten(case("cuda")), flatten(case("cpu")), strict=True):
        assert got.dtype == expected.dtype and torch.equal(got, expected), (case, got, expected)


# In inference mode, operators that call others are intercepted themselves: to(), reshape(), contiguous().
for each in (positions, indices, unique, in_place, copies, sizes, numbers):
    check(each)
    with torch.inference_mode():
        check(each)

# Reused memory contains nothing from before, and a view keeps its base's memory.
a = torch.full((100,), 7, device="cuda")
addr, view = a.data_ptr(), a[3:5]
del a
gc.collect()
assert view.tolist() == [7, 7]
del view
b = torch.empty(100, dtype=torch.int64, device="cuda")
assert b.data_ptr() == addr and b[0].item() == 0

# Computed content is kept at hand until it changes: in place, through a view, by a copy, or as other memory.
a = torch.arange(4, device="cuda") + 1
assert (a * 2).tolist() == (a * 2).tolist() == [2, 4, 6, 8]
a[1:3].zero_()
assert (a * 2).tolist() == [2, 0, 0, 8]
a.copy_(torch.tensor([4, 3, 2, 1]))
assert (a * 2).tolist() == [8, 6, 4, 2] and (a.view(2, 2) * 2).tolist() == [[8, 6], [4, 2]]
assert (a.view(torch.int32) * 2).tolist() == [8, 0, 6, 0, 4, 0, 2, 0] and (torch._neg_view(a) * 2).tolist() == [-8, -6, -4, -2]
assert (a[2:] * 2).tolist() == [4, 2] and (a[::2] * 2).tolist() == [8, 4]
c = torch.tensor([1 + 2j], device="cuda") * 2
assert (c * 2).tolist() == [4 + 8j] and (c.conj() * 2).tolist() == [4 - 8j]
with torch.inference_mode():
    e = torch.dropout(a * 2, 0.5, False)
    e += 1
    assert (e * 2).tolist() == [18, 14, 10, 6]
for turn in range(10_000):  # many are made and freed
    b = a + turn
assert (b - a).tolist() == [9999] * 4 and torch.cat([a, b])[4].item() == 10003
addr = b.data_ptr()
del b
b = torch.empty(4, dtype=torch.int64, device="cuda")
assert b.data_ptr() == addr and (b + 1).tolist() == [0] * 4

# Large tensors and what comes from them are unknown. A known mask still determines the number of rows.
large = torch.randn(3000, 3000, device="cuda")
rows = torch.zeros(3000, dtype=torch.bool, device="cuda")
rows[5:17] = True
assert large[rows].shape == (12, 3000)
large[rows] = torch.ones(12, 3000, device="cuda")
small = torch.ones(3000, device="cuda")
small.add_(large[0])
assert small[0].item() == 0

# If one operand decides the result, it is known, whatever the other operand is.
unknown = large[0, :4] > 0
assert (unknown | torch.ones_like(unknown)).all().item()
assert not (torch.zeros(4, dtype=torch.int64, device="cuda") & unknown).any().item()
assert not (unknown | torch.zeros_like(unknown)).any().item()

# Sparse tensors of each layout, and an operator that calls others by numbers that it reads from the device.
few = torch.tensor([[0.0, 2, 0, 0], [0, 0, 0, 1], [0, 0, 5, 0]])
for made in (
    lambda given: given.to_sparse(),
    lambda given: given.to_sparse(1),
    lambda given: given.to_sparse_csr(),
    lambda given: given.to_sparse_csc(),
    lambda given: given.to_sparse_bsr((1, 2)),
    lambda given: given.to_sparse_bsc((3, 2)),
):
    assert torch.equal(made(few.cuda()).to_dense().cpu(), few)
    assert made(few.cuda())._nnz() == made(few)._nnz()
turns = torch.arange(12.0).view(3, 2, 2) / 9
assert torch.allclose(torch.matrix_exp(turns.cuda()).cpu(), torch.matrix_exp(turns))

# Memory that a storage has lost belongs to the next one, and what is in it ends with that.
lost = torch.ones(1000, device="cuda")
address = lost.data_ptr()
lost.untyped_storage().resize_(0)
following = torch.full((1000,), 2.0, device="cuda")
assert following.data_ptr() == address
del following
assert torch.empty(1000, device="cuda").data_ptr() == address and not sys.modules["_reveille_contents"].knows(address)

# A copy of what is known in part is known in the same part. Memory between the elements stays as it was.
part = torch.empty(4, 6, device="cuda")
part[:3, :4] = torch.arange(12.0, device="cuda").view(3, 4)
part[:, 4:] = part[:, :2]  # its last row is unknown
assert part[:3, 4:].tolist() == [[0, 1], [4, 5], [8, 9]] and part[:3, :4].sum().item() == 66
assert not sys.modules["_reveille_contents"].knows(part[3, 4:].data_ptr())
circular = torch.nn.functional.pad(torch.arange(4.0).view(1, 1, 2, 2), (0, 1, 0, 1), "circular")
assert torch.equal(torch.nn.functional.pad(torch.arange(4.0, device="cuda").view(1, 1, 2, 2), (0, 1, 0, 1), "circular").cpu(), circular)

# C++ copies to unpickled memory by a storage of its own, which ends before the tensor.
assert pickle.loads(pickle.dumps(torch.arange(9.0, device="cuda"))).tolist() == list(range(9))

# PyTorch prints a tensor with all modes off.
for shown in torch.arange(6.0).view(2, 3).t(), torch.tensor(3.5), torch.tensor([1e-9, 1e9, float("nan")]), torch.arange(6)[::2] > 2, torch.empty(0):
    printed = repr(shown.to("cuda")).replace(", device='cuda:0'", "")
    assert printed == repr(shown), printed
not_known = torch.linalg.svdvals(torch.eye(2, device="cuda"), driver="gesvd")
assert repr(not_known) == "tensor([0., 0.], device='cuda:0')"
assert torch.cuda.max_memory_allocated() < 1 << 30

# Random numbers for small tensors do not change the program's own generators.
torch.manual_seed(0)
expected = torch.rand(3)
torch.manual_seed(0)
picked = torch.randint(5, 10, (100,), device="cuda")
assert picked.min() >= 5 and picked.max() < 10
assert torch.equal(torch.rand(3), expected)

# Threads, compiled code, and memory: as much as without interception.
found = []
thread = threading.Thread(target=lambda: found.append(torch.ones(3, device="cuda").sum().item()))
thread.start()
thread.join()
assert found == [3.0]

# PyTorch drops what a thread leaves on the stack of modes after the thread's end, with a lock that the interpreter may no longer have.
modes, seen, done = torch._C._len_torch_dispatch_stack, [], threading.Event()


def run_a_thread_within():
    before = modes()
    thread = threading.Thread(target=lambda: seen.append(modes() - before))
    threading._limbo[thread] = thread
    thread._bootstrap_inner()  # as start() makes another thread call it
    seen.append(modes() - before)
    done.set()


_thread.start_new_thread(run_a_thread_within, ())
assert done.wait(60) and seen == [1, 0], seen
double = torch.compile(lambda x: (x * 2).sum(), backend="eager")
assert double(torch.ones(4, device="cuda")).item() == 8.0
before = torch.cuda.memory_allocated()
x = torch.arange(1000, device="cuda")
assert (x > 990).nonzero().shape == (9, 1)
assert torch.cuda.memory_allocated() - before == 8192
with torch._subclasses.FakeTensorMode():
    assert torch.ones(4, device="cuda").add(1).shape == (4,)
linear = torch.nn.Linear(4, 4, device="cuda")
linear(torch.ones(2, 4, device="cuda")).sum().backward()
assert linear.weight.grad.shape == (4, 4)
print("small tensors are as on the CPU")
