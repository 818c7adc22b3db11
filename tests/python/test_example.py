# SPDX-License-Identifier: MIT
"""examples/rl_step: its stages, with an engine and a trainer on one simulated card."""

import os
import pickle
import sys

import pytest
import reveille
from conftest import SOURCE
from reveille import _c

sys.path.insert(0, str(SOURCE / "examples/rl_step"))

import rl_step  # noqa: E402
from model import Shape  # noqa: E402

GIB = 1 << 30


class Simulated:
    """What engine and trainer share: their card, and answers that are there at once."""

    def __init__(self, gpu):
        self.gpu = gpu

    def begin(self, method):
        answer = getattr(self, method)()
        return lambda: answer


class Engine(Simulated):
    def start(self):
        free = self.gpu.memory()[0]
        self.weights = [
            self.gpu.alloc(2 * size_of(size), "weights") for size in Shape().shard(2).values()
        ]
        cache = self.gpu.memory()[0] - int(0.1 * free)
        self.gpu.alloc(cache, "kv_cache")
        self.gpu.alloc("64MiB", "cuda_graph")
        self.fresh = True
        return {"cache_bytes": cache}

    def generate(self):
        states = {each.state for each in self.gpu.allocations()}
        return {"tokens": [1, 2, 3] if states == {"active"} and self.fresh else []}

    def receive_weights(self):
        self.fresh = all(self.gpu.allocation(w).state == "active" for w in self.weights)

    def pause(self):
        self.fresh = False
        self.gpu.pause("weights", "kv_cache", "cuda_graph")

    def resume(self, *tags):
        self.gpu.resume(*tags)

    def stage(self, name):
        self.gpu.stage(name)

    def step(self):
        self.gpu.step()

    def bytes_of(self, tag):
        return self.gpu.fits(tag).needed_bytes

    def read(self):
        free, total = self.gpu.memory()
        return {"used_bytes": total - free, "free_bytes": free}


class Trainer(Simulated):
    def load(self):
        sizes = (size for _name, size in Shape().parameters())
        self.copy = [self.gpu.alloc(2 * size_of(size), "training_copy") for size in sizes]

    def send_weights(self):
        assert self.gpu.allocation(self.copy[0]).state == "active"

    def free(self):
        for address in self.copy:
            self.gpu.free(address)


def size_of(size):
    count = 1
    for each in size:
        count *= each
    return count


@pytest.fixture
def steps():
    with reveille.Context("sim", devices="h200", memory="accounted") as gpu:
        gpu.tag("weights", coalesce_bytes="64MiB")
        gpu.tag("training_copy", coalesce_bytes="64MiB")
        made = rl_step.Steps(Engine(gpu), Trainer(gpu))
        made.start()
        yield made


def ends(steps):
    return {each["stage"]: each["used_bytes"] / GIB for each in steps.stages}


def test_staged(steps):
    steps.staged()
    steps.staged()
    assert steps.checks == {"same output after the step": True}
    used = ends(steps)
    names = ["startup", "asleep", "weights_awake", "training_copy_loaded", "training_copy_freed",
             "kv_cache_awake", "rollout"]  # fmt: skip
    assert list(used) == names
    assert used["asleep"] == 0
    assert used["weights_awake"] == pytest.approx(30.8, abs=0.5)
    assert used["training_copy_loaded"] == pytest.approx(92, abs=1)
    assert used["training_copy_freed"] == used["weights_awake"]
    assert used["kv_cache_awake"] == pytest.approx(0.9 * 139.8, rel=0.01)


def test_together_is_refused_and_recovers(steps):
    steps.together()
    assert steps.checks == {
        "bytes needed are right": True,
        "bytes free are right": True,
        "it would not have fitted": True,
        "nothing has changed": True,
        "OutOfDeviceMemory was raised": True,
        "same output after the retry": True,
    }
    facts = steps.out_of_memory
    assert facts["message"].startswith('resume of "kv_cache" needs 94.')
    assert facts["requested_bytes"] > facts["free_bytes"]
    assert [each["stage"] for each in steps.stages][-1] == "rollout"
    used = ends(steps)
    assert used["kv_cache_refused"] == used["weights_awake"]


def test_the_end_of_the_last_stage_is_marked(steps, tmp_path):
    """A recording reads the card when the next stage begins."""
    with steps.engine.gpu.record(tmp_path / "run.rvt"):
        steps.staged()
        steps.end()
    stages = [stage.name for stage in reveille.replay(tmp_path / "run.rvt").devices[0].stages]
    assert stages[-2:] == ["rollout", "end"]
    assert [each["stage"] for each in steps.stages][-1] == "rollout"


def test_a_weight_that_was_not_updated_shows(steps):
    steps.engine.receive_weights = lambda: None
    steps.staged()
    assert steps.checks == {"same output after the step": False}


