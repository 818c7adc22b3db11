# SPDX-License-Identifier: MIT
"""Small tensors on simulated GPUs, computed for real.

Kernels do not run on a simulated GPU, so what a program reads back would be zero, and a program that depends on it would behave
differently than on a card. Here every operator of PyTorch is intercepted. It runs on the simulated device unchanged, so that it
allocates what it allocates on a card. If all its inputs are small and known, it also runs on the CPU, and its results are written where
the driver keeps known content (simcuda/driver/contents.h). Otherwise, its outputs become unknown.

So one place knows the content of memory, and views and parts need no rule. Content is dropped with its storage: memory that PyTorch
reuses begins as unknown, and it does not matter who writes it then. So most of the backward pass need not be intercepted: see
_reveille_backward.py.

Most operators on small tensors only make a tensor from others, again and again. These have a fast path, SmallTensors.twice(): a tensor's
content is kept at hand as a twin, and the driver tells whether it is still valid.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import weakref
from typing import Any

import _reveille_assumed as assumed
import _reveille_backward
import _reveille_host as host
import _reveille_operators as operators
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

KEPT, GIVEN, ONCE = range(3)  # rvli_reading

_TORCH = os.path.dirname(torch.__file__) + os.sep
_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_PLAIN = torch.Tensor.__torch_dispatch__
_modes_below = torch._C._len_torch_dispatch_stack
_is_capturing = torch._C._cuda_isCurrentStreamCapturing

# PyDLL keeps Python's lock: these calls are short, and never wait for a thread that waits for Python: see _settle().
_driver = ctypes.PyDLL(_DRIVER)


def _function(name, result, *arguments):
    function = getattr(_driver, f"rvli_contents_{name}")
    function.restype, function.argtypes = result, arguments
    return function


_ADDR, _BYTES, _HOST = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
_NUMBERS = ctypes.POINTER(ctypes.c_int64)
_GEOMETRY = _ADDR, _BYTES, ctypes.c_int, _NUMBERS, _NUMBERS
_read = _function("read", ctypes.c_bool, _ADDR, _HOST, _BYTES)
_write = _function("write", None, _ADDR, _HOST, _BYTES)
_read_twin = _function("read_twin", ctypes.c_uint64, _ADDR, _HOST, _BYTES)
_write_twin = _function("write_twin", ctypes.c_uint64, _ADDR, _HOST, _BYTES)
_read_strided = _function("read_strided", ctypes.c_bool, *_GEOMETRY, _HOST)
_write_strided = _function("write_strided", None, *_GEOMETRY, _HOST)
_forget = _function("forget", None, _ADDR, _BYTES)
_end = _function("end", None, _ADDR, _BYTES, ctypes.py_object)
_note_assumed = _function("assumed", None, ctypes.c_size_t, ctypes.c_char_p)
_knows = _function("knows", ctypes.c_bool, _ADDR)
_reading = _function("reading", None, ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p)
LIMIT = _function("limit", ctypes.c_size_t)()
_promises = _function("promises", ctypes.c_int)
# This one waits for other ranks, which may be threads of this process that need Python's lock.
_wait = ctypes.CDLL(_DRIVER).rvli_contents_settle
_wait.restype, _wait.argtypes = None, (_ADDR, _BYTES)


class Unknown(Exception):
    """An input of an operator is unknown, or too large."""


# ---- Content of a tensor's memory ----


def _geometry(tensor):
    numbers = ctypes.c_int64 * tensor.dim()
    sizes, strides = numbers(*tensor.size()), numbers(*tensor.stride())
    return tensor.data_ptr(), tensor.element_size(), tensor.dim(), sizes, strides


def _is_plain(tensor):
    return tensor.layout is torch.strided and not (
        tensor.is_conj() or tensor.is_neg() or tensor.is_quantized or tensor._is_zerotensor()
    )


def _size(tensor):
    """The size in bytes. A tensor that stands for others, such as a sparse one, has no nbytes."""
    return tensor.nbytes if tensor.layout is torch.strided else tensor.numel() * tensor.element_size()


def _reach(tensor):
    """The bytes from the first element to the end of the last."""
    if tensor.is_contiguous():
        return tensor.nbytes
    steps = zip(tensor.size(), tensor.stride())
    return (sum((n - 1) * step for n, step in steps) + 1) * tensor.element_size()


def _settle(tensor):
    """Waits for content that other ranks bring to the tensor, if any."""
    if _promises() and tensor.nbytes <= LIMIT and _is_plain(tensor):
        _wait(tensor.data_ptr(), _reach(tensor))


def _content(tensor):
    """A copy of the content on the CPU. Raises Unknown."""
    if tensor.layout in _PARTS:
        return _sparse_content(tensor)
    if tensor.is_conj():
        return _content(tensor.conj()).conj_physical_()
    if tensor.is_neg():
        return _content(tensor._neg_view()).neg_()
    if not tensor.numel() or tensor._is_zerotensor():
        return torch.zeros(tensor.size(), dtype=tensor.dtype, device="cpu")
    _settle(tensor)
    if not _is_plain(tensor) or tensor.nbytes > LIMIT or not _knows(tensor.data_ptr()):
        raise Unknown
    copy = torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")
    if tensor.is_contiguous():
        known = _read(tensor.data_ptr(), copy.data_ptr(), tensor.nbytes)
    else:
        known = _read_strided(*_geometry(tensor), copy.data_ptr())
    if not known:
        raise Unknown
    return copy


# The tensors that a sparse one consists of, by its layout.
_ROWS = torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values
_COLUMNS = torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values
_PARTS = {
    torch.sparse_coo: (torch.Tensor._indices, torch.Tensor._values),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _ROWS),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _COLUMNS),
}


_compress = torch.ops.aten._sparse_compressed_tensor_unsafe.default


def _sparse_content(tensor):
    parts = [_content(part(tensor)) for part in _PARTS[tensor.layout]]
    if tensor.layout is not torch.sparse_coo:
        return _compress(*parts, tensor.size(), dtype=tensor.dtype, layout=tensor.layout)
    copy = torch.sparse_coo_tensor(*parts, tensor.size(), check_invariants=False)
    return copy._coalesced_(tensor.is_coalesced())


def _keep(tensor, content):
    """Sets the tensor's content: a CPU tensor, or None if it is unknown."""
    if content is not None and content.layout is tensor.layout in _PARTS:
        for part in _PARTS[tensor.layout]:
            _keep(part(tensor), part(content))
        return
    if (
        content is None
        or content.size() != tensor.size()
        or tensor.nbytes > LIMIT
        or not _is_plain(tensor)
    ):
        lose(tensor)
        return
    if not tensor.numel():
        return
    _watch(tensor.untyped_storage())
    content = content.to(tensor.dtype).contiguous()  # the CPU's result may have another dtype, such as for a mean
    if tensor.is_contiguous():
        _write(tensor.data_ptr(), content.data_ptr(), tensor.nbytes)
    else:
        _write_strided(*_geometry(tensor), content.data_ptr())


