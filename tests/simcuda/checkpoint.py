# SPDX-License-Identifier: MIT
"""The simulated driver's process checkpoint answers as an H100 did: the same program, line by line.

usage: checkpoint.py COMMAND PROGRAM RECORDED
Lines of other cases, seconds and what a card alone has (descriptors, bytes) are left out.
"""

import json
import subprocess
import sys

CASES = ("orders", "contexts", "managed", "ipc_importer", "fd_importer", "graph_memory", "full")
LEFT_OUT = ("s", "mib", "traces", "holders", "of", "exporter_traces", "importer_traces", "kind", "imported_fd_closed", "other")
# A card answers otherwise, and so far nobody needs it: sleeping once managed memory was used; other processes.
NOT_SIMULATED = ('"freed"', '"of"', '"exit"', '"importer_closed_traces"', '"reads"')


def facts(lines):
    found = []
    for line in lines:
        if not line.startswith("{") or any(each in line for each in NOT_SIMULATED):
            continue
        fact = json.loads(line)
        if fact.get("case") not in CASES:
            continue
        kept = {key: value for key, value in fact.items() if key not in LEFT_OUT}
        if len(kept) > 1:
            found.append(json.dumps(kept, sort_keys=True))
    return sorted(found)


def main():
    command, program, recorded = sys.argv[1:4]
    said = subprocess.run([command, "run", "--device", "h100-80g", "--", sys.executable, program, *CASES],
                          capture_output=True, text=True, check=True).stdout.splitlines()
    wanted, got = facts(open(recorded).read().splitlines()), facts(said)
    assert len(wanted) > 25, wanted
    missing, more = [x for x in wanted if x not in got], [x for x in got if x not in wanted]
    for line in missing:
        print("a card says:", line)
    for line in more:
        print("this says:  ", line)
    print(len(wanted), "facts,", len(missing), "missing,", len(more), "more")
    return 1 if missing or more else 0


sys.exit(main())
