# SPDX-License-Identifier: MIT
"""reveille.metrics(), its log lines and NVTX ranges, and what Prometheus gets."""

import ctypes
import dataclasses
import gc
import logging
import os
import subprocess
import sys
import threading
import types
import urllib.request

import pytest
import reveille
from job import FileStore
from reveille import _watch
from test_process import in_child
from test_regions import run  # noqa: F401

MIB = 1 << 20


@pytest.fixture(autouse=True)
def fresh():
    """Counters of this test alone."""
    _watch.MOVES.forget()


@pytest.fixture
def gpu():
    with reveille.Context(devices="64MiB", memory="accounted") as context:
        context.alloc(8 * MIB, "weights", backup="host")
        context.alloc(4 * MIB, "cache")
        yield context


@pytest.fixture
def prometheus():
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    from reveille import prometheus

    return prometheus


def counted():
    """operation, tags, count, bytes, copied bytes of each."""
    rows = reveille.metrics().transitions
    return [(r.operation, r.tags, r.count, r.bytes, r.copied_bytes) for r in rows]


def failed():
    return [(f.operation, f.error, f.count) for f in reveille.metrics().failures]


def by_tag():
    return {
        (t.device, t.tag): (t.active_bytes, t.paused_bytes, t.host_backup_bytes)
        for t in reveille.metrics().tags
    }


def by_device():
    return [tuple(vars(device).values()) for device in reveille.metrics().devices]


# ---- Bytes ----


def test_nothing_is_there_without_a_context():
    gc.collect()  # contexts that exceptions of other tests still name
    assert reveille.metrics() == reveille.Metrics((), (), (), ())


def test_bytes_by_device_tag_and_state(gpu):
    gpu.external("neighbour", 2 * MIB)
    gpu.alloc(2 * MIB)
    assert by_tag() == {
        ("sim:0", ""): (2 * MIB, 0, 0),
        ("sim:0", "weights"): (8 * MIB, 0, 0),
        ("sim:0", "cache"): (4 * MIB, 0, 0),
    }
    gpu.pause("weights")
    assert by_tag()["sim:0", "weights"] == (0, 8 * MIB, 8 * MIB)
    assert by_device() == [("sim:0", 8 * MIB, 2 * MIB, 8 * MIB, 0)]


def test_the_state_of_a_tag(gpu):
    def state(tag):
        of_metrics = {each.tag: each.state for each in reveille.metrics().tags}
        assert gpu.stats().tags[tag].state == of_metrics[tag]
        return of_metrics[tag]

    first = gpu.alloc("10MiB", "policy")
    assert state("policy") == "active"
    gpu.pause("policy")
    assert state("policy") == "paused"
    second = gpu.alloc("2MiB", "policy")
    assert state("policy") == "mixed"
    gpu.free(first)
    assert state("policy") == "active"
    gpu.free(second)
    assert state("policy") == "empty"


def test_contexts_are_summed_by_device_and_a_closed_one_is_gone(gpu):
    with reveille.Context(devices=["64MiB", "64MiB"], memory="accounted") as other:
        other.alloc(2 * MIB, "cache", device=0)
        other.alloc(6 * MIB, "cache", device=1)
        assert by_tag()["sim:0", "cache"] == (6 * MIB, 0, 0)
        assert by_tag()["sim:1", "cache"] == (6 * MIB, 0, 0)
        assert [row[:2] for row in by_device()] == [("sim:0", 14 * MIB), ("sim:1", 6 * MIB)]
        other.pause()
        assert counted() == [("pause", ("*",), 1, 8 * MIB, 0)]
    assert [row[:2] for row in by_device()] == [("sim:0", 12 * MIB)]
    assert counted() == [("pause", ("*",), 1, 8 * MIB, 0)]


def test_backups_on_disk(tmp_path):
    with reveille.Context(disk_directory=tmp_path, disk_tmpfs=True) as gpu:
        gpu.alloc(2 * MIB, "weights", backup="disk")
        gpu.pause()
        assert by_device() == [("sim:0", 0, 0, 0, gpu.stats().devices[0].disk_backup_bytes)]
        assert by_device()[0][4] >= 2 * MIB


# ---- The node's store ----

