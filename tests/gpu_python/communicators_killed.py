# SPDX-License-Identifier: MIT
"""A rank of a job is killed in each phase of a pause and resume with communicators: what the others keep, and that they go on.

usage: communicators_killed.py NAME [RANKS]

Starts ranks of its own for each phase, all phases at once. The last rank is killed; each other rank must hear of it within its time,
have its weights right, give up the communicator, and end. Prints a JSON line for each phase.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

MIB = 1 << 20
SIZE = 256 * MIB
GROUP_TIMEOUT_S = 5.0
LIMIT_S = 90.0
# When the last rank is killed: where it stands, and seconds after it has begun the call.
PHASES: dict[str, tuple[str, float]] = {
    "before the pause": ("before pause", 0.0),
    "20 ms into the pause": ("in pause", 0.02),
    "200 ms into the pause": ("in pause", 0.2),
    "paused": ("paused", 0.0),
    "20 ms into the resume": ("in resume", 0.02),
    "200 ms into the resume": ("in resume", 0.2),
}

# ---- A rank ----


def be_rank(place: str, delay_s: float) -> None:
    import reveille
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dies = rank == world - 1

    def die() -> None:
        os.kill(os.getpid(), 9)

    def used() -> int:
        free, total = torch.cuda.mem_get_info()
        return total - free

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    meeting = dist.new_group(list(range(world)), backend="gloo")
    with reveille.region("weights", backup="host"):
        weights = torch.full((SIZE // 4,), rank + 1.0, device="cuda")
    summed = torch.ones(MIB, device="cuda")
    dist.all_reduce(summed)
    torch.cuda.synchronize()
    said: dict[str, Any] = {"rank": rank}

    def call(what: str) -> None:
        with contextlib.suppress(RuntimeError):  # gloo's, of a rank that has died
            dist.barrier(group=meeting)
        if dies and place == f"before {what}":
            die()
        if dies and place == f"in {what}":
            threading.Timer(delay_s, die).start()
        begin = time.perf_counter()
        try:
            getattr(reveille, what)("weights", "nccl", group=meeting, group_timeout=GROUP_TIMEOUT_S)
            said[what] = "done"
        except reveille.ReveilleError as error:
            said[what] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        said[f"{what}_s"] = round(time.perf_counter() - begin, 3)

    call("pause")
    if dies and (place == "paused" or place == "in pause"):
        time.sleep(2 * delay_s)
        die()
    if said["pause"] == "done":
        time.sleep(0.5)
        call("resume")
    if dies:
        time.sleep(2 * delay_s)
        die()
    said["communicators"] = [each.state for each in reveille.communicators()]
    try:
        reveille.resume("weights")
    except reveille.ReveilleError as error:
        said["weights"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    said["weights_right"] = bool((weights == rank + 1.0).all()) or "REVEILLE_MACHINE" in os.environ
    before = used()
    begin = time.perf_counter()
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    aborting = threading.Thread(target=backend.abort, daemon=True)
    aborting.start()
    aborting.join(20)
    said["aborted"] = not aborting.is_alive()
    said["abort_s"] = round(time.perf_counter() - begin, 3)
    said["abort_freed"] = before - used()
    said["goes_on"] = bool((torch.full((MIB,), 3.0, device="cuda") == 3.0).all()) or "REVEILLE_MACHINE" in os.environ
    print(json.dumps(said), flush=True)
    os._exit(0)  # the store and the process group wait for who is dead


# ---- The parent ----


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(place: str, delay_s: float, world: int) -> list[subprocess.Popen[str]]:
    port = str(free_port())
    words = [sys.executable, __file__, "--rank", place, str(delay_s)]
    at = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world), "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    return [
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **at, "RANK": str(n), "LOCAL_RANK": str(n)})
        for n in range(world)
    ]


def end(processes: list[subprocess.Popen[str]], deadline: float) -> list[dict[str, Any]]:
    """What the ranks that were to live have said."""
    said = []
    for number, process in enumerate(processes):
        try:
            text, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
            text += json.dumps({"rank": number, "hung": True})
        lines = [line for line in text.splitlines() if line.startswith("{")]
        if number < len(processes) - 1:
            said.append(json.loads(lines[-1]) if lines else {"rank": number, "exit": process.returncode})
    return said


def passed(place: str, said: dict[str, Any]) -> bool:
    heard = any(str(said.get(each, "done")) != "done" for each in ("pause", "resume"))
    # A rank that dies after its last answer is heard of by the next call: here there is none.
    return bool(said.get("weights_right") and said.get("goes_on") and said.get("aborted") and (heard or place.startswith("in")))


def main() -> None:
    name = sys.argv[1]
    world = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    deadline = time.monotonic() + LIMIT_S
    running = {phase: start(place, delay_s, world) for phase, (place, delay_s) in PHASES.items()}
    good = True
    for phase, processes in running.items():
        said = end(processes, deadline)
        right = all(passed(PHASES[phase][0], each) for each in said)
        good &= right
        print(json.dumps({"part": "communicators_killed", "name": name, "phase": phase, "right": right, "ranks": said}), flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        be_rank(sys.argv[2], float(sys.argv[3]))
    else:
        main()
