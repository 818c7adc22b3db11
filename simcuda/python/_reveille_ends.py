# SPDX-License-Identifier: MIT
"""How a process ends, for a verdict that names the first one that failed.

The driver's library reports the status of a process that leaves by exit(). Earlier signs are reported here, before the program stops its
other processes because of them: an uncaught error, sys.exit() with a status other than 0, and os._exit(), by which forked children of
multiprocessing leave.
"""

import ctypes
import itertools
import os
import re
import sys
import threading
import traceback

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_end = ctypes.PyDLL(_DRIVER).rvli_simulated_end
_end.restype, _end.argtypes = None, (ctypes.c_int, ctypes.c_char_p)
WORDS = 200  # characters of an error
NAMED = re.compile(r"[\w.]+(Error|Exception|Interrupt)\b")

_leaving = None  # set by the last sys.exit(): the status, and the error that was being handled, as in Hydra


def _words(error):
    """The last line that names an error, and the indented lines below it. A remote worker's error begins with its traceback."""
    lines = "".join(traceback.format_exception_only(type(error), error)).rstrip().splitlines()
    first = max((i for i, line in enumerate(lines) if NAMED.match(line)), default=0)
    below = itertools.takewhile(lambda line: line[:1].isspace(), lines[first + 1 :])
    return " ".join(" ".join([lines[first], *below]).split())[:WORDS].rstrip(":").encode("utf-8", "replace")[:255]


def _tell():
    """Called when the interpreter ends. Functions of atexit run later, and some of them end other processes."""
    if _leaving is not None and _leaving[0] != 0:
        _end(*_leaving)


def watch(_module):
    """Called when PyTorch was imported."""
    show, leave, leave_at_once = sys.excepthook, sys.exit, os._exit

    def tell_and_show(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            _end(1, _words(error))
        show(kind, error, trace)

    def remember_and_leave(status=None):
        global _leaving
        handled = sys.exc_info()[1]
        number = status if isinstance(status, int) else int(status is not None)
        _leaving = number, b"" if handled is None or isinstance(handled, SystemExit) else _words(handled)
        leave(status)

    def tell_and_leave(status):
        _end(status, None)
        leave_at_once(status)

    sys.excepthook, sys.exit, os._exit = tell_and_show, remember_and_leave, tell_and_leave
    threading._register_atexit(_tell)
