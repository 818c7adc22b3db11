# SPDX-License-Identifier: MIT
"""Regions, content, forecasts, exceptions and graphs, in the mode that the process is in."""

from __future__ import annotations

import sys

import reveille
import torch

from common import MIB, SIMULATED, Checks, near, random_bytes, same, used

SIZE = 512 * MIB


def right_mode() -> None:
    assert reveille.hook_mode() == sys.argv[1], reveille.hook_mode()


def content_over_a_cycle() -> None:
    expected = random_bytes(SIZE, 1)
    assert same(expected.clone(), expected)  # loads the kernels, which take memory
    assert torch.ones(8, dtype=torch.uint8, device="cuda").sum() == 8
    before = used()
    with reveille.region("weights", backup="host"):
        weights = expected.clone()
    with reveille.region("kv_cache"):
        cache = torch.ones(SIZE, dtype=torch.uint8, device="cuda")
    where = weights.data_ptr(), cache.data_ptr()
    near(used() - before, 2 * SIZE)
    for _ in range(3):
        reveille.pause("kv_cache")
        near(used() - before, SIZE)
        reveille.pause()
        near(used() - before, 0)
        assert same(reveille.backup_of(weights), expected.cpu())
        reveille.resume("weights", "kv_cache")
        near(used() - before, 2 * SIZE)
        assert same(weights, expected)
        assert where == (weights.data_ptr(), cache.data_ptr())


def content_over_a_disk() -> None:
    expected = random_bytes(SIZE, 2)
    with reveille.region("on_disk", backup="disk"):
        tensor = expected.clone()
    before = used()
    reveille.pause("on_disk")
    near(before - used(), SIZE)
    reveille.resume("on_disk")
    assert same(tensor, expected)


def small_tensors_of_two_tags() -> None:
    """PyTorch slices one segment among small tensors: of one tag only."""
    tensors = {}
    for index in range(64):
        tag = ("left", "right")[index % 2]
        with reveille.region(tag, backup="host"):
            tensors[index] = torch.full((1000,), index, dtype=torch.int32, device="cuda")
    reveille.pause("left")
    for index in range(1, 64, 2):
        assert tensors[index].unique().tolist() == [index]
    reveille.resume("left")
    for index in range(64):
        assert tensors[index].unique().tolist() == [index]


def out_of_memory() -> None:
    expected = random_bytes(SIZE, 3)
    with reveille.region("kept", backup="host"):
        kept = expected.clone()
    with reveille.region("large"):
        large = torch.ones(4 * SIZE, dtype=torch.uint8, device="cuda")
    reveille.pause()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    copy = torch.ones(free - 3 * SIZE, dtype=torch.uint8, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    forecast = reveille.fits("large")
    assert not forecast and forecast.needed_bytes == 4 * SIZE, forecast
    near(forecast.free_bytes, free)
    try:
        reveille.resume("large")
    except reveille.OutOfDeviceMemory as error:
        assert error.requested_bytes == 4 * SIZE, error.requested_bytes
        near(error.free_bytes, free)
        assert str(error).startswith('resume of "large" needs 2.0 GiB, '), error
        assert " free on cuda:0" in str(error), error
        print(f"      {type(error).__name__}: {error}")
    else:
        raise AssertionError("nothing was refused")
    near(torch.cuda.mem_get_info()[0], free)
    reveille.resume("kept")
    assert same(kept, expected)
    del copy
    torch.cuda.empty_cache()
    reveille.resume("large")
    large.fill_(5)
    assert SIMULATED or bool((large == 5).all())


def graph_over_a_cycle() -> None:
    """Weights, cache and the graph's own memory go and come; the graph is the same."""
    with reveille.region("g_weights", backup="host"):
        weights = torch.randn(2048, 2048, device="cuda")
    with reveille.region("g_cache"):
        cache = torch.zeros(64, 2048, device="cuda")
    given = torch.zeros(64, 2048, device="cuda")
    answer = torch.zeros(64, 2048, device="cuda")

    def work() -> None:
        cache.copy_(given @ weights)
        answer.copy_((cache @ weights).relu() @ weights)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with reveille.cuda_graph(graph, tag="graph"):
        work()
        busy = None
        try:
            reveille.pause("g_weights")
        except reveille.Busy as error:
            busy = error
    assert busy is not None
    held = reveille.stats().tags["graph"].active_bytes
    assert held > 0
    given.normal_()
    graph.replay()
    expected = answer.clone()
    for _ in range(3):
        before = used()
        reveille.pause("g_weights", "g_cache", "graph")
        assert reveille.stats().tags["graph"].paused_bytes == held
        assert before - used() >= held
        reveille.resume("g_weights", "g_cache", "graph")
        answer.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert same(answer, expected)


def disable_within_a_region() -> None:
    with reveille.region("region", backup="none"):
        inside = torch.ones(SIZE, dtype=torch.uint8, device="cuda")
        with reveille.disable():
            outside = random_bytes(SIZE, 4)
            expected = outside.cpu()
    reveille.pause("region")
    assert same(outside.cpu(), expected)
    reveille.resume("region")
    assert inside.numel() == SIZE
    del outside
    torch.cuda.empty_cache()


def bad_input() -> None:
    for call, kind in (
        (lambda: reveille.pause("wieghts"), reveille.NotFound),
        (lambda: reveille.region("a", backup="tape").__enter__(), reveille.InvalidArgument),
        (lambda: reveille.region("").__enter__(), reveille.InvalidArgument),
        (lambda: reveille.record("/nonexistent/run.rvt").__enter__(), reveille.InputOutputError),
    ):
        try:
            call()
        except kind as error:
            print(f"      {type(error).__name__}: {error}")
        else:
            raise AssertionError(f"{kind.__name__} was not raised")


def recording() -> None:
    path = "regions.rvt"
    with reveille.record(path):
        reveille.stage("rollout")
        with reveille.region("recorded"):
            tensor = torch.ones(SIZE, dtype=torch.uint8, device="cuda")
        reveille.stage("training")
        reveille.pause("recorded")
        reveille.resume("recorded")
    del tensor
    result = reveille.replay(path, device="h200")
    assert result.devices[0].stage("rollout").peak_bytes >= SIZE


if __name__ == "__main__":
    checks = Checks(f"regions_{sys.argv[1]}")
    for function in (
        right_mode,
        content_over_a_cycle,
        content_over_a_disk,
        small_tensors_of_two_tags,
        out_of_memory,
        graph_over_a_cycle,
        disable_within_a_region,
        bad_input,
        recording,
    ):
        checks.run(function.__name__.replace("_", " "), function)
    checks.end()
