#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The public API in one file without comments: what a program that is built with it has compiled in.

usage: keep.py SOURCE BUILD COMPILER >tests/abi/vMAJOR_MINOR.h
"""

import re
import subprocess
import sys

HEADERS = ("calibrate communicator cuda hooks model plan record reveille snapshot timeline trace transition version").split()
BEGIN = """/* SPDX-License-Identifier: MIT */
/*
 * The public API as a program has it compiled in that was built with version %s. Written by
 * tests/abi/keep.py, and not to be changed: a later version gets a file of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
"""


def preprocess(source, build, compiler, *options):
    text = "".join(f'#include "reveille/{name}.h"\n' for name in HEADERS)
    command = [compiler, "-std=c11", "-E", *options, f"-I{source}/include", f"-I{build}/include", "-"]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def macros(text):
    """Constants. What has parameters makes other things, which are kept themselves."""
    for line in sorted(text.split("\n")):
        name = line.removeprefix("#define ").split(" ")[0]
        if line.startswith("#define RVL_") and "(" not in name and name != "RVL_API" and \
                line != f"#define {name} " and not name.startswith("RVL_VERSION_"):
            yield line


def declarations(text):
    """What our headers declare, a statement a line."""
    ours, lines = False, []
    for line in text.split("\n"):
        place = re.match(r'# \d+ "([^"]*)"', line)
        if place:
            ours = "/reveille/" in place[1]
        elif ours:
            lines.append(line)
    joined = re.sub(r"\s+", " ", " ".join(lines))
    joined = joined.replace('__attribute__((visibility("default")))', "").replace("_Bool", "bool")
    return re.sub(r";\s*", ";\n", joined).strip()


def main():
    where = sys.argv[1:4]
    constants = preprocess(*where, "-dM")
    version = [re.search(rf"RVL_VERSION_{part} (\d+)", constants)[1] for part in ("MAJOR", "MINOR")]
    print(BEGIN % ".".join(version))
    print("\n".join(macros(constants)), declarations(preprocess(*where)), sep="\n\n")


main()
