# SPDX-License-Identifier: MIT
"""How a process ends, for a verdict that names the first one that failed.

The driver's library says the status of who leaves by exit(). An error that nobody catches is told here, before the program stops its
other processes because of it, and so is os._exit(), with which forked children of multiprocessing leave.
"""

import ctypes
import os
import sys
import traceback

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_end = ctypes.PyDLL(_DRIVER).rvli_simulated_end
_end.restype, _end.argtypes = None, (ctypes.c_int, ctypes.c_char_p)


def _last_line(kind, error):
    """Of what Python prints: errors of a remote worker bring its whole traceback."""
    lines = "".join(traceback.format_exception_only(kind, error)).strip().splitlines()
    return lines[-1].strip() if lines else kind.__name__


def watch(_module):
    """PyTorch was imported."""
    shown, leave = sys.excepthook, os._exit

    def tell_and_show(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            _end(1, _last_line(kind, error).encode("utf-8", "replace")[:255])
        shown(kind, error, trace)

    def tell_and_leave(status):
        _end(status, b"")
        leave(status)

    sys.excepthook, os._exit = tell_and_show, tell_and_leave