def test_a_card_that_is_large_enough_refuses_nothing():
    with reveille.Context("sim", devices="1TiB", memory="accounted") as gpu:
        steps = rl_step.Steps(Engine(gpu), Trainer(gpu))
        steps.start()
        gpu.free(next(each.addr for each in gpu.allocations() if each.tag == "kv_cache"))
        gpu.alloc("1GiB", "kv_cache")
        steps.together()
        assert not steps.checks["OutOfDeviceMemory was raised"]


def test_sizes_of_the_model():
    shape = Shape()
    count = sum(size_of(size) for _name, size in shape.parameters())
    assert count == 32_763_876_352
    shard = shape.shard(2)
    assert len(shard) == 3 + 64 * 7
    assert sum(size_of(size) for size in shard.values()) == pytest.approx(count / 2, rel=1e-4)
    tenth = shape.scaled(0.1)
    assert (tenth.layers, tenth.vocabulary) == (6, 15104)
    assert shape.cache_bytes_of_a_token(2) == 64 * 2 * 2 * 4 * 128


def test_every_row_of_the_shard_is_written_once():
    shape = Shape(hidden=8, layers=2, heads=4, kv_heads=2, head_dim=4, intermediate=6, vocabulary=4)
    rows = {name: [0] * size[0] for name, size in shape.shard(2).items()}
    for name, size in shape.parameters():
        place = shape.place(name, size, 2)
        assert place.size == shape.shard(2)[place.name]
        count = place.length if place.dimension == 0 else size[0]
        for row in range(place.row, place.row + count):
            rows[place.name][row] += 1
    assert all(set(written) == {1} for written in rows.values())


def test_errors_travel_between_processes():
    error = reveille.OutOfDeviceMemory("no room", tag="kv_cache", requested_bytes=3, free_bytes=2)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.tag, copy.requested_bytes, copy.free_bytes) == (
        "no room", "kv_cache", 3, 2)  # fmt: skip
    assert type(copy) is reveille.OutOfDeviceMemory


def test_help_and_bad_options(run_python):
    program = str(SOURCE / "examples/rl_step/rl_step.py")
    assert "--together" in run_python(program, "--help").stdout
    done = run_python(program, "--scale", "2")
    assert done.returncode == 2
    assert "--scale is from 0 to 1" in done.stderr


SERVED = """
import os, reveille

class Kind:
    def __init__(self, first):
        self.first = first

    def add(self, second):
        return self.first + second

    def hook(self):
        return os.path.basename(os.environ.get("LD_PRELOAD", ""))

    def name(self):
        return os.environ["RVL_RECORD_NAME"]

    def refuse(self):
        raise reveille.OutOfDeviceMemory("no room", requested_bytes=3, free_bytes=2)

    def die(self, code):
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)

class Broken:
    def __init__(self):
        raise KeyError("nothing here")
"""

SERVER = """
import multiprocessing, os, sys
import reveille, rl_step, served

if __name__ == "__main__":
    process = rl_step.Process(multiprocessing.get_context("spawn"), served.Kind, 3)
    print(process.add(4), process.hook(), process.name(), os.environ.get("RVL_RECORD_NAME"))
    print(process.begin("add", 5)())
    try:
        process.refuse()
    except reveille.OutOfDeviceMemory as error:
        print(error, error.requested_bytes, error.free_bytes)
    print(process.add(1), os.environ.get("LD_PRELOAD", ""))
    process.end()
    print(process._process.exitcode)
    process = rl_step.Process(multiprocessing.get_context("spawn"), served.Broken)
    try:
        process.add(1)
    except KeyError as error:
        print(error)
    process.end()
    for code in (3, -9):
        process = rl_step.Process(multiprocessing.get_context("spawn"), served.Kind, 3)
        for method, argument in (("die", code), ("add", 1)):
            try:
                getattr(process, method)(argument)
            except RuntimeError as error:
                print(error)
"""


def test_processes(run_python, tmp_path):
    if not _c.hook_library_path("preload").exists():
        pytest.skip("the hook libraries were not built")
    (tmp_path / "served.py").write_text(SERVED)
    (tmp_path / "server.py").write_text(SERVER)
    paths = [str(SOURCE / "examples/rl_step"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = run_python("server.py", PYTHONPATH=os.pathsep.join(paths))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "7 libreveille-preload.so kind None",
        "8",
        "no room 3 2",
        "4 ",
        "0",
        "'nothing here'",
        *(
            f"the process kind ended {how} and did not answer {method}(): what it printed says why"
            for how in ("with exit status 3", "by signal 9")
            for method in ("die", "add")
        ),
    ]


def test_report(capsys):
    stages = [{"stage": "asleep", "used_bytes": 6 * GIB}]
    refused = {"message": "no room"}
    checks = {"this": True, "that": False}
    rl_step.report({"stages": stages, "out_of_memory": refused, "checks": checks})
    assert capsys.readouterr().out.splitlines() == [
        "  asleep                    6.0 GiB",
        "  OutOfDeviceMemory: no room",
        "PASS  this",
        "FAIL  that",
    ]
