# SPDX-License-Identifier: MIT
"""Operators that the CPU does not compute as the device does, and what replaces them there."""

import sys

import _reveille_instead as instead
import torch

# Operators that write tensors without a mark in their schema: the positions of these tensors, and the position of the flag that enables
# it.
HIDDEN_WRITES = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
    "aten::batch_norm_gather_stats_with_counts": ((3, 4), 5),
}

# Statistics of training, which are not read in evaluation: the positions of these tensors, and the position of the flag.
_STATISTICS = {"aten::native_batch_norm_backward": ((5, 6), 7)}

# They check that their numbers are finite, and then read whether they failed.
CHECKS_BEFORE = ("aten::linalg_eig", "aten::_linalg_eigvals", "aten::linalg_eigvals")

# What these operators read from the device is the result of a check: lengths add up, deviations are not negative, numbers are finite. On
# a card, a program either continues after the check, or has ended.
CHECKS = ("aten::segment_reduce", "aten::normal", *CHECKS_BEFORE)

# On the device, they call operators that read numbers from there, and continue depending on them.
READ_INSIDE = ("aten::linalg_matrix_exp", "aten::_ctc_loss.Tensor")

# Some functions of these libraries are not simulated, and report that (docs/run.md).
_LIBRARIES = {"cusolver": "cuSOLVER", "cufft": "cuFFT", "cusparse": "cuSPARSE", "magma": "MAGMA"}
_told = set()


def on_cpu(func):
    """The CPU's function for what the operator computes on the device."""
    return instead.rule_of(func) or func


def unread(name, args):
    """The positions of tensors that this call does not read."""
    places, flag = _STATISTICS.get(name, ((), None))
    return () if flag is None or args[flag] else places


def in_parts(func):
    """The operator as a composition of simpler ones, where the CPU lacks it. None: PyTorch knows none."""
    from torch._decomp import decomposition_table

    parts = decomposition_table.get(func)
    return parts and instead.with_its_precision(func, parts)


def count_of_errors(name):
    """What linear algebra reads from the device is whether a matrix could not be factored. It is 0."""
    return (lambda _: 0) if name.startswith(("aten::linalg_", "aten::_linalg_")) else None


def hidden_writes(name, args):
    if name not in HIDDEN_WRITES:
        return
    places, flag = HIDDEN_WRITES[name]
    if args[flag]:
        yield from (args[place] for place in places if args[place] is not None)


def fails_its_check(error, func):
    """Whether an operator failed its check: the check reads 1, and so does the second read, where 1 means an error."""
    if func._schema.name == "aten::mode":  # it searches long rows, and reads several numbers of them
        return "INTERNAL ASSERT FAILED" in str(error)
    return func._schema.name in CHECKS and isinstance(error, torch.linalg.LinAlgError)


def missing_library(error, func):
    """The library with the missing function that an operator needs, or None."""
    text = str(error).lower()
    if "not_supported" not in text and "magma" not in text:
        return None
    return next((name for part, name in _LIBRARIES.items() if part in text), None)


def tell_missing(library, func):
    if library not in _told:
        _told.add(library)
        print(
            f"reveille: a function of {library} is not simulated. What it would compute of small tensors is computed on "
            f"the host ({func._schema.name} is the first), and the memory that it takes on a card is missing",
            file=sys.stderr,
        )
