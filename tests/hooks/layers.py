#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the hooks to what they may use of the library below them.

    layers.py SOURCE_DIR NM LIBRARY HOOK_LIBRARIES HOOKS_OBJECTS OTHER_OBJECTS

Lists have semicolons between their entries. The hooks' files include public headers, their own, and those
of base/, nvtx/ and trace/, and what their objects need of other rooms by the linker is declared in a public
header, even if another declares it, too. A hook library in front of CUDA needs nothing of libreveille by the
linker: it opens it, and asks for the one function that has a version of its own.
"""
import pathlib
import re
import subprocess
import sys

ROOMS_BELOW = ("base", "nvtx", "trace")
ALLOWED = {"hooks", "reveille", *ROOMS_BELOW}
ATTACH = "rvl_private_attach_hooks"
PRIVATE = {ATTACH, "rvl_private_error_record", "rvl_private_let_pass",
           "rvl_private_prefetch", "rvl_private_segment_next", "rvl_private_segment_now",
           "rvl_private_segment_tell",
           "rvl_private_set_part", "rvl_private_spend"}
PRIVATE_VERSION = "REVEILLE_PRIVATE"
NM_WITH_VERSIONS = "nm"  # of binutils, on all libraries: LLVM's shows versions since 15
OURS = re.compile(r"rvli?_\w+")


def symbols(nm, options, files):
    """The names that nm lists, with their version if they have one."""
    lines = subprocess.run([nm, *options, *files], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return {line.split()[-1] for line in lines if re.search(r" [A-Za-z] \S+$", line)}


def check_includes(source, problems):
    """Files of the hooks include what is public or below them."""
    count = 0
    for path in sorted((source / "hooks").rglob("*.[ch]")):
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
            count += 1
            if name.split("/")[0] not in ALLOWED:
                problems.append(f"{path.relative_to(source)} includes {name}")
    return count


def check_objects(source, nm, hooks, lower, problems):
    """What the objects need of others is public, or of a room below."""
    public = set()
    for path in (source / "include" / "reveille").glob("*.h*"):
        public |= set(re.findall(r"^RVL_API[^;]*?\b(rvl_\w+)\(", path.read_text(), re.M))
    below = symbols(nm, ["--defined-only"], [*hooks, *lower])
    needed = {name for name in symbols(nm, ["--undefined-only"], hooks)
              if OURS.fullmatch(name)}
    for name in sorted(needed - below - public):
        problems.append(f"the hooks need {name}, which is neither public nor of a room below")
    return sorted(needed & public)


def check_private(library, problems):
    """libreveille exports nothing for other libraries but what is listed here, with a version."""
    found = dict(name.replace("@@", "@").split("@") for name in
                 symbols(NM_WITH_VERSIONS, ["-D", "--with-symbol-versions", "--defined-only"],
                         [library])
                 if name.startswith("rvl_private_") and "@" in name)
    wanted = {name: PRIVATE_VERSION for name in PRIVATE}
    if found != wanted:
        problems.append(f"{library} exports {found} for our other libraries, expected {wanted}")


def check_hook_libraries(nm, libraries, problems):
    """They link nothing of libreveille, and name the function that they ask it for."""
    for library in libraries:
        for name in sorted(symbols(nm, ["-D", "--undefined-only"], [library])):
            if OURS.fullmatch(name.split("@")[0]):
                problems.append(f"{library} links {name}")
        named = set(re.findall(rb"rvl_private_\w+", pathlib.Path(library).read_bytes()))
        if named != {ATTACH.encode()}:
            problems.append(f"{library} names {named}, expected {ATTACH}")


def main():
    """Prints what is wrong."""
    source, nm, library = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    shims, hooks, others = (each.split(";") for each in sys.argv[4:7])
    lower = [each for each in others if pathlib.Path(each).parent.name in ROOMS_BELOW]
    problems = []
    includes = check_includes(source, problems)
    used = check_objects(source, nm, hooks, lower, problems)
    check_private(library, problems)
    check_hook_libraries(nm, shims, problems)
    print(f"{includes} includes; public functions that the hooks use: {' '.join(used)}")
    if problems or includes == 0 or not used:
        sys.exit("\n".join(problems) or "there is nothing to look at")


main()
