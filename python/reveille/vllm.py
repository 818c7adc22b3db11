# SPDX-License-Identifier: MIT
"""vLLM's sleep mode on Reveille: ``--enable-sleep-mode --sleep-mode-backend reveille``.

A vLLM without selectable backends, such as 0.24, uses Reveille with REVEILLE_AS_CUMEM=1.

vLLM calls register() in each of its processes, through the entry point ``vllm.general_plugins``.
This registers the backend, which vLLM creates at the first sleep. But memory is allocated long
before that, by the allocator in the slot CuMemAllocator.instance, and vLLM does not tell the slot
which backend was chosen. So we put a Chooser into the slot. When it is first used, it finds the
config of the calling worker, and replaces itself with Reveille's allocator or vLLM's own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from types import FrameType, SimpleNamespace
from typing import Any

from . import _alias, _asleep, _c
from ._communicators import COMMUNICATORS
from ._engine import Engine, Ranks
from ._job import Job
from ._nccl_groups import own_communicators
from ._sleep import SleepAllocator
from .errors import InvalidArgument, InvalidState, JobAborted, NotSupported

LOGGER = logging.getLogger("reveille")
NAME = "reveille"
AS_CUMEM = "REVEILLE_AS_CUMEM"
RAN_WITH = ("0.24", "0.33")  # versions that were run on simulated GPUs, newest last
FACTORY = "vllm.device_allocator.sleep_mode_backend"


class Allocator:
    """vLLM's allocator interface. In metrics() its tags are "vllm:weights" and so on."""

    default_tag = "default"

    def __init__(self, engine: Engine | None = None) -> None:
        self._engine = engine or Engine()
        self._own = SleepAllocator("vllm:", self._engine)

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """Tags allocations within the block."""
        with _segments_that_stay(), self._own.use_memory_pool(tag or self.default_tag):
            yield

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[tuple[int, int]]:
        """Yields the pool for graphs that are captured within the block."""
        with _segments_that_stay(), self._own.cudagraph_pool() as pool:
            yield pool

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        """Releases all memory. These tags, "default" by default, keep their content on the host.

        Pauses all tags on all ranks of the engine, or none and raises the reason.
        """
        kept = _tags(offload_tags, self.default_tag)
        with self._moving(), self._hooks_after():
            self._own.sleep(kept, lambda: self._run_hooks_before(None))

    def discard(self, tags: tuple[str, ...] | str) -> None:
        """Releases the memory of these tags only, without their content."""
        discarded = _tags(tags, self.default_tag)
        with self._moving(), self._hooks_after():
            self._own.discard(discarded, lambda: self._run_hooks_before(discarded))

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Resumes all tags, or all except deferrable tags that are not named.

        Resumes them on all ranks of the engine, or none and raises the reason.
        """
        from vllm import device_allocator

        asked = None if tags is None else _tags(tags, self.default_tag)
        deferrable = getattr(device_allocator, "DEFERRABLE_TAGS", None)  # before 0.33 every tag is deferrable
        with self._moving(), self._hooks_after():
            self._own.wake_up(
                lambda tag: (
                    asked is None
                    or tag in asked
                    or (deferrable is not None and tag not in deferrable)
                ),
                f"wake_up({'' if asked is None else sorted(asked)})",
            )

    # vLLM 0.33.0 has no tag hooks; later versions do.

    def _run_hooks_before(self, tags: set[str] | None) -> None:
        """Calls vLLM's hooks of these tags (None: of all) before memory is released."""
        from vllm import device_allocator

        before = getattr(device_allocator, "run_before_unmap_hooks", None)
        if before is not None:
            before(self._mapped(), tags)

    @contextlib.contextmanager
    def _hooks_after(self) -> Iterator[None]:
        """Calls vLLM's hooks of the tags that are mapped, after the block.

        An earlier hook may have stopped the users of the memory, and then the transition may have
        been refused. So these hooks are called after a refusal, too.
        """
        from vllm import device_allocator

        after = getattr(device_allocator, "run_after_map_hooks", None)
        try:
            yield
        finally:
            if after is not None:
                after(self._mapped())

    def _mapped(self) -> list[SimpleNamespace]:
        """The tags in the form that vLLM's hooks read. A partly sleeping tag is listed twice."""
        return [
            SimpleNamespace(tag=tag, is_asleep=asleep)
            for tag, stats in self.tags().items()
            for asleep, size in ((False, stats.active_bytes), (True, stats.paused_bytes))
            if size
        ]

    @contextlib.contextmanager
    def _moving(self) -> Iterator[None]:
        """Surrounds each transition. Updates vLLM's notes on which communicators are suspended.

        vLLM skips communicators that are noted as being in the wanted state.
        """
        ours = _suspendable() if self._engine.moves_communicators else []
        try:
            with self._told_once():
                yield
        finally:
            for each in ours:
                each._suspended = COMMUNICATORS.is_paused(each.comm.value)

    @contextlib.contextmanager
    def _told_once(self) -> Iterator[None]:
        """If all ranks refuse, lets vLLM's executor see only the last rank's refusal."""
        try:
            yield
        except JobAborted as aborted:
            if not aborted.agreed or self._engine.is_last:
                raise
            try:
                from ._vllm_executor import ToldByTheLastRank
            except ImportError:  # a vLLM with another executor
                raise aborted from aborted.__cause__
            raise ToldByTheLastRank.instead_of(aborted) from aborted.__cause__

    def get_current_usage(self) -> int:
        """Bytes of all allocations, both awake and asleep."""
        return self._own.get_current_usage()

    def release_pools(self) -> None:
        """Releases unused memory."""
        self._own.release_pools()

    def close(self) -> None:
        """Calls release_pools()."""
        self.release_pools()

    @property
    def asleep(self) -> bool:
        """Whether any of its memory is asleep."""
        return self._own.asleep

    @property
    def job(self) -> Job | None:
        """The ranks that sleep and wake together; None if there is only one."""
        return self._engine.job

    def tags(self) -> dict[str, Any]:
        """The reveille.TagStats of each of vLLM's tags."""
        return self._own.tags()


