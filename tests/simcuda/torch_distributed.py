# SPDX-License-Identifier: MIT
"""PyTorch's own tests of its distributed package, with NCCL, on two simulated GPUs. Run it under `reveille run --gpus 2`.

    torch_distributed.py [--only REGEX] [--list FILE] [--seconds N]

The tests are in every wheel (torch.testing._internal.distributed.distributed_test). There, each test starts its own processes. Here, two
ranks run one test after the other, and are started again after a test that failed. A test fails that takes longer than N seconds
(default: 120). --list: the result of each test.
"""

import argparse
import collections
import json
import os
import random
import re
import select
import subprocess
import sys
import tempfile
import time
import unittest

RANKS = 2

# Tests that do not pass, and why.
NOT_PASSED = {
    **{
        f"test_ddp_native_mixed_precision_{view}grad_as_bucket_view_{none}": "in the first pass, PyTorch reduces memory that it has not written"
        for view in ("", "no_")
        for none in ("no_set_grad_none", "set_grad_to_none")
    },
    "test_invalid_static_graph": "after the tests before it, it fails on a card as well",
    "test_ddp_uneven_inputs": "its gradients come from tensors that are larger than what is kept",
}


def case():
    """The class of the tests, which reads the environment when it is imported."""
    sys.modules["torchvision"] = None  # its ResNet-50 has more content than is kept
    from torch.testing._internal.distributed import distributed_test

    class Case(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        pass

    return Case, distributed_test.Barrier


def run_one(made, barrier, name, rank, folder):
    """The result of one test in this rank."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.common_distributed import TEST_SKIPS

    skips = {each.exit_code: each.message for each in TEST_SKIPS.values()}
    os.environ["TEMP_DIR"] = os.path.join(folder, name)
    for each in ("barrier", "test_dir", "init_dir"):
        os.makedirs(os.path.join(folder, name, each), exist_ok=True)
    barrier.barrier_id = 0
    torch.manual_seed(0)  # all ranks draw the same numbers, as new processes do
    random.seed(0)
    test = made(name)
    test.rank, test.file_name = rank, os.path.join(folder, name, "met")
    dist.init_process_group("nccl", init_method=test.init_method, world_size=RANKS, rank=rank)
    test._barrier()
    found, why = "passed", ""
    try:
        getattr(test, name)()
    except SystemExit as ended:
        found, why = "skipped", skips.get(ended.code, f"ended with {ended.code}")
    except unittest.SkipTest as skipped:
        found, why = "skipped", str(skipped)
    if found == "passed":
        test._barrier()
    if dist.is_initialized():
        dist.destroy_process_group()
    return found, why


def be_rank(rank, names, folder):
    """The work of a rank: a line for each test, until one of them fails."""
    made, barrier = case()
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print
    for name in names:
        try:
            found, why = run_one(made, barrier, name, rank, folder)
        except BaseException as error:
            import traceback

            traceback.print_exc()
            found, why = "failed", f"{type(error).__name__}: {error}".splitlines()[0][:160]
        print(json.dumps([name, found, why]), file=said, flush=True)
        if found == "failed":
            os._exit(1)  # without waiting for the other rank
    os._exit(0)


def lines_of(ranks, seconds):
    """The results of one test, by rank. A rank that ended, or took too long, has none."""
    found, until = {}, time.monotonic() + seconds
    while len(found) < len(ranks) and time.monotonic() < until:
        left = [each.stdout for i, each in enumerate(ranks) if i not in found]
        ready, _, _ = select.select(left, [], [], 1.0)
        for each in ready:
            rank = next(i for i, one in enumerate(ranks) if one.stdout is each)
            line = each.readline()
            found[rank] = json.loads(line) if line else [None, "failed", "the process ended"]
            if found[rank][1] == "failed":  # the other one waits for it
                until = min(until, time.monotonic() + 5)
    return found


def judge(results):
    if len(results) < RANKS and all(found != "failed" for _, found, _ in results.values()):
        return "failed", "it took too long"
    failed = [each for each in results.values() if each[1] == "failed"]
    if failed:
        return max(failed, key=lambda each: each[0] is not None)[1:]
    return max(results.values(), key=lambda each: each[1] == "skipped")[1:]


def run_all(names, seconds, folder):
    """Yields the result of each test."""
    at, number = 0, 0
    while at < len(names):
        number += 1
        own = os.path.join(folder, str(number))
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(rank), "--folder", own, *names[at:]],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "LOCAL_RANK": str(rank), "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            )
            for rank in range(RANKS)
        ]
        failed = False
        while at < len(names) and not failed:
            found, why = judge(lines_of(ranks, seconds))
            yield names[at], found, why
            at, failed = at + 1, found == "failed"
        for each in ranks:
            each.kill() if failed else None
            each.wait()


def vars_of(made):
    return sorted((name, getattr(made, name)) for name in dir(made) if name.startswith("test_"))


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--only", default="")
    ask.add_argument("--list")
    ask.add_argument("--seconds", type=int, default=120)
    ask.add_argument("--rank", type=int, help="of a child")
    ask.add_argument("--folder")
    ask.add_argument("names", nargs="*")
    asked = ask.parse_args()
    os.environ.update(BACKEND="nccl", WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", TEMP_DIR=asked.folder or "")
    if asked.rank is not None:
        return be_rank(asked.rank, asked.names, asked.folder)
    tests = {name: test for name, test in vars_of(case()[0]) if re.search(asked.only, name)}
    names = [name for name, test in tests.items() if not hasattr(test, "__unittest_skip_why__")]
    lines = [f"{name}: skipped: {tests[name].__unittest_skip_why__}" for name in tests if name not in names]
    counted, unexpected = collections.Counter(skipped=len(lines)), 0
    with tempfile.TemporaryDirectory() as folder:
        for name, found, why in run_all(names, asked.seconds, folder):
            lines.append(f"{name}: {found}{': ' + why if why else ''}")
            counted[found] += 1
            if found == "failed" and name not in NOT_PASSED:
                unexpected += 1
                print(lines[-1], flush=True)
            if found == "passed" and name in NOT_PASSED and not asked.only:
                unexpected += 1
                print(f"{name} passes: take it from the list", flush=True)
    print(", ".join(f"{counted[each]} {each}" for each in sorted(counted)), flush=True)
    if asked.list:
        with open(asked.list, "w") as file:
            file.write("\n".join(lines) + "\n")
    return 1 if unexpected or not counted["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
