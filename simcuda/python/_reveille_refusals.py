# SPDX-License-Identifier: MIT
"""PyTorch's out-of-memory errors, as PyTorch itself counts them.

When the driver refuses, PyTorch's allocator releases its cache and tries again, so a refusal may not be an error of the program. The
allocator also refuses by itself beyond torch.cuda.set_per_process_memory_fraction(), without asking the driver. Its observer is called
once for each error that the program sees.
"""

import ctypes
import os

import _reveille_frames
import torch

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_note = ctypes.PyDLL(_DRIVER).rvli_refused_note
_note.restype, _note.argtypes = None, (
    ctypes.c_int,
    ctypes.c_uint64,
    ctypes.c_uint64,
    ctypes.c_char_p,
)


def _tell(device, asked_bytes, _allocated_bytes, free_bytes):
    where = _reveille_frames.current_line()
    _note(device, asked_bytes, free_bytes, where.encode("utf-8", "replace")[:255])


def _attach():
    try:
        torch._C._cuda_attach_out_of_memory_observer(_tell)
    except (RuntimeError, AttributeError):
        pass  # cudaMallocAsync has no such observer, so only the driver's refusals are known


def watch(_module):
    """Called when PyTorch was imported. Its allocators exist once CUDA is initialized."""
    if torch.version.cuda is not None:
        torch.cuda._lazy_call(_attach)