_watched: dict[int, weakref.ref] = {}  # storages with content, by the address of their memory
_sweep_at = [1 << 12]


def _watch(storage):
    """Makes the content of a storage end with it. Not if another storage has the memory, as while C++ copies to it."""
    addr = storage.data_ptr()
    watched = _watched.get(addr)
    if watched is not None and watched() is not None:
        return
    if len(_watched) >= _sweep_at[0]:
        for each in [each for each, watched in _watched.items() if watched() is None]:
            del _watched[each]
        _sweep_at[0] = 2 * max(len(_watched), 1 << 11)
    # No Python function runs when a storage is freed, since there are so many.
    _watched[addr] = weakref.ref(storage, functools.partial(_end, addr, storage.nbytes()))


def may_be_known(value):
    """Whether it is a small device tensor. Not a tensor that stands for another and has no memory."""
    if not isinstance(value, _Tensor) or type(value).__torch_dispatch__ is not _PLAIN:
        return False
    return value.is_cuda and value.layout is torch.strided and 0 < value.nbytes <= LIMIT


def lose(tensor):
    """The tensor was written with unknown content."""
    if tensor.layout is not torch.strided or tensor._is_zerotensor():
        return
    if tensor.nbytes:
        _forget(tensor.data_ptr(), _reach(tensor))


# ---- Twins: content of small tensors, at hand ----

TWINS = 4096  # the driver's RVLI_CONTENTS_TWINS
TWIN = min(4096, LIMIT)  # bytes, and RVLI_CONTENTS_TWIN_BYTES
_numbers = memoryview((ctypes.c_uint64 * TWINS).from_address(_function("twins", _ADDR)())).cast("B").cast("Q")
_twins: dict[int, tuple] = {}  # by address: number, content, and what must be true of the tensor
_SIMPLE = {int, float, bool, type(None), str, torch.dtype, torch.layout, torch.memory_format}
_SEVERAL = {list, tuple}


