# SPDX-License-Identifier: MIT
"""``with`` blocks that end even if a signal handler raises while they begin.

contextlib.contextmanager starts a generator in a Python function. If a signal handler raises there,
no __exit__ follows, and the generator stays inside its try until the traceback is freed. So here
the generator is closed at once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Callable, TypeVar


class _Scope(contextlib._GeneratorContextManager):  # type: ignore[type-arg]
    def __enter__(self) -> Any:
        try:
            return super().__enter__()
        except BaseException:
            self.gen.close()  # type: ignore[attr-defined]
            raise

    def __exit__(self, *raised: Any) -> bool | None:
        try:
            return super().__exit__(*raised)
        finally:
            self.gen.close()  # type: ignore[attr-defined]


Yielded = TypeVar("Yielded")


def scope(
    function: Callable[..., Iterator[Yielded]],
) -> Callable[..., contextlib.AbstractContextManager[Yielded]]:
    """Like contextlib.contextmanager. The function must acquire resources inside its try."""

    @functools.wraps(function)
    def begin(*arguments: Any, **named: Any) -> contextlib.AbstractContextManager[Yielded]:
        return _Scope(function, arguments, named)

    return begin
