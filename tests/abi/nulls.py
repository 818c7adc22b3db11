#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every public function, called with NULL and 0 for all that it takes: none crashes, and one that returns a status
refuses.

    nulls.py SOURCE_DIR LIBRARY...

A function may take NULL for what it frees, closes or may leave out: those are listed, with why.
"""
import ctypes
import os
import re
import signal
import sys
from pathlib import Path

FUNCTION = re.compile(r"RVL_API\s+([\w\s]+?\**)\s*\b(rvl_\w+)\((.*?)\);", re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# These return RVL_OK: nothing is freed, closed, stopped or asked about.
FINE = {
    "rvl_hooks_pause": "no tag: all of them",
    "rvl_hooks_resume": "no tag: all of them",
    "rvl_listener_set": "nobody hears",
    "rvl_context_close": "nothing to close",
    "rvl_communicator_check_sleep": "without communicators",
    "rvl_control_open": "as it is by default",
    "rvl_trace_writer_close": "nothing to close",
}
WIDE = {"uint64_t", "rvl_addr", "size_t", "int64_t"}
SECONDS = 20  # a call that waits does not refuse


def functions(source):
    for path in sorted((source / "include" / "reveille").glob("*.h")):
        for result, name, parameters in FUNCTION.findall(COMMENT.sub("", path.read_text(encoding="utf-8"))):
            yield result.strip(), name, [] if parameters.strip() in ("", "void") else parameters.split(",")


def argument(text):
    words = text.replace("*", " * ").split()
    if "*" in words or "(" in text or words[0].endswith("_fn"):
        return ctypes.c_void_p(None)
    if "double" in words:
        return ctypes.c_double(0)
    return ctypes.c_uint64(0) if WIDE & set(words) else ctypes.c_uint32(0)


def outcome(call, parameters):
    """The status, or "signal N", of a call in a child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.write(write, str(call(*map(argument, parameters))).encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 64).decode()
    os.close(read)
    status = os.waitpid(child, 0)[1]
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else int(said or 0)


def main(source, libraries):
    loaded = [ctypes.CDLL(path) for path in libraries]
    faults = called = 0
    for result, name, parameters in functions(Path(source)):
        found = [getattr(library, name) for library in loaded if hasattr(library, name)]
        if not found or not parameters:
            continue
        called += 1
        said = outcome(found[0], parameters)
        crashed = isinstance(said, str)
        if not crashed and (result != "rvl_status" or said < 0 or name in FINE):
            continue
        faults += 1
        print(f"{name}: {said if crashed else 'RVL_OK'}")
    print(f"{called} functions called with nothing, {faults} faults")
    return faults > 0 or called < 150


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