def _twin(tensor):
    """The content, on the CPU, which must not be changed. None: it is unknown, or not simple enough."""
    addr = tensor.data_ptr()
    twin = _twins.get(addr)
    if twin is not None:
        number, content, dtype, size = twin
        if (
            _numbers[number % TWINS] == number
            and tensor.dtype is dtype
            and tensor.size() == size
            and tensor.is_contiguous()
            and not tensor.is_neg()
        ):
            return content
    if not tensor.is_cuda or tensor.dtype.is_complex or not 0 < tensor.nbytes <= TWIN:
        return None
    if not tensor.is_contiguous() or not _is_plain(tensor):
        return None
    content = torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")
    number = _read_twin(addr, content.data_ptr(), tensor.nbytes)
    if not number:
        return None
    _add_twin(addr, number, content)
    return content


def _add_twin(addr, number, content):
    if len(_twins) >= TWINS:
        _twins.clear()
    _twins[addr] = number, content, content.dtype, content.size()


def _twins_of(values):
    """The arguments of an operator, with twins in place of its tensors. None: some tensor has no twin."""
    found = []
    for each in values:
        kind = type(each)
        if kind is _Tensor or kind is _Parameter:
            try:
                each = _twin(each)
            except RuntimeError:  # it has no memory of its own
                return None
            if each is None:
                return None
        elif kind in _SEVERAL:
            each = _twins_of(each)
            if each is None:
                return None
        elif kind not in _SIMPLE:
            return None
        found.append(each)
    return found


def _keep_twin(tensor, content):
    """As _keep(), for a new tensor and a new content that nobody changes."""
    size = tensor.nbytes
    if (
        content.dtype is not tensor.dtype
        or not 0 < size <= TWIN
        or content.size() != tensor.size()
        or not content.is_contiguous()
        or not tensor.is_contiguous()
        or tensor.layout is not torch.strided
        or content.dtype.is_complex
    ):
        return _keep(tensor, content)
    _watch(tensor.untyped_storage())
    addr = tensor.data_ptr()
    number = _write_twin(addr, content.data_ptr(), size)
    if number:
        _add_twin(addr, number, content)
    return None


# ---- What an operator does ----

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
    return _content(tensor) if tensor.is_cuda else tensor


def _count_indexed(args):
    masks = [each for each in args[1] if each is not None and each.dtype in _MASKS]
    if not masks:
        raise Unknown
    return max(int(_host(mask).count_nonzero()) for mask in masks)


def _count_selected(args):
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
    return int(_host(args[1]).expand(shape).count_nonzero())


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
            yield from _tensors((args[i] if i < len(args) else kwargs.get(name),))
        yield from operators.hidden_writes(self.name, args)

    def is_decided(self, args):
        """Whether one operand decides the result, so that the others need not be known."""
        for each in _tensors(args) if self.decides is not None else ():
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


def _tensors(values):
    for each in values:
        if isinstance(each, _Tensor):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)


# ---- The program's line ----

_places: dict[Any, bytes] = {}


def _place():
    """The line of the program that reads, outside PyTorch."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith((_TORCH, "<")):
            break
        frame = frame.f_back
    if frame is None:
        return None
    key = (frame.f_code, frame.f_lineno)
    if key not in _places:  # kept forever, since the driver has their address
        text = f"{name[-180:]}:{frame.f_lineno} in {frame.f_code.co_name}"
        _places[key] = text.encode(errors="replace")[:250]
    return _places[key]


# ---- On the CPU ----


class _Random:
    """Numbers for small random tensors. The program's own generators are not changed."""

    lock = threading.Lock()
    state = torch.Generator().manual_seed(0).get_state()

    def __enter__(self):
        self.lock.acquire()
        self.before = torch.default_generator.get_state()
        torch.default_generator.set_state(_Random.state)

    def __exit__(self, *_):
        _Random.state = torch.default_generator.get_state()
        torch.default_generator.set_state(self.before)
        self.lock.release()


