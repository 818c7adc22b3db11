# SPDX-License-Identifier: MIT
"""The example of pytest in examples/ci, as it stands there."""

import re
import shutil

pytest_plugins = ["pytester"]


def test_the_ci_example_passes(source, pytester):
    folder = pytester.path / "examples" / "ci"
    folder.mkdir(parents=True)
    (pytester.path / "traces").symlink_to(source / "traces")
    shutil.copy(source / "examples" / "ci" / "test_memory.py", folder)
    pytester.runpytest("--strict-markers", str(folder)).assert_outcomes(passed=2)


def test_the_workflow_names_files_that_exist(source):
    workflow = (source / "examples" / "ci" / "memory.yml").read_text()
    (checks,) = re.findall(r"reveille check (\S+) --junit (\S+)", workflow)
    assert (source / checks[0]).is_file()
    assert f"path: {checks[1]}\n" in workflow
