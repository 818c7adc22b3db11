# SPDX-License-Identifier: MIT
"""PyTorch's own database of operators on a simulated GPU, forward and backward, compared with the CPU.

Every operator runs its own samples on both devices with the same numbers. All its results, and the gradients of all its inputs, must
equal the CPU's. Run it under `reveille run`.

    torch_operators.py [--samples N] [--only REGEX] [--part I/N] [--kinds float32,...] [--list FILE]

--samples: of each operator, in PyTorch's order; 100000 are all. --list: the result for each operator. With all samples of all operators and
of all three kinds, it also fails if a line of its list names none that differs. Needs --keep-contents 32MiB, and expecttest, as PyTorch's own
tests do.
"""

import argparse
import collections
import itertools
import re
import subprocess
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

warnings.simplefilter("ignore")

# Operators that do not match, and why.
NOT_AS_ON_THE_CPU = {
    r"(new_)?empty(_like|_strided|_permuted)?": "nobody has written what is compared",
    r"linalg\.lstsq.*": "CUDA has one of the four drivers",
    r"tensor_split": "the sizes must be on the CPU",
    r"svd_lowrank|linalg\.householder_product|linalg\.eig|cov": "of all samples, a card's differ, too",
    r"nn\.functional\.(scaled_dot_product_attention|fractional_max_pool2d)": "of all samples, a card's differ, too",
    r"_?native_batch_norm(_legit)?|_batch_norm_with_update": "the CPU returns other statistics in evaluation",
}
ALL_SAMPLES = 100000
KINDS = {"float32", "bfloat16", "int64"}
# With 16 bits, the CPU rounds the statistics that these keep, and the device does not. They are compared with the CPU's results of 32 bits.
WITH_32_BITS = r"nn\.functional\.(batch|instance|layer)_norm|native_layer_norm"


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.detach().to(device, copy=True).requires_grad_(value.requires_grad)
    return torch.device(device) if isinstance(value, torch.device) else value


def widened(tree):
    """With 32 bits for each number of 16."""

    def wide(each):
        if not isinstance(each, torch.Tensor) or each.dtype not in (torch.float16, torch.bfloat16):
            return each
        return each.detach().float().requires_grad_(each.requires_grad)

    return pytree.tree_map(wide, tree)


def moved_sample(sample, device):
    tree = sample.input, sample.args, dict(sample.kwargs)
    tree = pytree.tree_map(lambda each: moved(each, device), tree)
    if isinstance(tree[2].get("device"), str):
        tree[2]["device"] = device
    return tree


def leaves_of(tree):
    return [each for each in pytree.tree_leaves(tree) if isinstance(each, torch.Tensor) and each.requires_grad]


def differentiable(out):
    tensors = [each for each in pytree.tree_leaves(out) if isinstance(each, torch.Tensor)]
    return [each for each in tensors if each.requires_grad and each.layout is torch.strided and each.numel()]


def weights_for(out, kind):
    """Different weights, so that a gradient in a wrong place is detected. Rounded to this kind, if any."""
    made = []
    for each in out:
        steps = torch.arange(1, each.numel() + 1, dtype=torch.float64) / (each.numel() + 1)
        made.append(steps.view(each.shape).to(kind or each.dtype).to(each.dtype))
    return made


def run(op, tree, weights=None, kind=None):
    """The operator's results, the gradients, and the weights of the outputs for which they were computed."""
    given, args, kwargs = tree
    out = op(given, *args, **kwargs)
    kept = pytree.tree_map(lambda each: each.detach().clone() if isinstance(each, torch.Tensor) else each, out)
    leaves, ends = leaves_of(tree), differentiable(out)
    if not leaves or not ends:
        return kept, None, None
    weights = weights or weights_for(ends, kind)
    put = [each.to(end.device) for each, end in zip(weights, ends, strict=True)]
    return kept, lambda: torch.autograd.grad(ends, leaves, put, allow_unused=True), weights


def on_cpu(tree):
    """Copies to the CPU. A copy is needed since zeros that autograd returns have no memory."""
    return pytree.tree_map(lambda each: each.to("cpu", copy=True) if isinstance(each, torch.Tensor) else each, tree)


def same(got, expected, kinds=True):
    try:
        got, expected, near = on_cpu(got), on_cpu(expected), {}
        if not kinds:  # of 16 bits and of 32: steps between are rounded, too
            near = {"rtol": 0.016, "atol": 0.001, "check_dtype": False}
        torch.testing.assert_close(got, expected, equal_nan=True, check_stride=False, **near)
        return True
    except AssertionError:
        return False
    except (TypeError, ValueError):
        return repr(got) == repr(expected)


class Drawing(TorchDispatchMode):
    """Notes whether an operator draws random numbers, even if it sets a seed before."""

    drawn = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.drawn = self.drawn or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def same_shapes(got, expected):
    def shape(each):
        return (each.shape, each.dtype) if isinstance(each, torch.Tensor) else type(each)

    return pytree.tree_map(shape, got) == pytree.tree_map(shape, expected)


