# SPDX-License-Identifier: MIT
"""Wake at N links: ranks with the same content restore a part each, and exchange the rest.

Every rank prepares a resume in parts (include/reveille/parts.h). Then all ranks share, through the
job's store, which pieces they have, the digests of their backups, and where they are. From that
each rank computes what it sends and receives. An exchange transfers the pieces step by step: the
pieces of one step go from rank to rank while those of the next are still on the links to the host.
Content that arrives is compared with this rank's own backup. Everything else is restored from that
backup before the ranks vote to commit. So a rank that is late, sends wrong content or is out of
reach costs only time.
"""

from __future__ import annotations

import ctypes
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable, NamedTuple, Protocol, Union

from . import _c
from ._job import Group, Job, Meeting, Move, Prepared
from ._sizes import format_size
from .errors import InvalidArgument, NotSupported, ReveilleError, TimedOut

LOGGER = logging.getLogger("reveille")
# Between two checks of an exchange we wait an eighth of its time so far. So the end of a 2 ms step
# is noticed a quarter of a millisecond late at most.
FIRST_WAIT_S = 0.0001
SHARE_OF_WAIT = 0.125
LONGEST_WAIT_S = 0.01
# The share of the remaining time that the exchange may take. Restoring alone needs the rest.
SHARE_OF_TIME = 0.5
# The most that each rank sends in one step, but at least one piece. On a link of 55 GB/s it takes
# five milliseconds: longer than Python's overhead for a step, and still short for the last step,
# which overlaps with nothing.
STEP_BYTES = 256 << 20


class Transfer(NamedTuple):
    """One piece, from or to another rank of the job. device: "cuda:0", "sim:0"."""

    address: int
    size_bytes: int
    device: str
    peer: int
    sending: bool


class Exchange(Protocol):
    """Transfers pieces from rank to rank. You can give your own as ``replicas=``.

    It may also have ``give_up()``, which is called once if this rank cannot restore a piece that it
    should send. It should end what the ranks share, as the ranks that wait in vain do.
    """

    def place(self) -> Any:
        """Where this rank is, as a JSON value. Raises NotSupported if it cannot exchange."""

    def apart(self, own: Any, other: Any) -> str:
        """Why two places cannot reach each other; "" if they can. Own and other may be swapped."""

    def run(self, transfers: Sequence[Transfer], timeout: float, stop: Callable[[], bool]) -> None:
        """Makes all transfers, in this order for each pair of ranks. Gives up if stop() is true.

        Called several times for one resume, with some of the transfers each time. Raises the reason
        of a failure. Once it returns or raises, nothing may write to this rank's memory any more.
        """


Replicas = Union[bool, Exchange]


@dataclass(frozen=True)
class Links:
    """The result of ``resume(..., replicas=...)`` on each rank.

    Attributes:
        restored_bytes: content from this rank's own backup, of content that has digests
        filled_bytes: content from other ranks
        wrong_bytes: content from other ranks that did not arrive or was wrong, and that was
            restored here instead
        alone: why nothing came from other ranks; "" if something did
    """

    restored_bytes: int
    filled_bytes: int
    wrong_bytes: int
    alone: str

    def __str__(self) -> str:
        why = f", alone: {self.alone}" if self.alone else ""
        return (
            f"{format_size(self.restored_bytes)} from the own backup, "
            f"{format_size(self.filled_bytes)} from other ranks{why}"
        )


class _Own(NamedTuple):
    """A piece of this rank: its prepared resume, and its number there."""

    prepared: Prepared
    number: int
    piece: _c.Piece


class _Planned(NamedTuple):
    """A transfer, and the number of the listed piece that it transfers."""

    number: int
    transfer: Transfer


