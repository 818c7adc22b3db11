# SPDX-License-Identifier: MIT
"""Makes CUDA libraries that programs look up themselves, bypassing PyTorch, resolve to the simulated ones, as on a card.

This removes two differences from a machine with PyTorch's wheels. First, the parts of the real cuDNN all have the functions of
libcudnn.so.9, and a program that looks for one among all loaded libraries (TransformerEngine) must get the simulated one. Second, there
are two simulated runtimes, of CUDA 12 and 13, where a real machine has one, and cuDNN's frontend would choose the older one.
"""

import ctypes
import os


def settle(torch):
    """Called when PyTorch, and with it its CUDA, was imported."""
    cuda = torch.version.cuda
    if cuda is None:
        return
    os.environ.setdefault("CUDNN_FRONTEND_CUDART_LIB_NAME", f"libcudart.so.{cuda.split('.')[0]}")
    ctypes.CDLL("libcudnn.so.9", mode=ctypes.RTLD_GLOBAL)
