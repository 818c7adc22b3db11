#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One step of reinforcement learning on one card: an engine and a trainer, awake in stages.

    python rl_step.py -o out                    # Qwen2.5-32B, half of it (tensor parallel 2); H200
    python rl_step.py -o out --scale 0.1        # a tenth of it, in a tenth of the memory
    python rl_step.py -o out --together         # the KV cache comes back too early, and recovers
    reveille record -o out/step.rvt -- python rl_step.py -o out

Writes out/result.json: what the driver said at the end of every stage, and what was checked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import reveille

from engine import Engine
from trainer import Trainer

NEARLY = 32 << 20  # what the driver may take for itself between two readings


class Steps:
    """The stages of a step. Engine and trainer may be processes, or anything with their methods."""

    def __init__(self, engine: Any, trainer: Any) -> None:
        self.engine, self.trainer = engine, trainer
        self.stages: list[dict[str, Any]] = []
        self.checks: dict[str, bool] = {}
        self.out_of_memory: dict[str, Any] | None = None

    def _stage(self, name: str, *work: Callable[[], Any]) -> None:
        """Does the work of a stage and reads the card at its end."""
        self.engine.stage(name)
        for each in work:
            each()
        self.stages.append({"stage": name, **self.engine.read()})

    def start(self) -> dict[str, Any]:
        """The engine alone, before the first step."""
        facts: list[dict[str, Any]] = []
        self._stage("startup", lambda: facts.append(self.engine.start()))
        self.before = self.engine.generate()
        return facts[0]

    def _update_weights(self) -> None:
        both = [self.trainer.begin("send_weights"), self.engine.begin("receive_weights")]
        for finish in both:
            finish()

    def staged(self) -> None:
        """Weights awake, update, training copy freed, and only then the KV cache."""
        self.engine.step()
        self._stage("asleep", self.engine.pause)
        self._stage("weights_awake", lambda: self.engine.resume("weights"))
        self._stage("training_copy_loaded", self.trainer.load, self._update_weights)
        self._stage("training_copy_freed", self.trainer.free)
        self._stage("kv_cache_awake", lambda: self.engine.resume("kv_cache", "cuda_graph"))
        self._stage("rollout", lambda: self._rollout("same output after the step"))

    def together(self) -> None:
        """The KV cache beside the training copy does not fit: the engine is told, and lives on."""
        self.engine.step()
        self._stage("asleep", self.engine.pause)
        self._stage("training_copy_loaded", self.trainer.load)
        self._stage("weights_awake", lambda: self.engine.resume("weights"), self._update_weights)
        needed, free = self.engine.bytes_of("kv_cache"), self.engine.read()["free_bytes"]
        self._stage("kv_cache_refused", lambda: self._refused(needed, free))
        self._stage("training_copy_freed", self.trainer.free)
        self._stage("kv_cache_awake", lambda: self.engine.resume("kv_cache", "cuda_graph"))
        self._stage("rollout", lambda: self._rollout("same output after the retry"))

    def end(self) -> None:
        """A recording reads the card when a stage begins: this is the end of the last one."""
        self.engine.stage("end")

    def _rollout(self, check: str) -> None:
        """The trainer sent what the engine had: the graph must say what it said before."""
        same = self.engine.generate() == self.before
        self.checks[check] = same and self.checks.get(check, True)

    def _refused(self, needed: int, free: int) -> None:
        try:
            self.engine.resume("kv_cache")
        except reveille.OutOfDeviceMemory as error:
            self.out_of_memory = {
                "message": str(error),
                "requested_bytes": error.requested_bytes,
                "free_bytes": error.free_bytes,
            }
            self.checks["bytes needed are right"] = error.requested_bytes == needed
            self.checks["bytes free are right"] = abs(error.free_bytes - free) <= NEARLY
            self.checks["it would not have fitted"] = needed > free
            now = self.engine.read()["free_bytes"]
            self.checks["nothing has changed"] = abs(now - free) <= NEARLY
        self.checks["OutOfDeviceMemory was raised"] = self.out_of_memory is not None


# ---- Processes ----


