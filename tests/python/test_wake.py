# SPDX-License-Identifier: MIT
"""A wake in order: resume(wait=False), ready() and wait(), on simulated devices and in regions."""

import ctypes
import gc
import os
import threading
import weakref

import pytest
import reveille
from reveille import _c
from reveille._wake import addresses_of, options_of
from test_context import MIB, Tensor
from test_regions import SOURCE, run  # noqa: F401 (a fixture)

LAYERS = 4
BYTES = 2 * MIB


@pytest.fixture
def gpu():
    with reveille.Context("sim", devices=["64MiB", "64MiB"]) as context:
        yield context


def asleep(gpu):
    """Layers on two devices in turns, so that each arrives by itself; paused."""
    layers = [gpu.alloc(BYTES, "weights", device=i % 2, backup="host") for i in range(LAYERS)]
    for i, layer in enumerate(layers):
        ctypes.memset(layer, i + 1, BYTES)
    gpu.pause("weights")
    return layers


def holds(layer, i):
    return ctypes.string_at(layer, BYTES) == bytes([i + 1]) * BYTES


def test_a_context_that_nobody_has_closes_behind_its_wake():
    threads = threading.active_count()
    gone = []
    for _ in range(50):
        gpu = reveille.Context("sim", devices="64MiB")
        gpu.alloc(4 * MIB, "weights", backup="host")
        gpu.pause()
        gpu.resume(wait=False)
        gone.append(weakref.ref(gpu))
        del gpu
    gc.collect()
    assert [each() for each in gone] == [None] * 50
    assert threading.active_count() == threads


def test_all_arrive(gpu):
    layers = asleep(gpu)
    wake = gpu.resume("weights", wait=False, order=[Tensor(layers[2], 1, 1), layers[1]])
    assert isinstance(wake, reveille.Wake)
    for i in (2, 1, 0, 3):
        gpu.wait(layers[i] + BYTES - 1)
        assert gpu.ready(layers[i])
        assert holds(layers[i], i)
    wake.wait()
    wake.wait()
    gpu.wait()
    assert gpu.stats().tags["weights"].resumes == LAYERS


def test_the_first_can_be_used_while_the_rest_is_on_its_way(gpu):
    """The last layer's callback holds the wake at its end, with all but the tag handed over."""
    layers = asleep(gpu)
    at_end, go_on = threading.Event(), threading.Event()

    def after(_tag):
        at_end.set()
        assert go_on.wait(30)

    gpu.tag("weights", after_map=after)
    wake = gpu.resume("weights", wait=False)
    assert at_end.wait(30)
    assert all(gpu.ready(layer) for layer in layers)
    paused = threading.Thread(target=gpu.pause, args=("weights",))
    paused.start()
    paused.join(0.2)
    assert paused.is_alive()  # it waits for the wake
    assert holds(layers[3], 3)
    go_on.set()
    paused.join(30)
    assert not paused.is_alive()
    wake.wait()
    assert not any(each.state == "active" for each in gpu.allocations())


def test_a_late_failure_leaves_what_had_arrived(gpu):
    layers = asleep(gpu)
    host, size = ctypes.c_void_p(), ctypes.c_uint64()
    gpu._handle.call("rvl_backup_find", layers[2], ctypes.byref(host), ctypes.byref(size))
    byte = ctypes.c_ubyte.from_address(host.value)
    byte.value ^= 1
    wake = gpu.resume("weights", wait=False)
    for _ in range(2):
        with pytest.raises(reveille.DigestMismatch) as raised:
            wake.wait()
        assert raised.value.tag == "weights"
    with pytest.raises(reveille.DigestMismatch):
        gpu.wait()
    gpu.wait()  # nothing is under way any more
    assert [gpu.allocation(layer).state for layer in layers] == ["active"] * 2 + ["paused"] * 2
    assert gpu.ready(layers[1])
    for call in (gpu.ready, gpu.wait):
        with pytest.raises(reveille.InvalidState, match="resume its tag"):
            call(layers[3])
    byte.value ^= 1
    gpu.resume("weights")
    assert all(holds(layer, i) for i, layer in enumerate(layers))
    found = reveille.metrics()
    failures = {(each.operation, each.error) for each in found.failures}
    assert ("resume", "DigestMismatch") in failures


