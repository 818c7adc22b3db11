# SPDX-License-Identifier: MIT
"""Compares programs' CPU time on simulated GPUs with a card: cost.py CARD.json SIMULATED.json.

Both files come from run.py, with STAGES_BLOCKING=1. Each time is divided by the time of a fixed piece of work on its own machine, so
that a slower processor does not make the simulation look more expensive. Prints a table for docs/fidelity/programs.md. The exit status
is 1 if a program takes more than 1.5 times as much, or is missing.

cost.py --self checks that each of these faults is found.
"""

import contextlib
import io
import json
import sys

MOST = 1.5


def ratio(card, simulated):
    """The work of the simulated program, relative to the card's."""
    return (simulated["cpu_seconds"] / simulated["work_seconds"]) / (
        card["cpu_seconds"] / card["work_seconds"]
    )


def compare(cards, simulations):
    """Prints the table. Returns a list of faults."""
    wrong = []
    print("| program | CPU time on the card, s | simulated, s | at one speed |")
    print("| --- | --- | --- | --- |")
    for name, card in cards.items():
        simulated = simulations.get(name)
        if simulated is None or card["ended"] != 0 or simulated["ended"] != 0:
            wrong.append(f"{name}: there is nothing to compare")
            continue
        times = ratio(card, simulated)
        seconds = f"{card['cpu_seconds']:.1f} | {simulated['cpu_seconds']:.1f}"
        print(f"| `{name}` | {seconds} | {times:.2f} times |")
        if times > MOST:
            wrong.append(f"{name}: {times:.2f} times the CPU time, and {MOST} are allowed")
    return wrong or ([] if cards else ["there is nothing to compare"])


def test():
    def row(cpu, work, ended=0):
        return {"ended": ended, "cpu_seconds": cpu, "work_seconds": work}

    card = {"program": row(10, 0.1)}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert compare(card, {"program": row(15, 0.1)}) == []
        assert compare(card, {"program": row(30, 0.2)}) == []  # on a machine of half the speed
        assert len(compare(card, {"program": row(16, 0.1)})) == 1
        assert len(compare(card, {"program": row(15, 0.05)})) == 1
        assert len(compare(card, {"program": row(1, 0.1, "too slow")})) == 1
        assert len(compare(card, {})) == 1
        assert len(compare({}, {})) == 1
    assert "| `program` | 10.0 | 30.0 | 1.50 times |" in said.getvalue()


def main():
    if sys.argv[1:] == ["--self"]:
        return test()
    rows = []
    for path in sys.argv[1:3]:
        with open(path, encoding="utf-8") as file:
            rows.append(json.load(file))
    wrong = compare(*rows)
    print("\n" + "\n".join(wrong) if wrong else "\nAll is within its bound.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
