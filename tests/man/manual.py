#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds help, manual pages and completions of every command against each other and against the parser.

    manual.py REVEILLE FOLDER_OF_THE_PAGES SOURCE_DIR

All are made from one table a command: an option that one of them lacks, or that the parser does not
know, is a fault. Lines of help fit 80 columns. Examples are run: those with files in the sources do what they
say, and no other is bad usage. The pages are clean by mandoc and by man, as far as
these are there.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

WIDTH = 80
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
faults = []


def fault(text):
    faults.append(text)
    print(text)


def run(command, *words):
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fault(f"{' '.join(words)}: exit status {done.returncode}: {done.stderr}")
    return done.stdout


def plain(page):
    """The text of a page without its markup."""
    page = re.sub(r"\\f[BIR]", "", page)
    return page.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")


def options_of_help(text):
    return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.M))


def options_of_page(text):
    part = text.split(".SH OPTIONS\n")[1].split(".SH ")[0]
    return set(re.findall(r"^\.TP\n(?:-\w, )?(--[\w-]+)", part, re.M))


def options_of_bash(text, name):
    line = re.search(rf"^        {name}\) _reveille_words \"\$cur\"(.*) ;;$", text, re.M)
    return {word for word in line.group(1).split() if word.startswith("--")}


def options_of_zsh(text, name):
    part = text.split(f"\n        {name})\n")[1].split(";;")[0]
    return set(re.findall(r"^ +'.*?(--[\w-]+)", part, re.M))


def options_of_fish(text, name):
    return {"--" + option for option in
            re.findall(rf"^complete -c reveille -n '__reveille_runs {name}'(?: -s \w)? -l ([\w-]+)",
                       text, re.M)}


def check_parser(command, name, options):
    """Every option is known by the parser, and so is its beginning if no other begins with it."""
    for option in sorted(options - {"--help", "--version"}):
        done = subprocess.run([command, name, option], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 2) or "unknown" in done.stderr:
            fault(f"{name} {option}: exit status {done.returncode}: {done.stderr}")


def check_help(name, text):
    for line in text.splitlines():
        if len(line) > WIDTH:
            fault(f"help of {name}: {len(line)} columns: {line}")


def check_page(name, page):
    found = re.findall(r"^\.SH (.*)$", page, re.M)
    if [section for section in found if section in SECTIONS] != SECTIONS:
        fault(f"page of {name}: sections {found}")
    if "\n.EX\nreveille" not in plain(page):
        fault(f"page of {name}: no example")


def check_examples(command, page, source):
    """Runs the command that each example begins with, beside the traces of the sources."""
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "traces").symlink_to(pathlib.Path(source).resolve() / "traces")
        (pathlib.Path(folder) / "card.json").write_text(
            run(command, "devices", "--device", "h200", "--json"), encoding="utf-8")
        for line in re.findall(r"^\.EX\n(.*)$", plain(page), re.M):
            words = shlex.split(re.split(r" [|>] | && |\)", line.replace("source <(", "", 1))[0])
            if words[:2] in (["reveille", "record"], ["reveille", "run"]):
                words = ["reveille", words[1], *words[2:-1], "--help"]  # programs that are not here
            given = [word for word in words if word.startswith("traces/")]
            done = subprocess.run([command, *words[1:]], cwd=folder, capture_output=True, text=True,
                                  check=False)
            if "built without the page" in done.stderr:
                print("SKIP example of report: built without the page")
                continue
            expected = (0, 3) if given or words[1] in ("devices", "manual", "completion") else (0, 2, 3)
            if words[0] != "reveille" or done.returncode not in expected or "Try `" in done.stderr:
                fault(f"example {line}: exit status {done.returncode}: {done.stderr}")
            count += 1
    return count


def lint(path):
    """Runs the tools that look at pages; says how many there were."""
    tools = 0
    if shutil.which("mandoc"):
        tools += 1
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "style", str(path)],
                              capture_output=True, text=True, check=False)
        told = [line for line in done.stdout.splitlines() if "referenced manual not found" not in line]
        if told:
            fault(f"mandoc: {told}")
    if shutil.which("man") and shutil.which("groff"):
        tools += 1
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(path)],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "MANWIDTH": str(WIDTH), "MANPAGER": "cat"})
        if done.returncode != 0 or done.stderr.strip():
            fault(f"man: {path.name}: {done.stderr}")
    return tools


def main(command, folder, source):
    command = str(pathlib.Path(command).resolve())
    folder = pathlib.Path(folder)
    listing = run(command, "--help")
    check_help("reveille", listing)
    names = re.findall(r"^  (\w+) {2,}", listing.split("\nCommands:\n")[1], re.M)
    shells = {shell: run(command, "completion", shell) for shell in ("bash", "zsh", "fish")}
    for name in names:
        text, page = run(command, name, "--help"), run(command, "manual", name)
        check_help(name, text)
        check_page(name, page)
        options = options_of_help(text)
        if len(options) < 2 or options != options_of_help(run(command, "help", name)):
            fault(f"help of {name}: {options}")
        for other, found in {"page": options_of_page(plain(page)),
                             "bash": options_of_bash(shells["bash"], name),
                             "zsh": options_of_zsh(shells["zsh"], name),
                             "fish": options_of_fish(shells["fish"], name)}.items():
            if found != options:
                fault(f"{name}: help and {other} differ in {sorted(found ^ options)}")
        check_parser(command, name, options)
        if (folder / f"reveille-{name}.1").read_text(encoding="utf-8") != page:
            fault(f"reveille-{name}.1 is not what `reveille manual {name}` prints")
    check_page("reveille", (folder / "reveille.1").read_text(encoding="utf-8"))
    pages = sorted(folder.glob("*.1"))
    if len(pages) != len(names) + 1:
        fault(f"{len(pages)} pages of {len(names)} commands")
    examples = sum(check_examples(command, page.read_text(encoding="utf-8"), source)
                   for page in pages)
    if examples < len(pages):
        fault(f"{examples} examples on {len(pages)} pages")
    tools = sum(lint(page) for page in pages)
    print(f"{len(names)} commands, {len(pages)} pages, {examples} examples, {tools} times looked at, {len(faults)} faults")
    if faults:
        return 1
    if tools == 0:
        print("SKIP: neither mandoc nor man with groff is here: the pages were not looked at")
        return 77
    return 0


sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3]))
