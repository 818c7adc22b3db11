# SPDX-License-Identifier: MIT
"""What simulated GPUs compute on the CPU in place of operators that only a device has, against a card's own results.

    instead.py    (in an environment with PyTorch, on a machine with a GPU)
"""

import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../simcuda/python"))
import _reveille_instead as instead

aten = torch.ops.aten
BAG = torch.randn(10, 5)
WORDS = torch.tensor([1, 5, 4, 5, 9, 2])
GRID = torch.rand(2, 4, 6, 2) * 2 - 1
IMAGE = torch.randn(2, 3, 5, 5)
X = torch.randn(6, 4, 3)
MEAN, INVSTD = torch.randn(2, 4), torch.rand(2, 4) + 0.5
WEIGHT, BIAS = torch.randn(4), torch.randn(4)
COUNTS = torch.tensor([12.0, 30.0])


def bag(mode, last, offsets, weights=None):
    return aten._embedding_bag.default, (BAG, WORDS, torch.tensor(offsets), False, mode, False, weights, last, -1)


def cases(kind):
    x, gradient = X.to(kind), torch.randn(6, 4, 3).to(kind)
    weight, bias = WEIGHT.to(kind), BIAS.to(kind)
    mean, invstd = MEAN[0], INVSTD[0]
    yield aten.batch_norm_stats.default, (x, 1e-5)
    yield aten.batch_norm_elemt.default, (x, WEIGHT, BIAS, mean, invstd, 1e-5)
    yield aten.batch_norm_elemt.default, (x, None, None, mean, invstd, 1e-5)
    yield aten.batch_norm_backward_reduce.default, (gradient, x, mean, invstd, WEIGHT, True, True, True)
    counts = COUNTS.int()
    yield aten.batch_norm_backward_elemt.default, (gradient, x, mean, invstd, WEIGHT, mean, invstd, counts)
    yield aten.native_layer_norm.default, (x, [3], weight[:3], bias[:3], 1e-5)
    yield aten.native_batch_norm.default, (x, weight, bias, WEIGHT.clone(), INVSTD[0].clone(), True, 0.1, 1e-5)
    for softmax in aten._softmax, aten._log_softmax:
        yield softmax.default, (x, -1, kind is torch.float16)
    probabilities = X.softmax(-1)
    for backward in aten._softmax_backward_data, aten._log_softmax_backward_data:
        yield backward.default, (gradient.float(), probabilities, -1, torch.float32 if kind is torch.bfloat16 else kind)
    if kind is not torch.float32:
        return
    for running in ((WEIGHT, INVSTD[0]), (None, None)):
        running = [each if each is None else each.clone() for each in running]
        yield aten.batch_norm_gather_stats_with_counts.default, (x, MEAN, INVSTD, *running, 0.1, 1e-5, COUNTS)
    for mode in range(3):
        yield bag(mode, False, [0, 0, 3])
        yield bag(mode, True, [0, 2, 6])
    yield bag(0, False, [0, 3], torch.randn(6))
    yield aten.cudnn_grid_sampler.default, (IMAGE, GRID)
    yield aten.cudnn_grid_sampler_backward.default, (IMAGE, GRID, torch.randn(2, 3, 4, 6))
    yield aten.log_sigmoid_backward.default, (gradient, x, torch.empty(0))


def unwritten(func, args):
    """The parts of a result that the card leaves as they were."""
    if func is not aten._embedding_bag.default:
        return ()
    return {0: (2, 3), 1: (3,), 2: ()}[args[4]]


def differs(one, other, kind):
    if one is None or other is None:
        return one is not other
    if one.shape != other.shape:
        return True
    near = (1e-4, 1e-5) if kind is torch.float32 else (2e-2, 1e-2)
    return bool(one.numel()) and not torch.allclose(one.to(other.dtype), other.cpu(), *near)


def compare(func, args, kind):
    """The parts of the result, or of what is written in place, that differ."""
    there = [each.cuda() if isinstance(each, torch.Tensor) else each for each in args]
    here = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]
    got, expected = instead.rule_of(func)(*here), func(*there)
    torch.cuda.synchronize()
    pairs = list(zip(got, expected)) if isinstance(expected, (tuple, list)) else [(got, expected)]
    pairs += [pair for pair in zip(here, there) if isinstance(pair[0], torch.Tensor)]
    if func is aten._embedding_bag.default and args[7]:  # the last size is not written
        pairs[2] = [each[:-1] for each in pairs[2]]
    if func is aten._embedding_bag.default and args[4] == 2:
        pairs[2] = pairs[3]  # the card writes no sizes for the maximum
    return [i for i, pair in enumerate(pairs) if i not in unwritten(func, args) and differs(*pair, kind)]


def main():
    torch.manual_seed(0)
    failed = 0
    for kind in torch.float32, torch.bfloat16, torch.float16:
        for func, args in cases(kind):
            wrong = compare(func, args, kind)
            failed += bool(wrong)
            print(f"{str(kind)[6:]:9} {func.name()}: {f'parts {wrong} differ' if wrong else 'as on the card'}")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
