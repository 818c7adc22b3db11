# SPDX-License-Identifier: MIT
"""Objects that own something outside Python: a context, a job, a wake.

A copy would own the same thing, and close it while the original still uses it.
"""

from __future__ import annotations

from typing import Any, NoReturn


class Unique:
    """Cannot be copied or pickled. Raises TypeError, as Python does for a lock or a file."""

    __slots__ = ()

    def __copy__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied: open another one")

    def __deepcopy__(self, _memo: Any) -> NoReturn:
        self.__copy__()

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it belongs to this process")
