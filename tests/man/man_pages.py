#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the pages of functions, as they are made, against the headers, the libraries, and what their examples print.

    man_pages.py SOURCE_DIR BUILD_DIR CC NM LIBRARY REPLAY_LIBRARY [PRELOAD_LIBRARY CUDA_LIBRARY]

Each public function has one page, with its prototype, the errors that its comment names, and an example. Each
example is compiled and run, and must print what the page says. Those of the hooks run under the preload
library, and those that need a GPU on the driver that stands in for a GPU's.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "RETURN VALUE", "ERRORS", "NOTES", "EXAMPLE",
            "SEE ALSO"]
EXAMPLE_INPUTS = {"snapshot.pickle.gz": "traces/snapshots/dev-default.pickle.gz",
                  "config.json": "tests/data/configs/qwen2.5-7b.json"}
HOOKS_HEADER = "hooks.h"
CUDA_HEADER = "cuda.h"
SHARE_HEADER = "share.h"
COMMUNICATOR_HEADER = "communicator.h"


def declarations(include):
    """{function: (header, parameters, statuses that its comment names after "Returns")} of all public headers."""
    found = {}
    for header in sorted([*include.glob("*.h"), *include.glob("*.h.in")]):
        for block in header.read_text().split("\n\n"):
            statuses = set(re.findall(r"RVL_ERR_\w+", block.partition("Returns")[2]))
            for name, parameters in re.findall(r"^RVL_API [^;]*?\b(rvl_\w+)\(([^;]*)\);", block, re.M):
                found[name] = (header.name, "".join(parameters.split()), statuses)
    return found


class Page:
    """What a test wants to know of a page."""

    def __init__(self, path):
        self.name = path.stem
        self.sections, self.order = {}, []
        for line in path.read_text().splitlines():
            if line.startswith(".Sh "):
                self.order.append(line[4:])
                self.sections[line[4:]] = []
            elif self.order:
                self.sections[self.order[-1]].append(line)

    def names(self):
        """The functions of its NAME section."""
        return [line[4:].rstrip(" ,") for line in self.sections["NAME"] if line[:4] == ".Nm "]

    def parameters(self):
        """{function: parameters} of its SYNOPSIS."""
        shown = re.findall(r"\.Fo (\w+)\n(.*?)\.Fc", "\n".join(self.sections["SYNOPSIS"]), re.S)
        return {name: "".join(",".join(re.findall(r'\.Fa "(.*)"', text)).split()) for name, text in shown}

    def statuses(self):
        """Those of its ERRORS."""
        return {line[7:] for line in self.sections["ERRORS"] if line[:7] == ".It Dv "}

    def displays(self):
        """The literal displays of its EXAMPLE, as they are read: the program and its output."""
        text = "\n".join(self.sections["EXAMPLE"])
        shown = re.findall(r"^\.Bd -literal\n(.*?)^\.Ed$", text, re.M | re.S)
        return [re.sub(r"^\\&", "", each, flags=re.M).replace("\\e", "\\") for each in shown]


def check_functions(pages, declared, problems):
    """Every function has one page, with its parameters, errors and an example, and every page only functions."""
    owner = {}
    for page in pages:
        if page.order != SECTIONS:
            problems.append(f"{page.name}: its sections are {page.order}")
        if page.names()[:1] != [page.name]:
            problems.append(f"{page.name}: is not named for its first function")
        shown = page.parameters()
        example = "\n".join(page.sections["EXAMPLE"])
        problems += [f"{page.name}: its example does not use {name}()" for name in page.names()
                     if not re.search(rf"\b{name}\b", example)]
        for function in page.names():
            if function in owner:
                problems.append(f"{function}: is on {owner[function]} and {page.name}")
            owner[function] = page.name
            _, parameters, statuses = declared[function]
            if shown.get(function) != parameters:
                problems.append(f"{function}: its page has ({shown.get(function)}), the header ({parameters})")
            problems += [f"{page.name}: ERRORS has no {status}, which {function}() returns"
                         for status in sorted(statuses - page.statuses())]
    for function in sorted(set(declared) - set(owner)):
        problems.append(f"{function}: has no page")
    return owner


