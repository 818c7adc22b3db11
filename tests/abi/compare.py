#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The API is compatible with the one that is kept in v0_1.h, as abidiff of libabigail sees it.

Both become a library of empty functions, so that their types alone are compared, whichever compiler
and options the real ones are built with. That the real ones export what the headers declare is
looked at by man_pages.py. Changes that are not compatible must be seen: some are made here.

usage: compare.py SOURCE BUILD COMPILER
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FUNCTION = re.compile(r"^(?!typedef)[^;{}()]*?\b(rvl_\w+)\([^;{}]*\);", re.MULTILINE)
STRUCT = re.compile(r"^typedef struct (rvl_\w+) \{(.*?)\} \1;", re.MULTILINE | re.DOTALL)
ENUM = re.compile(r"^typedef enum rvl_\w+ \{(.*?)\}", re.MULTILINE | re.DOTALL)
MACRO = re.compile(r"^#define (RVL_\w+) ", re.MULTILINE)
RISES = re.compile(r"RVL_\w+_COUNT|RVL_TRACE_MINOR")  # with what is added
FIELD = re.compile(r"(?:\(\*(\w+)\)\(|(\w+)(?:\[\w+\])?;)")
SKIPPED = 77

# (what it is, pattern, what replaces it, whether it is compatible)
CHANGES = (
    ("a function is gone", r"rvl_status rvl_free\([^;]*;", "", False),
    ("a parameter is another", r"rvl_status rvl_free\(rvl_context \*context, rvl_addr",
     "rvl_status rvl_free(rvl_context *context, uint32_t", False),
    ("a result is another", r"int rvl_device_count\(", "uint64_t rvl_device_count(", False),
    ("a field is inserted", r"(rvl_pause_options \{\s*size_t struct_size;)", r"\1 uint64_t more;",
     False),
    ("a field that options hand over is another", r"uint64_t host_keep_bytes;",
     "uint32_t host_keep_bytes; uint32_t more;", False),
    ("a field is gone", r"uint64_t timeout_ns;", "", False),
    ("a status has another number", r"RVL_ERR_INVALID = \(-1\)", "RVL_ERR_INVALID = (-30)", False),
    ("a flag has another number", r"(#define RVL_PAUSE_DISCARD) 1u", r"\1 2u", False),
    ("a flag is gone", r"#define RVL_PAUSE_DISCARD 1u", "", False),
    ("a struct within a struct grows", r"\} rvl_cost;", "uint64_t more;\n} rvl_cost;", False),
    ("a kind of event is inserted", r"RVL_EVENT_ALLOC\b", "RVL_EVENT_MORE, RVL_EVENT_ALLOC", False),
    ("a kind of event is gone", r"RVL_EVENT_PAUSE,", "", False),
    ("a kind of event is added", r"RVL_EVENT_KIND_COUNT", "RVL_EVENT_MORE, RVL_EVENT_KIND_COUNT",
     True),
    ("a struct grows at its end", r"\} rvl_pause_options;", "uint64_t more;\n} rvl_pause_options;",
     True),
    ("a function is added", r"rvl_status rvl_free\(", "void rvl_more(void);\nrvl_status rvl_free(",
     True),
)  # fmt: skip


def library(text, name, folder, compiler):
    """A library that has every function, and uses every struct."""
    source, built = folder / f"{name}.c", folder / f"lib{name}.so"
    bodies = [match[0].strip().rstrip(";") + " { __builtin_trap(); }"
              for match in FUNCTION.finditer(text)]
    uses = [f"void use_{struct}({struct} *it) {{ (void)it; }}" for struct, _ in STRUCT.findall(text)]
    assert len(bodies) > 100 and len(uses) > 40, (len(bodies), len(uses))
    source.write_text("\n".join([text, *bodies, *uses, ""]))
    subprocess.run([compiler, "-std=gnu11", "-g", "-O0", "-w", "-fPIC", "-shared", "-o", built,
                    source], check=True)
    return built


def facts(text, wanted, folder, compiler):
    """What a program has compiled in: lines of NAME and numbers. None if one of them is gone."""
    source, program = folder / "facts.c", folder / "facts"
    fields, numbers = wanted
    lines = [f'printf("{struct}.{field} %zu %zu\\n", offsetof({struct}, {field}), '
             f"sizeof((({struct} *)0)->{field}));" for struct, field in fields]
    lines += [f'printf("{name} %lld\\n", (long long){name});' for name in numbers]
    source.write_text("\n".join([text, "#include <stdio.h>", "int main(void) {", *lines, "}"]))
    if subprocess.run([compiler, "-std=gnu11", "-w", "-o", program, source],
                      capture_output=True).returncode != 0:
        return None
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def facts_of(text):
    """The fields of all structs, and the names of all numbers that stay."""
    fields = [(struct, a or b) for struct, body in STRUCT.findall(text)
              for a, b in FIELD.findall(body)]
    numbers = [name for body in ENUM.findall(text) for name in re.findall(r"\bRVL_\w+", body)]
    numbers += MACRO.findall(text)
    assert len(fields) > 300 and len(numbers) > 100, (len(fields), len(numbers))
    return fields, [name for name in numbers if not RISES.fullmatch(name)]


def compatible(kept_text, other_text, folder, compiler):
    """Whether programs that were built with one run with the other; and what was said of it.

    abidiff lets a struct grow at its end, and with that whatever else has changed in it. It sees no
    macros, and no other numbers of an enum that only a struct has. So the places of the fields and
    all numbers are compared as well.
    """
    wanted = facts_of(kept_text)
    before, after = (facts(text, wanted, folder, compiler) for text in (kept_text, other_text))
    if after is None:
        return False, "a field or a number is gone\n"
    changed = set(after.splitlines()) - set(before.splitlines())
    if changed:
        return False, "\n".join(["is another, lies elsewhere or has another size:", *changed, ""])
    kept = library(kept_text, "kept", folder, compiler)
    other = library(other_text, "other", folder, compiler)
    ran = subprocess.run(["abidiff", "--no-added-syms", "--suppressions", HERE / "allowed.ini",
                          kept, other], capture_output=True, text=True)
    if ran.returncode & 3:
        sys.exit(f"abidiff: {ran.stderr}")
    return ran.returncode == 0, ran.stdout


def main():
    source, build, compiler = sys.argv[1:4]
    if shutil.which("abidiff") is None:
        print("SKIP: abidiff is not there (Debian: abigail-tools)")
        return SKIPPED
    kept_text = (HERE / "v0_1.h").read_text()
    today_text = subprocess.run([sys.executable, HERE / "keep.py", source, build, compiler],
                                check=True, capture_output=True, text=True).stdout
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        same, said = compatible(kept_text, today_text, folder, compiler)
        if not same:
            print("The API is no longer that of tests/abi/v0_1.h. Take the change back, or follow "
                  f"docs/api.md (a new soversion).\n{said}", file=sys.stderr)
            failed = True
        for what, pattern, replacement, expected in CHANGES:
            changed, count = re.subn(pattern, replacement, kept_text, count=1)
            assert count == 1, what
            result, said = compatible(kept_text, changed, folder, compiler)
            if result != expected:
                print(f"{what}: taken for {'' if result else 'in'}compatible: {said}",
                      file=sys.stderr)
                failed = True
    return 1 if failed else 0


sys.exit(main())
