#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two profiles against what two cards did later, on other machines: a table in docs/fidelity/transitions.md.

    calibrated_again.py REVEILLE SOURCE_DIR [--update]

For each card: the profile that ships, and one of what the card's own machine measured just before, as it is fitted now
(`reveille calibrate --fit`). Transitions of more than 5 ms are counted, and those that are predicted within 15 %. The table stands
between two comments in the page. A count that has drifted from it fails the test, and so does a peak that is off by more
than 0.1 %. --update writes the table, for a change that is meant.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BEGIN, END = "<!-- calibrated again: begin -->", "<!-- calibrated again: end -->"
FEWEST_OF_CARD = 30  # a table of fewer transitions is of recordings that were lost
ROWS = {"pause, copies": ("pause, copies",),
        "pause, host memory is made, also for the first time": ("pause, host memory is made",
                                                                "pause, host memory is made for the first time"),
        "resume, copies": ("resume, copies",),
        "without copies": ("pause, no copies", "pause, no copies, right behind a release", "resume, no copies")}
UNSHOWN = ["bench/results/2026-11-22-h200/times/unshown.rvt", "bench/results/2026-11-22-h200/calibrate/cold-and-warm.rvt",
           "bench/results/2026-11-23-h100/times/unshown-2.rvt"]
SHOWN = ["traces/llama-3.1-8b-tp2-h200.rvt", "traces/qwen2.5-32b-tp2-h200.rvt", "traces/qwen2.5-7b-fsdp8-v2.rvt",
         "traces/qwen2.5-7b-fsdp8-v3.rvt"]
CARDS = {"H200": ("bench/results/2026-11-23-h200/times_again", "profiles/h200.json", UNSHOWN + SHOWN),
         "H100": ("bench/results/2026-11-23-h100/times_again", "profiles/h100-80g.json", UNSHOWN)}


def counts(reveille, source, recorded, profile, traces, options):
    """{kind: (within 15 %, of how many)} as transitions.py prints them."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        done = subprocess.run(
            [sys.executable, source / "bench/gpu/transitions.py", reveille, profile, out.name, "--again",
             source / recorded / "transitions.json", "--within", "0", *options,
             *(source / trace for trace in traces)],
            capture_output=True, text=True, check=False)
    if done.returncode != 0 or "not compared" in done.stdout:
        sys.exit(f"calibrated_again.py: {profile}: {done.stdout[-2000:]}{done.stderr}")
    rows = re.findall(r"^\| ((?:pause|resume)[^|]*) \| (\d+) \| (\d+) \|", done.stdout, re.MULTILINE)
    return {kind: (int(met), int(of)) for kind, of, met in rows}


def column(found):
    """The texts of a column, in the order of ROWS."""
    unknown = set(found) - {kind for kinds in ROWS.values() for kind in kinds}
    if unknown:
        sys.exit(f"calibrated_again.py: no row has {', '.join(sorted(unknown))}")
    sums = [[sum(found.get(kind, (0, 0))[part] for kind in kinds) for part in (0, 1)] for kinds in ROWS.values()]
    if sum(of for _, of in sums) < FEWEST_OF_CARD:
        sys.exit(f"calibrated_again.py: only {sum(of for _, of in sums)} transitions were compared")
    return [f"{met} of {of}" for met, of in sums]


def table(reveille, source):
    titles, columns = [], []
    for card, (recorded, shipped, traces) in CARDS.items():
        own = source / recorded / "card.json"
        for what, profile, options in (("shipped", source / shipped, []), ("its own", own, ["--fit"])):
            titles.append(f"{card}: {what}")
            columns.append(column(counts(reveille, source, recorded, profile, traces, options)))
    rows = ["| | " + " | ".join(titles) + " |", "| --- " * (1 + len(titles)) + "|"]
    return "\n".join(rows + [f"| {name} | " + " | ".join(cells) + " |" for name, *cells in zip(ROWS, *columns)])


def main(reveille, folder, update=None):
    page = Path(folder) / "docs/fidelity/transitions.md"
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"calibrated_again.py: docs/fidelity/transitions.md lacks {BEGIN} or {END}")
    before, rest = text.split(BEGIN)
    kept, behind = rest.split(END)
    made = "\n\n" + table(reveille, Path(folder)) + "\n\n"
    if update == "--update":
        page.write_text(before + BEGIN + made + END + behind, encoding="utf-8")
        return 0
    if kept == made:
        return 0
    print(f"docs/fidelity/transitions.md has{kept}and it comes out as{made}"
          "Run tests/predict/calibrated_again.py with --update, and explain the change there.")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
