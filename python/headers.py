# SPDX-License-Identifier: MIT
"""Makes reveille/_headers.py: the C headers for ctypes.

The compiler's preprocessor expands the headers. The parser accepts only the C that our headers use, and anything else
is an error. Names get Python's spelling: rvl_tag_options becomes TagOptions, rvl_arrived_fn ArrivedFunction, and
RVL_TAG_POISON TAG_POISON. The values of an enum become constants. BACKUP_NAMES lists those of rvl_backup: ("none",
"host", "disk").

usage: headers.py COMPILER OUTPUT INCLUDE_DIR... HEADER...    (headers as #include names them)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HEAD = '''"""Made from the C headers by python/headers.py."""

from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_int, c_int64, c_size_t,
                    c_uint, c_uint8, c_uint32, c_uint64, c_void_p, sizeof)


class Sized(Structure):
    """A struct of the C API that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.struct_size = sizeof(self)

'''
# C types, and their names in ctypes. None: void, and structs that are only declared.
TYPES: dict[str, str | None] = {"void": None, "_Bool": "c_bool", "unsigned": "c_uint"}
TYPES |= {each: f"c_{each}" for each in ("char", "double", "int", "size_t")}
TYPES |= {f"{each}_t": f"c_{each}" for each in ("int64", "uint8", "uint32", "uint64")}
STATEMENT = re.compile(r"((?:[^;{}]|\{[^{}]*\})+);")
TYPEDEF = re.compile(r"typedef (struct|enum) (rvl_\w+) \{(.*)\} \2|typedef (.+)")
FUNCTION = re.compile(r"(.+?)\b(\w+) ?\((.*)\)")
FUNCTION_POINTER = re.compile(r"(.+)\( ?\* ?(\w+) ?\) ?\((.*)\)")
VARIABLE = re.compile(r"(.+?)\b(\w+) ?(?:\[(.+)\])?")
TYPE = re.compile(r"(\w+)(\**)")


def preprocess(compiler: str, folders: list[str], headers: list[str]) -> tuple[str, str]:
    """The headers without directives, and macros with a value, such as "M_RVL_TAG_POISON = 2u,"."""
    command = [compiler, "-E", "-P", "-std=c11", "-D__attribute__(x)=", *(f"-I{each}" for each in folders), "-xc", "-"]

    def run(text: str, *options: str) -> str:
        return subprocess.run([*command, *options], input=text, check=True, stdout=subprocess.PIPE, text=True).stdout

    text = "".join(f'#include "{each}"\n' for each in headers)
    macros = re.findall(r"^#define (RVL_(?!API)\w+) \S", run(text, "-dM"), re.MULTILINE)
    before, _, values = run(text + "MACROS\n" + ",\n".join(f"M_{each} = {each}" for each in macros)).partition("MACROS\n")
    return before, values


def parse(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    if not (match := pattern.fullmatch(text.strip())):
        raise SyntaxError(f"this is not written as our headers are: {text}")
    return match.groups()


def value(text: str) -> Any:
    """Evaluates a C constant as Python, after removing integer suffixes."""
    return eval(re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text))


def kind(text: str) -> str | None:
    """The ctypes type of a C type. A char pointer without `const` is c_void_p, not a Python string."""
    base, pointers = parse(TYPE, re.sub(r"\bconst\b| ", "", text))
    of = TYPES[base]
    for _ in pointers:
        if of == "c_char" and text.startswith("const "):
            of = "c_char_p"
        else:
            of = "c_void_p" if of in (None, "c_char", "c_uint8") else f"POINTER({of})"
    return of


def declared(text: str) -> tuple[str, str | None]:
    """Name and type of a field or a parameter."""
    if "(" in text:
        result, name, parameters = parse(FUNCTION_POINTER, text)
        return name, f"CFUNCTYPE({', '.join([str(kind(result)), *arguments(parameters)])})"
    of, name, count = parse(VARIABLE, text)
    return name, f"{kind(of)} * {value(count)}" if count else kind(of)


def arguments(text: str) -> list[str]:
    return [] if text.strip() == "void" else [str(declared(each)[1]) for each in text.split(",")]


def camel(name: str) -> str:
    name = re.sub(r"_fn$", "_function", name.removeprefix("rvl_"))
    return "".join(part.capitalize() for part in name.split("_"))


def struct(name: str, body: str) -> str:
    TYPES[name] = camel(name)
    fields = [declared(each) for each in body.split(";")[:-1]]
    base = "Sized" if fields[0][0] == "struct_size" else "Structure"
    lines = "".join(f'        ("{field}", {of}),\n' for field, of in fields)
    return f"\n\nclass {camel(name)}({base}):\n    _fields_ = [\n{lines}    ]\n\n"


def enum(name: str, body: str) -> str:
    """The constants of an enum. If it counts from 0, also a list of its names, without their prefix and the count."""
    TYPES[name], numbers, last = "c_int", {}, -1
    for each in filter(None, re.split(r"\s*,\s*", body)):
        constant, _, given = each.partition("=")
        last = value(given) if given else last + 1
        numbers[constant.strip()] = last
    text = "".join(f"{re.sub('^(M_)?RVL_', '', each)} = {number!r}\n" for each, number in numbers.items())
    names = [each for each in numbers if not each.endswith("_COUNT")]
    if [*numbers.values()] == [*range(len(numbers))]:
        common = os.path.commonprefix(names).rpartition("_")[0] + "_"
        text += f"{name[4:].upper()}_NAMES = {tuple(each.removeprefix(common).lower() for each in names)!r}\n"
    return text


def typedef(text: str) -> str:
    """Registers a type. Returns its Python declaration, or "" if it needs none."""
    what, name, body, other = parse(TYPEDEF, text)
    if what:
        return struct(name, body) if what == "struct" else enum(name, body)
    if other.startswith("struct "):
        TYPES.setdefault(other.split()[-1], None)
        return ""
    name, of = declared(other)
    TYPES[name] = of if "(" not in other else camel(name)
    return f"{camel(name)} = {of}\n" if "(" in other else ""


def module(text: str, values: str) -> str:
    """Makes the text of the module from the results of preprocess()."""
    text = re.sub(r"\s+", " ", text)
    parse(re.compile(f"(?:{STATEMENT.pattern})*"), text)
    types, prototypes = "", ""
    for each in STATEMENT.findall(text):
        if re.match(r" ?typedef .*\brvl_\w+( ?\)|$)", each):
            types += typedef(each)
        elif not re.match(r" ?typedef ", each):
            result, name, parameters = parse(FUNCTION, each)
            prototypes += f'    "{name}": ({kind(result)}, [{", ".join(arguments(parameters))}]),\n'
    return f"{HEAD}{types}{enum('', values)}\n# name: (result, arguments)\nPROTOTYPES = {{\n{prototypes}}}\n"


def main(compiler: str, output: str, *rest: str) -> None:
    headers = [each for each in rest if each.endswith(".h")]
    folders = [each for each in rest if not each.endswith(".h")]
    Path(output).write_text(module(*preprocess(compiler, folders, headers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
