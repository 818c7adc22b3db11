# SPDX-License-Identifier: MIT
"""The backend that vLLM creates for ``--sleep-mode-backend reveille``.

vLLM's own backend knows which tags each level of sleep keeps, and calls the allocator in vLLM's
slot, which is Reveille's. Only the state differs: after a failure it is unchanged, and while any
memory sleeps it is SUSPENDED.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vllm.device_allocator.sleep_mode_backend import CuMemBackend

from .vllm import allocator_in_use


class ReveilleBackend(CuMemBackend):  # type: ignore[misc]
    """Sleep and wake-up of one worker."""

    def __init__(self) -> None:
        super().__init__()
        self._state: str
        self._allocator = allocator_in_use()

    @contextlib.contextmanager
    def _moving(self) -> Iterator[None]:
        before = self._state
        try:
            yield
        except BaseException:
            self._state = before
            raise
        self._state = "SUSPENDED" if self._allocator.asleep else "RUNNING"

    def suspend(self, level: int = 1) -> None:
        """Puts the engine to sleep. Level 1 keeps the weights on the host, level 2 does not."""
        with self._moving():
            super().suspend(level)

    def resume(self, tags: list[str] | None = None) -> None:
        """Resumes the tags (None: all) at the same addresses."""
        with self._moving():
            super().resume(tags)

    def discard(self, tags: tuple[str, ...]) -> None:
        """Releases the memory of these tags only, without their content."""
        with self._moving():
            super().discard(tags)