OWNER = """
import ctypes, sys
from reveille import _c

options = _c.StoreOptions(path=sys.argv[1].encode(), budget_bytes=int(sys.argv[2]))
store = ctypes.c_void_p()
assert _c.core().rvl_store_open(ctypes.byref(options), ctypes.byref(store)) == 0
print("ready", flush=True)
_c.core().rvl_store_serve(store, -1)
"""


@pytest.fixture
def start_store(tmp_path):
    """Starts the owner of a store with a budget; answers its path, and its process."""
    owners = []

    def start(budget):
        path = str(tmp_path / "store")
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, path, str(budget)], stdout=subprocess.PIPE, text=True
        )
        owners.append(owner)
        assert owner.stdout.readline() == "ready\n"
        return path, owner

    yield start
    for owner in owners:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def engine(path, value, mib=8):
    """A context with its own content."""
    context = reveille.Context(devices="64MiB", store=path)
    ctypes.memset(context.alloc(mib * MIB, "weights", backup="host"), value, mib * MIB)
    return context


def test_bytes_in_the_nodes_store(start_store):
    path, _ = start_store(64 * MIB)
    with engine(path, 1) as first, engine(path, 1) as same, engine(path, 2) as other:
        nothing = reveille.StoreMetrics(path, True, 64 * MIB, 0, 0, 0, 0, 0, 0, 0)
        assert reveille.metrics().stores == (nothing,)
        first.pause()
        one = dataclasses.replace(
            nothing, kept_bytes=8 * MIB, referenced_bytes=8 * MIB, own_bytes=8 * MIB
        )
        assert reveille.metrics().stores == (one,)
        same.pause()
        two = dataclasses.replace(
            one,
            shared_bytes=8 * MIB,
            referenced_bytes=16 * MIB,
            own_bytes=16 * MIB,
            own_found_bytes=8 * MIB,
        )
        assert reveille.metrics().stores == (two,)
        other.pause()
        three = dataclasses.replace(
            two, kept_bytes=16 * MIB, referenced_bytes=24 * MIB, own_bytes=24 * MIB
        )
        assert reveille.metrics().stores == (three,)
        for each in (first, same, other):
            each.resume()
        assert reveille.metrics().stores == (nothing,)
    assert reveille.metrics().stores == ()


def test_what_the_nodes_store_refuses(start_store):
    path, _ = start_store(8 * MIB)
    with engine(path, 1) as first, engine(path, 2) as other:
        first.pause()
        with pytest.raises(reveille.OutOfHostMemory, match="the store has no room"):
            other.pause()
        (now,) = reveille.metrics().stores
        assert (now.refused_bytes, now.refused_count, now.kept_bytes) == (8 * MIB, 1, 8 * MIB)
        assert now.own_bytes == 8 * MIB


def test_a_store_that_has_ended(start_store):
    path, owner = start_store(64 * MIB)
    with engine(path, 1) as first:
        first.pause()
        owner.kill()
        owner.wait()
        gone = reveille.StoreMetrics(path, False, 0, 0, 0, 0, 0, 0, 8 * MIB, 0)
        assert reveille.metrics().stores == (gone,)
        first.resume()


def test_a_context_without_a_store(gpu):
    assert reveille.metrics().stores == ()


# ---- Transitions ----


def test_transitions_by_operation_and_tags(gpu):
    begin = gpu.clock_ns
    gpu.pause("weights", "cache")
    paused_ns = gpu.clock_ns - begin
    gpu.resume("cache", "weights")
    gpu.pause("cache", "weights")
    gpu.resume()
    assert counted() == [
        ("pause", ("cache", "weights"), 2, 24 * MIB, 16 * MIB),
        ("resume", ("cache", "weights"), 1, 12 * MIB, 8 * MIB),
        ("resume", ("*",), 1, 12 * MIB, 8 * MIB),
    ]
    assert paused_ns > 0
    pauses, resumes, _all = reveille.metrics().transitions
    assert sum(each.seconds for each in reveille.metrics().transitions) == pytest.approx(
        (gpu.clock_ns - begin) / 1e9, rel=1e-9
    )
    assert pauses.seconds > paused_ns / 1e9
    assert resumes.gb_per_s == 8 * MIB / resumes.seconds / 1e9 > 0