class WorkerExtension:
    """Lets a sleeping engine take its workers off their GPUs, including contexts and graphs.

    With ``--worker-extension-cls reveille.vllm.WorkerExtension`` vLLM adds these methods to its
    workers: ``llm.sleep(); llm.collective_rpc("leave_gpus")`` and
    ``llm.collective_rpc("return_to_gpus"); llm.wake_up()``. It is not a level of sleep: at the end
    of its own sleep vLLM asks the GPU for its free memory, which a process off the GPU cannot do.
    """

    def leave_gpus(self, timeout: float = 10.0) -> None:
        """Takes all workers of the engine off, or none and raises why. timeout: seconds to wait."""
        allocator = allocator_in_use()
        awake = sorted(tag for tag, stats in allocator.tags().items() if stats.active_bytes)
        if awake:
            raise InvalidState(
                f"the engine is awake ({', '.join(awake)}): call LLM.sleep() first, which keeps "
                "contents by its level"
            )
        _asleep.sleep(timeout=timeout, group=allocator.job)

    def return_to_gpus(self, timeout: float = 0.0) -> None:
        """Undoes leave_gpus(). Memory stays paused. timeout: seconds to wait for others to free memory."""
        _asleep.wake(paused=True, timeout=timeout, group=allocator_in_use().job)


def _tags(tags: Sequence[str] | str | None, default: str) -> set[str]:
    if tags is None:
        return {default}
    names = {tags} if isinstance(tags, str) else set(tags)
    if not all(isinstance(each, str) for each in names):
        raise InvalidArgument(f"tags must be names, not {tags!r}")
    return names


def _suspendable() -> list[Any]:
    """vLLM's communicators that use the NCCL of the tag "nccl". Each notes whether it sleeps."""
    known = set(COMMUNICATORS.pointers())
    found = [own.communicator for own in own_communicators()]
    for each in found:
        if not hasattr(each, "_suspended"):
            raise NotSupported(
                f"Reveille {_own_version()} does not know how vLLM {_version()} suspends its "
                f"communicators: install vllm=={RAN_WITH[-1]}.0, or leave --enable-nccl-comm-suspend out"
            )
    return [each for each in found if each.comm.value in known]


