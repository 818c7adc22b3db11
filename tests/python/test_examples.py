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
    action = (source / "action.yml").read_text()
    (checks,) = re.findall(r"checks: (\S+)", workflow)
    (written,) = re.findall(r"junit=(\S+?)\"", action)
    assert (source / "examples" / "ci" / checks).is_file()
    assert f"path: {written}\n" in workflow
