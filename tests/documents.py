#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds what the documents say against what is so: commands run, their output is compared, links lead
somewhere.

    documents.py REVEILLE SOURCE_DIR LIBRARY_DIR [--update] [--pytorch PYTHON [PAGE...]]
    documents.py --self

All code stands between fences, and the word behind the first fence says what is done with it:

    console   commands behind "$ ", run in bash in their order; the lines behind each are what it prints
    sh        commands alone: they run, and what they print is not shown
    json, toml, python   is read by its parser; the Python of docs/python.md is run by
                         tests/python/test_docs.py
    c         is run by tests/install/readme_example.sh
    text      is not run

A comment in the line before a fence is its mark:

    <!-- file: NAME -->             the block is that file, in the page's folder
    <!-- not run: needs a GPU -->   its commands are only parsed, and named at the end
    <!-- with: PyTorch 2.11 -->     its commands run under --pytorch alone, with that Python; else the same

A command may fail only where "# exit status N" stands behind it. In what it prints "..." stands for the
rest of a line or, alone, for lines. A table may be cut before its column "who holds the peak".

A line of prose is broken at 150 columns or so, and never has more than 170. Tables are not broken.

README.md has at most 60 lines before its first link.

Each page has a folder of its own, with this tree's traces, tests and examples, a model's config.json,
and `reveille` and `python3` on its PATH. --update writes what is printed into the pages.
"""
import ast
import html
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

try:
    import tomllib
except ImportError:  # Python before 3.11
    tomllib = None

KINDS = {"console", "sh", "json", "toml", "python", "c", "text"}
NEEDS = ("a GPU", "a network", "PyTorch", "pytest", "a build", "root", "your own program")
NOT_RUN = re.compile(rf"needs (?:{'|'.join(NEEDS)})\b")
MARK = re.compile(r"^<!-- (file|not run|with): (.+) -->$")
STATUS = re.compile(r"# exit status (\d+)$")
LEFT_OUT = re.compile(r"built without|this build reads no TOML")  # parts that a build may lack
CUT = " who holds the peak"
CONFIG = "tests/data/configs/qwen2.5-7b.json"
INDEX = "docs/README.md"
PICTURE = "docs/pictures/step.svg"
PICTURED = ["report", "traces/qwen2.5-32b-tp2-h200.rvt", "--axis", "event",
            "--against-wake", "together", "--svg", "-"]  # fmt: skip
PAGE_S = 60  # at most
PYTORCH_PAGE_S = 300
PROSE_COLUMNS = 170  # at most
FRONT, FRONT_LINES = "README.md", 60  # lines before its first link, at most


class Command:
    """A command of a page, where it begins, and the lines that it is said to print (None: not shown)."""

    def __init__(self, text, at, shown):
        self.text, self.at, self.shown = text, at, shown
        status = STATUS.search(text.split("\n")[0])
        self.status = int(status[1]) if status else 0


class Block:
    def __init__(self, kind, begin, lines, mark):
        self.kind, self.begin, self.lines = kind, begin, lines
        self.mark, self.value = (mark[1], mark[2]) if mark else (None, None)

    def commands(self):
        """Their places are those of lines of the page, counted from 0."""
        found, i = [], 0
        while i < len(self.lines):
            line, at = self.lines[i], self.begin + i
            if self.kind == "console" and not line.startswith("$ "):
                if not found:
                    raise ValueError(f"line {at + 1}: a console begins with a command behind \"$ \"")
                found[-1].shown.append(line)
            elif line.strip() and not line.startswith("#"):
                text = line[2:] if self.kind == "console" else line
                while text.endswith("\\") and i + 1 < len(self.lines):
                    i += 1
                    text += "\n" + self.lines[i]
                found.append(Command(text, at, [] if self.kind == "console" else None))
            i += 1
        for command in found:
            while command.shown and not command.shown[-1]:
                command.shown.pop()
        return found


class Page:
    """A document, its blocks, and the faults that were found in it."""

    def __init__(self, source, name):
        self.name, self.path = name, source / name
        self.lines = self.path.read_text(encoding="utf-8").split("\n")
        self.faults, self.not_run, self.blocks, self.prose = [], [], [], []
        i = 0
        while i < len(self.lines):
            line = self.lines[i]
            if line.startswith("```"):
                end = self.lines.index("```", i + 1)
                mark = MARK.match(self.lines[i - 1]) if i else None
                self.blocks.append(Block(line[3:], i + 1, self.lines[i + 1:end], mark))
                i = end
            else:
                if line.startswith("    ") and not self.lines[i - 1].strip():
                    self.fault(i, "an indented block: fence it, and say what it is")
                if len(line) > PROSE_COLUMNS and not line.startswith("|"):
                    self.fault(i, f"a line of {len(line)} columns: break it at 150")
                self.prose.append((i, line))
            i += 1

    def fault(self, at, text):
        self.faults.append(f"{self.name}:{at + 1}: {text}")

    def anchors(self):
        """What GitHub makes of the headings."""
        seen, found = {}, set()
        for _, line in self.prose:
            if re.match(r"#{1,6} ", line):
                title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
                slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                count = seen[slug] = seen.get(slug, -1) + 1
                found.add(f"{slug}-{count}" if count else slug)
        return found

    def check_front(self):
        """A newcomer reads what it is, and sees it work, before a link leads away."""
        first = next((at for at, line in self.prose if re.search(r"(?<!!)\[[^]]*\]\(", line)), len(self.lines))
        if first > FRONT_LINES:
            self.fault(first, f"{first} lines before the first link: {FRONT_LINES} at most")

    def links(self):
        for at, line in self.prose:
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                if not re.match(r"[a-z]+:", target):
                    yield at, target


# ---- Commands ----


def pattern_of(shown):
    """The regular expression of a line that may have "..."."""
    return re.compile(".*".join(map(re.escape, shown.split("..."))))


def cut_table(printed, shown):
    """What is printed, without the last column of tables that are shown without it."""
    if any(CUT in line for line in shown) or not any(CUT in line for line in printed):
        return printed
    lines, column = [], None
    for line in printed:
        column = line.index(CUT) if CUT in line else column if line.startswith("  ") else None
        tabled = column is not None and line[column - 1:column + 1].strip() == ""
        lines.append(line[:column].rstrip() if tabled else line)
    return lines


def same(shown, printed):
    """Whether the lines are what is shown; "..." alone stands for any number of them."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(same(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and bool(pattern_of(shown[0]).fullmatch(printed[0])) and \
        same(shown[1:], printed[1:])  # fmt: skip


