# SPDX-License-Identifier: MIT
"""Compares programs on simulated GPUs with a card: compare.py CARD.json SIMULATED.json [NAME...].

Both files come from run.py. Prints a table for docs/fidelity/programs.md. The exit status is 1 if a stage differs by more than its
limit, a fact differs (which batches failed), or a program of the card is missing. With names, only these programs are compared.

compare.py --self checks that each of these faults is found.
"""

import contextlib
import copy
import io
import json
import sys

# Measurement: its name in the table, and the largest allowed difference.
READINGS = {
    "peak_allocated_bytes": ("peak allocated", 0.005),
    "peak_reserved_bytes": ("peak reserved", 0.01),
    "end_used_bytes": ("in use at the end", 0.01),
}
COUNTS = ("retries", "ooms")
MIB = 1 << 20


def difference(card, simulated):
    """The relative difference."""
    return (simulated - card) / card if card else float(simulated != 0)


def cell(card, simulated, bound):
    """MiB of both, and their difference; whether it is within the limit."""
    if card == simulated:
        return f"{card / MIB:.0f}, the same", True
    off = difference(card, simulated)
    good = abs(off) <= bound
    return f"{card / MIB:.0f}, {simulated / MIB:.0f} ({off:+.2%}{'' if good else ', beyond'})", good


def compare_rank(card, simulated):
    """Rows of a table, and a list of faults."""
    rows, wrong = [], []
    if [s["name"] for s in card["stages"]] != [s["name"] for s in simulated["stages"]]:
        return rows, ["the stages are not the same"]
    for said, got in zip(card["stages"], simulated["stages"]):
        cells = [
            cell(said[reading], got[reading], bound) for reading, (_, bound) in READINGS.items()
        ]
        rows.append([said["name"], *[text for text, _ in cells]])
        wrong += [
            f"{said['name']}, {name}"
            for (name, _), (_, good) in zip(READINGS.values(), cells)
            if not good
        ]
        wrong += [
            f"{said['name']}, {count}: {said[count]} on the card, {got[count]} simulated"
            for count in COUNTS
            if said[count] != got[count]
        ]
    if card["facts"] != simulated["facts"]:
        wrong.append(f"facts: {card['facts']} on the card, {simulated['facts']} simulated")
    return rows, wrong


def compare(name, card, simulated):
    """Prints a program's tables. Returns a list of faults."""
    if simulated is None or len(card["ranks"]) != len(simulated["ranks"]) or not card["ranks"]:
        return [f"{name}: there is nothing to compare"]
    wrong, shown = [], None
    for rank, (said, got) in enumerate(zip(card["ranks"], simulated["ranks"])):
        rows, beyond = compare_rank(said, got)
        wrong += [f"{name}, rank {rank}: {each}" for each in beyond]
        if rows == shown:  # equal to the previous rank
            continue
        shown = rows
        which = f", rank {rank}" if len(card["ranks"]) > 1 else ""
        print(f"\n`{name}`{which}, MiB, card and simulated:\n")
        print("| stage | " + " | ".join(title for title, _ in READINGS.values()) + " |")
        print("| --- |" + " --- |" * len(READINGS))
        for row in rows:
            print("| " + " | ".join(row) + " |")
    return wrong


def test():
    """Equal results have no fault. A difference above the limit is a fault, and is named."""
    stage = dict.fromkeys(READINGS, 1000) | {"name": "step0", "retries": 1, "ooms": 0}
    card = {"ranks": [{"facts": {"failed": [[2, 2]]}, "stages": [stage, dict(stage)]}]}

    def faults(change):
        simulated = copy.deepcopy(card)
        change(simulated["ranks"])
        with contextlib.redirect_stdout(io.StringIO()):
            wrong = compare("program", card, simulated)
        return wrong

    def reading(name, value):
        return lambda ranks: ranks[0]["stages"][1].update({name: value})

    for name, value, found in (
        ("peak_allocated_bytes", 1005, 0),
        ("peak_allocated_bytes", 1006, 1),
        ("peak_reserved_bytes", 990, 0),
        ("peak_reserved_bytes", 989, 1),
        ("end_used_bytes", 1010, 0),
        ("end_used_bytes", 1011, 1),
        ("retries", 2, 1),
        ("ooms", 1, 1),
    ):
        wrong = faults(reading(name, value))
        assert len(wrong) == found, (name, value, wrong)
    assert len(faults(lambda ranks: ranks[0]["facts"].clear())) == 1
    assert "nothing to compare" in faults(list.clear)[0]
    assert "not the same" in faults(lambda ranks: ranks[0]["stages"].pop())[0]


def main():
    if sys.argv[1:] == ["--self"]:
        return test()
    cards, simulations = {}, {}
    for path, into in zip(sys.argv[1:3], (cards, simulations), strict=True):
        with open(path, encoding="utf-8") as file:
            into.update(json.load(file))
    if sys.argv[3:]:  # a name that the card's file lacks is a fault
        cards = {name: cards.get(name, {"ranks": []}) for name in sys.argv[3:]}
    wrong = [
        each for name, card in cards.items() for each in compare(name, card, simulations.get(name))
    ]
    print("\n" + "\n".join(wrong) if wrong else "\nAll is within its bounds.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