class Process:
    """An object in a process of its own, which has the preload library."""

    def __init__(self, context: Any, kind: type, *arguments: Any) -> None:
        self._pipe, theirs = context.Pipe()
        self._name = kind.__name__.lower()
        with reveille.configure_subprocess(), _recorded_as(self._name):
            self._process = context.Process(target=_serve, args=(theirs, kind, arguments))
            self._process.start()
        theirs.close()

    def begin(self, method: str, *arguments: Any) -> Callable[[], Any]:
        """Calls a method; the answer is what the returned function answers."""
        with self._alive(method):
            self._pipe.send((method, arguments))

        def finish() -> Any:
            with self._alive(method):
                answer, error = self._pipe.recv()
            if error is not None:
                raise error
            return answer

        return finish

    @contextlib.contextmanager
    def _alive(self, method: str) -> Iterator[None]:
        """Says who is gone, and how, where the pipe alone would say that it has ended."""
        try:
            yield
        except (EOFError, ConnectionError) as error:
            self._process.join(10)
            code = self._process.exitcode
            how = "by signal" if code is not None and code < 0 else "with exit status"
            raise RuntimeError(
                f"the process {self._name} ended {how} {abs(code or 0)} and did not answer "
                f"{method}(): what it printed says why"
            ) from error

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments: self.begin(method, *arguments)()

    def end(self) -> None:
        self._pipe.close()
        self._process.join(60)
        if self._process.is_alive():
            self._process.terminate()


@contextlib.contextmanager
def _recorded_as(name: str) -> Iterator[None]:
    """The name that processes started in the block have in a recording."""
    before = os.environ.get("RVL_RECORD_NAME")
    os.environ["RVL_RECORD_NAME"] = name
    try:
        yield
    finally:
        del os.environ["RVL_RECORD_NAME"]
        if before is not None:
            os.environ["RVL_RECORD_NAME"] = before


def _serve(pipe: Any, kind: type, arguments: tuple[Any, ...]) -> None:
    served, failure = None, None
    try:
        served = kind(*arguments)
    except Exception as error:  # who calls first is told
        failure = error
    while True:
        try:
            method, given = pipe.recv()
        except EOFError:
            return
        try:
            if failure is not None:
                raise failure
            pipe.send((getattr(served, method)(*given), None))
        except Exception as error:
            pipe.send((None, error))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("rl_step_out"))
    parser.add_argument("--scale", type=float, default=1.0, help="of the model and the memory")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--together", action="store_true", help="KV cache before the copy is freed")
    parser.add_argument(
        "--bucket-region", action="store_true", help="send the weights from memory in a region"
    )
    parser.add_argument("--tp", type=int, default=2, help="ranks that the engine would have")
    parser.add_argument("--mem-fraction", type=float, default=0.9)
    options = parser.parse_args()
    if not 0 < options.scale <= 1:
        parser.error("--scale is from 0 to 1")

    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    weights_in, weights_out = context.Pipe()
    shape = (options.scale, options.tp, options.mem_fraction)
    engine = Process(context, Engine, *shape, weights_in)
    trainer = Process(context, Trainer, options.scale, weights_out, options.bucket_region)
    weights_in.close()
    weights_out.close()
    steps = Steps(engine, trainer)
    try:
        facts = steps.start()
        for _ in range(options.steps):
            steps.together() if options.together else steps.staged()
        steps.end()
    finally:
        engine.end()
        trainer.end()

    result = {
        "model": "Qwen2.5-32B",
        "scale": options.scale,
        "tp": options.tp,
        "order": "together" if options.together else "staged",
        **facts,
        "stages": steps.stages,
        "out_of_memory": steps.out_of_memory,
        "checks": steps.checks,
        "passed": all(steps.checks.values()),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    report(result)
    return 0 if result["passed"] else 1


def report(result: dict[str, Any]) -> None:
    """For people."""
    for each in result["stages"]:
        print(f"  {each['stage']:<22} {reveille.format_size(each['used_bytes']):>10}")
    if result["out_of_memory"] is not None:
        print(f"  OutOfDeviceMemory: {result['out_of_memory']['message']}")
    for name, passed in result["checks"].items():
        print(f"{'PASS' if passed else 'FAIL'}  {name}")


if __name__ == "__main__":
    sys.exit(main())
