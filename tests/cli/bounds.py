#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Time and memory of the command where two counts of an input could multiply.

    bounds.py REVEILLE

Each trace is run at one size and at twice the size. Processor time and peak memory of the larger may be at
most three times those of the smaller; a product of two counts would be four times. Time below half a second,
and memory below 24 MiB, say nothing and are not compared.

A sweep of a thousand cases (bench/sweep.sh) may take as much processor time as two cores have in 5 s: by the clock
it would fail on a busy machine.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

HEAD = "reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n"
GRANULE = 2097152
MOST = 3.0
SECONDS_MIN = 0.5
BYTES_MIN = 24 << 20
LIMIT_BYTES = 2 << 30
LISTED = 64
MILLION, LARGEST = 1000000, 777777
SWEEP = os.path.join(os.path.dirname(__file__), "../../bench/sweep.sh")
SWEEP_SECONDS = 2 * 5.0


def stages_of_tags(count: int) -> Iterator[str]:
    """At stage n there are n tags that hold."""
    for i in range(count):
        yield f"alloc {i * 1000} engine 0 {i + 1} 0 {GRANULE} t{i}"
        yield f"stage {i * 1000} engine 0 s{i}"


def marks(count: int) -> Iterator[str]:
    """One stage, marked again and again."""
    for i in range(count):
        yield f"stage {i * 1000} engine 0 rollout"


def churn(count: int) -> Iterator[str]:
    """Every tag holds for one stage."""
    for i in range(count):
        yield f"alloc {i * 1000} engine 0 {i + 1} 0 {GRANULE} t{i}"
        yield f"stage {i * 1000} engine 0 s{i}"
        yield f"free {i * 1000} engine 0 {i + 1}"


def processes_of_tags(count: int) -> Iterator[str]:
    """Every process uses a tag that many others came before."""
    for i in range(count):
        yield f"alloc {i} p0 0 {i + 1} 0 {GRANULE} t{i}"
    yield f"stage {count} p0 0 rollout"
    for i in range(count // 8):
        yield f"alloc {count + i} p{i} 0 {count + 1} 0 {GRANULE} t{count - 1 - i % 10}"


def one_live(count: int) -> Iterator[str]:
    """Many events, little that is live."""
    yield "stage 0 engine 0 rollout"
    for i in range(count // 2):
        yield f"alloc {i * 10} engine 0 {i + 1} 0 {GRANULE} kv_cache"
        yield f"free {i * 10 + 5} engine 0 {i + 1}"


def write(path: str, events: Iterator[str], processes: int) -> None:
    with open(path, "w", encoding="ascii") as out:
        out.write(HEAD + f"device 0 profile=- capacity_bytes={1 << 50} granularity_bytes={GRANULE}\n")
        out.writelines(f"process {name} pid=1\n" for name in ["engine", *(f"p{i}" for i in range(processes))])
        count = 0
        for count, event in enumerate(events, 1):  # noqa: B007
            out.write(event + "\n")
        out.write(f"end {count}\n")


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))


def run(command: list[str], keep: bool = False) -> tuple[float, int, bytes]:
    """Processor seconds, peak bytes and, to be kept, the output."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, preexec_fn=limit_memory)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode in (0, 3), f"{command} ended with {child.returncode}"
        out.seek(0)
        text = out.read() if keep else b""
        return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, text


def check_growth(name: str, small: tuple[float, int, bytes], large: tuple[float, int, bytes]) -> None:
    for what, before, after, least in (
        ("processor seconds", small[0], large[0], SECONDS_MIN),
        ("bytes of memory", small[1], large[1], BYTES_MIN),
    ):
        assert after <= max(before, least) * MOST, f"{name}: {what} went from {before} to {after}"
    print(f"{name}: {small[0]:.2f} to {large[0]:.2f} s, {small[1] >> 20} to {large[1] >> 20} MiB")


def million(names: int) -> Iterator[str]:
    """A million stages; one has a peak far above the others'."""
    yield f"alloc 0 engine 0 1 0 {GRANULE} weights"
    for i in range(MILLION):
        yield f"stage {i * 1000} engine 0 step-{i % names}"
        if i == LARGEST:
            yield f"alloc {i * 1000 + 1} engine 0 2 0 {99 * GRANULE} batch"
            yield f"free {i * 1000 + 2} engine 0 2"


