#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What did not run, and why: summary.py TESTS_XML [LEFT_OUT_TXT]. The last thing that scripts/test prints.

TESTS_XML is what `ctest --output-junit` writes. A test says why it skips something in a line
"SKIP: REASON" of its output, or "SKIP PART: REASON" for a part of it. LEFT_OUT_TXT has a line for
each part that was not built.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

NO_REASON = "no reason given"


def reasons(output):
    """The skips of one test's output: (part, reason); part is None for the test as a whole."""
    found, named, pending = [], {}, None
    for line in output.splitlines():
        if said := re.fullmatch(r"SKIP(?: ([\w ]+))?: (.*)", line):
            if pending is not None:
                found.append((None, pending))
            part, pending = said.groups()
            if part is not None:
                found.append((part, pending))
                pending = None
        # cmocka names the case that ends so; in a list at the end, which may come first, once more.
        elif case := re.fullmatch(r"\[  SKIPPED \] (\w+)", line):
            if pending is not None or case[1] not in named:
                named[case[1]] = pending or NO_REASON
                pending = None
    if pending is not None:
        found.append((None, pending))
    return found + list(named.items())


def outcome(case):
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
        return "skipped"
    return "passed" if case.get("status") == "run" else "failed"


def summary(root, left_out):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    who = {}  # by reason, in order of appearance
    for case in root.iter("testcase"):
        result = outcome(case)
        counts[result] += 1
        name, found = case.get("name"), reasons(case.findtext("system-out") or "")
        if result == "skipped":
            found = [(None, reason) for _, reason in found[:1]] or [(None, NO_REASON)]
        for part, reason in found:
            who.setdefault(reason, []).append(name if part is None else f"{name}: {part}")
    lines = [f"not built: {part}" for part in left_out]
    for reason, names in who.items():
        lines.append(f"skipped: {reason}")
        lines.extend(f"  {name}" for name in names)
    lines.append(", ".join(f"{number} {result}" for result, number in counts.items()))
    return "\n".join(lines)


def main(tests, *left_out):
    lines = [line for path in map(pathlib.Path, left_out) if path.exists()
             for line in path.read_text().splitlines()]
    print()
    print(summary(xml.parse(tests).getroot(), lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