def test_nothing_moved_has_no_rate(gpu):
    gpu.pause("cache", discard=True)
    gpu.pause("cache")
    assert counted() == [("pause", ("cache",), 2, 4 * MIB, 0)]
    assert reveille.metrics().transitions[0].gb_per_s == 0
    assert reveille.TransitionMetrics("pause", ("*",)).gb_per_s == 0


def test_a_group_counts_once(gpu, tmp_path):
    job = reveille.Job(FileStore(tmp_path), 0, 1)
    gpu.pause("weights", group=job)
    gpu.resume("weights", group=job)
    assert counted() == [
        ("pause", ("weights",), 1, 8 * MIB, 8 * MIB),
        ("resume", ("weights",), 1, 8 * MIB, 8 * MIB),
    ]
    gpu.pause(group=job)
    gpu.external("neighbour", "63MiB")
    with pytest.raises(reveille.JobAborted):
        gpu.resume(group=job)
    assert failed() == [("resume", "JobAborted", 1)]
    assert sum(each.count for each in reveille.metrics().transitions) == 3


def test_moves_at_a_time_are_counted_once(gpu):
    """All read the same bytes before. The first to end has them."""
    inside, leave = threading.Event(), threading.Event()

    def hold(_tag):
        inside.set()
        assert leave.wait(30)

    gpu.tag("weights", before_unmap=hold)
    threads = [threading.Thread(target=gpu.pause, args=["weights"]) for _ in range(4)]
    threads[0].start()
    assert inside.wait(30)
    for thread in threads[1:]:
        thread.start()
    while len(_watch.MOVES._running) < 4:
        pass
    assert [each.active_bytes for each in reveille.metrics().tags] == [8 * MIB, 4 * MIB]
    leave.set()
    for thread in threads:
        thread.join()
    assert counted() == [("pause", ("weights",), 4, 8 * MIB, 8 * MIB)]


