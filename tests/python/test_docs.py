# SPDX-License-Identifier: MIT
"""The examples of docs/python.md and docs/guides/ci.md, as they stand there, with the installed package.
tests/documents.py runs those of the other pages."""

import re

import pytest

pytest_plugins = ["pytester"]


def examples(source, page):
    """The programs of a page; those with a mark other than pytest are for others to run."""
    text = (source / page).read_text()
    text = re.sub(r"^<!-- not run: needs pytest.*\n", "", text, flags=re.M)
    return re.findall(r"(?<!-->\n)^```python\n(.*?)^```$", text, re.M | re.S)


def test_programs_run(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    programs = [text for text in examples(source, "docs/python.md") if "import pytest" not in text]
    assert len(programs) == 7
    names = {}
    for program in programs:
        exec(compile(program, "docs/python.md", "exec"), names)


@pytest.mark.parametrize("page, passed", [("docs/python.md", 3), ("docs/guides/ci.md", 2)])
def test_tests_pass(source, pytester, page, passed):
    (tests,) = (text for text in examples(source, page) if "import pytest" in text)
    (pytester.path / "traces").symlink_to(source / "traces")
    pytester.makepyfile(tests)
    pytester.runpytest("--strict-markers").assert_outcomes(passed=passed)
