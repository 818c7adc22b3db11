# SPDX-License-Identifier: MIT
"""The simulated driver's process checkpoint behaves as an H100 does: the same program, every recorded case, line by line.

usage: checkpoint.py COMMAND PROGRAM RECORDED...      if a case is in several files, the last counts

Not compared: seconds, and what only a card has (descriptors, bytes). Nor is the end of a case: a case that lacks facts differs.
"""

import json
import subprocess
import sys

LEFT_OUT = ("s", "mib", "traces", "holders", "exporter_traces", "importer_traces", "importer_closed_traces", "kind",
            "imported_fd_closed", "other", "exit", "library", "Lock", "Checkpoint", "Restore", "Unlock")  # fmt: skip
# Single facts: a card refuses to sleep after managed memory was used; it supports other processes, and treats pid 1 as a stranger.
NOT_SIMULATED = ("freed", "of")
# Cases that differ here, and why. Remove a case from the list once it matches the card.
DIFFERS = {
    "meanwhile": "two calls end the process on a card; here they wait until it is back",
    "one_by_one": "the same, call by call",
    "busy": "no work takes time, so nothing is waited for",
    "seconds": "its contents are larger than what is kept",
    "profiler": "CUPTI finds nothing to record",
    "mps": "there is no multi-process service",
    "pool_nobody": "pools that could be open elsewhere are refused",
    "pool_exporter": "the same",
    "pool_importer": "the same",
    "arrays": "copies to arrays are refused",
    "green": "parts of the multiprocessors are refused",
}


def facts(lines):
    """Facts by case, in order."""
    found = {}
    for fact in (json.loads(line) for line in lines if line.startswith("{")):
        case = fact.pop("case", None)
        kept = {key: value for key, value in fact.items() if key not in LEFT_OUT}
        if case is None or any(key in fact for key in NOT_SIMULATED):
            continue
        found.setdefault(case, [])
        if kept:
            found[case].append(json.dumps(kept, sort_keys=True))
    return found


def main():
    command, program, *recorded = sys.argv[1:]
    card = {}
    for path in recorded:
        with open(path, encoding="utf-8") as file:
            card.update(facts(file))
    words = [command, "run", "--device", "h100-80g", "--keep-contents", "1GiB", "--", sys.executable, program, *card]
    here = facts(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines())
    wrong = [case for case in card if (card[case] == here.get(case)) == (case in DIFFERS)]
    for case in wrong:
        print(f"{case}: as on a card, and listed as what is not" if case in DIFFERS else case)
        for line in card[case]:
            print("  a card says:", line)
        for line in here.get(case, []):
            print("  this says:  ", line)
    gone = sorted(set(DIFFERS) - set(card))
    alike = [case for case in card if case not in DIFFERS]
    print(len(alike), "cases of", len(card), "as on a card,", sum(len(card[case]) for case in alike), "facts")
    assert len(alike) > 15, alike
    return 1 if wrong or gone else 0


sys.exit(main())
