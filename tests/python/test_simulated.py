# SPDX-License-Identifier: MIT
"""reveille.simulated and the marker reveille_run: programs on simulated GPUs."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import reveille
import simulated_program
from reveille import _command

CONTEXT = 552402944  # what the driver takes
MIB = 1 << 20
HERE = Path(__file__).parent
LIBRARIES = _command.PROGRAM.parent.parent / "lib" / "reveille-cuda"
pytestmark = pytest.mark.skipif(
    not (LIBRARIES / "libcuda.so.1").exists(), reason="the package has no simulated libraries"
)


def test_a_function():
    run = reveille.simulated("h100-80g", gpus=2).run(simulated_program.allocate, 8 * MIB, device=1)
    assert run.value == CONTEXT + 8 * MIB
    assert [stage.name for stage in run.stages] == ["run", "run"]
    assert run.stage("run", device=1).peak_bytes == CONTEXT + 8 * MIB
    assert run.stage("run").peak_bytes == 0
    assert run.replay.devices[1].profile == "h100-80g"
    assert run.replay.fits


def test_what_a_function_raises():
    with pytest.raises(MemoryError, match="2147483648 bytes"):
        reveille.simulated("1GiB").run(simulated_program.allocate, 2 << 30)
    with pytest.raises(ValueError, match="no device 1"):
        reveille.simulated().run(simulated_program.allocate, 1, 1)


def test_a_script(capfd):
    script = HERE / "simulated_program.py"
    run = reveille.simulated().run(script, 4 * MIB)
    assert capfd.readouterr().out == f"in use: {CONTEXT + 4 * MIB}\n"  # and no table
    assert run.value is None
    assert run.stage("run").peak_bytes == CONTEXT + 4 * MIB
    with pytest.raises(subprocess.CalledProcessError) as failed:
        reveille.simulated("1GiB").run(script, 2 << 30)
    assert failed.value.returncode == 1


def test_stages_of_the_program():
    run = reveille.simulated().run(simulated_program.in_stages)
    peaks = {stage.name: stage.peak_bytes - CONTEXT for stage in run.stages}
    for name, mib in (("load", 8), ("step", 24), ("forward", 24), ("backward", 10), ("end", 10)):
        assert peaks[name] == mib * MIB, (name, peaks)
    with pytest.raises(reveille.InvalidArgument, match="the older name of stages"):
        reveille.simulated(stages="a", stages_nvtx="b")


def test_a_program_that_runs_out_of_memory():
    with pytest.raises(reveille.ProgramFailed) as failed:
        reveille.simulated("1GiB").run(HERE / "simulated_program.py", 2 << 30)
    assert failed.value.verdict.kind == "out of memory"
    assert failed.value.verdict.requested_bytes == 2 << 30
    assert str(failed.value).endswith(str(failed.value.verdict))


def test_a_command():
    run = reveille.simulated().run("true")
    assert run.stage("run").peak_bytes == 0
    with pytest.raises(subprocess.CalledProcessError) as failed:
        reveille.simulated().run("sh", "-c", "exit 7")
    assert failed.value.returncode == 7
    with pytest.raises(subprocess.TimeoutExpired):
        reveille.simulated(timeout=0.5).run("sleep", "30")


def test_budgets():
    gpus = reveille.simulated(budgets={"run": "530MiB"})
    assert gpus.run(simulated_program.allocate, 2 * MIB).replay.within_budgets
    run = gpus.run(simulated_program.allocate, 8 * MIB)
    assert not run.replay.within_budgets
    assert run.stage("run").over_budget


def test_headroom():
    def verdict(headroom):
        gpus = reveille.simulated("1GiB", headroom=headroom)
        return gpus.run(simulated_program.allocate, 400 * MIB).verdict

    usual = verdict(None)
    assert usual.kind == "fits" and usual.headroom_bytes < 32 * MIB
    assert (verdict("20%").kind, verdict("20%").headroom_bytes) == ("tight", 214748364)
    assert str(verdict("200MiB")).startswith("tight: ")
    assert (verdict(0).kind, verdict(0).headroom_bytes) == ("fits", 0)
    for wrong in ("101%", "x%", "-1%", "much", -1):
        with pytest.raises(reveille.InvalidArgument):
            reveille.simulated(headroom=wrong)


def test_contents():
    assert reveille.simulated().run(simulated_program.round_trip, 4096).value
    assert not reveille.simulated(keep_contents=256).run(simulated_program.round_trip, 4096).value
    assert not reveille.simulated(keep_contents=0).run(simulated_program.round_trip, 256).value


def test_what_is_refused(monkeypatch, capfd):
    with pytest.raises(reveille.InvalidArgument):
        reveille.simulated("h999").run("true")
    assert "h999" in capfd.readouterr().err
    with pytest.raises(reveille.InvalidArgument, match="no-such-command is not found"):
        reveille.simulated().run("no-such-command")
    with pytest.raises(reveille.InvalidArgument, match="takes words"):
        reveille.simulated().run("true", word=1)
    monkeypatch.setenv("REVEILLE_MACHINE", "one")
    with pytest.raises(reveille.InvalidState, match="already"):
        reveille.simulated().run("true")


# ---- The marker ----

TESTS = """
    import os
    import pytest
    import simulated_program as program

    @pytest.fixture
    def size():
        assert os.environ["REVEILLE_MACHINE"]  # fixtures are made there
        return 4 << 20

    @pytest.mark.reveille_run(device="h200", gpus=2)
    def test_it_is_there(size):
        assert program.allocate(size, device=1) == 552402944 + (4 << 20)

    @pytest.mark.reveille_run(gpus=1)
    @pytest.mark.parametrize("device", [0, 1])
    def test_of_each(device):
        program.allocate(1, device)

    @pytest.mark.reveille_run()
    def test_not_here():
        pytest.skip("no reason")

    @pytest.mark.reveille_run(budgets={"run": "530MiB"})
    def test_too_much():
        program.allocate(8 << 20)

    @pytest.mark.reveille_run(device="1GiB")
    def test_out_of_memory():
        program.allocate(2 << 30)

    def test_plain():
        assert "REVEILLE_MACHINE" not in os.environ
"""


def test_the_marker(tmp_path):
    (tmp_path / "test_there.py").write_text(textwrap.dedent(TESTS))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    words = "-m", "pytest", "-p", "reveille.testing", "-p", "no:cacheprovider", "-rA", "-v"
    done = subprocess.run(
        [sys.executable, *words, "test_there.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert counts(done.stdout) == {"passed": 3, "skipped": 1, "failed": 3}, done.stdout
    assert "no reason" in done.stdout
    assert "ValueError: no device 1" in done.stdout
    assert "stage run reached 534.8 MiB on device 0; at its peak:" in done.stdout
    assert "out of memory: python[1]/cudaMalloc asked for 2.0 GiB of device 0" in done.stdout
    assert "fits, with 139.3 GiB to spare" in done.stdout


def counts(printed):
    """Of the last line: "2 failed, 3 passed, 1 skipped in 1.00s"."""
    line = printed.splitlines()[-1].strip("= ").partition(" in ")[0]
    return {word: int(number) for number, word in map(str.split, line.split(", "))}
