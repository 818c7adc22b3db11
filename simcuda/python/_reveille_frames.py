# SPDX-License-Identifier: MIT
"""Which line of a stack is the program's.

A stack ends in PyTorch, and has the interpreter's library and ours in it. The program's line is the
innermost one that lies in none of these, and in no installed package if there is one outside.
"""

import os
import sys
import sysconfig

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PATHS = sysconfig.get_paths()
_STANDARD = tuple({os.path.realpath(_PATHS[key]) + os.sep for key in ("stdlib", "platstdlib")})
_PACKAGES = tuple({os.path.realpath(_PATHS[key]) + os.sep for key in ("purelib", "platlib")})


def _is_installed(path):
    return path.startswith(_PACKAGES) or f"{os.sep}site-packages{os.sep}" in path


def _is_inner(path):
    """PyTorch, Python's own library, ours, and what has no file."""
    if path.startswith(("<", _OURS)):
        return True
    if _is_installed(path):
        return f"{os.sep}torch{os.sep}" in path
    return path.startswith(_STANDARD)


def _shown(path):
    """Below the working directory by its path from there, else by its name."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else os.path.basename(path)


def line_of(frame):
    """ "train.py:23" of the innermost frame that is the program's; "" if none is."""
    package = ""
    while frame is not None:
        path = os.path.realpath(frame.f_code.co_filename)
        if frame.f_code.co_filename.startswith("<"):
            path = frame.f_code.co_filename
        if not _is_inner(path):
            line = f"{_shown(path)}:{frame.f_lineno}"
            if not _is_installed(path):
                return line
            package = package or line
        frame = frame.f_back
    return package


def current_line():
    """Of this thread, or, where it runs no line of the program (a backward pass), of the main one."""
    found = line_of(sys._getframe(1))
    if found:
        return found
    import threading

    main = sys._current_frames().get(threading.main_thread().ident)
    return line_of(main) if main is not None else ""
