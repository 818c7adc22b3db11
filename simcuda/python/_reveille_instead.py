# SPDX-License-Identifier: MIT
"""What the CPU computes in place of operators that only a device has, or that it has with other results.

Each function takes the operator's arguments, as tensors on the CPU, and returns the device's results.
"""

import torch

_aten = torch.ops.aten


def _log_sigmoid_backward(gradient, x, _):
    return gradient * torch.sigmoid(-x)  # the CPU's operator needs a buffer that the device's does not make


def _grid_sampler(image, grid):
    return _aten.grid_sampler_2d(image, grid, 0, 0, True)


def _grid_sampler_backward(image, grid, gradient):
    return _aten.grid_sampler_2d_backward(gradient, image, grid, 0, 0, True, (True, True))


def _softmax(run):
    """The CPU does not convert from 16 bits to 32, as under autocast."""
    return lambda x, dim, to_float: run(x.float() if to_float else x, dim, False)


def _softmax_backward(run):
    return lambda gradient, out, dim, kind: run(gradient, out, dim, gradient.dtype).to(kind)


def _embedding_bag(weight, indices, offsets, *rest):
    """Unlike the CPU, the device notes the bag of each index, has a size for the last offset, too, and -1 for the maximum of no words."""
    out, _, sizes, largest = _aten._embedding_bag.default(weight, indices, offsets, *rest)
    ends_with_offset = len(rest) > 4 and rest[4]
    if len(rest) > 1 and rest[1] == 2:  # the maximum
        largest[sizes == 0] = -1
    starts = offsets[:-1] if ends_with_offset else offsets
    bags = torch.bucketize(torch.arange(len(indices)), starts, right=True).to(offsets.dtype) - 1
    return out, bags, torch.nn.functional.pad(sizes, (0, len(offsets) - len(sizes))), largest


# ---- Batch normalization over several ranks ----


def _along(channels, x):
    """Numbers of channels, so that they can be combined with the input. Channels are the input's second dimension."""
    return channels.float().view(-1, *[1] * (x.dim() - 2))


def _sum(x):
    return x.float().transpose(0, 1).flatten(1).sum(1)


def _batch_norm_stats(x, eps):
    over = x.float().transpose(0, 1).flatten(1)
    return over.mean(1), (over.var(1, correction=0) + eps).rsqrt()


def _batch_norm_gather(_, mean, invstd, running_mean, running_var, momentum, eps, counts):
    """The statistics of all ranks from those of each: a row for each rank."""
    share = (counts / counts.sum()).view(-1, 1)
    whole = (mean * share).sum(0)
    variance = ((invstd**-2 - eps + (mean - whole) ** 2) * share).sum(0)
    if running_mean is not None:
        total = counts.sum()
        running_mean.lerp_(whole.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * total / (total - 1)).to(running_var.dtype), momentum)
    return whole, (variance + eps).rsqrt()


def _batch_norm_elemt(x, weight, bias, mean, invstd, _):
    out = (x.float() - _along(mean, x)) * _along(invstd, x)
    out = out if weight is None else out * _along(weight, x)
    return (out if bias is None else out + _along(bias, x)).to(x.dtype)


def _batch_norm_backward_reduce(gradient, x, mean, invstd, _weight, _of_input, of_weight, of_bias):
    total = _sum(gradient)
    times = _sum(gradient.float() * (x.float() - _along(mean, x)))
    return total, times, times * invstd if of_weight else None, total if of_bias else None


def _batch_norm_backward_elemt(gradient, x, mean, invstd, weight, total, times, counts):
    number = counts.sum()
    out = gradient.float() - _along(total / number, x)
    out -= (x.float() - _along(mean, x)) * _along(invstd**2 * times / number, x)
    out *= _along(invstd if weight is None else invstd * weight, x)
    return out.to(x.dtype)


_OTHERS = {
    "aten::_embedding_bag": _embedding_bag,
    "aten::_log_softmax": _softmax(_aten._log_softmax),
    "aten::_log_softmax_backward_data": _softmax_backward(_aten._log_softmax_backward_data),
    "aten::_softmax": _softmax(_aten._softmax),
    "aten::_softmax_backward_data": _softmax_backward(_aten._softmax_backward_data),
    "aten::batch_norm_backward_elemt": _batch_norm_backward_elemt,
    "aten::batch_norm_backward_reduce": _batch_norm_backward_reduce,
    "aten::batch_norm_elemt": _batch_norm_elemt,
    "aten::batch_norm_gather_stats_with_counts": _batch_norm_gather,
    "aten::batch_norm_stats": _batch_norm_stats,
    "aten::cudnn_grid_sampler": _grid_sampler,
    "aten::cudnn_grid_sampler_backward": _grid_sampler_backward,
    "aten::log_sigmoid_backward": _log_sigmoid_backward,
}

# ---- Statistics ----

# The device computes and keeps their statistics with 32 bits, the CPU with those of its input.
_WIDE = {
    *("aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::native_batch_norm"),
    *("aten::native_batch_norm_backward", "aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward"),
}
_NARROW = (torch.bfloat16, torch.float16)


def with_its_precision(func, run):
    """run, as precise as the operator is on the device."""
    if func._schema.name not in _WIDE:
        return run

    def run_with_32_bits(*args):
        narrow = [i for i, each in enumerate(args) if isinstance(each, torch.Tensor) and each.dtype in _NARROW]
        wide = [each.float() if i in narrow else each for i, each in enumerate(args)]
        out = run(*wide)
        for i in narrow:
            args[i].copy_(wide[i])  # what is written in place
        return out

    return run_with_32_bits


def rule_of(func):
    """What to compute in place of an operator, or None."""
    name = func._schema.name
    return with_its_precision(func, func) if name in _WIDE else _OTHERS.get(name)