def test_what_is_moved_is_counted(gpu):
    asleep(gpu)
    gpu.tag("counted")
    layer = gpu.alloc(BYTES, "counted", backup="host")
    gpu.pause("counted")
    gpu.resume("counted", wait=False).wait()
    done = [t for t in reveille.metrics().transitions
            if (t.operation, t.tags) == ("resume", ("counted",))]  # fmt: skip
    assert [(each.count, each.bytes, each.copied_bytes) for each in done] == [(1, BYTES, BYTES)]
    assert gpu.ready(layer)


def test_lack_of_room_changes_nothing(gpu):
    layers = asleep(gpu)
    gpu.external("neighbour", "62MiB", device=1)
    with pytest.raises(reveille.OutOfDeviceMemory):
        gpu.resume("weights", wait=False)
    assert {gpu.allocation(layer).state for layer in layers} == {"paused"}
    gpu.external("neighbour", 0, device=1)
    gpu.resume("weights", wait=False).wait()
    assert holds(layers[0], 0)


@pytest.mark.parametrize("first", ["weights", "large"])
def test_a_forecast_follows_the_order(first):
    """Memory without content is made while content is copied, if that is begun first."""
    with reveille.Context("sim", devices="1GiB", memory="accounted") as gpu:
        at = {"large": gpu.alloc("512MiB", "large")}
        at["weights"] = gpu.alloc("64MiB", "weights", backup="host")
        gpu.pause()
        taken = {}
        for each, address in at.items():
            forecast = gpu.fits(order=[Tensor(address, 1, 1), 4096])  # 4096 is nothing's
            assert (forecast.fits, forecast.needed_bytes) == (True, 576 * MIB)
            taken[each] = forecast.time_ns
        assert taken["weights"] < taken["large"]
        assert gpu.fits().time_ns == gpu.fits(order=[]).time_ns == taken["large"]
        assert gpu.fits(order=[4096]).time_ns == taken["large"]
        assert gpu.fits(order=iter([at["weights"]])).time_ns == taken["weights"]
        begin_ns = gpu.clock_ns
        gpu._transition("rvl_resume", (), options_of(_c.ResumeOptions(), addresses_of([at[first]])))
        assert gpu.clock_ns - begin_ns == taken[first]


def test_a_wake_makes_all_memory_before_its_first_copy():
    """A forecast is that of a resume that waits, which makes some of it meanwhile."""
    with reveille.Context("sim", devices="1GiB", memory="accounted") as gpu:
        at = [gpu.alloc("512MiB", "large"), gpu.alloc("64MiB", "weights", backup="host")]
        for each, longer in zip(at, (False, True)):
            gpu.pause()
            forecast = gpu.fits(order=[each])
            begin_ns = gpu.clock_ns
            gpu.resume(wait=False, order=[each]).wait()
            assert (gpu.clock_ns - begin_ns > forecast.time_ns) == longer


def test_a_forecast_passes_over_what_does_not_move():
    with reveille.Context("sim", devices="1GiB", memory="accounted") as gpu:
        large = gpu.alloc("256MiB", "large")
        weights = gpu.alloc("64MiB", "weights", backup="host")
        gpu.pause()
        alone = gpu.fits("weights")
        assert gpu.fits("weights", order=[large]) == alone
        assert gpu.fits("weights", order=[large, weights]) == alone
        bare = gpu.fits(restore=False, order=[weights])
        assert bare.time_ns < gpu.fits(order=[weights]).time_ns
        begin_ns = gpu.clock_ns
        gpu.resume(restore=False, wait=False, order=[weights]).wait()
        assert gpu.clock_ns - begin_ns == bare.time_ns


