# SPDX-License-Identifier: MIT
"""`python -m reveille`."""

import json
from pathlib import Path

import pytest
import reveille
from reveille import _c

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
    hooks = found["hooks"]
    for mode in ("preload", "torch"):
        path = _c.hook_library_path(mode)
        assert hooks[mode] == (str(path) if path.exists() else None)
    assert (hooks["preloaded"], hooks["as_torch_memory_saver"]) == (False, False)
    assert Path(hooks["torch_memory_saver"], "torch_memory_saver/__init__.py").exists()
    cuda, sim = found["backends"]
    assert (cuda["name"], cuda["usable"], cuda["devices"]) == ("cuda", False, [])
    assert cuda["status"] in ("RVL_ERR_NO_DRIVER", "RVL_ERR_NO_BACKEND")
    assert cuda["why"] != ""
    assert sim == {
        "name": "sim",
        "usable": True,
        "status": "RVL_OK",
        "why": "",
        "devices": [
            {"index": 0, "name": "h200", "free_bytes": H200, "total_bytes": H200, "fabric": "none"}
        ],
    }


def test_text_is_the_same_for_people(run_python):
    done = run_python("-m", "reveille", RVL_CUDA_LIBRARY="/nonexistent/libcuda.so")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"reveille   {reveille.version()}"
    assert lines[2] == "driver     none"
    assert "sim        usable" in lines
    assert "           device 0: h200, 139.8 GiB of 139.8 GiB free" in lines
    assert lines[-4].startswith("preload    ") and lines[-4].endswith("; not in this process")
    assert lines[-3].startswith("torch      ")
    assert lines[-2] == (
        "saver      torch_memory_saver is not this package (REVEILLE_AS_TORCH_MEMORY_SAVER)"
    )
    assert lines[-1].startswith("simulates  h200, ")


@pytest.mark.parametrize("value, said", [("1", "this package"), ("x", "not understood")])
def test_the_setting_that_stands_in_for_torch_memory_saver(run_python, value, said):
    done = run_python("-m", "reveille", REVEILLE_AS_TORCH_MEMORY_SAVER=value)
    assert f"torch_memory_saver is {said} (" in done.stdout


def test_the_preload_library_is_noticed(run_python):
    path = _c.hook_library_path("preload")
    if not path.exists():
        pytest.skip("the hook libraries were not built")
    done = run_python("-m", "reveille", "--json", LD_PRELOAD=str(path))
    assert json.loads(done.stdout)["hooks"]["preloaded"] is True


def test_unknown_option(run_python):
    done = run_python("-m", "reveille", "--xml")
    assert done.returncode == 2
    assert "unrecognized arguments: --xml" in done.stderr
