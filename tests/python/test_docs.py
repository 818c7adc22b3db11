# SPDX-License-Identifier: MIT
"""The examples of README.md and docs/python.md, as they stand there."""

import re

import pytest

pytest_plugins = ["pytester"]


def examples(source):
    return re.findall(
        r"^```python\n(.*?)^```$", (source / "docs/python.md").read_text(), re.M | re.S
    )


def test_programs_run(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    programs = [text for text in examples(source) if "import pytest" not in text]
    assert len(programs) == 3
    names = {}
    for program in programs:
        exec(compile(program, "docs/python.md", "exec"), names)


def test_the_readme_shows_what_is_printed(source, capsys):
    page = (source / "README.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    exec(compile(program, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    shown = page.split("It prints:\n\n")[1].split("\n\n")[0].splitlines()
    assert [line.strip() for line in shown] == printed


def test_tests_pass(source, pytester):
    tests = [text for text in examples(source) if "import pytest" in text]
    assert len(tests) == 1
    pytester.makepyfile(tests[0])
    pytester.runpytest("--strict-markers").assert_outcomes(passed=3)


@pytest.mark.parametrize("name", ["README.md", "docs/python.md"])
def test_linked_files_exist(source, name):
    page = source / name
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []
