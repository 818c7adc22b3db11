#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A training step under torch.profiler with CUDA activity takes the same memory as without: torch_profiler.py COMMAND.

The profiler sees the CPU and PyTorch's memory. A message reports once that the GPU's activity is missing.
"""
import json
import subprocess
import sys

SAYS = "profilers see no activity of the GPU"


def inside(how):
    import contextlib

    import torch
    from torch.profiler import ProfilerActivity, profile

    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    every = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    profiler = profile(activities=every, profile_memory=True, record_shapes=True, with_stack=True)
    with profiler if how == "profiled" else contextlib.nullcontext():
        for _ in range(3):
            with torch.profiler.record_function("forward"):
                loss = model(torch.randn(512, 1024, device="cuda")).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
    if how == "profiled":
        seen = {each.key: each for each in profiler.key_averages()}
        assert seen["forward"].count == 3 and "aten::addmm" in seen, sorted(seen)
        assert seen["forward"].device_memory_usage > 0, seen["forward"]
        assert not any(each.device_time_total for each in seen.values()), "kernels do not run"
    print("torch", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)


def main(command):
    found = {}
    for how in ("plain", "profiled"):
        done = subprocess.run([command, "run", "--json", "--stages", "", "--", sys.executable, __file__, "--inside", how],
                              capture_output=True, text=True)
        assert done.returncode == 0, done
        assert done.stderr.count(SAYS) == (how == "profiled"), done.stderr
        *_, said, shown = done.stdout.splitlines()
        (device,) = json.loads(shown)["devices"]
        # PyTorch's own ranges are stages here, too, and the profiler adds some.
        stages = {each["mark"]: each["peak_bytes"] for each in device["stages"] if each["mark"] == "forward"}
        found[how] = said, device["peak_bytes"], stages
        print(how, found[how])
    assert found["plain"] == found["profiled"], found


if __name__ == "__main__":
    inside(sys.argv[2]) if sys.argv[1] == "--inside" else main(sys.argv[1])
