# SPDX-License-Identifier: MIT
"""The interface of the package torch_memory_saver, on Reveille, with exceptions.

    from reveille.torch_memory_saver import torch_memory_saver

It differs from that package in these points. A pause or resume that fails raises the exceptions of
reveille.pause() and reveille.resume(). hook_mode can be read; if it is not set, it is detected.
cuda_graph() also works in torch mode. As in that package, pausing a tag that no region ever had
does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

from . import _c, _together
from ._hooks import configure_subprocess
from ._process import SAVER, Saver
from ._scope import scope
from ._sizes import whole_bytes
from .errors import InvalidArgument

DEFAULT_TAG = "default"


class TorchMemorySaver:
    """The regions of this process. All instances share them."""

    _saver: Saver = SAVER

    def region(
        self,
        tag: str = DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> contextlib.AbstractContextManager[None]:
        """Tags allocations within the block, so that they can be paused.

        Args:
            tag: the name for pause() and resume()
            enable_cpu_backup: keep the content in host memory while it is paused
            enable_disk_backup: keep the content on disk; not together with enable_cpu_backup
            cpu_backup_backend: "pinned" keeps host memory for the next pause, "mmap" frees it
        """
        backup = _backup(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        return self._saver.region(tag, backup, cpu_backup_backend)

    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> contextlib.AbstractContextManager[None]:
        """torch.cuda.graph(), with the graph's own memory in a region."""
        backup = _backup(enable_cpu_backup, False, cpu_backup_backend)
        return self._saver.cuda_graph(
            cuda_graph,
            tag,
            backup,
            cpu_backup_backend,
            pool=pool,
            stream=stream,
            capture_error_mode=capture_error_mode,
        )

    @scope
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """Within a region: allocations in the block are ordinary memory."""
        if not dispose_mem_pool_after_use:
            raise InvalidArgument("disable() always gives its pool up at the end of the block")
        with self._saver.disable():
            yield

    def pause(self, tag: str | None = None) -> None:
        """Pauses a tag, or all tags. Raises the exceptions of reveille.pause()."""
        _together.move(self._saver, "pause", tag)

    def resume(self, tag: str | None = None) -> None:
        """Resumes a tag, or all tags. Raises the exceptions of reveille.resume()."""
        _together.move(self._saver, "resume", tag)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """A copy of the host backup of a tensor, or None if there is none.

        zero_copy: return the backup itself, valid until the tensor is resumed or freed.
        """
        return self._saver.backup(x, zero_copy)

    def set_disk_backup_dir(self, path: str) -> None:
        """Sets the directory for disk backups from now on. Creates it if it is missing."""
        self._saver.set_disk_directory(path)

    @property
    def enabled(self) -> bool:
        """True."""
        return True

    @property
    def hook_mode(self) -> str | None:
        """ "preload" or "torch"; None before the first use, unless it was set. Fixed afterwards."""
        return self._saver.mode

    @hook_mode.setter
    def hook_mode(self, mode: str) -> None:
        self._saver.mode = mode

    @property
    def memory_margin_bytes(self) -> int:
        """Bytes that allocations of regions leave free on their device. Write-only."""
        raise AttributeError("memory_margin_bytes can be set, and not read")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        self._saver.hook.library.set_memory_margin_bytes(whole_bytes(value))

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether backups are kept after a resume, so that the next pause copies only changes."""
        return bool(self._saver.hook.library.tms_get_retain_cpu_backup())

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._saver.hook.library.tms_set_retain_cpu_backup(bool(value))

    # Programs that use the other package's private parts reach the C library through these.

    def _ensure_initialized(self) -> None:
        _ = self._saver.hook

    @property
    def _impl(self) -> _TorchMemorySaverImpl | None:
        """The hook library's object, for its settings. None while there is no hook library."""
        return _only_impl() if self._saver.is_there else None


def _backup(host: bool, disk: bool, kind: str | None) -> str:
    if host and disk:
        raise InvalidArgument("enable_cpu_backup and enable_disk_backup exclude each other")
    if kind is not None and not host:
        raise InvalidArgument("cpu_backup_backend requires enable_cpu_backup=True")
    return "host" if host else "disk" if disk else "none"


# ---- Private parts of the other package ----


class BinaryWrapper:
    """The C functions of a hook library, in cdll."""

    def __init__(self, path_binary: str | ctypes.CDLL) -> None:
        opened = isinstance(path_binary, ctypes.CDLL)
        self.cdll = path_binary if opened else _c.Library(path_binary)

    def set_config(
        self,
        *,
        tag: str,
        interesting_region: bool,
        enable_cpu_backup: bool,
        cpu_backup_backend: str | None = None,
        enable_disk_backup: bool = False,
    ) -> None:
        """Sets the tag and backup of the calling thread's next allocations."""
        self.cdll.tms_set_current_tag(tag.encode())
        self.cdll.tms_set_interesting_region(interesting_region)
        self.cdll.tms_set_enable_cpu_backup(enable_cpu_backup)
        if cpu_backup_backend is not None:
            self.cdll.tms_set_cpu_backup_backend(cpu_backup_backend.encode())
        self.cdll.tms_set_enable_disk_backup(enable_disk_backup)


class _TorchMemorySaverImpl(TorchMemorySaver):
    """The class of ``_impl``. Programs set its attributes.

    Some programs replace the class's ``_with_region_config``, so that regions can be nested. Here
    they can be nested anyway, and nothing calls that method.
    """

    def __init__(self, hook_mode: str | None = None) -> None:
        if hook_mode is not None:
            self._saver.mode = hook_mode
        self._hook_mode = self._saver.hook.mode
        self._binary_wrapper = BinaryWrapper(self._saver.hook.library)


@functools.cache
def _only_impl() -> _TorchMemorySaverImpl:
    return _TorchMemorySaverImpl()


torch_memory_saver = TorchMemorySaver()

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]
