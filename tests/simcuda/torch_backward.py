# SPDX-License-Identifier: MIT
"""Small tensors in the backward pass, in hooks and in recomputation, under `reveille run`.

Each case has the result of the CPU. Unknown gradients stay unknown, even if they are added to known ones.
"""

import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode


def numbers(count, device):
    return torch.arange(float(count), device=device).requires_grad_()


def masked(device):
    x = numbers(6, device)
    mask = torch.tensor([1, 0, 1, 0, 0, 1], device=device, dtype=torch.bool)
    (x[mask] * torch.tensor([2.0, 3.0, 4.0], device=device)).sum().backward()
    return (x.grad,)


def written_by_index(device):
    x, value = numbers(5, device), numbers(2, device)
    y = x * 2
    y[torch.tensor([True, False, False, True, False], device=device)] = value
    y.masked_fill(y > 6, 0.0).pow(2).sum().backward()
    return x.grad, value.grad


def nested(device):
    values = numbers(12, device)
    offsets = torch.tensor([0, 2, 5, 6], device=device)
    jagged = torch.nested.nested_tensor_from_jagged(values.view(6, 2), offsets)
    parts = (jagged * 3).unbind()
    sum((i + 1) * part.sum() for i, part in enumerate(parts)).backward()
    return (values.grad,)


def computed_again(reentrant):
    def case(device):
        x = numbers(6, device)
        checkpoint(lambda a: a[a.detach() > 2] * 3, x, use_reentrant=reentrant).pow(2).sum().backward()
        return (x.grad,)

    return case


def hooked(device):
    x, seen = numbers(4, device), []
    x.register_hook(lambda gradient: seen.append(gradient.nonzero()) or gradient * 2)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.sum()))
    y = x * x
    y.grad_fn.register_prehook(lambda gradients: seen.append(gradients[0].sum()))
    y.sum().backward()
    return x.grad, *seen


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x > 1)
        return x * 2

    @staticmethod
    def backward(context, gradient):
        (mask,) = context.saved_tensors
        count = int(mask.sum())
        return torch.where(mask, gradient / count, gradient)


def own_function(device):
    x = numbers(4, device)
    Halved.apply(x).sum().backward()
    return (x.grad,)


def accumulated(device):
    x = numbers(3, device)
    for _ in range(3):
        (x * x).sum().backward()
    (x.grad.norm() * 1.0).item()
    return x.grad, x.grad.norm()


def twice(device):
    x = numbers(3, device)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    first.sum().backward()
    return first.detach(), x.grad


def in_eval_and_training(device):
    layer = torch.nn.BatchNorm1d(3, device=device)
    x = numbers(12, device)
    (layer(x.view(4, 3)) * torch.arange(3.0, device=device)).pow(2).sum().backward()
    return x.grad, layer.weight.grad, layer.running_mean, layer.eval()(x.view(4, 3)).detach()


CASES = masked, written_by_index, nested, computed_again(True), computed_again(False), hooked, own_function
for case in (*CASES, accumulated, twice, in_eval_and_training):
    for got, expected in zip(case("cuda"), case("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), expected, msg=lambda told: f"{case}: {told}")

# A known mask determines the number of rows, for any input.
large = torch.randn(3000, 3000, device="cuda", requires_grad=True)
rows = torch.zeros(3000, dtype=torch.bool, device="cuda")
rows[5:17] = True
(large[rows] * large[0]).sum().backward()
assert large.grad.shape == (3000, 3000)


def unknown_vector():
    """Unknown, since it comes from a tensor that is too large to keep."""
    return torch.randn(600, 600, device="cuda").sum(0)[:3]


def reads_as_unknown(tensor):
    return tensor.tolist() == [0.0] * tensor.numel()


# If a known gradient meets an unknown one, the sum is unknown, in any order.
for known_first in False, True:
    x = torch.ones(3, device="cuda", requires_grad=True)
    y = x * 1
    parts = [((y * 3) * unknown_vector()).sum(), (y * 2).sum()]  # the gradient of "y * 3" is unknown
    (parts[known_first] + parts[not known_first]).backward()
    assert reads_as_unknown(x.grad), x.grad

# This also holds if it is added to a leaf's gradient.
x = torch.ones(3, device="cuda", requires_grad=True)
(x * 5).sum().backward()
assert x.grad.tolist() == [5.0, 5.0, 5.0]
(x * unknown_vector()).sum().backward()
assert reads_as_unknown(x.grad), x.grad


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 1

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def most_in_backward(function):
    x = torch.ones(1 << 20, device="cuda", requires_grad=True)
    y = x * 1
    loss = function(y).sum() + function(y).sum()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    return torch.cuda.max_memory_allocated() - before


# Gradients are added in place: two tensors of 4 MiB, and a third only if the sum is a separate tensor.
for function in Doubled.apply, lambda x: x * 2:
    assert most_in_backward(function) < 9 << 20, most_in_backward(function)

# The backward pass of an index is the one without our mode (simcuda/audit/modes.c), as an H100 has it. With a mode of the program, it is the
# other, which copies 16 MiB.
factor = torch.randn(1 << 22, device="cuda", requires_grad=True)
places = torch.randint(0, 1 << 22, (1 << 22,), device="cuda")


def most_of_index():
    factor.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    (factor * 1.0)[places].sum().backward()
    return torch.cuda.max_memory_allocated() - before


assert most_of_index() == 235821568, most_of_index()
with FlopCounterMode(display=False):
    assert most_of_index() == 235821568 + (16 << 20), most_of_index()
print("the backward pass is as on the CPU")
