# SPDX-License-Identifier: MIT
"""Large tensors in host memory: counted from the import of PyTorch on (simcuda/driver/host_tensors.c), and not copied.

Above the size of `--keep-host` tensors lie in the same pages, and their content is lost anyway. So a copy from one to
another, as of weights that become float32, is left out. Eight ranks that load 32 billion parameters each make 32 billion
of them otherwise.
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
    """What is done in the place of an operator between tensors of the host; None: the operator itself."""
    return _RULES.get(name) if KEPT is not None else None


@functools.cache
def _shared():
    shared = ctypes.PyDLL(_DRIVER).rvli_host_tensors_share
    shared.restype, shared.argtypes = ctypes.c_bool, [ctypes.c_void_p]
    return shared


def _is_plain(tensor):
    """Of the host, and with memory of its own. Others may have no size in bytes."""
    return tensor.device.type == "cpu" and str(tensor.layout) == "torch.strided" and not tensor.is_quantized


def _copied(func, target, *others, **kwargs):
    if _is_plain(target) and target.nbytes > KEPT and _shared()(target.data_ptr()):
        return target
    return func(target, *others, **kwargs)


def _made(func, source, **kwargs):
    """A new tensor as it would be, with nothing in it."""
    import torch

    device, layout = kwargs.get("device"), kwargs.get("layout")
    here = (device is None or device.type == "cpu") and layout in (None, torch.strided) and not kwargs.get("pin_memory")
    dtype = kwargs.get("dtype") or source.dtype
    if not (here and _is_plain(source) and source.numel() * dtype.itemsize > KEPT):
        return func(source, **kwargs)
    return torch.empty_like(source, dtype=dtype, memory_format=kwargs.get("memory_format") or torch.preserve_format)


_RULES = {"aten::copy_": _copied, "aten::clone": _made, "aten::_to_copy": _made}
