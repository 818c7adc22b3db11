# SPDX-License-Identifier: MIT
"""usage: summary.py OUT. One summary.json of all that ran, and a line each."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any


def suite(path: Path) -> dict[str, Any]:
    """Counts of a pytest run, and what failed in it."""
    root = ElementTree.parse(path).getroot()
    cases = list(root.iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    skipped = [c for c in cases if c.find("skipped") is not None]
    return {
        "passed": len(cases) - len(failed) - len(skipped),
        "failed": [f"{case.get('classname')}::{case.get('name')}" for case in failed],
        "skipped": [f"{case.get('classname')}::{case.get('name')}" for case in skipped],
    }


def main() -> int:
    out = Path(sys.argv[1])
    suites = {path.stem: suite(path) for path in sorted(out.glob("suite_*.xml"))}
    checks = []
    for path in sorted(out.glob("*.json")):
        found = json.loads(path.read_text())
        if isinstance(found, list):
            checks += found
    steps = {}
    for path in sorted(out.glob("rl_step*/result.json")):
        found = json.loads(path.read_text())
        steps[path.parent.name] = {"passed": found["passed"], "checks": found["checks"]}
    statuses = [line.split() for line in (out / "statuses.txt").read_text().splitlines()]
    programs = {name: int(status) for name, status in statuses}
    passed = not any(programs.values()) and all(check["passed"] for check in checks)
    summary = {
        "passed": passed and not any(each["failed"] for each in suites.values()),
        "programs": programs,
        "suites": suites,
        "checks": checks,
        "rl_step": steps,
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    for name, status in programs.items():
        print(f"{'PASS' if status == 0 else 'FAIL'}  {name} (exit status {status})")
    for name, each in suites.items():
        print(f"      {name}: {each['passed']} passed, {len(each['failed'])} failed, "
              f"{len(each['skipped'])} skipped {' '.join(each['failed'])}")  # fmt: skip
    for check in checks:
        if not check["passed"]:
            print(f"FAIL  {check['name']}: {check['why']}")
    print("PASS" if summary["passed"] else "FAIL")
    return 0 if summary["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
