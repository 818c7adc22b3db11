# SPDX-License-Identifier: MIT
"""Where torch_memory_saver reaches its C interface."""

from __future__ import annotations

import ctypes

from reveille import _c


class BinaryWrapper:
    """The C functions of a hook library, as cdll."""

    def __init__(self, path_binary: str) -> None:
        self.cdll = ctypes.CDLL(path_binary)
        _c.declare(self.cdll, _c.SAVER_PROTOTYPES)

    def set_config(
        self,
        *,
        tag: str,
        interesting_region: bool,
        enable_cpu_backup: bool,
        enable_disk_backup: bool = False,
    ) -> None:
        """What the calling thread's next allocations become."""
        self.cdll.tms_set_current_tag(tag.encode())
        self.cdll.tms_set_interesting_region(interesting_region)
        self.cdll.tms_set_enable_cpu_backup(enable_cpu_backup)
        self.cdll.tms_set_enable_disk_backup(enable_disk_backup)


__all__ = ["BinaryWrapper"]
