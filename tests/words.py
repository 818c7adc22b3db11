#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Words and turns that the project's texts do without, and what to write instead.

    words.py SOURCE_DIR
    words.py --self         finds one of each itself

Reads all that git has of documents, manual pages, headers and sources.
"""
import pathlib
import re
import subprocess
import sys

NOUNS = "allocation|case|check|command|core|device|layer|line|node|page|process|rank|sequence|stage|step|suite|tag|thread|tensor|token"
UNWANTED = {
    r"whoever": "anyone who, or: you",
    r"anew": "again",
    r"hereby|herein|thereof|whence|hitherto": "a word that people say",
    rf"one an? (?:{NOUNS})": "one for each ...",
    rf"an? (?:{NOUNS}) an? (?:{NOUNS})": "a ... for each ...",
    r"of one's own": "of its own",
    r"utilize[sd]?|utilization of": "use",
    r"leverage[sd]?|seamless(?:ly)?|blazing(?:ly)?|cutting-edge": "what it does, with a number",
    r"for ever": "forever",
    r"but for": "except for",
    r"as a rule": "usually",
    r"as ever|in whatever way": "as before, however",
    r"whom": "who, which",
    r"whose": "with, of, or two sentences",
    r"nevertheless|hence|whereby|wherein": "still, so, by which, in which",
    r"ha(?:s|ve) not(?=[.,;:)])": "does not have, lacks",
    r"begins so": "begins with it",
    r"simply|obviously|of course|trivially": "nothing",
    r"if need be": "if needed",
    r"nobody can say": "is unknown",
    r"is no error": "is not an error",
    r"(?:how|where) it came there": "what made it so",
}
KINDS = ("*.md", "*.h", "*.c", "*.cpp", "*.py", "*.js", "*.html", "*.css", "*.3", "*.7", "*.cmake", "*.sh")


PATTERNS = {re.compile(rf"\b(?:{words})\b", re.I): better for words, better in UNWANTED.items()}
FAULTY = ("whoever asks", "filled anew", "hereby", "one a thread", "a line a stage", "of one's own",
          "utilizes", "seamless", "waits for ever", "all but for one", "As a rule", "as ever", "by whom", "one whose name",
          "hence", "what it has not.", "begins so", "simply", "opened if need be",
          "nobody can say", "this is no error", "How it came there")  # fmt: skip


def find(line):
    """Pairs of what is unwanted in a line, and what to write."""
    hits = [(pattern.search(line), better) for pattern, better in PATTERNS.items()]
    return [(hit[0], better) for hit, better in hits if hit]


def check_self():
    wrong = [line for line in FAULTY if len(find(line)) != 1]
    wrong += [line for line in ("one of a thread", "a line; a stage", "sim-anew_") if find(line)]
    print(f"wrong: {wrong}" if wrong else f"{len(FAULTY)} found")
    sys.exit(1 if wrong or len(FAULTY) != len(UNWANTED) else 0)


def main():
    if sys.argv[1] == "--self":
        check_self()
    source = pathlib.Path(sys.argv[1])
    try:
        listed = subprocess.run(["git", "ls-files", *KINDS], cwd=source, capture_output=True, text=True,
                                check=False).stdout  # fmt: skip
    except FileNotFoundError:
        listed = ""
    names = [name for name in listed.splitlines() if name != "tests/words.py"]
    if not names:
        print("SKIP: git has no list of the files here")
        sys.exit(77)
    found = 0
    for name in names:
        text = (source / name).read_text(encoding="utf-8")
        for number, line in enumerate(text.split("\n"), 1):
            for hit, better in find(line):
                found += 1
                print(f'{name}:{number}: "{hit}"; write {better}')
    print(f"{len(names)} files, {found} unwanted words")
    sys.exit(1 if found else 0)


main()
