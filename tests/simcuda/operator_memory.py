# SPDX-License-Identifier: MIT
"""What PyTorch's operators allocate: the most in the forward pass, and in the backward pass.

    operator_memory.py OUT.txt [--samples N] [--kind bfloat16]
    operator_memory.py --compare CARD.txt SIMULATED.txt

The first runs on a card, and under `reveille run`: for each operator of PyTorch's own database, a line with the bytes of its samples. The
second prints the operators that differ and are not listed here, and ends with 1 if there are any.
"""

import argparse
import gc
import itertools
import re
import sys
import warnings

# Operators that differ, and why.
NOT_AS_ON_A_CARD = {
    r"masked_(scatter|select)|nonzero|matrix_exp|prod|linalg\.eig|nn\.functional\.ctc_loss": "what is allocated depends on random numbers",
    r"(tensor_|[hvd])split": "gradients that are small and known are not added in place",
    r"ormqr|fft\.irfftn|linalg\.eigvals": "a workspace is up to 10 KiB smaller or larger",
}


def tensors_of(tree):
    import torch
    from torch.utils import _pytree as pytree

    return [each for each in pytree.tree_leaves(tree) if isinstance(each, torch.Tensor)]


def peak_of(run):
    """The result, and how much more than before was allocated at most."""
    import torch

    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated() - before


def measure(op, sample):
    import torch

    gc.collect()  # so that nothing from before ends meanwhile
    torch._C._cuda_clearCublasWorkspaces()
    out, forward = peak_of(lambda: op(sample.input, *sample.args, **sample.kwargs))
    outs = [each for each in tensors_of(out) if each.requires_grad and (each.is_floating_point() or each.is_complex())]
    if not outs:
        return f"{forward}"
    _, backward = peak_of(lambda: torch.autograd.backward(outs, [torch.ones_like(each) for each in outs]))
    return f"{forward}+{backward}"


def line_of(op, kind, samples):
    import torch

    if kind not in op.supported_dtypes("cuda"):
        return "none of this type"
    with_gradient = kind in op.supported_backward_dtypes("cuda")
    found = []
    torch.manual_seed(0)
    for sample in itertools.islice(op.sample_inputs("cuda", kind, requires_grad=with_gradient), samples):
        try:
            found.append(measure(op, sample))
        except Exception as error:
            found.append(type(error).__name__)
    return " ".join(found)


def run(path, kind, samples):
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    gc.freeze()
    gc.disable()
    with open(path, "w") as file:
        for op in op_db:
            name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
            try:
                line = line_of(op, getattr(torch, kind), samples)
            except Exception as error:
                line = type(error).__name__
            print(f"{name}: {line}", file=file, flush=True)
    return 0


def read(path):
    with open(path) as file:
        return dict(line.rstrip("\n").split(": ", 1) for line in file)


def compare(card, simulated):
    card, simulated, unexpected, listed = read(card), read(simulated), 0, 0
    for name, line in card.items():
        if simulated.get(name) == line:
            continue
        if any(re.fullmatch(each, name) for each in NOT_AS_ON_A_CARD):
            listed += 1
            continue
        unexpected += 1
        print(f"{name}: {line}, simulated {simulated.get(name)}")
    print(f"{len(card) - listed - unexpected} of {len(card)} alike, {listed} listed as different")
    return 1 if unexpected or simulated.keys() - card.keys() else 0


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("out", nargs="?")
    ask.add_argument("--samples", type=int, default=4)
    ask.add_argument("--kind", default="float32")
    ask.add_argument("--compare", nargs=2)
    asked = ask.parse_args()
    if asked.compare:
        return compare(*asked.compare)
    return run(asked.out, asked.kind, asked.samples)


if __name__ == "__main__":
    sys.exit(main())
