# SPDX-License-Identifier: MIT
"""Assumed values: replacements for what a kernel would have chosen from unknown numbers.

A program that samples from unknown probabilities continues with some token. Zero is a poor choice: it is often the padding token, which
ends a program's sequence before it begins. So operators that choose get plausible results here. They depend only on the number of
earlier requests, so every run gets the same ones.

A token is in the second quarter of its vocabulary. Tokenizers have their special tokens at the beginning or at the end, so no sequence
ends by itself. Each has the length that the program allows, the worst case for memory. A choice among few, such as a router's choice of
experts, is spread evenly. Unknown numbers count as finite, and never as NaN.
"""

import math

import torch

FEW = 1024  # a vocabulary has more entries than this

_generator = torch.Generator(device="cpu").manual_seed(0)


def _chosen(rows, count, among):
    """For each row, `count` different numbers below `among`."""
    low, high = (among // 4, among // 2) if among >= max(FEW, 4 * count) else (0, among)
    first = torch.randint(low, high, (rows, 1), generator=_generator, device="cpu")
    return (first - low + torch.arange(count, device="cpu")) % (high - low) + low


def _along(tensor, dim, count, keep=True):
    """Choices along a dimension, in the shape of the result."""
    among = tensor.size(dim) if tensor.dim() else 1
    shape = list(tensor.shape)
    rows = math.prod(shape[:dim]) * math.prod(shape[dim + 1 :]) if shape else 1
    if not shape:
        return torch.zeros((), dtype=torch.int64, device="cpu")
    shape.append(shape.pop(dim))  # move the dimension of choices to the end
    made = _chosen(rows, count, among).view(*shape[:-1], count).movedim(-1, dim)
    return made if keep else made.squeeze(dim)


def _argument(args, kwargs, position, name, usual):
    return args[position] if len(args) > position else kwargs.get(name, usual)


def _dimension(tensor, args, kwargs, position, usual=-1):
    dim = _argument(args, kwargs, position, "dim", usual)
    return dim % max(tensor.dim(), 1)


def _argmax(args, kwargs):
    tensor = args[0]
    if _argument(args, kwargs, 1, "dim", None) is None:
        return (_chosen(1, 1, tensor.numel()).view(()),)
    keep = _argument(args, kwargs, 2, "keepdim", False)
    return (_along(tensor, _dimension(tensor, args, kwargs, 1), 1, keep),)


def _multinomial(args, kwargs):
    tensor, count = args[0], _argument(args, kwargs, 1, "num_samples", 1)
    rows = 1 if tensor.dim() == 1 else tensor.size(0)
    made = _chosen(rows, min(count, tensor.size(-1)), tensor.size(-1))
    if made.size(1) < count:  # with replacement
        made = made.repeat(1, -(-count // made.size(1)))[:, :count]
    return (made[0] if tensor.dim() == 1 else made,)


def _best(args, kwargs):
    """The indices of max(dim) and min(dim); the values stay unknown."""
    keep = _argument(args, kwargs, 2, "keepdim", False)
    return None, _along(args[0], _dimension(args[0], args, kwargs, 1), 1, keep)


def _topk(args, kwargs):
    dim = _dimension(args[0], args, kwargs, 2)
    return None, _along(args[0], dim, _argument(args, kwargs, 1, "k", 1))


def _is_infinite(value):
    return isinstance(value, (int, float)) and math.isinf(value)


def _equal(args, kwargs):
    """x == x, and x == inf, as isfinite() and isinf() test."""
    if args[0] is args[1]:
        return (torch.ones(args[0].size(), dtype=torch.bool, device="cpu"),)
    if _is_infinite(args[1]):
        return (torch.zeros(args[0].size(), dtype=torch.bool, device="cpu"),)
    return None


def _unequal(args, kwargs):
    made = _equal(args, kwargs)
    return made and (~made[0],)


def _no(args, kwargs):
    return (torch.zeros(args[0].size(), dtype=torch.bool, device="cpu"),)


# The rules return a content for each result, or None where the result is unknown.
RULES = {
    "aten::argmax": _argmax,
    "aten::argmin": _argmax,
    "aten::multinomial": _multinomial,
    "aten::max.dim": _best,
    "aten::min.dim": _best,
    "aten::topk": _topk,
    "aten::eq.Tensor": _equal,
    "aten::eq.Scalar": _equal,
    "aten::ne.Tensor": _unequal,
    "aten::ne.Scalar": _unequal,
    "aten::isnan": _no,
    "aten::isinf": _no,
}


def rule_of(func):
    schema = func._schema
    return RULES.get(f"{schema.name}.{schema.overload_name}".rstrip(".")) or RULES.get(schema.name)
