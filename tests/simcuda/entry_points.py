#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares functions by version on a simulated GPU with a card.

    entry_points.py REVEILLE BENCH CARD

BENCH is bench/gpu/driver/entry_points.py, which makes the queries. CARD has the results of an H200 (driver 580, CUDA 13.0). If the
simulated driver has another version, versions up to the older one are compared.
"""
import json
import subprocess
import sys
import tempfile

FEWEST = 200  # of 331 results, for any versions


def read(path):
    """The driver's version, and query -> results in order: some queries are repeated."""
    version, asked = 0, {}
    for line in open(path, encoding="utf-8"):
        answer = json.loads(line)
        if answer["part"] == "driver":
            version = answer["version"]
        elif answer["part"].startswith("cuGetProcAddress"):
            key = tuple(answer.pop(name) for name in ("part", "name", "version", "flags"))
            asked.setdefault(key, []).append(answer)
    return version, asked


def ask_simulated(reveille, bench):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as out:
        done = subprocess.run([reveille, "run", "--device", "h200", "--", sys.executable, bench, out.name],
                              capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            sys.exit(f"entry_points.py: {bench} ended with {done.returncode}: {done.stderr}")
        return read(out.name)


def main():
    reveille, bench, card = sys.argv[1:4]
    own, simulated = ask_simulated(reveille, bench)
    version, real = read(card)
    compared = wrong = 0
    for key, answers in real.items():
        wanted = key[2]
        if own != version and (wanted < 0 or wanted > min(own, version)):
            continue
        compared += len(answers)
        if simulated.get(key) != answers:
            wrong += 1
            print(f"{key}\n  card      {answers}\n  simulated {simulated.get(key)}")
    print(f"{compared} answers compared, {wrong} differ")
    return 1 if wrong or compared < FEWEST else 0


if __name__ == "__main__":
    sys.exit(main())