CASES: list[tuple[str, Callable[[int], Iterator[str]], int, int]] = [
    ("stages_of_tags", stages_of_tags, 4000, 0),
    ("marks", marks, 100000, 0),
    ("churn", churn, 10000, 0),
    ("processes_of_tags", processes_of_tags, 16000, 4000),
]
COMMANDS = [["replay"], ["replay", "--json"], ["report"], ["report", "--svg", "-"], ["report", "--chrome", "-"]]


def check_listed(output: bytes, count: int) -> None:
    """The last stage lists its largest holders, and the sum of the others."""
    stage = json.loads(output)["devices"][0]["stages"][-1]
    assert len(stage["at_peak"]) == LISTED, len(stage["at_peak"])
    others = stage["at_peak_others"]
    assert others["count"] == count - LISTED, others
    assert sum(each["bytes"] for each in stage["at_peak"]) + others["bytes"] == stage["peak_bytes"]


def check_million(reveille: str, path: str, names: int, most_bytes: int) -> None:
    """What is written is as short as a timeline, says how many stages are folded, and names the largest of all."""
    write(path, million(names), 0)
    seconds, used, output = run([reveille, "replay", "--json", path], True)
    assert used <= most_bytes, f"{used} bytes"
    assert len(output) <= 3 << 20, len(output)
    (device,) = json.loads(output)["devices"]
    stages = device["stages"]
    start = sum(each["name"] == "start" for each in stages)
    assert sum(each.get("merged", 1) for each in stages) == MILLION + start
    largest = max(stages, key=lambda each: each["peak_bytes"])
    said = f"step-{LARGEST}" if names > LARGEST else f"step-{LARGEST % names}#{LARGEST // names + 1}"
    assert (largest["name"].removeprefix("other stages: "), largest["peak_bytes"]) == (said, 100 * GRANULE), largest
    assert device["peak_stage"] == largest["name"], device["peak_stage"]
    for options, most in (([], 110), (["--each-stage"], 9000), (["--markdown"], 110)):
        table = run([reveille, "replay", *options, path], True)[2].decode()
        assert table.count("\n") <= most, (options, table.count("\n"))
        name, _, number = said.partition("#")
        assert name in table and (number in table or options == ["--markdown"]), (options, table[-400:])
    print(f"a million stages of {names} names: {seconds:.2f} s, {used >> 20} MiB, {len(output) >> 10} KiB of JSON")


def check_sweep(reveille: str) -> None:
    said = subprocess.run([SWEEP, reveille, "1"], capture_output=True, text=True, check=True).stdout
    found = re.fullmatch(r"(\d+) configurations: [\d.]+ s by the clock, ([\d.]+) s of processor time\n", said)
    assert found is not None and found[1] == "1000", said
    assert 0 < float(found[2]) <= SWEEP_SECONDS, said
    print(f"sweep: {said}", end="")


def main() -> None:
    reveille = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for name, events, size, processes in CASES:
            paths = [os.path.join(folder, f"{name}-{part}.rvt") for part in (1, 2)]
            for part, path in enumerate(paths, 1):
                write(path, events(size * part), processes)
            for command in COMMANDS:
                listed = name == "stages_of_tags" and "--json" in command
                small, large = (run([reveille, *command, path], listed) for path in paths)
                check_growth(f"{' '.join(command)}, {name}", small, large)
                if listed:
                    check_listed(large[2], 2 * size)
        path = os.path.join(folder, "plan.rvt")
        write(path, one_live(400000), 0)
        replayed, planned = run([reveille, "replay", path]), run([reveille, "plan", path, "--max", "kv_cache"])
        assert planned[1] <= replayed[1] + (8 << 20), f"plan took {planned[1]} bytes, replay {replayed[1]}"
        assert planned[0] <= 12 * replayed[0] + 1, f"plan took {planned[0]} s, replay {replayed[0]} s"
        print(f"plan: {planned[0]:.2f} s, {planned[1] >> 20} MiB; replay: {replayed[0]:.2f} s, {replayed[1] >> 20} MiB")
        for names, most_bytes in ((3, 32 << 20), (900000, 192 << 20)):
            check_million(reveille, os.path.join(folder, "million.rvt"), names, most_bytes)
    check_sweep(reveille)


if __name__ == "__main__":
    main()
