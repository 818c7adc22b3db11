# SPDX-License-Identifier: MIT
"""The content of tensors on simulated GPUs, which the driver keeps (simcuda/driver/contents.h).

So one place knows the content of memory, and views and parts need no rule. Content is dropped with its storage: memory that PyTorch
reuses begins as unknown, and it does not matter who writes it then.

A small tensor's content is also kept at hand as a twin, a tensor on the CPU. The driver tells whether it is still valid.
"""

import ctypes
import functools
import os
import weakref

import torch

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
PLAIN = torch.Tensor.__torch_dispatch__

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
_read_known = _function("read_known", None, _ADDR, _HOST, _HOST, _BYTES)
_write_known = _function("write_known", None, _ADDR, _HOST, _HOST, _BYTES)
forget = _function("forget", None, _ADDR, _BYTES)
_end = _function("end", None, _ADDR, _BYTES, ctypes.py_object)
note_assumed = _function("assumed", None, ctypes.c_size_t, ctypes.c_char_p)
knows = _function("knows", ctypes.c_bool, _ADDR)
reading = _function("reading", None, ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p)
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


def size_of(tensor):
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


def content_of(tensor):
    """A copy of the content on the CPU. Raises Unknown."""
    if tensor.layout in PARTS:
        return _sparse_content(tensor)
    if tensor.is_conj():
        return content_of(tensor.conj()).conj_physical_()
    if tensor.is_neg():
        return content_of(tensor._neg_view()).neg_()
    if not tensor.numel() or tensor._is_zerotensor():
        return torch.zeros(tensor.size(), dtype=tensor.dtype, device="cpu")
    _settle(tensor)
    if not _is_plain(tensor) or tensor.nbytes > LIMIT or not knows(tensor.data_ptr()):
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
PARTS = {
    torch.sparse_coo: (torch.Tensor._indices, torch.Tensor._values),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _ROWS),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _COLUMNS),
}


_compress = torch.ops.aten._sparse_compressed_tensor_unsafe.default


def _sparse_content(tensor):
    parts = [content_of(part(tensor)) for part in PARTS[tensor.layout]]
    if tensor.layout is not torch.sparse_coo:
        return _compress(*parts, tensor.size(), dtype=tensor.dtype, layout=tensor.layout)
    copy = torch.sparse_coo_tensor(*parts, tensor.size(), check_invariants=False)
    return copy._coalesced_(tensor.is_coalesced())


def keep(tensor, content):
    """Sets the tensor's content: a CPU tensor, or None if it is unknown."""
    if content is not None and content.layout is tensor.layout in PARTS:
        for part in PARTS[tensor.layout]:
            keep(part(tensor), part(content))
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
    watch(tensor.untyped_storage())
    content = content.to(tensor.dtype).contiguous()  # the CPU's result may have another dtype, such as for a mean
    if tensor.is_contiguous():
        _write(tensor.data_ptr(), content.data_ptr(), tensor.nbytes)
    else:
        _write_strided(*_geometry(tensor), content.data_ptr())


_watched: dict[int, weakref.ref] = {}  # storages with content, by the address of their memory
_sweep_at = [1 << 12]


def _has_watched(addr):
    """Whether a storage that is watched has this memory. One that was resized has other memory, or none."""
    watched = _watched.get(addr)
    storage = watched() if watched is not None else None
    return storage is not None and storage.data_ptr() == addr


def watch(storage):
    """Makes the content of a storage end with it. Not if another storage has the memory, as while C++ copies to it."""
    addr = storage.data_ptr()
    if _has_watched(addr):
        return
    if len(_watched) >= _sweep_at[0]:
        for each in [each for each, watched in _watched.items() if watched() is None]:
            del _watched[each]
        _sweep_at[0] = 2 * max(len(_watched), 1 << 11)
    # No Python function runs when a storage is freed, since there are so many.
    _watched[addr] = weakref.ref(storage, functools.partial(_end, addr, storage.nbytes()))


def may_be_known(value):
    """Whether it is a small device tensor. Not a tensor that stands for another and has no memory."""
    if not isinstance(value, _Tensor) or type(value).__torch_dispatch__ is not PLAIN:
        return False
    return value.is_cuda and value.layout is torch.strided and 0 < value.nbytes <= LIMIT


def lose(tensor):
    """The tensor was written with unknown content."""
    if tensor.layout is not torch.strided or tensor._is_zerotensor():
        return
    if tensor.nbytes:
        forget(tensor.data_ptr(), _reach(tensor))


# ---- A copy of a tensor that is known in part ----


def _bytes_of(tensor):
    """The bytes of its memory, which of them are known, and both as the tensor sees them, with a dimension for an element's bytes."""
    _settle(tensor)
    reach, item = _reach(tensor), tensor.element_size()
    content = torch.empty(reach, dtype=torch.uint8, device="cpu")
    known = torch.empty(reach, dtype=torch.bool, device="cpu")
    _read_known(tensor.data_ptr(), content.data_ptr(), known.data_ptr(), reach)
    shape = (*tensor.size(), item), (*(step * item for step in tensor.stride()), 1)
    return content, known, content.as_strided(*shape), known.as_strided(*shape)


def after_copy(to, source):
    """What the memory of a tensor has after a copy to it: bytes, and which of them are known. None: all are unknown, or it is not simple."""
    if not (to.is_cuda and source.is_cuda and to.dtype is source.dtype and to.size() == source.size()):
        return None
    if not (_is_plain(to) and _is_plain(source)) or not source.numel() or not _has_watched(source.untyped_storage().data_ptr()):
        return None
    if max(_reach(to), _reach(source)) > LIMIT:
        return None
    content, known, *own = _bytes_of(to)
    for here, there in zip(own, _bytes_of(source)[2:]):
        here.copy_(there)
    return content, known


def keep_part(tensor, part):
    """Sets the content of a tensor's memory to what after_copy() returned."""
    content, known = part
    watch(tensor.untyped_storage())
    _write_known(tensor.data_ptr(), content.data_ptr(), known.data_ptr(), content.nbytes)


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


def twins_of(values):
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
            each = twins_of(each)
            if each is None:
                return None
        elif kind not in _SIMPLE:
            return None
        found.append(each)
    return found


def keep_twin(tensor, content):
    """As keep(), for a new tensor and a new content that nobody changes."""
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
        return keep(tensor, content)
    watch(tensor.untyped_storage())
    addr = tensor.data_ptr()
    number = _write_twin(addr, content.data_ptr(), size)
    if number:
        _add_twin(addr, number, content)
    return None
