# SPDX-License-Identifier: MIT
"""Holds programs on simulated GPUs against a card: compare.py CARD.json SIMULATED.json [NAME...].

Both are of run.py. Prints a table for docs/fidelity/programs.md, and ends with 1 where a stage is further
off than its bound, a fact differs (which batches failed), or a program of the card is missing.
With names, only these are looked at.
compare.py --self shows that each of those is found.
"""

import contextlib
import copy
import io
import json
import sys

# Reading: its name in the table, and how far off it may be.
READINGS = {
    "peak_allocated_bytes": ("peak allocated", 0.005),
    "peak_reserved_bytes": ("peak reserved", 0.01),
    "end_used_bytes": ("in use at the end", 0.01),
}
COUNTS = ("retries", "ooms")
MIB = 1 << 20


def difference(card, simulated):
    """The share by which a reading is off."""
    return (simulated - card) / card if card else float(simulated != 0)


def cell(card, simulated, bound):
    """MiB of both, and how far apart; whether that is within its bound."""
    if card == simulated:
        return f"{card / MIB:.0f}, the same", True
    off = difference(card, simulated)
    good = abs(off) <= bound
    return f"{card / MIB:.0f}, {simulated / MIB:.0f} ({off:+.2%}{'' if good else ', beyond'})", good


def compare_rank(card, simulated):
    """Rows of a table, and what is not as it should be."""
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
    """Prints a program's tables. Answers what is wrong."""
    if simulated is None or len(card["ranks"]) != len(simulated["ranks"]) or not card["ranks"]:
        return [f"{name}: there is nothing to compare"]
    wrong, shown = [], None
    for rank, (said, got) in enumerate(zip(card["ranks"], simulated["ranks"])):
        rows, beyond = compare_rank(said, got)
        wrong += [f"{name}, rank {rank}: {each}" for each in beyond]
        if rows == shown:  # as the rank before
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
    """What is the same has no fault, what is off by more than its bound has one, and names it."""
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
    if sys.argv[3:]:  # a name that the card lacks has nothing to compare
        cards = {name: cards.get(name, {"ranks": []}) for name in sys.argv[3:]}
    wrong = [
        each for name, card in cards.items() for each in compare(name, card, simulations.get(name))
    ]
    print("\n" + "\n".join(wrong) if wrong else "\nAll is within its bounds.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