class Sharing:
    """One resume that the ranks of a job share. Pass its together() to Job.move()."""

    def __init__(self, job: Job, exchange: Exchange) -> None:
        self._job = job
        self._exchange = exchange
        self.links = Links(0, 0, 0, "")

    def ask(self, options: _c.ResumeOptions) -> _c.ResumeOptions:
        """Sets the options of a resume of which this rank restores one part."""
        options.flags |= _c.RESUME_BY_PIECES
        options.part_index, options.part_count = self._job.rank, self._job.world_size
        return options

    def together(self, moves: Sequence[Move], meeting: Meeting) -> None:
        """Exchanges and fills. Raises only if this rank's own backup cannot be restored."""
        meeting.arrive()
        prepared = [each for each in moves if isinstance(each, Prepared)]
        own = [_Own(each, i, piece) for each in prepared for i, piece in enumerate(each.pieces())]
        said = meeting.share(json.dumps(self._say(own)))
        if not said:  # a rank has refused
            return
        planned, alone = self._plan(own, [json.loads(each) for each in said])
        expected = [own[each.number] for each in planned if not each.transfer.sending]
        failed = self._run(own, planned, meeting)
        self._fill(prepared, own, expected)
        self._count(prepared, expected, failed or alone)

    def _say(self, own: Sequence[_Own]) -> dict[str, Any]:
        try:
            place, why = self._exchange.place(), ""
        except NotSupported as error:
            place, why = None, error.message
        pieces = [[o.piece.size_bytes, o.piece.part, _digest_text(o.piece)] for o in own]
        return {"place": place, "why": why, "pieces": pieces}

    def _apart(self, own: dict[str, Any], other: dict[str, Any]) -> str:
        """Why two ranks cannot exchange content; "" if they can."""
        if own["why"] or other["why"]:
            return str(own["why"] or other["why"])
        if [piece[:2] for piece in own["pieces"]] != [piece[:2] for piece in other["pieces"]]:
            return "their allocations differ: replicas make the same ones in the same order"
        one, two = own["place"], other["place"]
        return self._exchange.apart(one, two) or self._exchange.apart(two, one)

    def _plan(
        self, own: Sequence[_Own], said: Sequence[dict[str, Any]]
    ) -> tuple[list[_Planned], str]:
        """The transfers of this rank, and the reason if there are none."""
        rank = self._job.rank
        found: list[_Planned] = []
        apart = {r: self._apart(said[rank], each) for r, each in enumerate(said) if r != rank}
        near = [r for r, why in apart.items() if not why]
        for i, each in enumerate(own):
            source, digest = each.piece.part, _digest_text(each.piece)
            peers = near if source == rank else [source] if source in near else []
            found += [
                _Planned(i, _transfer(each, peer, source == rank))
                for peer in peers
                if said[peer]["pieces"][i][2] == digest
            ]
        if found or not own:
            return found, "" if own else "nothing that has digests was to be restored"
        named = [f"rank {r}: {why}" for r, why in apart.items() if why]
        return [], named[0] if named else "no other rank holds the same content"

    def _run(self, own: Sequence[_Own], planned: Sequence[_Planned], meeting: Meeting) -> str:
        """Runs the exchange. Returns why it failed; "" if it did not."""
        if not planned:
            return ""
        try:
            self._run_steps(own, planned, meeting)
        except Exception as error:  # any failure: this rank has its own backup
            meeting.tell_broken()
            return f"the exchange failed: {type(error).__name__}: {error}"
        return ""

    def _run_steps(
        self, own: Sequence[_Own], planned: Sequence[_Planned], meeting: Meeting
    ) -> None:
        """Exchanges the pieces of a step while those of the next are on this rank's link."""
        end = time.monotonic() + meeting.time_left() * SHARE_OF_TIME
        for step in _steps(own):
            self._load([own[i] for i in step if own[i].piece.part == self._job.rank])
            here = set(step)
            transfers = [each.transfer for each in planned if each.number in here]
            if transfers:
                left_s = max(0.0, end - time.monotonic())
                self._exchange.run(transfers, left_s, lambda: meeting.is_broken())

    def _load(self, wanted: Sequence[_Own]) -> None:
        """Waits until these pieces of this rank's part are loaded, in the order of the list."""
        try:
            for each in wanted:
                while each.prepared.load_next() < each.number:
                    pass
        except ReveilleError:  # the others would wait in vain
            getattr(self._exchange, "give_up", lambda: None)()
            raise

    @staticmethod
    def _fill(prepared: Sequence[Prepared], own: Sequence[_Own], expected: Sequence[_Own]) -> None:
        """Fills the expected pieces. Also compares those that a failed exchange may have sent."""
        wanted = {(id(each.prepared), each.number) for each in expected}
        for one in prepared:
            one.fill([(id(one), o.number) in wanted for o in own if o.prepared is one])

    def _count(self, prepared: Sequence[Prepared], expected: Sequence[_Own], alone: str) -> None:
        sums = [0] * len(_c.PIECE_STATE_NAMES)
        for one in prepared:
            for piece in one.pieces():
                sums[piece.state] += piece.size_bytes
        filled = sums[_c.PIECE_STATE_NAMES.index("filled")]
        wrong = sum(each.piece.size_bytes for each in expected) - filled
        self.links = Links(
            sums[_c.PIECE_STATE_NAMES.index("restored")], filled, wrong, "" if filled else alone
        )
        if alone:
            LOGGER.info("a resume of replicas: %s", self.links if not filled else alone)
        if wrong:
            LOGGER.info("a resume of replicas: %s did not arrive right", format_size(wrong))


