# SPDX-License-Identifier: MIT
"""Pause and resume in a PyTorch process: regions, graphs, stages, backups as tensors.

PyTorch's allocator gets segments from the hook library and divides them among tensors. A segment
that was allocated for one tag must never serve another. So there is a memory pool for each tag,
kind of backup and device. The calling thread's settings in the hook library determine the tag and
backup of a segment that PyTorch requests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Callable, NamedTuple

from . import _c, _communicators, _hooks
from ._communicators import COMMUNICATORS, TAG
from ._context import Path
from ._hooks import Hook, HookContext
from ._job import (
    GROUP_TIMEOUT_S,
    Group,
    Meeting,
    Move,
    Together,
    call_of,
    job_of,
    seconds,
)
from ._options import address_of, choice, nanoseconds, whole_tag
from ._replicas import Links, Replicas, sharing_of
from ._results import DeviceStats, Forecast, TagStats
from ._scope import scope
from ._simulated import MACHINE_VARIABLE
from ._sizes import format_size, name_bytes, path_bytes
from ._stages import STAGES, Recorder, Stage
from ._wake import (
    WITHOUT_WAIT,
    PreparedStart,
    Wake,
    Wakes,
    addresses_of,
    await_arrival,
    has_arrived,
    options_of,
)
from ._watch import MOVES, Reading
from .errors import (
    Busy,
    InputOutputError,
    InvalidArgument,
    InvalidState,
    NotFound,
    NotSupported,
    OutOfDeviceMemory,
    ReveilleError,
)

TAG_MAX_BYTES = 255


class _Settings(NamedTuple):
    """The settings that the hook library keeps for each thread."""

    tag: bytes
    inside: bool
    host: bool
    kind: bytes
    disk: bool


@dataclass(frozen=True)
class HookStats:
    """What regions use. devices: one entry for each context; tags: summed over the contexts."""

    mode: str
    devices: tuple[DeviceStats, ...]
    tags: dict[str, TagStats]


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"regions are memory of PyTorch, and {sys.executable} finds no package torch: install "
            "it there, or use reveille.Context, which needs none",
            name="torch",
        ) from error
    return torch


def _cuda_with_pools() -> Any:
    torch = _torch()
    for name in ("MemPool", "use_mem_pool"):
        if not hasattr(torch.cuda, name):
            raise NotSupported(
                f"PyTorch {getattr(torch, '__version__', '')} has no torch.cuda.{name}, which "
                "regions are made with: install a newer one"
            )
    return torch.cuda


def tag_bytes(tag: str) -> bytes:
    """Converts a tag for C, after checking its length."""
    name = name_bytes(tag, "a tag")
    if not 0 < len(name) <= TAG_MAX_BYTES:
        raise InvalidArgument(f"a tag must have 1 to {TAG_MAX_BYTES} bytes, not {len(name)}")
    return name


class Saver:
    """Regions of this process, over the one hook library that it uses."""

    def __init__(self) -> None:
        self._wanted: str | None = None
        self._hook: Hook | None = None
        self._pools: dict[tuple[str, str, str, int], Any] = {}
        self._open_regions: set[object] = set()  # of all threads
        self._open_graphs: set[object] = set()  # of all threads
        self._used_up: list[Any] = []  # pools to drop when no region is open
        self._plain: bool | None = None  # whether pools have no expandable segments; None: not tried
        self._allocator: Any = None  # declared after the pools, so that it is dropped after them
        self._wakes = Wakes()
        self._lock = threading.RLock()  # no region may begin while pools are dropped

    # ---- The hook library ----

    @property
    def mode(self) -> str | None:
        """ "preload" or "torch"; None before the first use, unless it was set."""
        return self._hook.mode if self._hook is not None else self._wanted

    @mode.setter
    def mode(self, mode: str) -> None:
        _hooks.check_mode(mode)
        if self._hook is not None and self._hook.mode != mode:
            raise InvalidState(
                f"hook_mode is {self._hook.mode} since the first use: set it before that"
            )
        self._wanted = mode

    @property
    def hook(self) -> Hook:
        """The hook library, opened at the first use."""
        if self._hook is None:
            self._hook = _hooks.open_hook(self._wanted)  # two threads open the same one
            from . import control

            control.open_if_asked()
        return self._hook

    def contexts_in_use(self) -> Iterator[HookContext]:
        """The contexts of the hook library, if it is in the process. Opens none."""
        return self.hook.contexts() if self.is_there else iter(())

    def tags(self) -> dict[str, TagStats]:
        """Counters of each tag, over all contexts. Opens none."""
        found: dict[str, TagStats] = {}
        for context in self.contexts_in_use():
            for name in context.tags:
                stats = context._tag_stats(name)
                found[name] = found[name].plus(stats) if name in found else stats
        return dict(sorted(found.items()))

    @property
    def is_there(self) -> bool:
        """Whether the hook library is in the process, because it was opened or preloaded."""
        return self._hook is not None or (
            self._wanted != "torch" and _hooks.preloaded() is not None
        )

    def _new_pool(self) -> Any:
        cuda = _cuda_with_pools()
        if self.hook.mode == "preload":
            return cuda.MemPool()
        if self._allocator is None:
            self._allocator = cuda.memory.CUDAPluggableAllocator(
                self.hook.path, "tms_torch_malloc", "tms_torch_free"
            )
        return cuda.MemPool(allocator=self._allocator.allocator())

    def _pool(self, tag: str, backup: str, kind: str) -> Any:
        key = (tag, backup, kind, _torch().cuda.current_device())
        if key not in self._pools:
            self._refuse_expandable_segments()
            pool = self._new_pool()
            if self._pools.setdefault(key, pool) is not pool:  # another thread was first
                self._used_up.append(pool)
        return self._pools[key]

    def _refuse_expandable_segments(self) -> None:
        """Raises if they are on, unless PyTorch does not use them in pools with an allocator."""
        variable = _expandable_by()
        if variable is None or (self.hook.mode == "torch" and self._pools_are_plain()):
            return
        other = ", or start the program without LD_PRELOAD" if self.hook.mode == "preload" else ""
        raise NotSupported(
            f"PyTorch keeps expandable segments out of regions: take expandable_segments:True out "
            f"of {variable}{other}"
        )

    def _pools_are_plain(self) -> bool:
        """Whether segments of a pool with our allocator are not expandable. Tries it once."""
        if self._plain is None:
            torch = _torch()
            with self._open_region(), self._passing_pool(self._new_pool()):
                probe = torch.empty((1,), dtype=torch.uint8, device="cuda")
            self._plain = not _is_expandable(probe.data_ptr())
        return self._plain

    # ---- The thread's settings ----

    def _settings(self) -> _Settings:
        library = self.hook.library
        return _Settings(
            library.tms_get_current_tag(),
            library.tms_get_interesting_region(),
            library.tms_get_enable_cpu_backup(),
            library.tms_get_cpu_backup_backend(),
            library.tms_get_enable_disk_backup(),
        )

    def _set(self, settings: _Settings) -> None:
        library = self.hook.library
        library.tms_set_current_tag(settings.tag)
        library.tms_set_interesting_region(settings.inside)
        library.tms_set_enable_cpu_backup(settings.host)
        library.tms_set_cpu_backup_backend(settings.kind)
        library.tms_set_enable_disk_backup(settings.disk)

    @scope
    def _using(self, settings: _Settings) -> Iterator[None]:
        before = self._settings()
        try:
            self._set(settings)
            yield
        finally:
            self._set(before)

    def _settings_of(self, tag: str, backup: str, kind: str | None) -> _Settings:
        chosen = self._settings().kind if kind is None else kind.encode()
        return _Settings(tag_bytes(tag), True, backup == "host", chosen, backup == "disk")

    # ---- Regions ----

    def region(
        self, tag: str, backup: str = "none", kind: str | None = None, *, own_pool: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """Gives the tag to allocations within the block, on the current device.

        own_pool: use a new pool for the block, and drop it afterwards. PyTorch releases freed
        segments of a pool once the pool is dropped: some at the end of the block, the others at
        empty_cache().
        """
        _check_settings(tag, backup, kind)
        return self._region(tag, backup, kind, own_pool)

    @scope
    def _region(self, tag: str, backup: str, kind: str | None, own_pool: bool) -> Iterator[None]:
        cuda = _cuda_with_pools()
        settings = self._settings_of(tag, backup, kind)
        if own_pool:
            self._refuse_expandable_segments()
            with self._open_region(), self._passing_pool(self._new_pool()), self._using(settings):
                yield
            return
        pool = self._pool(tag, backup, settings.kind.decode())
        with self._open_region(), cuda.use_mem_pool(pool), self._using(settings):
            yield

    @scope
    def _passing_pool(self, pool: Any) -> Iterator[None]:
        """Uses a pool that is dropped after the block, or once no region is open."""
        try:
            with _cuda_with_pools().use_mem_pool(pool):
                yield
        finally:
            with self._lock:
                if self._open_regions:
                    self._used_up.append(pool)
            del pool

    @scope
    def _open_region(self) -> Iterator[None]:
        """Counts an open region. The last one drops the pools.

        PyTorch ends the process if a pool is dropped while another is in use.
        """
        region = object()
        try:
            with self._lock:
                self._open_regions.add(region)
            yield
        finally:
            self._open_regions.discard(region)
            with self._lock:
                if not self._open_regions:
                    self._used_up.clear()

    def cuda_graph(
        self, graph: Any, tag: str, backup: str, kind: str | None = None, **options: Any
    ) -> contextlib.AbstractContextManager[None]:
        """torch.cuda.graph() with memory that has the tag."""
        _check_settings(tag, backup, kind)
        return self._cuda_graph(graph, tag, backup, kind, options)

    @scope
    def _cuda_graph(
        self, graph: Any, tag: str, backup: str, kind: str | None, given: dict[str, Any]
    ) -> Iterator[None]:
        torch, options = _torch(), dict(given)
        settings = self._settings_of(tag, backup, kind)
        if self.hook.mode == "torch":
            options["pool"] = self._graph_pool(settings, options.get("pool"))
        else:
            self._refuse_expandable_segments()
        with self._open_graph(), torch.cuda.graph(graph, **options), self._using(settings):
            yield

    @scope
    def _open_graph(self) -> Iterator[None]:
        graph = object()
        try:
            self._open_graphs.add(graph)
            yield
        finally:
            self._open_graphs.discard(graph)

    def _graph_pool(self, settings: _Settings, given: Any) -> Any:
        """The pool of a graph in torch mode, where only pools of ours can be paused."""
        ours = [pool.id for pool in list(self._pools.values())]
        if given is not None:
            handle = getattr(given, "id", given)
            if handle not in ours:
                raise NotSupported(
                    "in torch mode a graph's pool must be one that cuda_graph() made: leave pool "
                    "out, give the pool() of such a graph, or use preload mode"
                )
            return handle
        return self._graph_pool_of(settings).id

    def _graph_pool_of(self, settings: _Settings) -> Any:
        backup = "host" if settings.host else "disk" if settings.disk else "none"
        return self._pool(settings.tag.decode(), f"graph {backup}", settings.kind.decode())

    def graph_pool(
        self, tag: str, backup: str = "none"
    ) -> contextlib.AbstractContextManager[tuple[int, int]]:
        """Gives the tag to captures within the block that use the pool with the yielded id."""
        _check_settings(tag, backup, None)
        return self._capturing(tag, backup)

    @scope
    def _capturing(self, tag: str, backup: str) -> Iterator[tuple[int, int]]:
        settings = self._settings_of(tag, backup, None)
        pool = self._graph_pool_of(settings)
        with self._open_graph(), self._using(settings):
            yield pool.id

    def release_graph_pool(self, tag: str) -> None:
        """Drops the pools of a tag's graphs. Each pool's memory is freed with its last graph."""
        with self._lock:
            for key in [key for key in self._pools if key[0] == tag and key[1].startswith("graph ")]:
                self._used_up.append(self._pools.pop(key))
            if not self._open_regions:
                self._used_up.clear()

    @scope
    def disable(self) -> Iterator[None]:
        """Within a region: allocations in the block are ordinary memory."""
        settings = self._settings()
        if not settings.inside:
            raise InvalidState("disable() is for code within a region, and this thread is in none")
        pool = _cuda_with_pools().MemPool()
        with self._using(settings._replace(inside=False)), self._passing_pool(pool):
            del pool
            yield

    # ---- Pausing and resuming ----

    def refuse_capture(self, what: str) -> None:
        """Raises Busy during a capture, as far as this module can see captures.

        Only the preload library itself sees captures, in all threads. Raises InvalidState if the
        process sleeps, since CUDA calls would not return before it wakes.
        """
        self.refuse_asleep(what)
        if self._open_graphs or _current_stream_is_captured():
            raise Busy(f"a stream is being captured: end the capture before {what}()")

    def refuse_asleep(self, what: str) -> None:
        """Raises InvalidState if the process sleeps. Does not open the C library."""
        if _c.opened_core_is_asleep():
            raise InvalidState(f"the process is asleep: call wake() before {what}()")

    def _move(self, function: str, tags: Sequence[str]) -> None:
        self.refuse_capture(function)
        names: list[bytes | None] = [tag_bytes(tag) for tag in tags]
        entry = getattr(self.hook.core, f"rvl_hooks_{function}")
        self._require(tags)
        try:
            for name in names or [None]:
                self.hook.check(entry(name))
        except ReveilleError as error:
            error.tag = whole_tag(error.tag, tags or self._known())
            raise

    def move_together(
        self,
        function: str,
        tags: Sequence[str],
        group: Group,
        timeout: float,
        replicas: Replicas = False,
    ) -> Links | None:
        """Like pause() or resume(), on all ranks of a group or none; all tags in one transition.

        Communicators move once all ranks have prepared the rest. So callbacks that deregister
        memory run before communicators are paused, and callbacks that register it run after they
        are resumed.
        """
        job = job_of(group)
        sharing = sharing_of(replicas, group, job)
        if sharing is not None and TAG in tags:
            raise InvalidArgument(
                f'replicas exchange by communicators: resume "{TAG}" before, in a call of its own'
            )

        def prepare(prepared: list[Move]) -> None:
            self.refuse_capture(function)
            self.prepare(function, tags, prepared, **({"sharing": sharing} if sharing else {}))

        together = sharing.together if sharing else _together(function, tags, timeout)
        with self.watched(function, tags):
            job.move(call_of(function, tags), prepare, seconds(timeout), together)
        return sharing.links if sharing else None

    def prepare(
        self, function: str, tags: Sequence[str], prepared: list[Move], **options: Any
    ) -> None:
        """Prepares a transition of the tags, or of all tags, in every context that has one of them."""
        self._require(tags)
        forecast = self.fits(tags) if function == "resume" else None
        if forecast is not None and not forecast:
            raise _does_not_fit(tags, forecast)
        regions = _regions(tags)
        for context in self.hook.contexts() if regions or not tags else ():
            here = set(context.tags)
            names = [tag for tag in regions if tag in here]
            if names or not tags:
                prepared.append(getattr(context, f"_prepare_{function}")(names, **options))

    def watched(
        self, function: str, tags: Sequence[str]
    ) -> contextlib.AbstractContextManager[None]:
        return MOVES.watch(function, tags, lambda: self._reading(tags))

    def _reading(self, tags: Sequence[str]) -> Reading:
        reading = Reading({}, {}, {})
        for each in COMMUNICATORS.all() if TAG in tags else ():
            active = each.bytes or 0 if each.state == "active" else 0
            reading.active_bytes[TAG, each.pointer] = active
        for context in self.contexts_in_use():
            here = set(context.tags)
            names = [tag for tag in tags if tag in here]
            if names or not tags:
                for every, own in zip(reading, context._reading(names)):
                    every.update(own)
        return reading

    def _known(self) -> set[str]:
        return {tag for context in self.hook.contexts() for tag in context.tags}

    def _require(self, tags: Sequence[str]) -> None:
        regions = _regions(tags)
        known = self._known() if regions else set()
        for tag in regions:
            if tag not in known:
                names = ", ".join(f'"{each}"' for each in sorted(known)) or "none yet"
                raise NotFound(
                    f'no region ever had the tag "{tag}"; there are: {names}. See how it is '
                    "spelled where the region is entered",
                    tag=tag,
                )
        if TAG in tags:
            COMMUNICATORS.require()

    def pause(
        self,
        tags: Sequence[str],
        timeout: float = GROUP_TIMEOUT_S,
        *,
        ignore: tuple[type[Exception], ...] = (),
    ) -> None:
        """Pauses the tags, or all regions if you name none. Suppresses exceptions in ignore."""
        with self.watched("pause", tags), contextlib.suppress(*ignore):
            if TAG in tags:  # so that it is refused before a region is paused
                self.refuse_capture("pause")
                COMMUNICATORS.require()
            if _regions(tags) or not tags:
                self._move("pause", _regions(tags))
            if TAG in tags:
                self._move_communicators("pause", timeout)

    def resume(
        self,
        tags: Sequence[str],
        timeout: float = GROUP_TIMEOUT_S,
        *,
        ignore: tuple[type[Exception], ...] = (),
    ) -> None:
        """Resumes the tags. With several tags, first checks that they fit together."""
        with self.watched("resume", tags), contextlib.suppress(*ignore):
            if len(tags) > 1 or TAG in tags:
                forecast = self.fits(tags)
                if not forecast:
                    raise _does_not_fit(tags, forecast)
            if TAG in tags:
                self._move_communicators("resume", timeout)
            if _regions(tags) or not tags:
                self._move("resume", _regions(tags))

    def _move_communicators(self, function: str, timeout: float) -> None:
        """Moves all communicators of this process or none. Other ranks make their own call."""
        self.refuse_capture(function)
        movement = COMMUNICATORS.begin(function, seconds(timeout))
        try:
            movement.start()
            movement.wait()
        except BaseException:
            with contextlib.suppress(ReveilleError):  # the exception that is raised describes the state
                movement.abort()
            raise
        movement.commit()

    def start_resume(self, tags: Sequence[str], order: Any, timeout: float) -> Wake:
        """Like resume(), but returns while contents are still being copied."""
        self.refuse_capture("resume")
        self._require(tags)
        forecast = self.fits(tags)
        if not forecast:
            raise _does_not_fit(tags, forecast)

        def begin(wake: Wake) -> None:
            regions = _regions(tags)
            if TAG in tags:
                self._move_communicators("resume", timeout)
            for context in self.hook.contexts() if regions or not tags else ():
                here = set(context.tags)
                names = [tag for tag in regions if tag in here]
                if names or not tags:
                    wake.add(context._started(names, options_of(_c.ResumeOptions(), order)))

        return self._wake(tags, begin)

    def start_together(self, tags: Sequence[str], order: Any, group: Group, timeout: float) -> Wake:
        """Like start_resume(), on all ranks of a group or on none.

        Contents are copied once all ranks have their memory, and their communicators if "nccl" is
        named.
        """
        job = job_of(group)

        def begin(wake: Wake) -> None:
            def prepare(prepared: list[Move]) -> None:
                self.refuse_capture("resume")
                self.prepare("resume", tags, prepared, order=order)
                wake.add(*(each for each in prepared if isinstance(each, PreparedStart)))

            call = call_of("resume", tags, WITHOUT_WAIT)
            job.move(call, prepare, seconds(timeout), _together("resume", tags, timeout))

        return self._wake(tags, begin)

    def _wake(self, tags: Sequence[str], begin: Callable[[Wake], None]) -> Wake:
        """A Wake with the parts that begin() starts. If begin() raises, waits for them first."""
        wake = Wake([], MOVES.start("resume", tags, lambda: self._reading(tags)))
        try:
            begin(wake)
        except BaseException as error:
            wake.fail(error)
            raise
        return self._wakes.add(wake)

    def ready(self, tensor: Any) -> bool:
        """Whether a tensor can be used. True for memory outside of regions."""
        address = address_of(tensor)
        for context in self.contexts_in_use():
            with contextlib.suppress(NotFound):
                return has_arrived(context._handle, address)
        return True

    def wait(self, tensor: Any, timeout: float | None) -> None:
        """Waits for a tensor; without one, for every started resume."""
        nanoseconds(timeout)
        if tensor is None:
            if timeout is not None:
                raise InvalidArgument("a timeout is for one tensor: name it")
            self._wakes.wait()
            return
        address = address_of(tensor)
        for context in self.contexts_in_use():
            with contextlib.suppress(NotFound):
                return await_arrival(context._handle, address, timeout)

    def fits(self, tags: Sequence[str], order: Iterable[Any] = ()) -> Forecast:
        """The forecast for the device with the least room, over all its contexts."""
        addresses = addresses_of(order)
        for tag in tags:
            tag_bytes(tag)
        self._require(tags)
        found: dict[int, list[Forecast]] = {}
        regions = _regions(tags)
        for context in self.hook.contexts() if regions or not tags else ():
            here = set(context.tags)
            names = [tag for tag in regions if tag in here]
            if names or not tags:
                found.setdefault(context.ordinal, []).append(context.fits(*names, order=addresses))
        missing = COMMUNICATORS.missing_bytes() if TAG in tags else {}
        for device, size in missing.items():
            free = _communicators.free_bytes(device)
            found.setdefault(device, []).append(
                Forecast(size <= free, device, size, free, 0, 0, 0, 0)
            )
        merged = [_merge(device, forecasts) for device, forecasts in found.items()]
        return min(
            merged,
            key=lambda each: each.free_bytes - each.needed_bytes,
            default=Forecast(True, 0, 0, 0, 0, 0, 0, 0),
        )

    # ---- Backups ----

    def backup(self, tensor: Any, zero_copy: bool = False) -> Any:
        """The host backup of a tensor as a CPU tensor, or None if there is none."""
        torch = _torch()
        if not hasattr(tensor, "data_ptr"):
            raise InvalidArgument(f"a backup is that of a tensor, not of {tensor!r}")
        if not tensor.is_contiguous():
            raise InvalidArgument("a backup can be read of a contiguous tensor: slice it after")
        size = tensor.numel() * tensor.element_size()
        if size == 0:
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        address = self.hook.library.tms_get_cpu_backup_pointer(tensor.data_ptr(), size)
        if not address:
            return None
        memory = (ctypes.c_uint8 * size).from_address(address)
        found = torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
        return found if zero_copy else found.clone()

    # ---- Stages, statistics, recording ----

    def stage(self, name: bytes) -> Stage:
        """Begins a stage: on the machine of `reveille run`, in recordings, and in every context."""
        needed = self.is_there or not os.environ.get(MACHINE_VARIABLE)
        return STAGES.begin(name, Recorder(self.hook) if needed else None, self._mark_stage)

    def _mark_stage(self, name: bytes) -> None:
        for context in self.contexts_in_use():
            context._handle.call("rvl_stage", name)

    def step(self) -> None:
        """Begins a step, in the recording of the process and in every context."""
        self.hook.check(self.hook.core.rvl_hooks_step())
        for context in self.hook.contexts():
            context._handle.call("rvl_step")

    def stats(self) -> HookStats:
        """What regions use."""
        devices = [
            DeviceStats(**{**vars(each), "index": context.ordinal})
            for context in self.hook.contexts()
            for each in context.stats().devices
        ]
        tags = self.tags()
        for of_device in COMMUNICATORS.stats().values():
            tags[TAG] = tags[TAG].plus(of_device) if TAG in tags else of_device
        return HookStats(mode=self.hook.mode, devices=tuple(devices), tags=tags)

    def set_disk_directory(self, directory: Path) -> None:
        """Sets the directory for disk backups from now on."""
        name = path_bytes(directory, "the folder of backups")
        try:
            os.makedirs(name, exist_ok=True)
        except OSError as error:
            raise InputOutputError(
                f"{os.fsdecode(name)} cannot be made: {error.strerror}: name a folder that is "
                "there, or one with a parent that you may write to",
                native_code=error.errno or 0,
            ) from error
        self.hook.library.tms_set_disk_backup_dir(name)

    def record(self, path: Path) -> contextlib.AbstractContextManager[None]:
        """Records what regions do. Each further context gets its own file with a number."""
        return self._record(FilePath(os.fsdecode(path_bytes(path, "the file of a recording"))))

    @scope
    def _record(self, first: FilePath) -> Iterator[None]:
        device = _torch().cuda.current_device()
        self.hook.context(device)
        with contextlib.ExitStack() as stack:
            for index, context in enumerate(self.hook.contexts()):
                name = first if index == 0 else first.with_suffix(f".{index}{first.suffix}")
                stack.enter_context(context.record(name))
            yield


# ---- Small parts ----


def _expandable_by() -> str | None:
    """The variable that turns PyTorch's expandable segments on. None if they are off."""
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        setting = os.environ.get(variable, "").replace(" ", "").lower()
        if "expandable_segments:true" in setting and _expandable_now() is not False:
            return variable
    return None


