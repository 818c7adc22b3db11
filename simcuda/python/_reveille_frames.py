# SPDX-License-Identifier: MIT
"""Finds the program's line in a stack.

A stack ends in PyTorch, and contains the interpreter's library and our files. The program's line is the innermost one outside these, and
outside installed packages if there is such a line.
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
    """Whether a file belongs to PyTorch, Python's library or us, or is no file."""
    if path.startswith(("<", _OURS)):
        return True
    if _is_installed(path):
        return f"{os.sep}torch{os.sep}" in path
    return path.startswith(_STANDARD)


def _shown(path):
    """The path relative to the working directory if it is below, else the file's name."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else os.path.basename(path)


def line_of(frame):
    """The line of the program's innermost frame, as in "train.py:23". Returns "" if there is none."""
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
    """The program's line in this thread. If this thread runs none (a backward pass), the main thread's."""
    found = line_of(sys._getframe(1))
    if found:
        return found
    import threading

    main = sys._current_frames().get(threading.main_thread().ident)
    return line_of(main) if main is not None else ""
