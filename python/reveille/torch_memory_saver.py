# SPDX-License-Identifier: MIT
"""The interface of the package torch_memory_saver, on Reveille, with exceptions.

    from reveille.torch_memory_saver import torch_memory_saver

It differs in these points. A pause or resume that fails raises what reveille.pause() and
reveille.resume() raise. hook_mode can be read; if it is not set, it is detected. cuda_graph() also
works in torch mode. As in that package, pausing a tag that no region ever had does nothing.
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
    """Regions of this process. Every instance stands for the same ones."""

    _saver: Saver = SAVER

    def region(
        self,
        tag: str = DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> contextlib.AbstractContextManager[None]:
        """Allocations within the block can be paused by the tag.

        Args:
            tag: what pause() and resume() call it
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
        """Within a region: what is allocated in the block is ordinary memory."""
        if not dispose_mem_pool_after_use:
            raise InvalidArgument("disable() always gives its pool up at the end of the block")
        with self._saver.disable():
            yield

    def pause(self, tag: str | None = None) -> None:
        """Pauses a tag, or all. Raises what reveille.pause() raises."""
        _together.move(self._saver, "pause", tag)

    def resume(self, tag: str | None = None) -> None:
        """Resumes a tag, or all. Raises what reveille.resume() raises."""
        _together.move(self._saver, "resume", tag)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """The host backup of a tensor, None if there is none.

        zero_copy: the backup itself, valid until its tensor is resumed or freed.
        """
        return self._saver.backup(x, zero_copy)

    def set_disk_backup_dir(self, path: str) -> None:
        """Where backups on disk are made from now on; it is made if it is missing."""
        self._saver.set_disk_directory(path)

    @property
    def enabled(self) -> bool:
        """True."""
        return True

    @property
    def hook_mode(self) -> str | None:
        """ "preload" or "torch"; None before the first use, unless it was set. Then it stays."""
        return self._saver.mode

    @hook_mode.setter
    def hook_mode(self, mode: str) -> None:
        self._saver.mode = mode

    @property
    def memory_margin_bytes(self) -> int:
        """Bytes that allocations of regions leave free on their device. Can only be set."""
        raise AttributeError("memory_margin_bytes can be set, and not read")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        self._saver.hook.library.set_memory_margin_bytes(whole_bytes(value))

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether backups outlive the resume, so that the next pause copies what has changed."""
        return bool(self._saver.hook.library.tms_get_retain_cpu_backup())

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._saver.hook.library.tms_set_retain_cpu_backup(bool(value))

    # Programs written against the other package's insides reach the C library by this way.

    def _ensure_initialized(self) -> None:
        _ = self._saver.hook

    @property
    def _impl(self) -> _TorchMemorySaverImpl | None:
        """None while there is no hook library: programs use it to change the settings of one."""
        return _only_impl() if self._saver.is_there else None


def _backup(host: bool, disk: bool, kind: str | None) -> str:
    if host and disk:
        raise InvalidArgument("enable_cpu_backup and enable_disk_backup exclude each other")
    if kind is not None and not host:
        raise InvalidArgument("cpu_backup_backend requires enable_cpu_backup=True")
    return "host" if host else "disk" if disk else "none"


# ---- The insides of the other package ----


class BinaryWrapper:
    """The C functions of a hook library, as cdll."""

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
        """What the calling thread's next allocations become."""
        self.cdll.tms_set_current_tag(tag.encode())
        self.cdll.tms_set_interesting_region(interesting_region)
        self.cdll.tms_set_enable_cpu_backup(enable_cpu_backup)
        if cpu_backup_backend is not None:
            self.cdll.tms_set_cpu_backup_backend(cpu_backup_backend.encode())
        self.cdll.tms_set_enable_disk_backup(enable_disk_backup)


class _TorchMemorySaverImpl(TorchMemorySaver):
    """What is behind ``_impl``. Programs set attributes of it.

    Some replace its class's ``_with_region_config``, so that regions may lie in regions. Here they
    may, and nobody calls it.
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
