# SPDX-License-Identifier: MIT
"""NCCL's communicators as the tag ``"nccl"``: NCCL releases their memory and allocates it again.

We use the NCCL that the process has loaded, and look up its functions; nothing links it. A
communicator is known if it belongs to a process group of PyTorch, if vLLM or SGLang has created
it, or if the program has registered it.

ncclCommSuspend and ncclCommResume return when all ranks of the communicator have called them, and
this wait cannot be cancelled. So each call runs in its own thread, for all communicators at once.
Their order may then differ between ranks, and a missing rank costs the others only their timeout.
A call that has not returned is kept. It returns when the missing rank makes the call. A later
transition in the same direction waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Callable

from . import _c
from ._job import Meeting, Move
from ._nccl_groups import Found, find_all
from ._results import TagStats
from ._sizes import format_size, whole
from .errors import InvalidArgument, InvalidState, NotSupported, ReveilleError, TimedOut

TAG = "nccl"
SONAME = "libnccl.so.2"
NEEDED = "2.29.7"  # the first with ncclCommSuspend
SUSPEND_MEMORY = 1
FIRST_WAIT_S = 0.0005
LONGEST_WAIT_S = 0.02
GRACE_S = 5.0  # for calls that still run when another one has failed
STAT_SUSPENDABLE, STAT_SUSPENDED, STAT_PERSISTENT = 0, 1, 2
RESULTS = (
    "ncclSuccess",
    "ncclUnhandledCudaError",
    "ncclSystemError",
    "ncclInternalError",
    "ncclInvalidArgument",
    "ncclInvalidUsage",
    "ncclRemoteError",
    "ncclInProgress",
)
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(ctypes.c_int),),
    "ncclCommCuDevice": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)),
    "ncclCommUserRank": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)),
    "ncclCommCount": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)),
    "ncclCommSuspend": (ctypes.c_void_p, ctypes.c_int),
    "ncclCommResume": (ctypes.c_void_p,),
    "ncclCommMemStats": (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)),
}
MOVES = {"pause": "ncclCommSuspend", "resume": "ncclCommResume"}
BACK = {"pause": "resume", "resume": "pause"}
Stop = Callable[[], bool]


@dataclass(frozen=True)
class Communicator:
    """An NCCL communicator in this process.

    Attributes:
        pointer: the ncclComm_t
        device: number of its device
        rank, size: this process's rank in it, and the number of ranks
        state: "active", "paused", or "pausing" or "resuming" while a call of NCCL has not returned
        bytes: bytes that a pause releases or has released; None if NCCL is too old to report them
        kept_bytes: bytes that stay on the device; None if NCCL is too old to report them
    """

    pointer: int
    device: int
    rank: int
    size: int
    state: str
    bytes: int | None
    kept_bytes: int | None


class Nccl:
    """The functions of the loaded NCCL. ``functions`` lacks those that this NCCL does not have."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.functions: dict[str, Any] = {}
        for name, parameters in PROTOTYPES.items():
            with contextlib.suppress(AttributeError):
                function = getattr(library, name)
                function.argtypes, function.restype = parameters, ctypes.c_int
                self.functions[name] = function
        self._last_error = getattr(library, "ncclGetLastError", None)
        if self._last_error is not None:
            self._last_error.argtypes = (ctypes.c_void_p,)
            self._last_error.restype = ctypes.c_char_p

    def number(self, name: str, *arguments: Any, kind: Any = ctypes.c_int) -> int:
        """Calls a function, and returns what it stores through its last parameter."""
        value = kind()
        result = self.functions[name](*arguments, ctypes.byref(value))
        if result != 0:
            raise self.error(name, result)
        return int(value.value)

    def stat(self, pointer: int, what: int) -> int:
        """A value from ncclCommMemStats."""
        return self.number("ncclCommMemStats", pointer, what, kind=ctypes.c_uint64)

    @property
    def version(self) -> str:
        """Such as "2.29.7"."""
        number = self.number("ncclGetVersion")
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    @property
    def can_suspend(self) -> bool:
        """Whether this NCCL can release its memory."""
        wanted = ("ncclCommSuspend", "ncclCommResume", "ncclCommMemStats")
        return all(name in self.functions for name in wanted) and _parts(self.version) >= _parts(
            NEEDED
        )

    def error(self, name: str, result: int) -> ReveilleError:
        """The exception for a failed call."""
        known = 0 <= result < len(RESULTS)
        native = RESULTS[result] if known else f"ncclResult_t {result}"
        text = self._last_error(None) if self._last_error is not None else None
        why = f": {_c.some_text(text).strip()}" if text else ""
        hint = (
            "; NCCL refuses communicators that share memory (splitShare), and all if "
            "NCCL_DISABLE_MEM_MANAGER is set"
            if native == "ncclInvalidUsage"
            else ""
        )
        return InvalidState(
            f"{name} answers {native}{why}{hint}",
            op=name,
            tag=TAG,
            native_code=result,
            native_name=native,
        )


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def loaded() -> Nccl | None:
    """The NCCL that the process has loaded, or None."""
    for name, mode in ((SONAME, os.RTLD_NOLOAD | os.RTLD_LAZY), (None, os.RTLD_LAZY)):
        with contextlib.suppress(OSError):
            found = Nccl(ctypes.CDLL(name, mode=mode))
            if "ncclGetVersion" in found.functions:
                return found
    return None


