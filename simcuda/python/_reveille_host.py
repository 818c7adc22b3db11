# SPDX-License-Identifier: MIT
"""Large tensors in host memory: counted from the import of PyTorch on (simcuda/driver/host_tensors.c), and not copied.

Above the size of `--keep-host` tensors lie in the same pages, and their content is lost anyway. So a copy from one to
another, as of weights that become float32, is left out. Eight ranks that load 32 billion parameters each make 32 billion
of them otherwise.
"""

import ctypes
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
    return {"aten::copy_": _copied, "aten::clone": _made, "aten::_to_copy": _made}.get(name) if KEPT is not None else None


def _copied(func, target, *others, **kwargs):
    shared = ctypes.PyDLL(_DRIVER).rvli_host_tensors_share
    shared.restype, shared.argtypes = ctypes.c_bool, [ctypes.c_void_p]
    if target.nbytes > KEPT and target.device.type == "cpu" and shared(target.data_ptr()):
        return target
    return func(target, *others, **kwargs)


def _made(func, source, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, **kwargs):
    import torch

    plain = source.layout == torch.strided and layout in (None, torch.strided) and not pin_memory and not source.is_quantized
    if plain and source.device.type == "cpu" and (device is None or device.type == "cpu"):
        bytes_of_one = (dtype or source.dtype).itemsize
        if source.numel() * bytes_of_one > KEPT:
            return torch.empty_like(source, dtype=dtype, memory_format=memory_format or torch.preserve_format)
    given = {"dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory, "memory_format": memory_format}
    return func(source, **{name: each for name, each in given.items() if each is not None}, **kwargs)