class _Shadow:
    """A call on the CPU, with copies of the content of device tensors. Raises Unknown."""

    def __init__(self, plan, func, args, kwargs):
        self.plan, self.func, self.copies = plan, func, {}
        self.decided = plan.is_decided(args)
        self.written = {id(each) for each in plan.writes(args, kwargs)}
        unread = plan.unread.union(operators.unread(plan.name, args))
        self.args = [self.of(each, i in unread) for i, each in enumerate(args)]
        self.kwargs = {
            name: self.of(each, name in plan.unread) for name, each in kwargs.items()
        }
        if self.kwargs.get("pin_memory"):
            self.kwargs["pin_memory"] = False

    def of(self, value, unread=False):
        if isinstance(value, _Tensor):
            if id(value) not in self.copies:
                self.copies[id(value)] = self.copy(value, unread)
            return self.copies[id(value)]
        if isinstance(value, (list, tuple)):
            return [self.of(each, unread) for each in value]
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return None if isinstance(value, torch.Generator) else value

    def copy(self, tensor, unread):
        if unread:
            return torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")
        if tensor.is_cuda and self.decided:
            return self.content_or_zero(tensor)
        if tensor.is_cuda:
            return _content(tensor)
        return tensor.clone() if id(tensor) in self.written else tensor

    @staticmethod
    def content_or_zero(tensor):
        try:
            return _content(tensor)
        except Unknown:
            return torch.zeros(tensor.size(), dtype=tensor.dtype, device="cpu")

    def run(self):
        try:
            return self.run_as(self.plan.on_cpu)
        except NotImplementedError:  # maybe only for this dtype
            parts = operators.in_parts(self.func)
            if parts is None:
                raise Unknown from None
        except Exception:  # any error: the program did not request this call
            raise Unknown from None
        try:
            return self.run_as(parts)
        except Exception:
            raise Unknown from None

    def run_as(self, func):
        if not self.plan.random:
            return func(*self.args, **self.kwargs)
        with _Random():
            return func(*self.args, **self.kwargs)

    def count(self, args, result):
        """The number that the operator on the device reads from there."""
        if isinstance(result, _Tensor) and result.layout in _PARTS:
            return result._nnz()
        if self.plan.count is not None:
            try:
                return self.plan.count(args)
            except Unknown:
                return 0
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if isinstance(first, _Tensor):
            return first.size(0) if first.dim() else first.numel()
        return int(first) if isinstance(first, (bool, int)) else 0

    def settle(self, out, result, args, kwargs):
        """Writes the computed content to the device's tensors, and returns the operator's result."""
        for each in self.plan.writes(args, kwargs):
            self.put(each, self.copies.get(id(each)))
        for real, shadow in zip(self.plan.made(out), self.plan.made(result)):
            if isinstance(real, _Tensor):
                self.put(real, shadow)
        single = len(self.plan.fresh) == 1
        return result if single and isinstance(out, (bool, int, float, complex)) else out

    @staticmethod
    def put(tensor, content):
        if tensor.is_cuda:
            _keep(tensor, content)
        elif content is not None and tensor.size() == content.size():
            tensor.copy_(content)


# ---- Every operator ----


due: Any = None  # a call to make when this thread allocates nothing (_reveille_history)


def _call_due():
    global due
    call, due = due, None
    if call is not None:
        call()


