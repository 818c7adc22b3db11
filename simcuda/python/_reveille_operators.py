# SPDX-License-Identifier: MIT
"""Operators that the CPU does not do as the device does: what is asked of it instead."""

import sys

import torch

# They write tensors of which their schema does not say so, by position, where the flag at another is set.
HIDDEN_WRITES = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
}

# Their numbers must be finite, and then they read whether they failed.
CHECKS_BEFORE = ("aten::linalg_eig", "aten::_linalg_eigvals", "aten::linalg_eigvals")

# What they read from the device is the answer to a check of theirs: lengths add up, deviations are not
# negative, numbers are finite. On a card a program goes on behind it, or has ended.
CHECKS = ("aten::segment_reduce", "aten::normal", *CHECKS_BEFORE)

# Of these libraries some functions are not simulated, and say so (docs/run.md).
_LIBRARIES = {"cusolver": "cuSOLVER", "cufft": "cuFFT", "cusparse": "cuSPARSE", "magma": "MAGMA"}
_told = set()


def _log_sigmoid_backward(gradient, x, _):
    return gradient * torch.sigmoid(-x)  # the CPU's own needs a buffer that the device does not make


_OTHERS = {"aten::log_sigmoid_backward": _log_sigmoid_backward}


def on_cpu(func):
    """What computes on the CPU what the operator computes on the device."""
    return _OTHERS.get(func._schema.name, func)


def in_parts(func):
    """The operator by simpler ones, where the CPU does not have it. None: PyTorch knows no such way."""
    from torch._decomp import decomposition_table

    return decomposition_table.get(func)


def count_of_errors(name):
    """What linear algebra reads from the device says that a matrix could not be factored: none."""
    return (lambda _: 0) if name.startswith(("aten::linalg_", "aten::_linalg_")) else None


def hidden_writes(name, args):
    if name not in HIDDEN_WRITES:
        return
    places, flag = HIDDEN_WRITES[name]
    if args[flag]:
        yield from (args[place] for place in places if args[place] is not None)


def fails_its_check(error, func):
    """Its own check answers 1, and so does its second read, for an error."""
    return func._schema.name in CHECKS and isinstance(error, torch.linalg.LinAlgError)


def missing_library(error, func):
    """The library of which an operator needs a function that is not there, or None."""
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