def _is_expandable(address: int) -> bool:
    """Whether an address is in an expandable segment, which PyTorch maps itself."""
    return any(
        each["is_expandable"]
        for each in _torch().cuda.memory_snapshot()
        if each["address"] <= address < each["address"] + each["total_size"]
    )


def _regions(tags: Sequence[str]) -> list[str]:
    """The tags without "nccl"."""
    return [tag for tag in tags if tag != TAG]


def _expandable_now() -> bool | None:
    """The allocator's current setting, which a program may change for a block. None: unknown."""
    try:
        return bool(_torch().cuda.memory._snapshot()["allocator_settings"]["expandable_segments"])
    except (AttributeError, KeyError):
        return None


def _check_settings(tag: str, backup: str, kind: str | None) -> None:
    tag_bytes(tag)
    if tag == TAG:
        raise InvalidArgument(
            f'the tag "{TAG}" means the communicators of NCCL: name the region otherwise'
        )
    choice(backup, _c.BACKUP_NAMES, "backup")
    if kind is not None and kind not in ("pinned", "mmap"):
        raise InvalidArgument(f"a host backup must be one of pinned, mmap, not {kind!r}")


def _current_stream_is_captured() -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    return bool(torch.cuda.is_current_stream_capturing())


def _together(function: str, tags: Sequence[str], timeout: float) -> Together | None:
    """The work that ranks do together once all have prepared the rest: move communicators."""

    def together(prepared: list[Move], meeting: Meeting) -> None:
        COMMUNICATORS.begin(function, timeout).together(prepared, meeting)

    return together if TAG in tags else None


def _merge(device: int, forecasts: Sequence[Forecast]) -> Forecast:
    needed = sum(each.needed_bytes for each in forecasts)
    free = min(each.free_bytes for each in forecasts)
    return Forecast(
        fits=needed <= free and all(forecasts),
        device=device,
        needed_bytes=needed,
        free_bytes=free,
        host_bytes=sum(each.host_bytes for each in forecasts),
        disk_bytes=sum(each.disk_bytes for each in forecasts),
        allocation_count=sum(each.allocation_count for each in forecasts),
        time_ns=sum(each.time_ns for each in forecasts),
    )


def _does_not_fit(tags: Sequence[str], forecast: Forecast) -> OutOfDeviceMemory:
    names = ", ".join(f'"{tag}"' for tag in tags) or "all regions"
    return OutOfDeviceMemory(
        f"resume of {names} needs {format_size(forecast.needed_bytes)}, "
        f"{format_size(forecast.free_bytes)} free on cuda:{forecast.device}: free memory there, "
        "or resume fewer tags, and call it again",
        op="create",
        tag=tags[0] if tags else "",
        device=forecast.device,
        requested_bytes=forecast.needed_bytes,
        free_bytes=forecast.free_bytes,
    )


SAVER = Saver()