class SmallTensors(TorchDispatchMode):
    """A mode on every thread's stack."""

    def __init__(self):
        super().__init__()
        self.plans = {}

    # Operators that take functions, such as flex_attention, run unchanged.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls):
        return True

    # The wrapper that keeps the compiler out would cost as much as everything else here: see begin().
    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _modes_below():  # PyTorch's own modes, for tensors without memory
            return func(*args, **(kwargs or {}))
        if due is not None:
            _call_due()
        for each in types:
            if each.__torch_dispatch__ is not _PLAIN:
                return NotImplemented  # a subclass: its inner operators are intercepted again
        kwargs = kwargs or {}
        plan = self.plans.get(id(func))  # by id, since PyTorch computes an operator's hash in Python
        if plan is None:
            if not hasattr(func, "_schema"):
                return func(*args, **kwargs)  # it takes functions
            plan = self.plans[id(func)] = Plan(func)
        if plan.calls:
            return self.inside(func.decompose, args, kwargs)
        if plan.view:
            return func(*args, **kwargs)
        if plan.makes_one and not kwargs:
            twins = _twins_of(args)
            if twins is not None and not _is_capturing():
                return self.twice(plan, func, args, twins)
        cuda, small = self.look(args, kwargs)
        if not cuda:
            return (plan.on_host or func)(*args, **kwargs)
        if small and not plan.never:
            try:
                return self.compute(plan, func, args, kwargs)
            except Unknown:
                pass
        out = self.read(plan, func, args, kwargs) if plan.reads else func(*args, **kwargs)
        if plan.collective:
            self.watch((args, tuple(kwargs.values()), out))
        self.lose(plan, out, args, kwargs)
        if plan.assume is not None:
            self.assume(plan, out, args, kwargs)
        return out

    def inside(self, run, args, kwargs):
        """Runs an operator so that those that it calls are intercepted. In inference mode, it is intercepted before it has called any."""
        torch._C._push_on_torch_dispatch_stack(self)
        try:
            return run(*args, **kwargs)
        finally:
            torch._C._pop_torch_dispatch_stack(None)

    @staticmethod
    def watch(tensors):
        """The simulated NCCL sets the content of its buffers itself. This makes the content end with their storages, too."""
        for each in _tensors(tensors):
            if may_be_known(each):
                _watch(each.untyped_storage())

    @staticmethod
    def lose(plan, out, args, kwargs):
        if (plan.written or plan.name in operators.HIDDEN_WRITES) and not plan.collective:
            for each in plan.writes(args, kwargs):
                if each.is_cuda:
                    lose(each)
        if plan.copies:  # the copied part may have been known
            for each in _tensors((out,)):
                if each.is_cuda:
                    lose(each)
        return out

    @staticmethod
    def assume(plan, out, args, kwargs):
        """Replaces what was chosen from unknown numbers: see _reveille_assumed.py."""
        contents = plan.assume(args, kwargs) or ()
        made = [(each, content) for each, content in zip(_tensors((out,)), contents) if content is not None]
        for each, content in made:
            if each.is_cuda:
                _keep(each, content)
        if made:
            _note_assumed(sum(each.nbytes for each, _ in made), _place())

    @staticmethod
    def look(args, kwargs):
        """Whether a device takes part, and whether all tensors are small. Stops once both are known."""
        cuda, small = False, True
        for each in args:
            if isinstance(each, _Tensor):
                cuda = cuda or each.is_cuda
                small = small and _size(each) <= LIMIT
            elif type(each) in (list, tuple) and each:
                inner_cuda, inner_small = SmallTensors.look(each, None)
                cuda, small = cuda or inner_cuda, small and inner_small
            if cuda and not small:
                return cuda, small
        if kwargs:
            device = kwargs.get("device")
            inner_cuda, inner_small = SmallTensors.look(kwargs.values(), None)
            cuda = cuda or inner_cuda or (device is not None and device.type == "cuda")
            small = small and inner_small
        return cuda, small

    def compute(self, plan, func, args, kwargs):
        """Runs on the CPU and on the device. Raises Unknown if nothing was done on the device yet."""
        shadow = _Shadow(plan, func, args, kwargs)
        if torch.cuda.is_initialized() and _is_capturing():
            raise Unknown  # each replay writes it again, from what is known then
        if plan.reads:
            result = shadow.run()
            number = shadow.count(args, result)
            out = self.there(lambda: self.given(number, func, args, kwargs), shadow, lambda: result)
            return shadow.settle(out, result, args, kwargs)
        out = self.there(lambda: self.run_there(plan, func, args, kwargs), shadow, shadow.run)
        try:
            if any(_size(each) > LIMIT for each in _tensors((out,))):
                raise Unknown
            result = shadow.run()
        except Unknown:
            return self.lose(plan, out, args, kwargs)
        return shadow.settle(out, result, args, kwargs)

    def run_there(self, plan, func, args, kwargs):
        if not plan.reads_inside:
            return func(*args, **kwargs)
        return self.inside(functools.partial(func._op_dk, torch._C.DispatchKey.CUDA), args, kwargs)

    def twice(self, plan, func, args, twins):
        """As compute(), for one tensor made from others with content at hand."""
        try:
            out = plan.run(*args)
        except RuntimeError as error:
            out = self.instead(error, plan, _Shadow(plan, func, args, {}).run)
        if out.nbytes > LIMIT:
            return out
        try:
            result = plan.run_on_cpu(*twins)
        except Exception:
            try:
                result = _Shadow(plan, func, args, {}).run()  # it knows other ways
            except Unknown:
                return self.lose(plan, out, args, {})
        _keep_twin(out, result)
        return out

    def there(self, run, shadow, result):
        """Runs on the device."""
        try:
            return run()
        except RuntimeError as error:
            return self.instead(error, shadow.plan, result)

    @staticmethod
    def instead(error, plan, result):
        """Takes the result from the CPU if the device lacks a function that is not simulated, or if a check of zeros failed."""
        library = operators.missing_library(error, plan.func)
        if plan.written or (library is None and not operators.fails_its_check(error, plan.func)):
            raise error
        try:
            computed = result()
        except Unknown:
            raise error from None
        if library is not None:
            operators.tell_missing(library, plan.func)
        return tree_map(lambda each: each.cuda() if isinstance(each, _Tensor) else each, computed)

    @staticmethod
    def given(number, func, args, kwargs, how=GIVEN):
        _reading(how, number, None)
        try:
            return func(*args, **kwargs)
        finally:
            _reading(KEPT, 0, None)

    def read(self, plan, func, args, kwargs):
        """Reads content that is not known completely. The driver counts the unknown bytes that the program sees."""
        if plan.count is not None:
            try:
                how = ONCE if plan.name in operators.CHECKS_BEFORE else GIVEN
                return self.given(plan.count(args), func, args, kwargs, how)
            except Unknown:
                pass
        _reading(KEPT, 0, _place())
        try:
            return func(*args, **kwargs)
        finally:
            _reading(KEPT, 0, None)