def check_output(page, command, printed, status, update):
    """Returns the lines that should stand in the page, or None where those that do are right."""
    said = "\n".join(printed)
    if status != command.status:
        if status and LEFT_OUT.search(said):
            page.not_run.append((command.at, f"this build has it not: {said}"))
        else:
            page.fault(command.at, f"exit status {status}, not {command.status}: {command.text}\n{said}")
        return None
    if command.shown is None:
        return None
    printed = cut_table(printed, command.shown)
    if same(command.shown, printed):
        return None
    if not update:
        page.fault(command.at, f"{command.text}\nshows\n" + "\n".join(command.shown) +
                   "\nbut prints\n" + "\n".join(printed))  # fmt: skip
    return printed


def run_page(page, commands, where, environment, limit_s=PAGE_S):
    """Runs the commands in one shell; pairs of printed lines and exit status."""
    script = [f"{{ {each.text}\n}} >.said{i} 2>&1 </dev/null\necho $? >.status{i}"
              for i, each in enumerate(commands)]  # fmt: skip
    try:
        subprocess.run(["bash", "-c", "\n".join(script)], cwd=where, env=environment, timeout=limit_s,
                       check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        page.fault(0, f"its commands take more than {limit_s} s")
    for i in range(len(commands)):
        said, status = where / f".said{i}", where / f".status{i}"
        if not status.exists():
            page.fault(commands[i].at, f"did not end: {commands[i].text}")
            return
        printed = said.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")
        yield ([] if printed == [""] else printed), int(status.read_text())


def parses(page, block):
    """Whether the block is what it is said to be."""
    text, before = "\n".join(block.lines), len(page.faults)
    if block.kind not in KINDS:
        page.fault(block.begin - 1, f'a block of kind "{block.kind}"; these are known: {sorted(KINDS)}')
    try:
        if block.kind == "json":
            json.loads(text)
        elif block.kind == "toml" and tomllib:
            tomllib.loads(text)
        elif block.kind == "python":
            ast.parse(text)
            if not block.mark and page.name != "docs/python.md":
                page.fault(block.begin - 1, "nobody runs this program: name its file, and run it")
        elif block.kind in ("console", "sh"):
            for each in block.commands():
                done = subprocess.run(["bash", "-n", "-c", each.text], capture_output=True, text=True,
                                      check=False)  # fmt: skip
                if done.returncode:
                    page.fault(each.at, done.stderr)
    except (ValueError, SyntaxError) as error:
        page.fault(block.begin, f"{block.kind}: {error}")
    return len(page.faults) == before


def options_exist(page, block, helps):
    """The long options of `reveille` commands that are not run."""
    for each in block.commands():
        for words in re.findall(r"\breveille (.*)", each.text.split(" #")[0]):
            words = words.split(" -- ")[0].split()
            for option in re.findall(r"--[a-z-]+", " ".join(words)):
                if words[0].isalpha() and option not in helps(words[0]):
                    page.fault(each.at, f"reveille {words[0]} has no option {option}")


# ---- A page ----


def prepare(source, where, reveille, libraries, python):
    """The page's folder, and the environment of its commands."""
    for name in ("traces", "tests", "examples"):
        (where / name).symlink_to(source / name)
    (where / "config.json").write_bytes((source / CONFIG).read_bytes())
    programs = where / ".bin"
    programs.mkdir()
    (programs / "reveille").symlink_to(reveille)
    for name in ("python", "python3"):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items()
            if not re.match(r"RVL_|REVEILLE_|PYTHON|LD_|GITHUB_|COLUMNS|NO_COLOR", name)}  # fmt: skip
    return {**kept, "PATH": f"{programs}:{kept['PATH']}", "LC_ALL": "C.UTF-8", "HOME": str(where),
            "PYTHONPATH": str(source / "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "RVL_LIBRARY_DIR": str(libraries)}  # fmt: skip


def check_page(page, source, reveille, libraries, helps, update, pytorch=None):
    """Runs what needs nothing or, where `pytorch` is a Python that has it, what needs that alone."""
    commands = []
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        environment = prepare(source, where, reveille, libraries, pytorch or sys.executable)
        for block in page.blocks:
            right = parses(page, block)
            if block.mark == "file":
                (where / block.value).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
            elif pytorch:
                commands += block.commands() if right and block.mark == "with" else []
            elif block.mark in ("not run", "with"):
                if block.mark == "not run" and not NOT_RUN.match(block.value):
                    page.fault(block.begin - 2, f"not run: needs one of {', '.join(NEEDS)}")
                if right and block.kind in ("console", "sh"):
                    options_exist(page, block, helps)
                needs = "" if block.mark == "not run" else "needs "
                page.not_run.append((block.begin, needs + block.value))
            elif right and block.kind in ("console", "sh"):
                commands += block.commands()
        news = []
        limit_s = PYTORCH_PAGE_S if pytorch else PAGE_S
        for command, (printed, status) in zip(commands, run_page(page, commands, where, environment, limit_s)):
            lines = check_output(page, command, printed, status, update)
            if lines is not None:
                news.append((command, lines))
    for command, lines in reversed(news if update else []):
        begin = command.at + 1 + command.text.count("\n")
        page.lines[begin:begin + len(command.shown)] = lines
        page.path.write_text("\n".join(page.lines), encoding="utf-8")
    return len(commands)


def check_links(pages, source):
    """Links between pages and to headings; and that the index leads to each page of docs, or docs/X.md to those in docs/X."""
    count = 0
    by_path = {page.path.resolve(): page for page in pages}
    for page in pages:
        for at, target in page.links():
            count += 1
            name, _, anchor = html.unescape(target).partition("#")
            path = (page.path.parent / name).resolve() if name else page.path.resolve()
            if not path.exists():
                page.fault(at, f"a link to {name}, which is not there")
            elif anchor and path in by_path and anchor not in by_path[path].anchors():
                page.fault(at, f"a link to {target}, which has no such heading")
    index = by_path.get((source / INDEX).resolve())
    if index:
        for path, page in by_path.items():
            leads = by_path.get(path.parent.with_suffix(".md"), index)
            if page is not index and page.name.startswith("docs/") and path not in reached_from(leads):
                leads.fault(0, f"does not lead to {page.name}")
    return count


def reached_from(page):
    return {(page.path.parent / target.split("#")[0]).resolve() for _, target in page.links()}


def check_picture(reveille, source, update):
    path = source / PICTURE
    drawn = subprocess.run([reveille, *PICTURED], cwd=source, capture_output=True, check=True).stdout
    if update:
        path.write_bytes(drawn)
    return [] if path.read_bytes() == drawn else \
        [f"{PICTURE} is not what is drawn: reveille {shlex.join(PICTURED)}"]  # fmt: skip


def names_of_pages(source):
    return ["README.md", "CONTRIBUTING.md", "examples/ci/README.md",
            *sorted(str(path.relative_to(source)) for path in (source / "docs").rglob("*.md"))]  # fmt: skip


def check_all(names, source, reveille, libraries, update=False, pytorch=None):
    """Prints what was not run and what is wrong; returns the number of faults."""
    known = {}

    def helps(command):
        if command not in known:
            known[command] = subprocess.run([reveille, "help", command], capture_output=True, text=True,
                                            check=False).stdout  # fmt: skip
        return known[command]

    pages = [Page(source, name) for name in names]
    commands = sum(check_page(page, source, reveille, libraries, helps, update, pytorch) for page in pages)
    for page in pages:
        if page.name == FRONT:
            page.check_front()
    links = check_links(pages, source)
    not_run = [f"not run: {page.name}:{at + 1}: {why}" for page in pages for at, why in page.not_run]
    faults = [fault for page in pages for fault in page.faults]
    print("\n".join([*not_run, *faults]))
    print(f"{len(pages)} pages, {commands} commands run, {len(not_run)} blocks not, {links} links, "
          f"{len(faults)} faults")  # fmt: skip
    return len(faults)


# ---- That the check can fail ----

GOOD = """# A page

## One `heading`, and another

[up](#one-heading-and-another)

<!-- file: numbers -->
```text
7
8
```

```console
$ cat numbers    # a comment
7
...
$ X=5
$ echo $X
5
$ (echo no; exit 3)    # exit status 3
no
```

<!-- not run: needs a GPU -->
```sh
reveille record --period 7 -- false
```
"""
BAD = {  # what stands there instead, and what is said of it
    ("7\n...", "9\n..."): "but prints",
    ("5\n", "6\n"): "but prints",
    ("# exit status 3", ""): "exit status 3, not 0",
    ("echo no;", ""): "but prints",
    ("(#one-", "(#no-"): "no such heading",
    ("(#one-heading-and-another)", "(nowhere.md)"): "not there",
    ("```text", "```"): "of kind",
    ("<!-- file: numbers -->", ""): "exit status 1, not 0",
    ("needs a GPU", "is slow"): "not run: needs one of",
    ("--period", "--never"): "no option --never",
    ("record --period 7 -- false", "record '"): "unexpected EOF",
    ("$ cat numbers", "cat numbers"): "begins with a command",
    ("<!-- file: numbers -->\n```text\n7\n8\n```", "```python\n7\n```\n<!-- file: numbers -->\n```text\n7\n8\n```"): "nobody runs",
    ("# A page\n", "# A page\n\n    cat numbers\n"): "indented block",
    ("<!-- not run: needs a GPU -->", "<!-- with: PyTorch -->\n```console\n$ echo \"\n```\n\n<!-- not run: needs a GPU -->"): "unexpected EOF",
    ("# A page\n", f"# A page\n\n|{'wide ' * 40}|\n\n{'wide ' * 40}\n"): "a line of 200 columns",
}


def check_self():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder)
        for name in ("traces", "tests/data/configs", "examples", "python"):
            (source / name).mkdir(parents=True)
        (source / CONFIG).write_text("{}")
        reveille = source / "reveille"
        reveille.write_text("#!/bin/sh\necho --period\n")
        reveille.chmod(0o755)
        wrong = []
        for (old, new), said in {("", ""): "", **BAD}.items():
            (source / "page.md").write_text(GOOD.replace(old, new, 1))
            page = Page(source, "page.md")
            check_page(page, source, reveille, source, lambda _: "--period", False)
            check_links([page], source)
            if len(page.faults) != bool(said) or said not in "".join(page.faults):
                wrong.append(f"{old!r} -> {new!r}: {page.faults}, not {said!r}")
        wrong += check_self_with(source, reveille)
    print("\n".join(wrong) or f"{len(BAD)} kinds of fault found")
    sys.exit(bool(wrong))


def check_self_with(source, reveille):
    """A block for PyTorch runs where there is one, and a front that is too long is found."""
    wrong = []
    block = "# A page\n\n<!-- with: PyTorch -->\n```console\n$ echo 7\n8\n```\n"
    (source / FRONT).write_text(block + "\n" * FRONT_LINES + "[up](#a-page)\n")
    for python, found in ((None, 0), (sys.executable, 1)):
        page = Page(source, FRONT)
        check_page(page, source, reveille, source, lambda _: "", False, python)
        if len(page.faults) != found:
            wrong.append(f"with PyTorch {python}: {page.faults}")
    page.check_front()
    return wrong if "before the first link" in page.faults[-1] else [*wrong, "a long front is not found"]


def main():
    if sys.argv[1] == "--self":
        check_self()
    reveille, source, libraries = (pathlib.Path(each).resolve() for each in sys.argv[1:4])
    update = "--update" in sys.argv
    names, pytorch = names_of_pages(source), None
    if "--pytorch" in sys.argv:
        pytorch, *chosen = sys.argv[sys.argv.index("--pytorch") + 1:]
        names = chosen or names
    faults = check_all(names, source, reveille, libraries, update, pytorch)
    for fault in check_picture(reveille, source, update):
        print(fault)
        faults += 1
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