def _segments_that_stay() -> contextlib.AbstractContextManager[None]:
    """Turns expandable segments off for a block, as vLLM does, since they do not work in pools."""
    try:
        from vllm.device_allocator.alloc_conf import non_expandable_allocations
    except ImportError:  # an older vLLM, where its own allocator does it
        return _non_expandable()
    block: contextlib.AbstractContextManager[None] = non_expandable_allocations()
    return block


@contextlib.contextmanager
def _non_expandable() -> Iterator[None]:
    import torch

    if "expandable_segments:True" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        yield
        return
    torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    try:
        yield
    finally:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")


# ---- Which allocator it is ----


class Chooser:
    """Fills vLLM's slot until its first use. Then it forwards to the allocator that it puts there."""

    def __init__(self, slot: Any) -> None:
        self._slot = slot  # vLLM's class CuMemAllocator

    def __getattr__(self, name: str) -> Any:
        if self._slot.instance is self:
            config = _config_on_the_stack()
            if _is_wanted(config):
                self._slot.instance = _new_allocator(config)
            else:
                self._slot.instance = None
                self._slot.get_instance()
        return getattr(self._slot.instance, name)


def _config_on_the_stack() -> Any:
    """vLLM's config: a caller's ``vllm_config`` or ``self.vllm_config``. None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("vllm_config")
        if found is None:
            found = getattr(frame.f_locals.get("self"), "__dict__", {}).get("vllm_config")
        if getattr(found, "model_config", None) is not None:
            return found
        frame = frame.f_back
    return None


def _is_wanted(config: Any) -> bool:
    """Whether Reveille was chosen: by the option, or for the backend cumem by the variable."""
    everywhere = _alias.VALUES.get(os.environ.get(AS_CUMEM, ""))
    if everywhere is None:
        raise InvalidArgument(
            f"{AS_CUMEM}={os.environ[AS_CUMEM]!r} is not understood: set it to 1 for Reveille in "
            "the place of vLLM's allocator, or to 0"
        )
    backend = getattr(getattr(config, "model_config", None), "sleep_mode_backend", "cumem")
    return bool(backend == NAME or (everywhere and backend == "cumem"))


def _new_allocator(config: Any) -> Allocator:
    different = differences()
    if different:
        raise unknown_interface(different)
    if not _version().startswith(tuple(f"{each}." for each in RAN_WITH)):
        LOGGER.warning(
            "Reveille %s was run with vLLM %s; this is vLLM %s, which has the same interface",
            _own_version(),
            " and ".join(RAN_WITH),
            _version(),
        )
    model = None if config is None else config.model_config
    offloads = getattr(model, "sleep_mode_offload_cudagraph", False)
    if offloads and getattr(model, "sleep_mode_backend", "cumem") == NAME:
        LOGGER.warning(
            "vLLM %s offloads CUDA graphs for the backend cumem alone: set %s=1 and leave "
            "--sleep-mode-backend out, or leave --sleep-mode-offload-cudagraph out",
            _version(),
            AS_CUMEM,
        )
    communicators = getattr(model, "enable_nccl_comm_suspend", False)
    return Allocator(Engine(lambda: _ranks_of(config), communicators=communicators))


def _ranks_of(config: Any) -> Ranks | None:
    """The ranks of this worker's engine, which are consecutive in torch.distributed's world."""
    size = 1 if config is None else config.parallel_config.world_size
    if size == 1:
        return None
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    if not dist.is_initialized() or dist.get_world_size() % size:
        raise InvalidState(
            f"the engine has {size} ranks, and torch.distributed knows "
            f"{dist.get_world_size() if dist.is_initialized() else 'none'}: they cannot agree"
        )
    engine, rank = divmod(dist.get_rank(), size)
    job = Job(c10d._get_default_store(), rank, size, name=f"reveille/vllm/{engine}")
    return Ranks(job, range(engine * size, (engine + 1) * size))


def allocator_in_use() -> Allocator:
    """Reveille's allocator, if vLLM uses it. Otherwise raises the reason."""
    from vllm.device_allocator.cumem import CuMemAllocator

    found = CuMemAllocator.instance
    if isinstance(found, Chooser):
        _ = found.close  # chooses
        found = CuMemAllocator.instance
    if not isinstance(found, Allocator):
        raise InvalidState(
            f"the memory of this process comes from vLLM's {type(found).__name__}, and so the "
            "backend reveille cannot move it: start one engine in a process, with one backend"
        )
    return found