# ---- Installation ----


def begin(_module):
    """Called when PyTorch was imported: from now on, every operator in every thread is intercepted."""
    if torch.version.cuda is None:
        return
    _keep_compiler_out()
    mode = SmallTensors()
    push, pop = torch._C._push_on_torch_dispatch_stack, torch._C._pop_torch_dispatch_stack
    run = threading.Thread._bootstrap_inner

    def run_with_mode(thread):
        push(mode)
        try:
            run(thread)
        finally:
            pop(None)  # otherwise PyTorch drops it after the thread's end, and aborts if the interpreter ends meanwhile

    threading.Thread._bootstrap_inner = run_with_mode
    _stay_while_printed(mode)
    _reveille_backward.begin(mode, _knows, LIMIT)
    push(mode)


def _stay_while_printed(mode):
    """Keeps the mode while a tensor is printed, which PyTorch does with all modes off. Otherwise the number of shown elements would be read
    from memory that no kernel has written."""
    module = torch._tensor_str
    show = module._str_intern

    def show_known(*args, **kwargs):
        torch._C._push_on_torch_dispatch_stack(mode)
        try:
            return show(*args, **kwargs)
        finally:
            torch._C._pop_torch_dispatch_stack(None)

    module._str_intern = show_known


def _skipping():
    """A function that keeps torch.compile from compiling a code object when it runs within a compiled function. None: there is none."""
    frames = torch._C._dynamo.eval_frame
    if not hasattr(frames, "set_code_exec_strategy"):  # before PyTorch 2.7
        return getattr(frames, "skip_code", None)
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    return lambda code: frames.set_code_exec_strategy(code, strategy)


def _codes(owner, file):
    """The code objects of a module or class, and of the functions within them, that this file has."""
    left = [getattr(getattr(each, "__func__", each), "__code__", None) for each in vars(owner).values()]
    left = [code for code in left if code is not None and code.co_filename == file]
    while left:
        code = left.pop()
        yield code
        left += [each for each in code.co_consts if isinstance(each, type(code))]


def _keep_compiler_out():
    skip = _skipping()
    for module in (sys.modules[__name__], _reveille_backward, assumed, host, operators, operators.instead):
        classes = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
        for owner in (module, *classes) if skip else ():
            for code in _codes(owner, module.__file__):
                skip(code)


def watch_compiled(module):
    """Compiled code runs its own kernels, so what it changes in place becomes unknown."""
    run = module.CompiledFxGraph.__call__

    def run_and_lose(graph, inputs):
        changed = [inputs[i] for i in getattr(graph, "mutated_input_idxs", ())]
        changed = [
            (each.data_ptr(), each.nbytes)
            for each in changed
            if isinstance(each, _Tensor) and each.is_cuda
        ]  # addresses, since references would keep memory
        out = run(graph, inputs)
        for addr, size in changed:
            _forget(addr, size)
        return out

    module.CompiledFxGraph.__call__ = run_and_lose
