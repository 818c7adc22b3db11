# SPDX-License-Identifier: MIT
"""Large tensors in host memory: counted from the import of PyTorch on (simcuda/driver/host_tensors.c), and not copied.

Tensors above the size of `--keep-host` share the same pages, and their content is lost anyway. So a copy between two of them, such as
weights that are converted to float32, is skipped. Otherwise, eight ranks that load 32 billion parameters would each convert 32 billion
numbers.
"""

import ctypes
import functools
import os

_KEPT = os.environ.get("REVEILLE_KEEP_HOST", "")
KEPT = int(_KEPT) if _KEPT.isdigit() else None  # bytes; None: all tensors keep their content
_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")


def count(torch):
    if torch.version.cuda is None:
        return
    begin = ctypes.PyDLL(_DRIVER).rvli_host_tensors_count
    begin.restype = ctypes.c_bool
    if not begin():
        raise RuntimeError("its allocator is not where it was in PyTorch 2.11")


def rule_of(name):
    """The replacement for an operator between host tensors. None: the operator itself."""
    return _RULES.get(name) if KEPT is not None else None


@functools.cache
def _shared():
    shared = ctypes.PyDLL(_DRIVER).rvli_host_tensors_share
    shared.restype, shared.argtypes = ctypes.c_bool, [ctypes.c_void_p]
    return shared


def _is_plain(tensor):
    """Whether it is a host tensor with memory of its own. Others may have no size in bytes."""
    return tensor.device.type == "cpu" and str(tensor.layout) == "torch.strided" and not tensor.is_quantized


def _copied(func, target, *others, **kwargs):
    if _is_plain(target) and target.nbytes > KEPT and _shared()(target.data_ptr()):
        return target
    return func(target, *others, **kwargs)


def _made(func, source, **kwargs):
    """A new tensor as the operator would make it, with nothing in it."""
    import torch

    device, layout = kwargs.get("device"), kwargs.get("layout")
    here = (device is None or device.type == "cpu") and layout in (None, torch.strided) and not kwargs.get("pin_memory")
    dtype = kwargs.get("dtype") or source.dtype
    if not (here and _is_plain(source) and source.numel() * dtype.itemsize > KEPT):
        return func(source, **kwargs)
    return torch.empty_like(source, dtype=dtype, memory_format=kwargs.get("memory_format") or torch.preserve_format)


_RULES = {"aten::copy_": _copied, "aten::clone": _made, "aten::_to_copy": _made}