def test_many_threads_lose_no_count():
    rounds, size = 50, 8

    def work(name):
        for _ in range(rounds):
            context.pause(name)
            context.resume(name)

    with reveille.Context(memory="accounted") as context:
        for index in range(size):
            context.alloc(2 * MIB, f"tag{index}", backup="host")
        threads = [threading.Thread(target=work, args=[f"tag{i}"]) for i in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        device = context.stats().devices[0]
        rows = reveille.metrics().transitions
        assert {(each.count, each.bytes) for each in rows} == {(rounds, rounds * 2 * MIB)}
        assert len(rows) == 2 * size
        copied = device.backup_out_bytes + device.backup_in_bytes
        assert sum(each.copied_bytes for each in rows) == copied == 2 * size * rounds * 2 * MIB


# ---- Failures ----


def refuse(_tag):
    raise RuntimeError("not now")


def test_failures_by_kind(gpu):
    before = by_tag()
    with pytest.raises(reveille.NotFound):
        gpu.pause("nothing")
    with pytest.raises(reveille.NotFound):
        gpu.resume("nothing")
    with pytest.raises(reveille.InvalidArgument):
        gpu.pause("weights", 3)
    gpu.tag("weights", before_unmap=refuse)
    for _ in range(2):
        with pytest.raises(reveille.Vetoed):
            gpu.pause("weights")
    assert by_tag() == before
    gpu.pause("cache")
    gpu.external("neighbour", "54MiB")
    with pytest.raises(reveille.OutOfDeviceMemory):
        gpu.resume("cache")
    assert failed() == [
        ("pause", "NotFound", 1),
        ("resume", "NotFound", 1),
        ("pause", "InvalidArgument", 1),
        ("pause", "Vetoed", 2),
        ("resume", "OutOfDeviceMemory", 1),
    ]
    assert counted() == [("pause", ("cache",), 1, 4 * MIB, 0)]


def test_a_closed_context_and_a_forked_one(gpu):
    def child():
        seen = [reveille.metrics() == reveille.Metrics((), (), (), ())]
        try:
            gpu.pause()
        except reveille.Forked:
            seen.append(failed())
        return seen

    gpu.pause("cache")
    assert in_child(child) == str([True, [("pause", "Forked", 1)]])
    gpu.close()
    with pytest.raises(reveille.InvalidState):
        gpu.resume()
    assert failed() == [("resume", "InvalidState", 1)]
    assert by_tag() == {}


def test_what_is_no_error_of_reveille_is_counted_too(gpu, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(reveille.Context, "_transition", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gpu.pause()
    assert failed() == [("pause", "KeyboardInterrupt", 1)]
    assert not _watch.MOVES._running


def test_watching_fails_no_move(gpu, monkeypatch):
    def broken(*_arguments):
        raise OSError("broken")

    monkeypatch.setattr(reveille.Context, "_reading", broken)
    monkeypatch.setattr(_watch.LOGGER, "info", broken)
    gpu.pause("weights")
    assert gpu.stats().tags["weights"].active_bytes == 0
    assert counted() == [("pause", ("weights",), 1, 0, 0)]


# ---- Log lines and NVTX ----


def test_log_lines(gpu, caplog):
    caplog.set_level(logging.INFO, "reveille")
    gpu.pause("weights")
    done = reveille.metrics().transitions[0]
    gpu.external("neighbour", "59MiB")
    with pytest.raises(reveille.OutOfDeviceMemory) as caught:
        gpu.resume("weights")
    first, second = caplog.records
    assert {(each.name, each.levelname) for each in caplog.records} == {("reveille", "INFO")}
    assert first.getMessage() == (
        'pause("weights"): 8.0 MiB given up, 8.0 MiB copied, '
        f"{done.seconds:.3f} s, {done.gb_per_s:.1f} GB/s"
    )
    start, error = second.getMessage().split(" s: ", 1)
    assert start.startswith('resume("weights") failed after 0.0')
    assert error == f"OutOfDeviceMemory: {caught.value}"


def test_nobody_asked_for_log_lines(run_python):
    done = run_python(
        "-c",
        "import reveille\nwith reveille.Context() as gpu:\n gpu.alloc(1, 'a')\n gpu.pause()",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Ranges(list):
    """Stands for torch.cuda.nvtx, and notes its calls."""

    def range_push(self, name):
        self.append(name)

    def range_pop(self):
        self.append("pop")

    push_range, pop_range = range_push, range_pop


def test_ranges_of_torch(gpu, monkeypatch):
    ranges = Ranges()
    cuda = types.SimpleNamespace(nvtx=ranges)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    gpu.pause("cache")
    with pytest.raises(reveille.NotFound):
        gpu.resume("nothing")
    assert ranges == ['reveille: pause("cache")', "pop", 'reveille: resume("nothing")', "pop"]


def test_ranges_of_the_package_nvtx(gpu, monkeypatch):
    ranges = Ranges()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(_watch, "_nvtx", lambda: ranges)
    gpu.pause()
    assert ranges == ["reveille: pause()", "pop"]


@pytest.mark.parametrize("broken", ["range_push", "range_pop", "nvtx"])
def test_ranges_that_cannot_be_made(gpu, monkeypatch, broken):
    def refused(*_arguments):
        raise RuntimeError("NVTX functions not installed")

    ranges = Ranges()
    if broken != "nvtx":
        setattr(ranges, broken, refused)
    cuda = types.SimpleNamespace(**({} if broken == "nvtx" else {"nvtx": ranges}))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    gpu.pause("weights")
    assert counted() == [("pause", ("weights",), 1, 8 * MIB, 8 * MIB)]
    assert ranges == (['reveille: pause("weights")'] if broken == "range_pop" else [])


# ---- Prometheus ----


def value(registry, name, **labels):
    return registry.get_sample_value(f"reveille_{name}", labels)


def test_prometheus_tells_a_tag_with_a_comma_from_two(prometheus):
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(prometheus.collector())
    with reveille.Context("sim", devices="80MiB", memory="accounted") as gpu:
        for tag in ("a,b", "a", "b"):
            gpu.alloc(2 * MIB, tag)
        gpu.pause("a,b")
        gpu.pause("a", "b")
        for tags, moved in (("a\\,b", 2 * MIB), ("a,b", 4 * MIB)):
            call = {"operation": "pause", "tags": tags}
            assert value(registry, "transition_seconds_count", **call) == 1
            assert value(registry, "transition_bytes_total", **call) == moved


def test_prometheus_has_the_same_numbers(gpu, prometheus):
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(prometheus.collector())
    gpu.pause("weights")
    with pytest.raises(reveille.NotFound):
        gpu.resume("nothing")
    done, call = reveille.metrics().transitions[0], {"operation": "pause", "tags": "weights"}
    weights = {"device": "sim:0", "tag": "weights"}
    assert value(registry, "memory_bytes", **weights, state="active") == 0
    assert value(registry, "memory_bytes", **weights, state="paused") == 8 * MIB
    assert value(registry, "device_used_bytes", device="sim:0") == 4 * MIB
    assert value(registry, "device_external_bytes", device="sim:0") == 0
    assert value(registry, "backup_bytes", device="sim:0", kind="host") == 8 * MIB
    assert value(registry, "backup_bytes", device="sim:0", kind="disk") == 0
    assert value(registry, "transition_seconds_count", **call) == 1
    assert value(registry, "transition_seconds_sum", **call) == done.seconds > 0
    assert value(registry, "transition_bytes_total", **call) == 8 * MIB
    assert value(registry, "transition_copied_bytes_total", **call) == 8 * MIB
    failure = {"operation": "resume", "error": "NotFound"}
    assert value(registry, "transition_failures_total", **failure) == 1
    with pytest.raises(ValueError, match="reveille_"):  # its names are taken
        registry.register(prometheus.collector())


def test_prometheus_has_the_nodes_store(start_store, prometheus):
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(prometheus.collector())
    path, owner = start_store(20 * MIB)
    with engine(path, 1) as first, engine(path, 1) as same, engine(path, 2, 16) as other:
        first.pause()
        same.pause()
        with pytest.raises(reveille.OutOfHostMemory):
            other.pause()
        wanted = {"kept": 8, "shared": 8, "referenced": 16, "own": 16, "found": 8}
        for kind, mib in wanted.items():
            assert value(registry, "store_bytes", store=path, kind=kind) == mib * MIB
        assert value(registry, "store_up", store=path) == 1
        assert value(registry, "store_budget_bytes", store=path) == 20 * MIB
        assert value(registry, "store_refused_bytes_total", store=path) == 16 * MIB
        assert value(registry, "store_refusals_total", store=path) == 1
        owner.kill()
        owner.wait()
        assert value(registry, "store_up", store=path) == 0
        assert value(registry, "store_bytes", store=path, kind="own") == 16 * MIB
        assert value(registry, "store_bytes", store=path, kind="kept") is None
        assert value(registry, "store_budget_bytes", store=path) is None


def test_prometheus_by_http(gpu, prometheus):
    server, thread = prometheus.serve(0)
    try:
        gpu.pause("cache")
        port = server.server_address[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        with pytest.raises(OSError):
            prometheus.serve(port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    line = 'reveille_memory_bytes{device="sim:0",state="paused",tag="cache"}'
    assert dict(each.rsplit(" ", 1) for each in text.splitlines())[line] == "4.194304e+06"


def test_prometheus_by_a_textfile(gpu, prometheus, tmp_path):
    file = tmp_path / "reveille.prom"
    gpu.pause("cache")
    prometheus.write_textfile(file)
    text = file.read_text()
    assert 'reveille_transition_bytes_total{operation="pause",tags="cache"} 4.194304e+06' in text
    with pytest.raises(OSError):
        prometheus.write_textfile(tmp_path / "missing" / "reveille.prom")
    with pytest.raises(reveille.InvalidArgument):
        prometheus.write_textfile(3)
    assert os.listdir(tmp_path) == ["reveille.prom"]
    assert file.read_text() == text


def test_prometheus_leaves_a_link_and_a_pipe_in_place(gpu, prometheus, tmp_path):
    file, link, pipe = (tmp_path / name for name in ("reveille.prom", "link.prom", "pipe.prom"))
    file.write_text("older")
    link.symlink_to(file)
    prometheus.write_textfile(link)
    assert link.is_symlink()
    assert file.read_text().startswith("# HELP reveille_memory_bytes")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        prometheus.write_textfile(pipe)
        assert os.read(reader, 1 << 16).startswith(b"# HELP reveille_memory_bytes")
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["link.prom", "pipe.prom", "reveille.prom"]


def test_prometheus_is_missing(run_python):
    done = run_python(
        "-c",
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import reveille; print(reveille.metrics().devices)\nimport reveille.prometheus",
    )
    assert (done.returncode, done.stdout) == (1, "()\n")
    assert "`pip install prometheus_client`" in done.stderr


# ---- Regions of PyTorch ----


def test_regions(run):  # noqa: F811
    run("""
    def counted():
        rows = reveille.metrics().transitions
        return [(r.operation, r.tags, r.count, r.bytes // MIB, r.copied_bytes // MIB) for r in rows]

    def failed():
        return [(f.operation, f.error, f.count) for f in reveille.metrics().failures]

    def by_tag():
        return {(t.device, t.tag): (t.active_bytes // MIB, t.paused_bytes // MIB)
                for t in reveille.metrics().tags}

    assert reveille.metrics().devices == ()
    with reveille.region("weights", backup="host"):
        weights = full(4, 7)
    with reveille.region("kv_cache"):
        cache = full(8, 9)
    assert by_tag() == {("cuda:0", "weights"): (4, 0), ("cuda:0", "kv_cache"): (8, 0)}
    reveille.pause("kv_cache")
    reveille.pause()
    assert by_tag() == {("cuda:0", "weights"): (0, 4), ("cuda:0", "kv_cache"): (0, 8)}
    device, = reveille.metrics().devices
    assert (device.device, device.host_backup_bytes) == ("cuda:0", 4 * MIB)
    reveille.resume("weights", "kv_cache")
    reveille.contexts()[0].pause("weights")
    pauses = [("pause", ("kv_cache",), 1, 8, 0), ("pause", ("*",), 1, 4, 4)]
    resumed = ("resume", ("kv_cache", "weights"), 1, 12, 4)
    assert counted() == [*pauses, resumed, ("pause", ("weights",), 1, 4, 4)]
    assert all(each.seconds > 0 for each in reveille.metrics().transitions)

    refused(reveille.pause, "nothing")
    from reveille.torch_memory_saver import torch_memory_saver
    torch_memory_saver.pause("nothing")  # which is nothing there
    reveille.pause("kv_cache")
    other = full(58, 1)
    refused(reveille.resume, "kv_cache", "weights")
    refused(reveille.resume, "kv_cache")
    assert failed() == [("pause", "NotFound", 1), ("resume", "OutOfDeviceMemory", 2)]
    assert counted()[0] == ("pause", ("kv_cache",), 2, 16, 0)
    assert counted()[-1] == ("pause", ("nothing",), 1, 0, 0)
    assert by_tag() == {("cuda:0", "weights"): (0, 4), ("cuda:0", "kv_cache"): (0, 8)}
    """)


def test_regions_have_the_store_of_the_environment(run, start_store):  # noqa: F811
    path, _ = start_store(64 * MIB)
    run(
        f"""
    with reveille.region("weights", backup="host"):
        weights = full(4, 7)
    reveille.pause("weights")
    wanted = reveille.StoreMetrics(
        {path!r}, True, 64 * MIB, 4 * MIB, 0, 4 * MIB, 0, 0, 4 * MIB, 0
    )
    assert reveille.metrics().stores == (wanted,), reveille.metrics().stores
    reveille.resume("weights")
    """,
        REVEILLE_STORE=path,
    )


def test_regions_of_a_group(run, tmp_path):  # noqa: F811
    run(
        """
    sys.path.insert(0, os.environ["HELPERS"])
    from job import FileStore
    job = reveille.Job(FileStore(os.environ["STORE"]), 0, 1)
    with reveille.region("weights", backup="host"):
        weights = full(4, 7)
    reveille.pause(group=job)
    other = full(62, 1)
    refused(lambda: reveille.resume(group=job))
    done, = reveille.metrics().transitions
    assert (done.operation, done.tags, done.count) == ("pause", ("*",), 1)
    assert (done.bytes, done.copied_bytes) == (4 * MIB, 4 * MIB)
    failure, = reveille.metrics().failures
    assert vars(failure) == {"operation": "resume", "error": "JobAborted", "count": 1}
    """,
        HELPERS=os.path.dirname(__file__),
        STORE=str(tmp_path),
    )