def sharing_of(
    replicas: Replicas, group: Group | None, job: Job | None, wait: bool = True
) -> Sharing | None:
    """The Sharing for ``replicas=``. Raises InvalidArgument without a group or with wait=False."""
    if replicas is False:
        return None
    if not wait:
        raise InvalidArgument(
            "replicas bring each other's content before any rank goes on: leave out wait=False, or "
            "leave out replicas= and let each rank restore its own"
        )
    if job is None:
        raise InvalidArgument("replicas are ranks of a group: give group= as well")
    if replicas is True:
        if isinstance(group, Job):
            raise InvalidArgument(
                "replicas=True exchanges by a process group of torch.distributed: give that as "
                "group=, or an exchange of your own as replicas="
            )
        return Sharing(job, TorchExchange(group))
    missing = [
        name for name in ("place", "apart", "run") if not callable(getattr(replicas, name, None))
    ]
    if missing:
        raise InvalidArgument(
            f"replicas must be True or an exchange, which needs {', '.join(missing)}, not "
            f"{replicas!r}"
        )
    return Sharing(job, replicas)


def _steps(own: Sequence[_Own]) -> list[list[int]]:
    """The piece numbers of each step. Ranks with the same pieces have the same steps."""
    numbers: dict[int, list[int]] = {}
    of_part: dict[int, int] = {}
    for i, each in enumerate(own):
        before = of_part.get(each.piece.part, 0)
        of_part[each.piece.part] = before + each.piece.size_bytes
        numbers.setdefault(before // STEP_BYTES, []).append(i)
    return [numbers[step] for step in sorted(numbers)]


def _digest_text(piece: _c.Piece) -> str:
    return f"{piece.digest[0]:016x}{piece.digest[1]:016x}"


def _transfer(own: _Own, peer: int, sending: bool) -> Transfer:
    piece = own.piece
    device = own.prepared.device_name(piece.device)
    return Transfer(piece.addr, piece.size_bytes, device, peer, sending)


# ---- By torch.distributed ----


class TorchExchange:
    """Exchanges by a process group's sends and receives: NCCL between GPUs, gloo in host memory.

    Ranks must be on one machine, and their GPUs must reach each other. If NCCL would go through the
    host, each rank restores for itself, with one copy instead of two.
    """

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed as dist

        if hasattr(group, "get_group") and not hasattr(group, "rank"):  # a DeviceMesh
            group = group.get_group()
        self._torch = torch
        self._dist = dist
        self._group = group

    def place(self) -> Any:
        """The machine, the GPU, and the GPUs that this process can reach from it."""
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        if self._nccl() is None:
            return {"machine": machine, "gpu": "", "reaches": [""]}
        self._aborting()  # raises NotSupported before anything starts
        cuda = self._torch.cuda
        own = cuda.current_device()
        gpus = {n: str(cuda.get_device_properties(n).uuid) for n in range(cuda.device_count())}
        reaches = [
            gpu for n, gpu in gpus.items() if n != own and cuda.can_device_access_peer(own, n)
        ]
        return {"machine": machine, "gpu": gpus[own], "reaches": reaches}

    def apart(self, own: Any, other: Any) -> str:
        """Names other machines, and GPUs that are out of reach or not visible in this process."""
        if own["machine"] != other["machine"]:
            return "it is on another machine"
        if other["gpu"] not in own["reaches"]:
            return (
                "its GPU cannot be reached from this one, or is not visible in this process "
                "(CUDA_VISIBLE_DEVICES)"
            )
        return ""

    def _nccl(self) -> Any:
        """The group's backend for GPUs if it is NCCL, else None."""
        try:
            backend = self._group._get_backend(self._torch.device("cuda"))
        except RuntimeError:  # it has no backend for GPUs
            return None
        return backend if "nccl" in type(backend).__name__.lower() else None

    def _aborting(self) -> Callable[[], None]:
        """The function that aborts all pending operations of the group. Only NCCL has it."""
        backend = self._nccl()
        if backend is None:
            raise NotSupported(
                "between GPUs an exchange goes by NCCL, and this group has another backend"
            )
        abort = getattr(backend, "abort", None) or getattr(backend, "_abort", None)
        if abort is None:
            raise NotSupported(
                "this PyTorch cannot end an exchange that has failed (ProcessGroupNCCL.abort)"
            )
        return abort  # type: ignore[no-any-return]

    def _tensor(self, transfer: Transfer) -> Any:
        """The memory of a piece as a tensor, without a copy."""
        if not transfer.device.startswith("cuda"):
            memory = (ctypes.c_uint8 * transfer.size_bytes).from_address(transfer.address)
            return self._torch.frombuffer(memory, dtype=self._torch.uint8)
        return self._torch.as_tensor(_DeviceMemory(transfer), device=transfer.device)

    def run(self, transfers: Sequence[Transfer], timeout: float, stop: Callable[[], bool]) -> None:
        """Runs all in one batch. If that fails on GPUs, aborts the group's unusable communicators."""
        on_gpus = transfers[0].device.startswith("cuda")
        if on_gpus:
            self._aborting()
        try:
            works = self._begin(transfers)
            if on_gpus:
                self._poll(works, timeout, stop)
            else:
                for work in works:
                    work.wait(timedelta(seconds=timeout))
        except BaseException:
            if on_gpus:
                self._aborting()()
            raise

    def give_up(self) -> None:
        """Aborts the communicators, as the ranks that wait for this one do."""
        if self._nccl() is not None:
            self._aborting()()

    def _begin(self, transfers: Sequence[Transfer]) -> list[Any]:
        dist = self._dist
        ranks = dist.get_process_group_ranks(self._group)
        return list(
            dist.batch_isend_irecv(
                [
                    dist.P2POp(
                        dist.isend if each.sending else dist.irecv,
                        self._tensor(each),
                        ranks[each.peer],
                        self._group,
                    )
                    for each in transfers
                ]
            )
        )

    @staticmethod
    def _poll(works: Sequence[Any], timeout: float, stop: Callable[[], bool]) -> None:
        """Waits until the GPU has finished them."""
        begin = time.monotonic()
        deadline = begin + timeout
        while not all(work.is_completed() for work in works):
            if time.monotonic() >= deadline:
                raise TimedOut(f"the exchange has not ended within {timeout:g} s")
            if stop():
                raise TimedOut("another rank has given the exchange up")
            waited_s = time.monotonic() - begin
            time.sleep(min(max(waited_s * SHARE_OF_WAIT, FIRST_WAIT_S), LONGEST_WAIT_S))
        for work in works:
            work.wait()  # raises the reason of a failure


class _DeviceMemory:
    """Presents a transfer's memory to torch.as_tensor() as memory on a GPU."""

    def __init__(self, transfer: Transfer) -> None:
        self.__cuda_array_interface__ = {
            "shape": (transfer.size_bytes,),
            "typestr": "|u1",
            "data": (transfer.address, False),
            "version": 3,
        }