def judge(op, sample, kind):
    cpu, cuda = moved_sample(sample, "cpu"), moved_sample(sample, "cuda")
    kinds = not re.fullmatch(WITH_32_BITS, name_of(op))
    cpu = cpu if kinds else widened(cpu)
    try:
        with Drawing() as numbers:
            expected, back, weights = run(op, cpu, kind=None if kinds else kind)
            grads = back() if back else ()
    except Exception:
        return "not on the CPU", ""
    try:
        got, back, _ = run(op, cuda, weights)
    except Exception as error:
        if isinstance(error, NotImplementedError) or "not supported for" in str(error):
            return "not on CUDA", ""  # as on a card
        return "forward fails", f"{type(error).__name__}: {error}".splitlines()[0][:160]
    if not same(got, expected, kinds):
        return ("random" if numbers.drawn and same_shapes(got, expected) else "forward wrong"), ""
    try:
        got = back() if back else ()
    except Exception as error:
        if isinstance(error, NotImplementedError):
            return "not on CUDA", ""
        return "backward fails", f"{type(error).__name__}: {error}".splitlines()[0][:160]
    return ("right", "") if same(got, grads, kinds) else ("backward wrong", "")


ORDER = (
    "forward fails",
    "forward wrong",
    "backward fails",
    "backward wrong",
    "right",
    "random",
    "not on CUDA",
    "not on the CPU",
    "no sample",
)


def judge_all(op, kind, samples):
    worst, why = "no sample", ""
    if kind not in op.supported_dtypes("cpu"):
        return worst, why
    wants_gradients = op.supports_autograd and kind.is_floating_point
    try:
        torch.manual_seed(0)
        made = list(itertools.islice(op.sample_inputs("cpu", kind, requires_grad=wants_gradients), samples))
    except Exception:
        return worst, why
    for each in made:
        found, told = judge(op, each, kind)
        if ORDER.index(found) < ORDER.index(worst):
            worst, why = found, told
    return worst, why


def name_of(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def listed_as(name):
    """The line of the list that names this operator."""
    return next((each for each in NOT_AS_ON_THE_CPU if re.fullmatch(each, name)), None)


def answer(ops, kind, samples):
    """The work of a child: prints a line for each operator, until one of them ends the process."""
    for op in ops:
        print("\t".join(judge_all(op, getattr(torch, kind), samples)).replace("\n", " "), flush=True)


def ask_child(asked, kind, at, left):
    """Judges as many operators as a process survives, and returns the results."""
    command = [sys.executable, __file__, "--samples", str(asked.samples), "--only", asked.only, "--part", asked.part]
    child = subprocess.run([*command, "--kinds", kind, "--from", str(at)], stdout=subprocess.PIPE, text=True)
    found = [line.split("\t") for line in child.stdout.splitlines() if "\t" in line]
    if len(found) < left:
        found.append(["forward fails", f"the process ended with {child.returncode}"])
    return found[:left]


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--samples", type=int, default=4)
    ask.add_argument("--only", default="")
    ask.add_argument("--part", default="0/1")
    ask.add_argument("--kinds", default="float32")
    ask.add_argument("--list")
    ask.add_argument("--from", type=int, dest="begin", help="of a child: where it begins")
    asked = ask.parse_args()
    part, parts = map(int, asked.part.split("/"))
    ops = [op for op in op_db if re.search(asked.only, name_of(op))][part::parts]
    if asked.begin is not None:
        return answer(ops[asked.begin :], asked.kinds, asked.samples)
    lines, wrong, seen = [], 0, set()
    for kind in asked.kinds.split(","):
        counted, at = collections.Counter(), 0
        while at < len(ops):
            for found, why in ask_child(asked, kind, at, len(ops) - at):
                counted[found] += 1
                lines.append(f"{kind} {name_of(ops[at])}: {found}{': ' + why if why else ''}")
                if ORDER.index(found) < ORDER.index("right"):
                    listed = listed_as(name_of(ops[at]))
                    seen.add(listed)
                    if listed is None:
                        wrong += 1
                        print(lines[-1], flush=True)
                at += 1
        print(kind, ", ".join(f"{counted[each]} {each}" for each in ORDER if counted[each]), flush=True)
    if asked.list:
        with open(asked.list, "w") as file:
            file.write("\n".join(lines) + "\n")
    whole = asked.samples == ALL_SAMPLES and set(asked.kinds.split(",")) >= KINDS and len(ops) == len(op_db)
    stale = [each for each in NOT_AS_ON_THE_CPU if whole and each not in seen]
    for each in stale:
        print(f"{each} is right everywhere: take it from the list", flush=True)
    return 1 if wrong or stale else 0


sys.exit(main())
