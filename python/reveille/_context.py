# SPDX-License-Identifier: MIT
"""Context: devices, tags, allocations, pause and resume, stages, statistics, recording."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, TypeVar, Union, overload

from . import _c
from ._handle import AfterMap, BeforeUnmap, Callbacks, Handle, Log
from ._job import (
    GROUP_TIMEOUT_S,
    Group,
    Job,
    JobForecast,
    Move,
    Prepared,
    Together,
    call_of,
    job_of,
    seconds,
)
from ._options import (
    Devices,
    address_of,
    choice,
    cuda_options,
    handles_of,
    nanoseconds,
    sim_options,
    whole_number,
    whole_tag,
)
from ._replicas import Links, Replicas, Sharing, sharing_of
from ._results import (
    Allocation,
    Device,
    DeviceStats,
    Forecast,
    Holder,
    HostMemory,
    Oom,
    StageStats,
    Stats,
    TagStats,
    from_struct,
    holder_of,
)
from ._sizes import Size, name_bytes, parse_size, path_bytes
from ._unique import Unique
from ._wake import (
    WITHOUT_WAIT,
    PreparedStart,
    Started,
    Wake,
    Wakes,
    addresses_of,
    await_arrival,
    has_arrived,
    options_of,
    order_of,
)
from ._watch import MOVES, Reading
from .errors import (
    InvalidArgument,
    InvalidState,
    NotFound,
    NotSupported,
    ReveilleError,
    Vetoed,
)

Path = Union[str, "os.PathLike[str]"]
Answer = TypeVar("Answer")
AnyContext = TypeVar("AnyContext", bound="Context")


# For metrics(), which asks for those of hook libraries itself.
OPEN_CONTEXTS: weakref.WeakValueDictionary[int, Context] = weakref.WeakValueDictionary()


class Context(Unique):
    """GPU memory by tags, on one backend. You may call all methods from any thread.

    A context is closed by its ``with`` block, by the garbage collector, or at the end of the
    process. In a forked child every call raises Forked: open a new context there.
    """

    def __init__(
        self,
        backend: str = "sim",
        *,
        devices: Devices = None,
        memory: str = "backed",
        overcommit: bool = False,
        poison: int = 0,
        host_keep: str | int = "all",
        host_ahead: bool = False,
        host_pageable: bool = False,
        process_name: str | None = None,
        keep_bytes: Size = 0,
        verify: bool = True,
        disk_directory: Path | None = None,
        disk_tmpfs: bool = False,
        store: Path | None = None,
        store_overflow: bool = False,
        log: Log | None = None,
        log_ops: bool = False,
    ) -> None:
        """Opens a context.

        Args:
            backend: "sim" or "cuda"
            devices: sim: profiles or sizes ("h200", "80GiB", ["l4", "l4"]), None is one h200;
                cuda: ordinals (0, [0, 1]), None is all devices that the driver shows
            memory: sim: "backed", real bytes at every address; "accounted", numbers only
            overcommit: sim: allow allocations beyond the capacity, and report it in stats()
            poison: sim: the byte that fresh memory is filled with
            host_keep: cuda: how much pinned memory to keep after use: "all", "none" or bytes
            host_ahead: cuda: allocate host memory for backups in the background, before the first
                pause
            host_pageable: cuda: do not register host memory. A sleep is shorter; copies use CPU
                cores
            process_name: name of this process in statistics and traces; None: "self"
            keep_bytes: how many bytes of released blocks to keep for requests of the same size
            verify: compare restored content with digests of the content that was backed up
            disk_directory: the directory for files of disk backups
            disk_tmpfs: allow disk_directory to be on tmpfs
            store: the socket of a `reveille store`, which keeps host backups
            store_overflow: put backups for which the store has no room into disk_directory
            log: called with a level ("error", "warn", "info", "debug") and a line of text
            log_ops: log every call of the backend
        """
        name_bytes(backend, "backend")
        if backend != "sim" and (memory != "backed" or overcommit or poison):
            raise InvalidArgument("memory, overcommit and poison are for backend 'sim' alone")
        if backend == "sim":
            own: Any = sim_options(devices, memory, overcommit, poison)
        elif backend == "cuda":
            own = cuda_options(devices, host_keep, host_ahead, host_pageable)
        else:
            own = None
        own_pointer = None if own is None else ctypes.cast(ctypes.byref(own), ctypes.c_void_p)
        callbacks = Callbacks(log)
        options = _c.ContextOptions(
            flags=_c.flags(
                (log_ops, _c.CONTEXT_LOG_OPS),
                (not verify, _c.CONTEXT_NO_VERIFY),
                (disk_tmpfs, _c.CONTEXT_DISK_TMPFS),
                (store_overflow, _c.CONTEXT_STORE_OVERFLOW),
            ),
            backend_options=own_pointer,
            process_name=None if process_name is None else name_bytes(process_name, "process_name"),
            log=callbacks.log,
            keep_bytes=parse_size(keep_bytes),
            disk_directory=(
                None if disk_directory is None else path_bytes(disk_directory, "disk_directory")
            ),
            store_path=None if store is None else path_bytes(store, "store"),
        )
        self._store_path = None if store is None else os.fsdecode(store)
        self._handle = Handle(backend, callbacks, _c.core())
        self._wakes = Wakes()
        self._handle.before_close = self._wakes.end
        self._tag_names: dict[str, None] = {}
        self._finalizer = weakref.finalize(self, self._handle.finish, weakref.ref(self))
        self._handle.open(options)
        OPEN_CONTEXTS[id(self)] = self

    # ---- Life ----

    def close(self) -> int:
        """Releases everything. Returns the number of allocations left. A second call does nothing.

        Waits for running calls of other threads. From now on new calls raise InvalidState.
        Raises InvalidState if called from a callback, Forked in a child. If an exception of a
        signal handler interrupts it, the context stays closed to calls: call close() again, or let
        the garbage collector do it.
        """
        return self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle.closed

    def __enter__(self: AnyContext) -> AnyContext:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<reveille.Context {self.backend} {state}>"

    @property
    def backend(self) -> str:
        """Name of the backend it was opened on."""
        return self._handle.backend

    # ---- Devices ----

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices, in the order of their numbers."""
        return tuple(self._device(i) for i in range(self._handle.ask("rvl_device_count")))

    def _device(self, index: int) -> Device:
        struct = _c.DeviceInfo()
        self._handle.call("rvl_device_get_info", index, ctypes.byref(struct))
        return from_struct(Device, struct, index=index)

    def memory(self, device: int = 0) -> tuple[int, int]:
        """Free bytes and total bytes, as the device itself reports them."""
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        number = whole_number(device, "device")
        self._handle.call("rvl_device_get_memory", number, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    @property
    def clock_ns(self) -> int:
        """The context's clock. On simulated devices it is the sum of their cost model's times."""
        return self._handle.ask("rvl_clock_ns")

    # ---- Tags ----

    @property
    def tags(self) -> tuple[str, ...]:
        """Names of the tags, in the order of their first use."""
        return tuple(self._tag_names)

    def tag(
        self,
        name: str,
        *,
        block_bytes: Size = 0,
        coalesce_bytes: Size = 0,
        retain_backups: bool = False,
        poison: bool = False,
        before_unmap: BeforeUnmap | None = None,
        after_map: AfterMap | None = None,
    ) -> None:
        """Adds a tag, or changes its options. The first alloc with a new tag also adds it.

        Args:
            name: at most 255 bytes; "" is the group of allocations without a tag
            block_bytes: largest block of physical memory; 0: one block for each allocation
            coalesce_bytes: small allocations share blocks of this size; 0: none do
            retain_backups: keep backups after a resume, so that the next pause copies only changes
            poison: fill memory that is resumed without its content with 0xFF (NaN), so that
                stale use shows
            before_unmap: called with the name before memory is released; an exception from it
                refuses the pause
            after_map: called with the name once memory is mapped again

        Callbacks run on the thread that pauses or resumes, and may only read statistics.
        """
        callbacks, number = self._handle.callbacks, ctypes.c_uint32()
        for function in (before_unmap, after_map):
            if function is not None and not callable(function):
                raise InvalidArgument(f"a callback must be callable, not {function!r}")
        options = _c.TagOptions(
            block_bytes=parse_size(block_bytes),
            coalesce_bytes=parse_size(coalesce_bytes),
            flags=_c.flags((retain_backups, _c.TAG_RETAIN_BACKUPS), (poison, _c.TAG_POISON)),
            before_unmap=callbacks.before_unmap,
            after_map=callbacks.after_map,
        )
        self._handle.call(
            "rvl_tag_define", name_bytes(name, "a tag"), ctypes.byref(options), ctypes.byref(number)
        )
        callbacks.set(number.value, name, before_unmap, after_map)
        self._remember(name)

    def _groups(self) -> tuple[str, ...]:
        """The tags, and "" if there ever was an allocation without a tag."""
        with contextlib.suppress(NotFound):
            self._tag_number("")
            return ("", *self.tags)
        return self.tags

    def _remember(self, name: str) -> None:
        if name:
            self._tag_names.setdefault(name)

    def _tag_number(self, name: str) -> int:
        number = ctypes.c_uint32()
        try:
            self._handle.call("rvl_tag_find", 0, name_bytes(name, "a tag"), ctypes.byref(number))
        except NotFound as error:
            known = ", ".join(f'"{tag}"' for tag in self.tags) or "none yet"
            raise NotFound(
                f'no tag "{name}"; there are: {known}. A tag begins with its first alloc or with '
                "tag()",
                tag=name,
            ) from error
        return number.value

    def _tags(self, names: Sequence[str]) -> tuple[Any, int]:
        numbers = [self._tag_number(name) for name in names]
        return (ctypes.c_uint32 * len(numbers))(*numbers) if numbers else None, len(numbers)

    @contextlib.contextmanager
    def _naming(self, names: Sequence[str]) -> Iterator[None]:
        """Gives an exception of the block its full tag, one of names or, if that is empty, any."""
        try:
            yield
        except ReveilleError as error:
            error.tag = whole_tag(error.tag, names or self.tags)
            raise

    # ---- Allocations ----

    def alloc(
        self,
        size: Size,
        tag: str = "",
        *,
        device: int = 0,
        backup: str = "none",
        access: Sequence[int] = (),
        exportable: bool = False,
        rdma: bool = False,
        paused: bool = False,
    ) -> int:
        """Allocates memory, rounded up to the device's granularity; returns its address.

        Args:
            size: bytes, or text such as "1.5GiB"
            tag: the tag that it is paused and resumed with; "": none
            device: number of the device
            backup: where its content is kept while paused: "none", "host" or "disk"
            access: further devices that must have access to it
            exportable: other processes may import it
            rdma: GPUDirect RDMA must be able to access it; NotSupported if it cannot
            paused: reserve an address now, and allocate memory at the first resume
        """
        others = [whole_number(other, "a device of access") for other in access]
        options = _c.AllocOptions(
            tag=name_bytes(tag, "a tag"),
            device=whole_number(device, "device"),
            backup=choice(backup, _c.BACKUP_NAMES, "backup"),
            flags=_c.flags(
                (exportable, _c.ALLOC_EXPORTABLE), (rdma, _c.ALLOC_RDMA), (paused, _c.ALLOC_PAUSED)
            ),
            access=(ctypes.c_int * len(others))(*others) if others else None,
            access_count=len(others),
        )
        address = ctypes.c_uint64()
        with self._naming((tag,)):
            self._handle.call(
                "rvl_alloc", parse_size(size), ctypes.byref(options), ctypes.byref(address)
            )
        self._remember(tag)
        return address.value

    def free(self, address: int) -> None:
        """Frees the allocation that begins at an address, paused or not."""
        self._handle.call("rvl_free", address_of(address))

    def allocation(self, address: Any) -> Allocation:
        """The allocation that contains an address or a tensor. Raises NotFound."""
        return self._find("rvl_allocation_find", address_of(address))

    def _find(self, function: str, address: int) -> Allocation:
        struct = _c.Allocation()

        def find(context: ctypes.c_void_p) -> Allocation:
            self._handle.call(function, address, ctypes.byref(struct))
            return from_struct(
                Allocation,
                struct,
                tag=_c.some_text(self._handle.library.rvl_tag_name(context, struct.tag)),
                backup=_c.BACKUP_NAMES[struct.backup],
                state=_c.STATE_NAMES[struct.state],
                access=tuple(bit for bit in range(64) if struct.access_mask >> bit & 1),
            )

        return self._handle.run(find)

    def allocations(self) -> Iterator[Allocation]:
        """All allocations, in the order of their addresses."""
        address = 0
        with contextlib.suppress(NotFound):
            while True:
                found = self._find("rvl_allocation_next", address)
                yield found
                address = found.addr + 1

    def backup(self, where: Any, size: int | None = None) -> bytes:
        """A copy of the host backup of a paused address or tensor, without resuming it.

        Args:
            where: an address within the allocation, or a tensor
            size: bytes; None: the tensor's size, or up to the end of the allocation

        Raises NotFound if nothing is backed up there. Do not resume or free it during the call.
        """
        address = address_of(where)
        if size is None and hasattr(where, "data_ptr"):
            size = where.numel() * where.element_size()
        host, there = ctypes.c_void_p(), ctypes.c_uint64()

        def copy(_context: ctypes.c_void_p) -> bytes:
            self._handle.call("rvl_backup_find", address, ctypes.byref(host), ctypes.byref(there))
            wanted = there.value if size is None else size
            if not 0 <= wanted <= there.value:
                raise InvalidArgument(f"{there.value} bytes are backed up from there, not {wanted}")
            return ctypes.string_at(host, wanted) if wanted else b""

        return self._handle.run(copy)

    # ---- Transitions ----

    def _pause_options(
        self, discard: bool, streams: Sequence[Any], events: Sequence[Any] | None
    ) -> _c.PauseOptions:
        return _c.PauseOptions(
            flags=_c.flags((discard, _c.PAUSE_DISCARD)),
            events=None if events is None else handles_of(events, "cuda_event"),
            event_count=len(events or ()),
            streams=handles_of(streams, "cuda_stream"),
            stream_count=len(streams),
        )

    def pause(
        self,
        *tags: str,
        discard: bool = False,
        streams: Sequence[Any] = (),
        events: Sequence[Any] | None = None,
        group: Group | None = None,
        group_timeout: float = GROUP_TIMEOUT_S,
    ) -> None:
        """Pauses the tags, or everything if you name none: releases memory and keeps addresses.

        Args:
            tags: names; NotFound for one that was never used
            discard: make no backup; use it if the content is about to be overwritten
            streams: refuse with Busy if one of these is being captured
            events: wait only for these; None: wait until the devices are idle
            group: a process group of torch.distributed or a Job: all its ranks pause, or none does
            group_timeout: seconds for all ranks to prepare; after that no rank pauses

        With a group, raises JobAborted on all ranks if one of them cannot pause.
        """
        options = self._pause_options(discard, streams, events)
        job = None if group is None else job_of(group)
        with self._vetoes():
            self._move("pause", tags, options, job, group_timeout)

    @contextlib.contextmanager
    def _vetoes(self) -> Iterator[None]:
        try:
            yield
        except Vetoed as veto:
            raised = self._handle.callbacks.take_veto()
            if raised is not None and not isinstance(raised, Exception):
                raise raised from veto  # KeyboardInterrupt, SystemExit: must not become a Vetoed
            raise veto from raised

    def _move(
        self,
        what: str,
        tags: Sequence[str],
        options: Any,
        job: Job | None,
        timeout: float,
        together: Together | None = None,
    ) -> None:
        """Pauses or resumes in one call, or in two phases with the ranks of a job."""

        def prepare(prepared: list[Move]) -> None:
            prepared.append(self._prepared(f"rvl_{what}_prepare", tags, options))

        with MOVES.watch(what, tags, lambda: self._reading(tags), lambda: self.clock_ns):
            if job is None:
                self._transition(f"rvl_{what}", tags, options)
            else:
                job.move(call_of(what, tags), prepare, seconds(timeout), together)

    def _reading(self, tags: Sequence[str]) -> Reading:
        """Active bytes of the tags (of all tags if none is named), and bytes copied so far."""
        own = self._handle.identity
        names = tags or self._groups()
        active = {(own, tag): self._tag_stats(tag).active_bytes for tag in names}
        copied, filled = {}, {}
        for index, _name in self._device_names():
            stats = self._device_counters(index)
            copied[own, index] = stats.backup_out_bytes + stats.backup_in_bytes
            filled[own, index] = stats.filled_in_bytes
        return Reading(active, copied, filled)

    def _transition(self, function: str, tags: Sequence[str], options: Any) -> None:
        with self._naming(tags):
            self._handle.call(function, *self._tags(tags), ctypes.byref(options))

    def _prepared(self, function: str, tags: Sequence[str], options: Any) -> Prepared:
        with self._naming(tags):
            prepared = Prepared(self._handle, function, *self._tags(tags), ctypes.byref(options))
        prepared.device_names = lambda: dict(self._device_names())
        return prepared

    def _prepare_pause(self, tags: Sequence[str], discard: bool = False) -> Prepared:
        options = self._pause_options(discard, (), None)
        return self._prepared("rvl_pause_prepare", tags, options)

    def _prepare_resume(
        self, tags: Sequence[str], sharing: Sharing | None = None, order: Any = None
    ) -> Prepared | PreparedStart:
        """order: if given, the resume continues in the background, in this order."""
        options = _c.ResumeOptions()
        if order is not None:
            return self._prepared_start(tags, options_of(options, order))
        return self._prepared(
            "rvl_resume_prepare", tags, options if sharing is None else sharing.ask(options)
        )

    def resume(
        self,
        *tags: str,
        restore: bool = True,
        timeout: float | None = None,
        streams: Sequence[Any] = (),
        group: Group | None = None,
        group_timeout: float = GROUP_TIMEOUT_S,
        replicas: Replicas = False,
        wait: bool = True,
        order: Iterable[Any] = (),
    ) -> Wake | Links | None:
        """Resumes the tags at their old addresses, or everything if you name none.

        Args:
            tags: names; NotFound for one that was never used
            restore: restore the backup; False drops it, if the content comes from elsewhere
            timeout: seconds to wait for another process to free memory; None: do not wait
            streams: refuse with Busy if one of these is being captured
            group, group_timeout: as in pause()
            replicas: the ranks of the group hold the same content. Each restores a part, and gets
                the rest from the others; it is checked. True exchanges through the process group;
                or give an Exchange. Returns Links
            wait: False returns while contents are still being copied, one after the other, and
                returns a Wake: ready() and wait() tell when each has arrived. With a group, either
                all ranks have their memory then, or none does; each rank's contents arrive
                independently
            order: with wait=False, tensors or addresses in the order in which you first use them;
                others follow in the order in which they were allocated

        Raises OutOfDeviceMemory (TimedOut with a timeout) if there is no room. Then nothing has
        changed: free memory and retry.
        """
        addresses = order_of(order, wait)
        options = _c.ResumeOptions(
            flags=_c.flags((not restore, _c.RESUME_NO_RESTORE)),
            timeout_ns=nanoseconds(timeout),
            streams=handles_of(streams, "cuda_stream"),
            stream_count=len(streams),
        )
        job = None if group is None else job_of(group)
        sharing = sharing_of(replicas, group, job, wait)
        if sharing is not None:
            self._move("resume", tags, sharing.ask(options), job, group_timeout, sharing.together)
            return sharing.links
        if wait:
            self._move("resume", tags, options, job, group_timeout)
            return None
        return self._start(tags, options_of(options, addresses), job, group_timeout)

    def _start(
        self, tags: Sequence[str], options: _c.ResumeOptions, job: Job | None, timeout: float
    ) -> Wake:
        """Starts a resume alone, or once all ranks of a job have their memory."""
        # The wake is kept until it has ended. It must not keep the context alive: the context
        # closes with its last other reference, and then waits for the wake.
        own = weakref.ref(self)

        def context() -> Context:
            found = own()
            if found is None:
                raise InvalidState("the context is closed")
            return found

        end = MOVES.start(
            "resume", tags, lambda: context()._reading(tags), lambda: context().clock_ns
        )
        wake = Wake([], end)

        def prepare(prepared: list[Move]) -> None:
            one = self._prepared_start(tags, options)
            prepared.append(one)
            wake.add(one)

        try:
            if job is None:
                wake.add(self._started(tags, options))
            else:
                job.move(call_of("resume", tags, WITHOUT_WAIT), prepare, seconds(timeout))
        except BaseException as error:
            wake.fail(error)
            raise
        return self._wakes.add(wake)

    def _started(self, tags: Sequence[str], options: _c.ResumeOptions) -> Started:
        with self._naming(tags):
            return Started(
                self._handle, "rvl_resume_start", *self._tags(tags), ctypes.byref(options)
            )

    def _prepared_start(self, tags: Sequence[str], options: _c.ResumeOptions) -> PreparedStart:
        with self._naming(tags):
            return PreparedStart(self._handle, *self._tags(tags), ctypes.byref(options))

    def ready(self, where: Any) -> bool:
        """Whether an address or tensor can be used. False while it is still being restored.

        Raises InvalidState if it is paused and no resume is restoring it, NotFound if no
        allocation contains it.
        """
        return has_arrived(self._handle, address_of(where))

    def wait(self, where: Any = None, timeout: float | None = None) -> None:
        """Waits until an address or tensor can be used; without one, for every started resume.

        Args:
            where: an address or a tensor; None: all resumes with wait=False of this context
            timeout: seconds, for one address; None: no limit

        Raises what ready() raises, and TimedOut. If it waits for all, raises the reason why
        something did not arrive. What had arrived stays. The rest is paused, and a second resume
        continues with it.
        """
        nanoseconds(timeout)
        if where is not None:
            await_arrival(self._handle, address_of(where), timeout)
        elif timeout is not None:
            raise InvalidArgument("a timeout is for one address: name it")
        else:
            self._wakes.wait()

    @overload
    def fits(self, *tags: str, restore: bool = ..., order: Iterable[Any] = ...) -> Forecast: ...

    @overload
    def fits(
        self,
        *tags: str,
        restore: bool = ...,
        order: Iterable[Any] = ...,
        group: Group,
        group_timeout: float = ...,
    ) -> JobForecast: ...

    def fits(
        self,
        *tags: str,
        restore: bool = True,
        order: Iterable[Any] = (),
        group: Group | None = None,
        group_timeout: float = GROUP_TIMEOUT_S,
    ) -> Forecast | JobForecast:
        """What resume() with these arguments would do now; true if it fits. Changes nothing.

        Args:
            tags, restore: as in resume()
            order: tensors or addresses in the order in which they are restored, as in resume(). It
                affects time_ns, which is the time of a resume that waits for everything
            group, group_timeout: forecast for every rank, each in its own order
        """

        def own() -> Forecast:
            options = _c.ResumeOptions(flags=_c.flags((not restore, _c.RESUME_NO_RESTORE)))
            options_of(options, addresses_of(order))
            return self._forecast("rvl_resume_forecast", tags, options)

        if group is None:
            return own()
        return job_of(group).forecast(call_of("fits", tags), own, seconds(group_timeout))

    def pause_forecast(self, *tags: str, discard: bool = False) -> Forecast:
        """What pause() with these arguments would do now. Changes nothing."""
        options = _c.PauseOptions(flags=_c.flags((discard, _c.PAUSE_DISCARD)))
        return self._forecast("rvl_pause_forecast", tags, options)

    def _forecast(self, function: str, tags: Sequence[str], options: Any) -> Forecast:
        struct = _c.Forecast()
        self._handle.call(function, *self._tags(tags), ctypes.byref(options), ctypes.byref(struct))
        return from_struct(Forecast, struct)

    # ---- Stages and statistics ----

    def stage(self, name: str) -> None:
        """Begins a stage, on every device."""
        self._handle.call("rvl_stage", name_bytes(name, "a stage"))

    def step(self) -> None:
        """Begins a step: one round of the run."""
        self._handle.call("rvl_step")

    def external(self, cause: str, size: Size, device: int = 0) -> None:
        """Sets how much memory is in use for a cause outside the context. 0 removes the cause."""
        self._handle.call(
            "rvl_external_set",
            whole_number(device, "device"),
            name_bytes(cause, "a cause"),
            parse_size(size),
        )

    def stats(self) -> Stats:
        """All counters: devices, tags, stages, host memory."""
        count = len(self.devices)
        stages = tuple(s for s in self._stages(range(count)) if s.peak_bytes or s.name != "start")
        return Stats(
            clock_ns=self.clock_ns,
            devices=tuple(self._device_stats(device) for device in range(count)),
            tags={name: self._tag_stats(name) for name in self.tags},
            stages=stages,
            host=self._host_memory(),
        )

    def _stages(self, devices: Sequence[int]) -> Iterator[StageStats]:
        for index in range(self._handle.ask("rvl_stage_count")):
            for device in devices:
                yield self._stage_stats(index, device)

    def _stage_stats(self, index: int, device: int) -> StageStats:
        struct = _c.StageStats()
        return self._filled(
            "rvl_stage_get_stats",
            (index, whole_number(device, "device")),
            struct,
            lambda: from_struct(StageStats, struct, device=device),
        )

    def _filled(
        self, function: str, key: tuple[int, ...], struct: Any, made: Callable[[], Answer]
    ) -> Answer:
        """Returns made(), called after C has filled the struct and before a close frees its strings."""

        def work(_context: ctypes.c_void_p) -> Answer:
            self._handle.call(function, *key, ctypes.byref(struct))
            return made()

        return self._handle.run(work)

    def _device_stats(self, device: int) -> DeviceStats:
        struct = _c.DeviceStats()
        return self._filled(
            "rvl_device_get_stats",
            (device,),
            struct,
            lambda: from_struct(
                DeviceStats,
                struct,
                index=device,
                peak_stage=self._stage_stats(struct.peak_stage, device).name,
                oom=self._oom(struct.oom, device),
            ),
        )

    def _oom(self, struct: _c.Oom, device: int) -> Oom | None:
        if not struct.happened:
            return None
        if struct.external:
            tag = _c.some_text(struct.cause)
        else:
            tag = self._handle.run(
                lambda context: _c.some_text(self._handle.library.rvl_tag_name(context, struct.tag))
            )
        stage = self._stage_stats(struct.stage, device).name
        return from_struct(Oom, struct, stage=stage, tag=tag)

    def _device_names(self) -> Iterator[tuple[int, str]]:
        """The devices' numbers in this context, with their names as in errors."""
        for index in range(self._handle.ask("rvl_device_count")):
            ordinal = index if self._handle.ordinal is None else self._handle.ordinal
            yield index, f"{self.backend}:{ordinal}"

    def _device_counters(self, device: int) -> _c.DeviceStats:
        struct = _c.DeviceStats()
        self._handle.call("rvl_device_get_stats", device, ctypes.byref(struct))
        return struct

    def _tag_stats(self, name: str, device: int = -1) -> TagStats:
        """Counters of a tag on a device, or on all devices (-1)."""
        struct = _c.TagStats()
        self._handle.call("rvl_tag_get_stats", self._tag_number(name), device, ctypes.byref(struct))
        return from_struct(TagStats, struct)

    def _host_memory(self) -> HostMemory | None:
        struct = _c.HostMemory()
        try:
            self._handle.call("rvl_host_get_memory", ctypes.byref(struct))
        except NotSupported:
            return None
        return from_struct(HostMemory, struct)

    def holders(self, stage: str, device: int = 0) -> tuple[Holder, ...]:
        """Who held how much at the peak of a stage ("rollout", "rollout#2"), largest first."""
        number = whole_number(device, "device")
        names = [each.name for each in self._stages([number])]
        if stage not in names:
            raise NotFound(f'no stage "{stage}"; there are: {", ".join(names)}')
        index = names.index(stage)

        def fill(*array: Any) -> None:
            self._handle.call("rvl_stage_get_holders", index, number, *array)

        def work(_context: ctypes.c_void_p) -> tuple[Holder, ...]:
            return tuple(holder_of(each) for each in _c.elements(_c.Holder, fill))

        return self._handle.run(work)

    # ---- Recording ----

    def record(self, path: Path) -> Recording:
        """Records what the context does within a ``with`` block, as a trace for replay().

        Entering raises InputOutputError if the file cannot be written, InvalidState if the context
        already records. Closing the context also ends the recording.
        """
        return Recording(self, self._handle, path_bytes(path, "the file of a recording"))


class Recording(Unique):
    """A recording, as Context.record() returns it."""

    def __init__(self, context: Context, handle: Handle, path: bytes) -> None:
        self._context = context  # keeps the context open
        self._handle = handle
        self._path = path

    def __enter__(self) -> None:
        statuses: list[int] = []
        try:
            self._handle.call_and_note(statuses, "rvl_record_start", self._path)
        except BaseException:  # from a signal handler: if __enter__ raises, __exit__ is not called
            if statuses == [_c.OK]:
                self.__exit__()
            raise

    def __exit__(self, *_raised: object) -> None:
        if not self._handle.closed:
            self._handle.call("rvl_record_stop")
