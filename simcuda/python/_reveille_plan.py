# SPDX-License-Identifier: MIT
"""What is known of an operator for every call: what it writes, what it reads from the device, and how the CPU computes it."""

import functools

import _reveille_assumed as assumed
import _reveille_host as host
import _reveille_operators as operators
import torch
from _reveille_contents import Unknown, content_of

# Their schema says that they write or make a tensor, but its content does not change.
_VIEWS = {
    "aten::_unsafe_view",
    "aten::record_stream",
    "aten::resize_",
    "aten::set_",
}
# They overwrite all of their first tensors without reading them.
_OVERWRITE = {
    *("aten::copy_", "aten::fill_", "aten::zero_", "aten::random_", "aten::uniform_"),
    *("aten::normal_", "aten::bernoulli_", "aten::exponential_", "aten::log_normal_"),
    *("aten::geometric_", "aten::cauchy_", "aten::_foreach_copy_", "aten::_foreach_zero_"),
}
# They read only the shape of their first tensor.
_LIKE = {
    *("aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::rand_like"),
    *("aten::randn_like", "aten::randint_like", "aten::new_zeros", "aten::new_ones"),
    "aten::new_full",
}
_GARBAGE = ("aten::empty", "aten::new_empty")
_COPIES = {"aten::copy_", "aten::_to_copy", "aten::clone"}


def _host(tensor):
    return content_of(tensor) if tensor.is_cuda else tensor


def _count_indexed(args):
    masks = [each for each in args[1] if each is not None and each.dtype in _MASKS]
    if not masks:
        raise Unknown
    return max(int(_host(mask).count_nonzero()) for mask in masks)


def _count_selected(args):
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
    return int(_host(args[1]).expand(shape).count_nonzero())


def _count_consecutive(args):
    along = args[3] if len(args) > 3 else None
    return _host(args[0]).unique_consecutive(dim=along).size(along or 0)


_MASKS = (torch.bool, torch.uint8)
# What the kernels of these count and then read: the size of the result. It may be known where the rest is not.
_COUNTS = {
    "aten::index": _count_indexed,
    "aten::_unsafe_index": _count_indexed,
    "aten::index_put": _count_indexed,
    "aten::index_put_": _count_indexed,
    "aten::_index_put_impl": _count_indexed,
    "aten::_unsafe_index_put": _count_indexed,
    "aten::_index_put_impl_": _count_indexed,
    "aten::masked_select": _count_selected,
    "aten::repeat_interleave": lambda args: int(_host(args[0]).sum()),
    "aten::isin": lambda args: len(_host(args[0]).unique()),
    "aten::_unique": lambda args: len(_host(args[0]).unique()),
    "aten::unique_dim": lambda args: _host(args[0]).unique(dim=args[1]).size(args[1]),
    "aten::unique_consecutive": _count_consecutive,
    "aten::mode": lambda args: 1,
    "aten::searchsorted": lambda args: 0,  # the sorter's extremes, which must be in range
    "aten::_coalesce": lambda args: _host(args[0]).coalesce()._nnz(),
    **{name: lambda args: 1 for name in operators.CHECKS},
    "aten::bincount": lambda args: int(_host(args[0]).max()) if args[0].numel() else 0,
}


# If one operand has this value everywhere, so does the result, whatever the other operand is. So a loop that ends at "too long, or the
# end was generated" ends.
_DECIDES = {
    "aten::bitwise_or": -1,
    "aten::bitwise_or_": -1,
    "aten::logical_or": -1,
    "aten::logical_or_": -1,
    "aten::bitwise_and": 0,
    "aten::bitwise_and_": 0,
    "aten::logical_and": 0,
    "aten::logical_and_": 0,
}


class Plan:
    """Properties of an operator that hold for every call."""

    def __init__(self, func):
        self.func = func  # kept alive, so that its id is not reused
        schema, self.name = func._schema, func._schema.name
        written = [
            (i, each)
            for i, each in enumerate(schema.arguments)
            if each.alias_info is not None and each.alias_info.is_write
        ]
        aten = self.name.startswith("aten::")
        self.written = [(i, each.name) for i, each in written]
        whole = [pair for pair in written if pair[1].is_out or self.name in _OVERWRITE]
        self.unread = {i for i, _ in whole} | {each.name for _, each in whole}
        if self.name in _LIKE:
            self.unread.add(0)
        self.fresh = [each.alias_info is None for each in schema.returns]
        self.view = self.name in _VIEWS or (not written and not all(self.fresh))
        # It has no kernel and calls other operators, as to() and reshape() do when they copy.
        registered = torch._C._dispatch_has_kernel_for_dispatch_key
        self.calls = registered(func.name(), "CompositeImplicitAutograd") and not registered(func.name(), "CUDA")
        self.reads_inside = func.name() in operators.READ_INSIDE
        self.assume = assumed.rule_of(func)
        self.on_cpu = operators.on_cpu(func)
        rule = host.rule_of(self.name)
        self.on_host = rule and functools.partial(rule, func)
        self.never = not aten or self.name.startswith(_GARBAGE)
        self.random = torch.Tag.nondeterministic_seeded in func.tags
        self.count = _COUNTS.get(self.name, operators.count_of_errors(self.name))
        self.decides = _DECIDES.get(self.name)
        self.copies = self.name in _COPIES
        tensors = all("Tensor" in str(each.type) for each in schema.returns)
        told = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(func.tags)
        # It reads from the device itself, and what it reads is its result, or the result's size.
        sparse = self.name.startswith("aten::_to_sparse")
        self.reads = bool(told) or not tensors or self.copies or self.count is not None or sparse
        self.reads = self.reads and not self.reads_inside
        # The simulated NCCL sets the content of its buffers itself.
        self.collective = "c10d" in self.name
        # It makes one tensor from others, and does nothing else: see twice().
        takes = any("Tensor" in str(each.type) and not str(each.type).startswith("Opt") for each in schema.arguments)
        self.makes_one = (
            takes
            and not (self.view or self.never or self.random or self.reads or self.reads_inside)
            and not (self.collective or written)
            and self.name not in operators.HIDDEN_WRITES
            and [str(each.type) for each in schema.returns] == ["Tensor"]
        )
        self.run = getattr(func, "_op", func)  # what calling func would call, without a frame between
        self.run_on_cpu = getattr(self.on_cpu, "_op", self.on_cpu)

    def writes(self, args, kwargs):
        """The tensors that are written in place."""
        for i, name in self.written:
            yield from tensors_in((args[i] if i < len(args) else kwargs.get(name),))
        yield from operators.hidden_writes(self.name, args)

    def is_decided(self, args):
        """Whether one operand decides the result, so that the others need not be known."""
        for each in tensors_in(args) if self.decides is not None else ():
            try:
                if each.dtype == torch.bool:
                    decided = (_host(each) == bool(self.decides)).all()
                else:
                    decided = not each.is_floating_point() and (_host(each) == self.decides).all()
            except Unknown:
                continue
            if decided:
                return True
        return False

    def made(self, out):
        """The new tensors and numbers among the operator's results."""
        if len(self.fresh) == 1:
            out = (out,)
        for each, fresh in zip(out or (), self.fresh):
            if fresh:
                yield from each if isinstance(each, (list, tuple)) else (each,)


def tensors_in(values):
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from tensors_in(each)