@pytest.mark.parametrize(
    "call",
    [
        lambda gpu, layer: gpu.resume("weights", wait=False, order=5),
        lambda gpu, layer: gpu.fits("weights", order=5),
        lambda gpu, layer: gpu.fits("weights", order=["layer"]),
        lambda gpu, layer: gpu.fits("weights", order=[-1]),
        lambda gpu, layer: gpu.fits("weights", order=[1 << 64]),
        lambda gpu, layer: gpu.fits("weights", order=[layer], group="everybody"),
        lambda gpu, layer: gpu.resume("weights", order=[layer]),
        lambda gpu, layer: gpu.resume("weights", wait=False, order=["layer"]),
        lambda gpu, layer: gpu.resume("weights", wait=False, order=[-1]),
        lambda gpu, layer: gpu.resume("weights", wait=False, replicas=True),
        lambda gpu, layer: gpu.wait(timeout=1),
        lambda gpu, layer: gpu.wait(layer, timeout=-1),
        lambda gpu, layer: gpu.ready("layer"),
        lambda gpu, layer: gpu.ready(None),
    ],
)
def test_bad_arguments(gpu, call):
    layers = asleep(gpu)
    with pytest.raises(reveille.InvalidArgument):
        call(gpu, layers[0])
    assert {gpu.allocation(layer).state for layer in layers} == {"paused"}


def test_unknown_addresses_and_tags(gpu):
    layers = asleep(gpu)
    for call in (gpu.ready, gpu.wait):
        with pytest.raises(reveille.NotFound):
            call(4096)
    with pytest.raises(reveille.NotFound):
        gpu.resume("never", wait=False)
    with pytest.raises(reveille.NotFound):
        gpu.fits("never", order=layers)
    gpu.resume("weights", wait=False, order=[4096]).wait()
    assert holds(layers[1], 1)


def test_closing_ends_what_goes_on():
    gpu = reveille.Context("sim", devices=["64MiB", "64MiB"])
    asleep(gpu)
    wake = gpu.resume("weights", wait=False)
    assert gpu.close() == LAYERS
    wake.wait()