# ---- vLLM's interface ----


def differences() -> list[str]:
    """The differences between the installed vLLM's interface and the one that this module knows."""
    try:
        from vllm import device_allocator
        from vllm.device_allocator import cumem

        needed = [(device_allocator, "MemAllocator"), (cumem, "CuMemAllocator")]
        if _has_backends():
            from vllm.device_allocator import alloc_conf, sleep_mode_backend

            needed += [
                (device_allocator, "DEFERRABLE_TAGS"),
                (alloc_conf, "non_expandable_allocations"),
                (sleep_mode_backend, "CuMemBackend"),
                (sleep_mode_backend, "SleepModeBackend"),
            ]
    except ImportError as error:
        return [str(error)]
    found = [
        f"{module.__name__}.{name} is missing"
        for module, name in needed
        if not hasattr(module, name)
    ]
    if found:
        return found
    if _has_backends():
        backend = sleep_mode_backend.SleepModeBackend
        abstract = sorted(getattr(backend, "__abstractmethods__", ()))
        if abstract != ["resume", "suspend"]:
            found.append(f"a backend must have {', '.join(abstract)}")
    for each in (device_allocator.MemAllocator, cumem.CuMemAllocator):
        found += _unanswered(each)
    for name in ("instance", "get_instance"):
        if not hasattr(cumem.CuMemAllocator, name):
            found.append(f"CuMemAllocator.{name} is missing")
    return found


def _has_backends() -> bool:
    """Whether this vLLM has selectable backends for its sleep mode."""
    return importlib.util.find_spec(FACTORY) is not None


def _unanswered(interface: type) -> list[str]:
    """Public methods, and parameters, of an interface that Allocator lacks."""
    found = []
    for name, theirs in vars(interface).items():
        if name.startswith("_") or not inspect.isfunction(theirs):
            continue
        ours = getattr(Allocator, name, None)
        title = f"{interface.__name__}.{name}"
        if ours is None:
            found.append(f"{title}() is new")
            continue
        known = inspect.signature(ours).parameters
        asked = inspect.signature(theirs).parameters
        found += [f"{title}() has a new {each}" for each in asked if each not in known]
    return found


def unknown_interface(different: Sequence[str]) -> NotSupported:
    """The exception if this vLLM and this Reveille are incompatible."""
    return NotSupported(
        f"Reveille {_own_version()} does not know the sleep mode of vLLM {_version()} "
        f"({'; '.join(different)}): install vllm=={RAN_WITH[-1]}.0, or a Reveille that knows this "
        "vLLM, or leave --sleep-mode-backend at cumem"
    )


def _version() -> str:
    return str(getattr(sys.modules.get("vllm"), "__version__", "of no version"))


def _own_version() -> str:
    return _c.some_text(_c.core().rvl_version())


def register() -> None:
    """Registers the backend with vLLM. May be called repeatedly. Does not affect other backends.

    It never raises, since vLLM calls it whenever the package is installed. If you choose the
    backend in a vLLM with an unknown interface, the first allocation raises the reason.
    """
    try:
        if _has_backends():
            from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

            with contextlib.suppress(ValueError):  # it is registered already
                SleepModeBackendFactory.register_backend(
                    NAME, "reveille._vllm_backend", "ReveilleBackend"
                )
        from vllm.device_allocator.cumem import CuMemAllocator, cumem_available
    except ImportError as error:
        LOGGER.warning("%s", unknown_interface([str(error)]))
        return
    if cumem_available and getattr(CuMemAllocator, "instance", None) is None:
        CuMemAllocator.instance = Chooser(CuMemAllocator)
