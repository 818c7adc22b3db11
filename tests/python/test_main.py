# SPDX-License-Identifier: MIT
"""`python -m reveille`."""

import json
from pathlib import Path

import reveille

H200 = 150109880320


def test_json_tells_what_was_found(run_python):
    done = run_python("-m", "reveille", "--json", RVL_CUDA_LIBRARY="/nonexistent/libcuda.so")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["schema"], found["version"]) == (1, reveille.version())
    assert Path(found["library"]).parent == Path(reveille.__file__).parent / "lib"
    assert Path(found["library"]).exists()
    assert Path(found["replay_library"]).exists()
    assert found["driver"] is None
    assert found["profiles"] == [profile.name for profile in reveille.profiles()]
    cuda, sim = found["backends"]
    assert (cuda["name"], cuda["usable"], cuda["devices"]) == ("cuda", False, [])
    assert cuda["status"] in ("RVL_ERR_NO_DRIVER", "RVL_ERR_NO_BACKEND")
    assert cuda["why"] != ""
    assert sim == {
        "name": "sim",
        "usable": True,
        "status": "RVL_OK",
        "why": "",
        "devices": [{"index": 0, "name": "h200", "free_bytes": H200, "total_bytes": H200}],
    }


def test_text_is_the_same_for_people(run_python):
    done = run_python("-m", "reveille", RVL_CUDA_LIBRARY="/nonexistent/libcuda.so")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"reveille   {reveille.version()}"
    assert lines[2] == "driver     none"
    assert "sim        usable" in lines
    assert "           device 0: h200, 139.8 GiB of 139.8 GiB free" in lines
    assert lines[-1].startswith("simulates  h200, ")


def test_unknown_option(run_python):
    done = run_python("-m", "reveille", "--xml")
    assert done.returncode == 2
    assert "unrecognized arguments: --xml" in done.stderr
