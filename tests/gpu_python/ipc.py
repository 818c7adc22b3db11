# SPDX-License-Identifier: MIT
"""PyTorch's tensor sharing of memory in a region: export, pause, resume, import again.

The importer keeps what it has received in PyTorch's own cache of handles until it is collected, as
an engine does that is updated from a trainer's tensors. It may hold it over a pause: then it must
get the new content with the next tensor, and must never see anything through the old one.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import reveille
import torch
import torch.multiprocessing

from common import MIB, Checks, near, random_bytes, used

SIZE = 256 * MIB


def digest(tensor: torch.Tensor) -> int:
    return int(tensor.long().sum().item())


def importer(pipe: Any) -> None:
    """Answers digests of what it is sent, and holds it until the next comes or it is told."""
    held = None
    while (message := pipe.recv()) is not None:
        if isinstance(message, str) and message == "read again":
            read_again(pipe, held)
        elif isinstance(message, str) and message == "let go":
            held = None
            torch.cuda.synchronize()
            torch.cuda.ipc_collect()
            pipe.send("gone")
        else:
            held = message
            pipe.send(digest(held))
            del message


def read_again(pipe: Any, held: torch.Tensor) -> None:
    """Answers the digest of what is held, or what the device says of that."""
    try:
        pipe.send(digest(held))
    except RuntimeError as error:
        pipe.send(f"{type(error).__name__}: {error}".splitlines()[0])
        os._exit(0)  # CUDA does nothing more in this process


class Sharing:
    """One importer, through several checks."""

    def __init__(self) -> None:
        context = torch.multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        with reveille.configure_subprocess():
            self.process = context.Process(target=importer, args=(theirs,))
            self.process.start()
        theirs.close()

    def ask(self, message: Any) -> Any:
        self.pipe.send(message)
        if not self.pipe.poll(60):
            raise TimeoutError("the importer does not answer")
        return self.pipe.recv()

    def plain_memory(self) -> None:
        tensor = random_bytes(SIZE, 1)
        torch.cuda.synchronize()
        assert self.ask(tensor) == digest(tensor)
        assert self.ask("let go") == "gone"

    def memory_of_a_region(self) -> None:
        """Three rounds: what is imported is never what lay there before the pause."""
        with reveille.region("shared"):
            self.tensor = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
        for seed in range(3):
            self.tensor.copy_(random_bytes(SIZE, seed))
            torch.cuda.synchronize()
            assert self.ask(self.tensor) == digest(self.tensor)
            assert self.ask("let go") == "gone"
            reveille.pause("shared")
            reveille.resume("shared")

    def held_over_pauses(self) -> None:
        """The importer lets nothing go: the pause takes it, and what is sent next is new."""
        with reveille.region("held"):
            tensor = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
        for seed in range(3):
            tensor.copy_(random_bytes(SIZE, 10 + seed))
            expected = digest(tensor)
            assert self.ask(tensor) == expected
            assert self.ask("read again") == expected
            before = used()
            reveille.pause("held")
            near(before - used(), SIZE)
            reveille.resume("held")
            near(used(), before)
        tensor.copy_(random_bytes(SIZE, 20))
        assert self.ask(tensor) == digest(tensor)
        assert self.ask("let go") == "gone"

    def old_tensor(self, tag: str, *, resumed: bool) -> None:
        """What the importer still holds of a paused region is an error of the device."""
        with reveille.region(tag):
            tensor = random_bytes(SIZE, 30).clone()
        assert self.ask(tensor) == digest(tensor)
        reveille.pause(tag)
        if resumed:
            reveille.resume(tag)
            tensor.copy_(random_bytes(SIZE, 31))
            torch.cuda.synchronize()
        answer = self.ask("read again")
        assert isinstance(answer, str) and "CUDA error" in answer, answer
        print(f"      {answer}")
        self.end()
        if not resumed:
            reveille.resume(tag)
        tensor.copy_(random_bytes(SIZE, 32))  # the exporter has seen nothing of it
        assert digest(tensor) == digest(random_bytes(SIZE, 32))

    def an_offset_in_a_segment(self) -> None:
        with reveille.region("shared_small"):
            small = [torch.full((1000,), index, device="cuda") for index in range(16)]
        torch.cuda.synchronize()
        assert self.ask(small[7]) == 7000
        assert self.ask("let go") == "gone"

    def end(self) -> None:
        if self.process.is_alive():
            with contextlib.suppress(ConnectionError):
                self.pipe.send(None)
        self.process.join(60)
        assert self.process.exitcode == 0, self.process.exitcode


if __name__ == "__main__":
    checks = Checks("ipc")
    sharing = Sharing()
    checks.run("plain memory", sharing.plain_memory)
    checks.run("memory of a region", sharing.memory_of_a_region)
    checks.run("an offset in a segment", sharing.an_offset_in_a_segment)
    checks.run("held over pauses", sharing.held_over_pauses)
    checks.run("end of the importer", sharing.end)
    no_kernels = "no kernel runs that could fault"
    checks.run_on_card(
        "an old tensor while the region is paused",
        lambda: Sharing().old_tensor("old_paused", resumed=False),
        no_kernels,
    )
    checks.run_on_card(
        "an old tensor after the region is resumed",
        lambda: Sharing().old_tensor("old_resumed", resumed=True),
        no_kernels,
    )
    checks.end()