@contextlib.contextmanager
def current(device: int) -> Iterator[ctypes.CDLL]:
    """Makes the device current in this thread for the block. It has a primary context already."""
    driver = ctypes.CDLL(os.environ.get("RVL_CUDA_LIBRARY") or "libcuda.so.1")
    context = ctypes.c_void_p()
    _drive(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        _drive(driver, "cuCtxPushCurrent_v2", context)
        try:
            yield driver
        finally:
            _drive(driver, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    finally:
        _drive(driver, "cuDevicePrimaryCtxRelease_v2", device)


def _drive(driver: ctypes.CDLL, name: str, *arguments: Any) -> None:
    result = getattr(driver, name)(*arguments)
    if result != 0:
        raise InvalidState(f"{name} answers {result}", op=name, native_code=result)


def free_bytes(device: int) -> int:
    """Free bytes on a device, from the driver."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with current(device) as driver:
        _drive(driver, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


class _Call:
    """A call of NCCL for one communicator, in its own thread."""

    def __init__(self, nccl: Nccl, move: str, pointer: int) -> None:
        self.move = move
        self._nccl = nccl
        self._pointer = pointer
        self._failure: ReveilleError | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"reveille {MOVES[move]}", daemon=True).start()

    def _run(self) -> None:
        name = MOVES[self.move]
        arguments = (SUSPEND_MEMORY,) if self.move == "pause" else ()
        try:
            # NCCL restores the thread's previous device. In a new thread that is device 0, where
            # this would create a context of hundreds of MiB. So make the right device current.
            with current(self._nccl.number("ncclCommCuDevice", self._pointer)):
                result = self._nccl.functions[name](self._pointer, *arguments)
            if result != 0:
                self._failure = self._nccl.error(name, result)
        except Exception as error:  # the call was not made
            self._failure = InvalidState(f"{name}: {error}", op=name, tag=TAG)
        finally:
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether the call has returned."""
        return self._done.is_set()

    @property
    def failed(self) -> bool:
        """Whether the call has returned an error."""
        return self.done and self._failure is not None

    def check(self) -> None:
        """Raises the call's failure, if there is one."""
        if self._failure is not None:
            raise self._failure


class Communicators:
    """The communicators of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Clears everything: in a forked child no communicator works."""
        self._lock = threading.RLock()
        self._named: dict[int, None] = {}  # registered by the program
        self._calls: dict[int, _Call] = {}  # calls with an end that no transition has seen yet
        self.counts = {"pause": 0, "resume": 0}

    # ---- Which there are ----

    def add(self, pointer: int) -> None:
        """Registers a communicator that the program has created itself."""
        if whole(pointer, "a communicator") <= 0:
            raise InvalidArgument(f"a communicator must be an ncclComm_t, not {pointer}")
        if loaded() is None:
            raise InvalidState(f"this process has not loaded {SONAME}: make the communicator first")
        with self._lock:
            self._named[pointer] = None

    def remove(self, pointer: int) -> None:
        """Removes a communicator. Call it before the program destroys the communicator."""
        with self._lock:
            self._calls.pop(pointer, None)
            if self._named.pop(pointer, pointer) is not None:
                raise InvalidArgument(f"the communicator {pointer:#x} was not added")

    def pointers(self) -> list[int]:
        """All known communicators, each once."""
        with self._lock:
            named = list(self._named)
        return list(dict.fromkeys((*named, *(each.pointer for each in _found()))))

    def of_ranks(self, ranks: Collection[int]) -> list[int]:
        """Communicators that connect only ranks among these, of torch.distributed's world."""
        found = (each.pointer for each in _found() if each.ranks and each.ranks <= set(ranks))
        return list(dict.fromkeys(found))

    def is_paused(self, pointer: int) -> bool:
        """Whether NCCL has released its memory."""
        nccl = loaded()
        return nccl is not None and nccl.can_suspend and bool(nccl.stat(pointer, STAT_SUSPENDED))

    def all(self) -> tuple[Communicator, ...]:
        """Describes each communicator."""
        nccl = loaded()
        if nccl is None:
            return ()
        return tuple(self._describe(nccl, pointer) for pointer in self.pointers())

    def _describe(self, nccl: Nccl, pointer: int) -> Communicator:
        give = keep = None
        state = "active"
        if nccl.can_suspend:
            give = nccl.stat(pointer, STAT_SUSPENDABLE)
            keep = nccl.stat(pointer, STAT_PERSISTENT)
            state = "paused" if nccl.stat(pointer, STAT_SUSPENDED) else "active"
        call = self._calls.get(pointer)
        if call is not None and not call.done:
            state = "pausing" if call.move == "pause" else "resuming"
        device, rank, size = (
            nccl.number(name, pointer)
            for name in ("ncclCommCuDevice", "ncclCommUserRank", "ncclCommCount")
        )
        return Communicator(pointer, device, rank, size, state, give, keep)

    def stats(self) -> dict[int, TagStats]:
        """Statistics by device, as for any tag. Empty if NCCL is too old to report them."""
        found: dict[int, TagStats] = {}
        for each in self.all():
            if each.bytes is None:
                continue
            before = found.get(each.device, TagStats(0, 0, 0, 0, 0, *self.counts.values()))
            is_active = each.state == "active"
            found[each.device] = dataclasses.replace(
                before,
                active_bytes=before.active_bytes + each.bytes * is_active,
                paused_bytes=before.paused_bytes + each.bytes * (not is_active),
                peak_bytes=before.peak_bytes + each.bytes,
                allocation_count=before.allocation_count + 1,
            )
        return found

    # ---- Moving them ----

    def require(self) -> None:
        """Raises NotSupported if there are communicators that cannot be paused."""
        nccl, all_ = loaded(), self.all()
        if nccl is None or not all_ or nccl.can_suspend:
            return
        many = "s" * (len(all_) != 1)
        raise NotSupported(
            f"NCCL {nccl.version} cannot give its memory back; {NEEDED} and later can. Its "
            f"{len(all_)} communicator{many} here keep{'s' * (not many)} "
            f"{_kept_text({each.device for each in all_})}. Install a newer {SONAME} (of PyPI's "
            f'nvidia-nccl-cu13 or nvidia-nccl-cu12), or leave out the tag "{TAG}"',
            op=MOVES["pause"],
            tag=TAG,
        )

    def missing_bytes(self) -> dict[int, int]:
        """By device: the bytes that a resume allocates."""
        missing: dict[int, int] = {}
        for each in self.all():
            if each.state == "paused":
                missing[each.device] = missing.get(each.device, 0) + (each.bytes or 0)
        return missing

    def begin(self, move: str, timeout: float, pointers: Collection[int] | None = None) -> Movement:
        """A pause or resume of these communicators, or of all, that has not started yet."""
        return Movement(self, move, timeout, self.pointers() if pointers is None else pointers)

    def start(self, move: str, pointers: Iterable[int], calls: dict[int, _Call]) -> None:
        """Calls NCCL for each that is not in the wanted state. Joins calls that run already."""
        nccl = loaded()
        if nccl is None:
            return
        with self._lock:
            joined, new = self._to_call(nccl, move, pointers)
            calls.update(joined)
            for pointer in new:
                calls[pointer] = self._calls[pointer] = _Call(nccl, move, pointer)

    def _to_call(
        self, nccl: Nccl, move: str, pointers: Iterable[int]
    ) -> tuple[dict[int, _Call], list[int]]:
        """Calls of earlier transitions to join, and communicators that need a new call.

        Raises if an earlier call in the other direction still runs. A call that returned when
        no transition waited for it any more belongs to the next one, which may have to undo it.
        """
        joined, new = {}, []
        for pointer in pointers:
            call = self._calls.get(pointer)
            if call is not None and not call.done:
                if call.move != move:
                    raise InvalidState(
                        f"{MOVES[call.move]} of an earlier call has not returned: a rank of the "
                        f"communicator has not called it. Let it {call.move}, or end the job",
                        op=MOVES[move],
                        tag=TAG,
                    )
                joined[pointer] = call
            elif (nccl.stat(pointer, STAT_SUSPENDED) != 0) != (move == "pause"):
                new.append(pointer)
            elif call is not None and call.move == move and not call.failed:
                joined[pointer] = call
        return joined, new

    def end(self, calls: dict[int, _Call]) -> None:
        """Ends a transition: forgets calls that have returned, leaves running ones to the next."""
        with self._lock:
            for pointer, call in calls.items():
                if call.done and self._calls.get(pointer) is call:
                    del self._calls[pointer]


class Movement:
    """A pause or resume of communicators, as one of the moves that a job prepares."""

    def __init__(
        self, all_: Communicators, move: str, timeout: float, pointers: Collection[int]
    ) -> None:
        self._all = all_
        self._move = move
        self._timeout = timeout
        self._pointers = pointers
        self._calls: dict[int, _Call] = {}

    def start(self) -> None:
        """Calls NCCL for all communicators, without waiting."""
        self._all.start(self._move, self._pointers, self._calls)

    def together(self, prepared: list[Move], meeting: Meeting) -> None:
        """Moves them together with the other ranks of a job. For Job.move()."""
        prepared.append(self)
        self.start()
        meeting.arrive()
        self.wait(meeting.is_decided)

    def wait(self, stop: Stop = lambda: False) -> None:
        """Waits until all have moved. Raises the first failure, or TimedOut. stop() ends it early."""
        _wait(self._calls, self._move, self._timeout, stop)

    def commit(self) -> None:
        """Keeps the new state."""
        self._all.counts[self._move] += bool(self._calls)
        self._all.end(self._calls)

    def abort(self) -> None:
        """Moves back the communicators that this has moved. Raises if some cannot be moved back."""
        moved = [pointer for pointer, call in self._calls.items() if call.done]
        stuck = len(self._calls) - len(moved)
        back, calls = BACK[self._move], {}
        try:
            self._all.start(back, moved, calls)
            # The other ranks come here only after their own wait for the way there.
            _wait(calls, back, self._timeout + GRACE_S, lambda: False)
        finally:
            self._all.end(self._calls | calls)
        if stuck:
            raise _stuck(self._move, stuck, self._timeout)


def _wait(calls: dict[int, _Call], move: str, timeout: float, stop: Stop) -> None:
    """Polls, so that Ctrl-C gets through. After a failure the others get GRACE_S at most."""
    deadline, pause_s, in_vain = time.monotonic() + timeout, FIRST_WAIT_S, False
    while waiting := [call for call in calls.values() if not call.done]:
        if not in_vain and (any(call.failed for call in calls.values()) or stop()):
            in_vain, deadline = True, min(deadline, time.monotonic() + GRACE_S)
        if time.monotonic() >= deadline:
            break
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_WAIT_S)
    for call in calls.values():
        call.check()
    if waiting:
        raise _stuck(move, len(waiting), timeout)


def _stuck(move: str, count: int, timeout: float) -> TimedOut:
    return TimedOut(
        f"{MOVES[move]} has not returned on {count} communicator{'s' * (count > 1)} within "
        f"{timeout:g} s: it returns when all ranks have called it. Call {move}() on the missing ones, "
        f'or destroy the communicator. {move}("{TAG}") waits for the same call again',
        op=MOVES[move],
        tag=TAG,
    )


def _kept_text(devices: set[int]) -> str:
    """Bytes that NCCL holds on these devices if they are recorded; else how to learn them."""
    kept = {device: recorded_bytes(device) for device in sorted(devices)}
    if None in kept.values():
        return "an unknown number of bytes: `reveille record` tells it as nccl:PID"
    return ", ".join(f"{format_size(size or 0)} on cuda:{device}" for device, size in kept.items())


def recorded_bytes(device: int) -> int | None:
    """Bytes that NCCL holds on a device, from this process's recording. None if unknown."""
    find = getattr(_c.core(), "rvl_hooks_get_nccl_bytes", None)
    size = ctypes.c_uint64()
    known = find is not None and find(device, ctypes.byref(size)) == 0
    return size.value if known else None


def _found() -> Iterator[Found]:
    """Communicators that the program need not register."""
    nccl = loaded()
    return iter(()) if nccl is None else find_all(nccl.library)


COMMUNICATORS = Communicators()
os.register_at_fork(after_in_child=COMMUNICATORS.forget)
