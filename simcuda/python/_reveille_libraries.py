# SPDX-License-Identifier: MIT
"""Libraries of CUDA that programs look up by themselves, behind PyTorch, find the simulated ones as on a card.

Two differences to a machine with PyTorch's wheels are levelled here. Its parts of cuDNN all have the functions of
libcudnn.so.9, and who asks for one among all that is loaded (TransformerEngine) must get the simulated one. And there
are two simulated runtimes, of CUDA 12 and 13, where a machine has one; cuDNN's frontend would take the older.
"""

import ctypes
import os


def settle(torch):
    """PyTorch has been imported, and with it its CUDA."""
    cuda = torch.version.cuda
    if cuda is None:
        return
    os.environ.setdefault("CUDNN_FRONTEND_CUDART_LIB_NAME", f"libcudart.so.{cuda.split('.')[0]}")
    ctypes.CDLL("libcudnn.so.9", mode=ctypes.RTLD_GLOBAL)