def check_references(pages, manual, declared, problems):
    """What a page refers to is there: other pages, and the functions in its text."""
    for page in pages:
        text = "\n".join(line for lines in page.sections.values() for line in lines)
        for name in sorted(set(re.findall(r"\\fB(rvl_\w+)\\fP\(\)", text)) - set(declared)):
            problems.append(f"{page.name}: names {name}(), which is not there")
        for line in page.sections["SEE ALSO"]:
            name = re.match(r"\.Xr (\S+) (\d)", line)
            if name is None or not (manual / f"{name[1]}.{name[2]}").exists():
                problems.append(f"{page.name}: refers to what is not there: {line}")


def check_exports(nm, libraries, declared, problems):
    """What the libraries export is what the headers declare."""
    exported = set()
    for library in libraries:
        lines = subprocess.run([nm, "-D", "--defined-only", library], check=True,
                               capture_output=True, text=True).stdout.split("\n")
        exported |= {re.sub("@.*", "", line.split()[-1]) for line in lines if " T " in line}
    exported = {name for name in exported if re.fullmatch(r"rvl_\w+", name)}
    # Without the CUDA backend there are neither its functions nor hooks. rvl_private_ is for the hook
    # libraries.
    hooks = any(name.startswith("rvl_hooks_") for name in exported)
    exported = {name for name in exported if not name.startswith("rvl_private_")}
    wanted = {name for name, (header, *_) in declared.items()
              if hooks or header not in (HOOKS_HEADER, CUDA_HEADER, COMMUNICATOR_HEADER)}
    for name in sorted(exported ^ wanted):
        problems.append(f"{name}: is {'exported' if name in exported else 'declared'} alone")


def check_aliases(made, owner, problems):
    """Each function that its page is not named for has one that includes it."""
    there = {path.stem: path.read_text() for path in made.glob("*.3") if path.stem not in owner.values()}
    wanted = {f: f".so man3/{page}.3\n" for f, page in owner.items() if f != page}
    for name in sorted(set(there) ^ set(wanted)):
        problems.append(f"{name}: the page that includes another is missing, or too much")
    for name in sorted(set(there) & set(wanted)):
        if there[name] != wanted[name]:
            problems.append(f"{name}: includes {there[name]!r}")


def run_example(page, source, build, compiler, libraries, environment):
    """What is wrong with the example of a page, None if nothing is."""
    program, *expected = page.displays()
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        for name, of in EXAMPLE_INPUTS.items():
            shutil.copy(source / of, where / name)
        (where / "example.c").write_text(program)
        command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{source}/include",
                   f"-I{build}/include", "-o", "example", "example.c", *libraries, "-ldl",
                   *(f"-Wl,-rpath,{pathlib.Path(library).parent}" for library in libraries)]
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{page.name}: its example is not compiled: {done.stderr}"
        done = subprocess.run(["./example"], cwd=where, capture_output=True, text=True, timeout=60,
                              env={**os.environ, **environment}, check=False)
    if done.returncode != 0 or done.stderr or [done.stdout] != expected:
        return (f"{page.name}: its example exits {done.returncode} and prints\n{done.stdout}"
                f"{done.stderr}instead of\n{''.join(expected)}")
    return None


def main():
    """Prints what is wrong."""
    source, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    compiler, nm, *libraries = sys.argv[3:7]
    preload = [each for each in sys.argv[7:] if each]
    manual, made = source / "man", build / "man" / "man3"
    pages = [Page(made / path.name) for path in sorted(manual.glob("*.3"))]
    declared, problems = declarations(source / "include" / "reveille"), []
    owner = check_functions(pages, declared, problems)
    check_references(pages, manual, declared, problems)
    check_exports(nm, libraries, declared, problems)
    check_aliases(made, owner, problems)
    run = 0
    for page in pages:
        header = declared[page.name][0]
        hooks = header == HOOKS_HEADER
        device = hooks or header in (SHARE_HEADER, CUDA_HEADER)
        needs_backend = device or header == COMMUNICATOR_HEADER
        if needs_backend and len(preload) != 2:
            print(f"{page.name}: its example is not run, the preload library was not built")
            continue
        variables = {"LD_PRELOAD": preload[0]} if hooks else {}
        variables |= {"RVL_CUDA_LIBRARY": preload[1]} if device else {}
        problem = run_example(page, source, build, compiler, libraries, variables)
        problems += [problem] if problem else []
        run += 1
    print(f"{len(owner)} functions, {len(pages)} pages, {run} examples")
    if problems or not owner or run == 0:
        sys.exit("\n".join(problems) or "there are no pages")


main()
