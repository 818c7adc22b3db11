#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published figures of stages beside what the command predicts for them: a table in docs/fidelity/published.md.

    published_stages.py REVEILLE SOURCE_DIR [--update]

The table stands between two comments in the page. A figure that has drifted from it fails the test;
--update writes the table, for a change that is meant. published_stages.json has the figures as published,
the settings, and why a prediction is off.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "GB": 10**9}
BEGIN, END = "<!-- published stages: begin -->", "<!-- published stages: end -->"
UNEXPLAINED = 0.01  # a prediction that is further off needs a reason


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"published_stages.py: {' '.join(words)}: {done.stderr}")
    return done.stdout


def terms_of(output):
    """{term: bytes} of the table that `reveille model` prints."""
    rows = [line.split() for line in output.splitlines()[2:]]
    return {row[0]: int(row[3]) for row in rows if len(row) == 5}


def predict(reveille, source, case):
    """The predicted bytes of each figure of a case."""
    config = source / "tests/data/configs" / f"{case['config']}.json"
    with tempfile.NamedTemporaryFile(suffix=".rvt") as trace:
        terms = terms_of(run(reveille, "model", str(config), *case["options"], "-o", trace.name))
        device = json.loads(run(reveille, "replay", "--json", trace.name))["devices"][0]
    stages = {stage["name"]: stage["end_bytes"] for stage in device["stages"]}
    found = []
    for figure in case["figures"]:
        if "stage" in figure:
            found.append(stages[figure["stage"]])
        else:
            found.append(sum(terms[term] for term in figure.get("sum", [figure.get("term")])))
    return found


def table(reveille, source, cases):
    rows = ["| setup | figure | published | predicted | | why |", "| --- | --- | --- | --- | --- | --- |"]
    for case in cases:
        unit = case["unit"]
        for figure, predicted in zip(case["figures"], predict(reveille, source, case)):
            measured = figure["measured"]
            off = predicted / UNITS[unit] / measured - 1
            if abs(off) > UNEXPLAINED and not figure["why"]:
                sys.exit(f"published_stages.py: {case['setup']}, {figure['what']}: {off:+.1%}, and no reason")
            digits = 0 if unit == "MiB" else 2
            rows.append(f"| {case['setup']} ({case['source']}) | {figure['what']} | {measured} {unit} "
                        f"| {predicted / UNITS[unit]:.{digits}f} {unit} | {off:+.1%} | {figure['why']} |")
    return "\n".join(rows)


def main(reveille, folder, update=None):
    source = Path(folder)
    page = source / "docs/fidelity/published.md"
    text = page.read_text(encoding="utf-8")
    cases = json.loads((source / "tests/predict/published_stages.json").read_text(encoding="utf-8"))
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"published_stages.py: docs/fidelity/published.md lacks {BEGIN} or {END}")
    before, rest = text.split(BEGIN)
    kept, behind = rest.split(END)
    made = "\n\n" + table(reveille, source, cases) + "\n\n"
    if update == "--update":
        page.write_text(before + BEGIN + made + END + behind, encoding="utf-8")
        return 0
    drifted = [(old, new) for old, new in zip(kept.splitlines(), made.splitlines()) if old != new]
    for old, new in drifted:
        print(f"drifted\n  from {old}\n  to   {new}")
    if kept != made and not drifted:
        print("the table has rows that are not in tests/predict/published_stages.json, or lacks some")
    if kept != made:
        print("docs/fidelity/published.md: run tests/predict/published_stages.py with --update, and explain the change")
    return 0 if kept == made else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