def test_a_context_that_is_dropped_ends_its_wake(run_python):
    done = run_python("-c", """if True:
        import reveille
        gpu = reveille.Context("sim", devices="64MiB")
        gpu.alloc("4MiB", "weights", backup="host")
        gpu.pause("weights")
        gpu.resume("weights", wait=False)
        del gpu
        gpu = reveille.Context("sim", devices="64MiB")
        gpu.alloc("4MiB", "weights", backup="host")
        gpu.pause("weights")
        gpu.resume("weights", wait=False)
        print("end")
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_child_has_no_wakes(gpu):
    layers = asleep(gpu)
    gpu.resume("weights", wait=False)
    child = os.fork()
    if child == 0:
        answers = []
        for call in (gpu.wait, lambda: gpu.wait(layers[0])):
            try:
                call()
                answers.append(None)
            except reveille.Forked:
                answers.append("forked")
        os._exit(answers != [None, "forked"])
    assert os.waitpid(child, 0)[1] == 0
    gpu.wait()
    assert holds(layers[3], 3)


def test_regions_wake_in_order(run):  # noqa: F811
    run("""
    with reveille.region("weights", backup="host"):
        layers = [full(2, i + 1) for i in range(4)]
    with reveille.region("kv_cache"):
        cache = full(2, 9)
    other = full(2, 1)
    assert reveille.ready(layers[0]) and reveille.ready(other)
    reveille.pause()
    assert "InvalidState" in type(refused(reveille.ready, layers[0])).__name__
    assert "InvalidState" in type(refused(reveille.wait, layers[0])).__name__
    wake = reveille.resume("weights", wait=False, order=reversed(layers))
    for i, layer in reversed(list(enumerate(layers))):
        reveille.wait(layer)
        assert reveille.ready(layer)
        assert set(layer.tolist()) == {i + 1}
    wake.wait()
    assert "InvalidState" in type(refused(reveille.ready, cache)).__name__
    reveille.resume(wait=False)
    reveille.wait()
    assert reveille.ready(cache)
    reveille.wait(other, timeout=1)
    assert type(refused(reveille.wait, None, 1)).__name__ == "InvalidArgument"
    assert type(refused(lambda: reveille.resume("weights", order=layers))).__name__ == "InvalidArgument"
    assert type(refused(lambda: reveille.resume("nobody", wait=False))).__name__ == "NotFound"
    reveille.pause("weights")
    reveille.resume("weights", wait=False)  # ends by itself, with the process
    """)


def test_regions_of_a_job_wake_in_order(run, tmp_path):  # noqa: F811
    """A job of one rank; tests/python/test_job_wake.py has those of many. One context for each kind
    of backup: all have their memory before contents come."""
    run("""
    sys.path.insert(0, os.environ["HELPERS"])
    from job import FileStore
    reveille.set_disk_directory(os.environ["STORE"])
    job = reveille.Job(FileStore(os.environ["STORE"]), 0, 1)
    with reveille.region("weights", backup="host"):
        layers = [full(2, i + 1) for i in range(4)]
    with reveille.region("optimizer", backup="disk"):
        states = full(4, 9)
    assert len([each for each in reveille.contexts() if each.tags]) == 2
    reveille.pause()
    blocker = full(54, 1)
    for tags in ((), ("weights", "optimizer")):
        error = refused(lambda: reveille.resume(*tags, wait=False, group=job))
        assert isinstance(error, reveille.JobAborted)
        assert (error.rank, error.status) == (0, reveille.OutOfDeviceMemory.STATUS)
        assert error.requested_bytes == 12 * MIB and used() == 54
        assert isinstance(refused(reveille.ready, layers[0]), reveille.InvalidState)
    del blocker
    torch.cuda.empty_cache()
    usual, calls = reveille.Context._prepare_resume, []

    def second_fails(context, *arguments, **options):
        calls.append(context)
        if len(calls) == 2:
            raise reveille.DeviceLost("the device is lost")
        return usual(context, *arguments, **options)

    reveille.Context._prepare_resume = second_fails
    error = refused(lambda: reveille.resume(wait=False, group=job))
    assert error.status == reveille.DeviceLost.STATUS and used() == 0
    reveille.Context._prepare_resume = usual
    order = [states, *reversed(layers)]
    wake = reveille.resume("weights", "optimizer", wait=False, group=job, order=order)
    for tensor in order:
        reveille.wait(tensor)
        assert reveille.ready(tensor)
    assert [set(each.tolist()) for each in order] == [{9}, {4}, {3}, {2}, {1}]
    wake.wait()
    assert used() == 12
    error = refused(lambda: reveille.resume("nobody", wait=False, group=job))
    assert error.status == reveille.NotFound.STATUS
    reveille.pause("weights", group=job)
    reveille.resume("weights", wait=False, group=job)  # ends by itself, with the process
    """, HELPERS=str(SOURCE / "tests/python"), STORE=str(tmp_path))


def test_regions_are_forecast_in_order(run, tmp_path):  # noqa: F811
    """A job of one rank; tests/python/test_job.py has those of many."""
    run("""
    sys.path.insert(0, os.environ["HELPERS"])
    from job import FileStore
    job = reveille.Job(FileStore(os.environ["STORE"]), 0, 1)
    with reveille.region("kv_cache"):
        cache = full(24, 9)
    with reveille.region("weights", backup="host"):
        weights = full(8, 7)
    other = full(2, 1)
    reveille.pause()
    plain = reveille.fits()
    assert plain.needed_bytes == 32 * MIB
    (context,) = [each for each in reveille.contexts() if each.tags]
    for order in ([weights], [cache, other], [other, weights, cache]):
        forecast = reveille.fits(order=iter(order))
        assert forecast == context.fits(order=order), order
        assert reveille.fits(order=order, group=job).ranks == (forecast,)
        assert reveille.fits("weights", order=order) == reveille.fits("weights")
    assert reveille.fits(order=[cache]).time_ns == plain.time_ns
    assert reveille.fits(order=[weights]).time_ns != plain.time_ns
    for bad in (["weights"], [-1], [None], 5):
        error = refused(lambda: reveille.fits(order=bad))
        assert type(error).__name__ == "InvalidArgument", repr(error)
        assert type(refused(lambda: reveille.fits(order=bad, group=job))) is type(error)
    assert type(refused(lambda: reveille.fits("nobody", order=[weights]))).__name__ == "NotFound"
    """, HELPERS=str(SOURCE / "tests/python"), STORE=str(tmp_path))


def test_regions_that_do_not_fit_stay_asleep(run):  # noqa: F811
    run("""
    with reveille.region("weights", backup="host"):
        weights = full(20, 7)
    reveille.pause("weights")
    blocker = full(50, 1)
    error = refused(lambda: reveille.resume("weights", wait=False))
    assert type(error).__name__ == "OutOfDeviceMemory", repr(error)
    del blocker
    torch.cuda.empty_cache()
    reveille.resume("weights", wait=False)
    reveille.wait(weights)
    assert set(weights.tolist()) == {7}
    reveille.wait()
    """)
