# SPDX-License-Identifier: MIT
"""Large tensors in host memory are counted from the import of PyTorch on (simcuda/driver/host_tensors.c)."""

import ctypes
import os

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")


def count(torch):
    if torch.version.cuda is None:
        return
    begin = ctypes.PyDLL(_DRIVER).rvli_host_tensors_count
    begin.restype = ctypes.c_bool
    if not begin():
        raise RuntimeError("its allocator is not where it was in PyTorch 2.11")
