#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The built-in profiles have the costs of the measured ones that ship.

    builtin_profiles.py REVEILLE PROFILES_FOLDER

Where they differ, the lines for backends/sim/profiles.c are printed.
"""
import json
import subprocess
import sys
from pathlib import Path

WIDTH = 92


def c_lines(name, costs):
    """The costs of a card as backends/sim/profiles.c has them."""
    words = [f".{field} = {{{cost['call_ns']}, {cost['fs_per_byte']}}}," for field, cost in costs.items()]
    lines, line = [], "        "
    for word in words:
        if len(line) + len(word) > WIDTH:
            lines.append(line.rstrip())
            line = "        "
        line += word + " "
    rows = [f"#define {name}", "    {", *lines, line.rstrip(), "    }"]
    return "\n".join([*(f"{row:<99}\\" for row in rows[:-1]), rows[-1]])


def main(reveille, folder):
    wrong = 0
    for path in sorted(Path(folder).glob("*.json")):
        measured = json.loads(path.read_text(encoding="utf-8"))
        done = subprocess.run([reveille, "devices", "--device", path.stem, "--json"], capture_output=True, text=True,
                              check=True)
        ours = json.loads(done.stdout)
        for group in ("costs", "waits"):
            want = {name: (cost["call_ns"], cost["fs_per_byte"]) for name, cost in measured[group].items()}
            have = {name: (cost["call_ns"], cost["fs_per_byte"]) for name, cost in ours[group].items()}
            if want != have:
                wrong += 1
                print(f"{path.stem}: {group} are not those of {path.name}:")
                print(c_lines(f"{path.stem.split('-')[0].upper()}_{group.upper()}", measured[group]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
