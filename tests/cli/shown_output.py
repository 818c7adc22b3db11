#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds what the documents show of `reveille replay` against what it prints.

    shown_output.py REVEILLE SOURCE_DIR [--update]

Every indented line that begins with `$ reveille replay` stands for a run; the lines behind it, up to
an empty one, must be what is printed, each as far as it is shown (tables are cut on the right, and
"..." stands for the rest of a line). The README's picture must be what `reveille report` draws, and
its commands on a config and a trace must run, in their order.
--update rewrites the shown parts instead.
"""
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

PROMPT = "    $ reveille replay "
SED = "    $ sed "  # makes a trace of another
CUT = " who holds the peak"
PICTURE = "docs/pictures/step.svg"
PICTURED = ["report", "traces/qwen2.5-32b-tp2-h200.rvt", "--axis", "event",
            "--against-wake", "together", "--svg", "-"]  # fmt: skip


def printed(command, words, where):
    result = subprocess.run([command, "replay", *words], cwd=where, capture_output=True, text=True,
                            check=False)
    if result.returncode not in (0, 3):
        sys.exit(f"reveille replay {shlex.join(words)}: {result.stderr}")
    return result.stdout.splitlines()


def check(path, command, where, update):
    lines = path.read_text(encoding="utf-8").split("\n")
    wrong = 0
    i = 0
    while i < len(lines):
        if lines[i].startswith(SED):
            subprocess.run(lines[i][len("    $ "):], shell=True, cwd=where, check=True)
        if not lines[i].startswith(PROMPT):
            i += 1
            continue
        output = printed(command, shlex.split(lines[i][len(PROMPT):]), where)
        i += 1
        cut = None  # the column from which on tables are not shown
        for k, line in enumerate(output):
            if i >= len(lines) or lines[i].strip() == "":
                break
            if "stage" in line and CUT in line and "who" not in lines[i]:
                cut = len(line) - len(CUT)
            if line.startswith("device "):
                cut = None
            full = "    " + line
            expected = full[:4 + cut].rstrip() if cut is not None and line.startswith("  ") and \
                not line.startswith("  does not fit") else full
            if lines[i].endswith(", ..."):
                stem = lines[i][:-len(", ...")]
                expected = expected[:len(stem)] + ", ..."
            if lines[i] != expected:
                wrong += 1
                if not update:
                    print(f"{path.name}:{i + 1}: shows\n{lines[i]}\nbut it is\n{expected}")
                lines[i] = expected
            i += 1
    if update:
        path.write_text("\n".join(lines), encoding="utf-8")
    return wrong


def check_commands(command, source, where):
    """They may say that something does not fit."""
    config = source / "tests/data/configs/qwen2.5-0.5b.json"
    (pathlib.Path(where) / "config.json").write_bytes(config.read_bytes())
    lines = re.findall(r"^    reveille ((?:model|replay|report|plan) .*?)(?: +#.*)?$",
                       (source / "README.md").read_text(encoding="utf-8"), re.M)  # fmt: skip
    if len({line.split()[0] for line in lines}) != 4:
        sys.exit(f"the README's commands are not those that are known: {lines}")
    wrong = 0
    for line in lines:
        done = subprocess.run([command, *shlex.split(line)], cwd=where, capture_output=True, text=True,
                              check=False)  # fmt: skip
        if done.returncode not in (0, 3) and "built without the page" not in done.stderr:
            print(f"README.md: reveille {line}: {done.stderr}")
            wrong += 1
    return wrong


def check_picture(command, source, where, update):
    path = source / PICTURE
    drawn = subprocess.run([command, *PICTURED], cwd=where, capture_output=True, check=True).stdout
    if update:
        path.write_bytes(drawn)
    elif path.read_bytes() != drawn:
        print(f"{PICTURE} is not what is drawn: reveille {shlex.join(PICTURED)}")
        return 1
    return 0


def main():
    command, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    update = "--update" in sys.argv
    runs = wrong = 0
    with tempfile.TemporaryDirectory() as where:
        (pathlib.Path(where) / "traces").symlink_to(source.resolve() / "traces")
        for path in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
            runs += path.read_text(encoding="utf-8").count("\n" + PROMPT)
            wrong += check(path, command, where, update)
        wrong += check_commands(command, source, where)
        wrong += check_picture(command, source, where, update)
    if runs == 0:
        sys.exit("no document shows a replay")
    print(f"{runs} runs, {wrong} lines {'updated' if update else 'wrong'}")
    sys.exit(0 if update or wrong == 0 else 1)


main()
