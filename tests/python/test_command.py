# SPDX-License-Identifier: MIT
"""The command `reveille`, as pip installs it."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import reveille
from reveille import _command
from test_regions import variables

COMMAND = Path(sysconfig.get_path("scripts")) / "reveille"
needs_command = pytest.mark.skipif(
    not _command.PROGRAM.exists(), reason="the package is not installed"
)


def run(tmp_path, *arguments, **more):
    return subprocess.run(
        [COMMAND, *arguments],
        env={**os.environ, **more},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )


@needs_command
def test_it_is_the_programs_own_answer(tmp_path, source):
    done = run(tmp_path, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert reveille.version() in done.stdout
    trace = source / "traces" / "qwen2.5-32b-tp2-h200.rvt"
    done = run(tmp_path, "replay", "--json", str(trace))
    assert (done.stdout.strip(), done.stderr) == (reveille.replay(trace).json.strip(), "")
    done = run(tmp_path, "replay", "missing.rvt")
    assert done.returncode == 2
    assert done.stderr.startswith("reveille: missing.rvt: ")


@needs_command
def test_record_finds_the_preload_library_of_the_package(tmp_path):
    environment = variables()
    program = (
        "import reveille, torch\n"
        "kept = torch.full((4 << 20,), 7, dtype=torch.uint8, device='cuda')\n"
        "assert reveille.hook_mode() == 'preload'\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = run(tmp_path, "record", "--", sys.executable, "program.py", **environment)
    assert done.returncode == 0, done.stderr
    found = reveille.replay(tmp_path / "run.rvt", device="80GiB").devices[0]
    assert found.peak_bytes >= 4 << 20


def test_a_package_without_the_program(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_command, "PROGRAM", tmp_path / "bin" / "reveille")
    assert _command.main() == 1
    assert capsys.readouterr().err.startswith(
        f"reveille: {tmp_path}/bin/reveille: No such file or directory: install the package"
    )
