# SPDX-License-Identifier: MIT
"""PyTorch's tensor sharing of memory in a region: export, pause, resume, import again.

The importer keeps what it has received in PyTorch's own cache of handles until it is collected, as
an engine does that is updated from a trainer's tensors.
"""

from __future__ import annotations

from typing import Any

import reveille
import torch
import torch.multiprocessing

from common import MIB, Checks, random_bytes

SIZE = 256 * MIB


def importer(pipe: Any) -> None:
    """Answers digests of what it is sent, and lets go of it when it is told."""
    held = None
    while (message := pipe.recv()) is not None:
        if message == "let go":
            held = None
            torch.cuda.synchronize()
            torch.cuda.ipc_collect()
            pipe.send("gone")
        else:
            held = message
            pipe.send(held.long().sum().item())
            del message


class Sharing:
    """One importer, through all checks."""

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
        assert self.ask(tensor) == tensor.long().sum().item()
        assert self.ask("let go") == "gone"

    def memory_of_a_region(self) -> None:
        """Three rounds: what is imported is never what lay there before the pause."""
        with reveille.region("shared"):
            self.tensor = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
        for seed in range(3):
            self.tensor.copy_(random_bytes(SIZE, seed))
            torch.cuda.synchronize()
            assert self.ask(self.tensor) == self.tensor.long().sum().item()
            assert self.ask("let go") == "gone"
            reveille.pause("shared")
            reveille.resume("shared")

    def an_offset_in_a_segment(self) -> None:
        with reveille.region("shared_small"):
            small = [torch.full((1000,), index, device="cuda") for index in range(16)]
        torch.cuda.synchronize()
        assert self.ask(small[7]) == 7000
        assert self.ask("let go") == "gone"

    def end(self) -> None:
        self.pipe.send(None)
        self.process.join(60)
        assert self.process.exitcode == 0, self.process.exitcode


if __name__ == "__main__":
    checks = Checks("ipc")
    sharing = Sharing()
    checks.run("plain memory", sharing.plain_memory)
    checks.run("memory of a region", sharing.memory_of_a_region)
    checks.run("an offset in a segment", sharing.an_offset_in_a_segment)
    checks.run("end of the importer", sharing.end)
    checks.end()
