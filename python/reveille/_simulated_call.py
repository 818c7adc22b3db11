# SPDX-License-Identifier: MIT
"""Calls a function on simulated GPUs. _simulated.py starts this module there."""

from __future__ import annotations

import pickle
import sys
import traceback
from multiprocessing import spawn
from pathlib import Path
from typing import Any


def _answer(path: str, kind: str, what: Any) -> None:
    try:
        data = pickle.dumps((kind, what))
        pickle.loads(data)  # some exceptions can be pickled but not unpickled
    except Exception as error:
        what = RuntimeError(f"{type(what).__name__} cannot be passed on ({error}): {what}")
        kind, data = "error", pickle.dumps(("error", what))
    Path(path).write_bytes(data)
    if kind == "error":
        sys.exit(1)


def main(given: str, answer: str) -> None:
    """Calls the function in the file `given`, and writes its result or exception to `answer`."""
    try:
        with open(given, "rb") as file:
            spawn.prepare(pickle.load(file))  # paths, and the main program, under another name
            function, args, kwargs = pickle.load(file)
        value = function(*args, **kwargs)
    except Exception as error:
        traceback.print_exc()
        _answer(answer, "error", error)
    else:
        _answer(answer, "value", value)


if __name__ == "__main__":
    main(*sys.argv[1:])
