# SPDX-License-Identifier: MIT
"""Objects that stand for something outside Python, of which there is one: a context, a job, a wake.

A copy would have the same thing behind it, and close it under the original.
"""

from __future__ import annotations

from typing import Any, NoReturn


class Unique:
    """Cannot be copied or pickled. TypeError is what Python raises for a lock or a file."""

    __slots__ = ()

    def __copy__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied: open another one")

    def __deepcopy__(self, _memo: Any) -> NoReturn:
        self.__copy__()

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it belongs to this process")
