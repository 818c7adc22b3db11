# SPDX-License-Identifier: MIT
"""Makes the manual pages of functions from handwritten prose and from the comments in the headers.

A source (man/NAME.3) lists its functions in NAME. This program adds SYNOPSIS, the first sentences of RETURN VALUE, and
ERRORS, from the comments of the functions. The comment of a function that returns a status has one clause such as

    Returns RVL_OK; RVL_ERR_BUSY (a move is prepared); RVL_ERR_FORKED; as rvl_free(); or the driver's error.

A reason in parentheses belongs to the status before it. A status without one has the reason in status.h. `as` adds
the errors of other functions. Any other form is refused. Each further function of a page gets a page that includes
the first.

A line `.\\" fields rvl_x_options` becomes the list of the fields of that struct, with their comments. RVL_X_* as the
comment of `flags` stands for the macros with that prefix, with their comments.

usage: pages.py OUTPUT_DIR HEADER... SOURCE...
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

DECLARATION = r"RVL_API ([^;]*?) ?\b(rvl_\w+)\(([^;]*)\);\n"
COMMENTED = re.compile(rf"/\*((?:(?!\*/).)*)\*/\n((?:{DECLARATION})+)", re.DOTALL)
REASON = r" \(((?:[^()]|\([^()]*\))+)\)"
ITEM = re.compile(rf"(RVL_\w+)(?:{REASON})?|as (rvl_\w+\(\)(?: and rvl_\w+\(\))*)|(the driver's error|what [\w, ]+)")
FIELD = re.compile(r"(?:/\*((?:(?!\*/).)*)\*/\s*)?[\w *]+?\b(\w+)(?:\[\w+\])?;(?: */\*((?:(?!\*/).)*)\*/)?", re.DOTALL)
MACRO = r"#define ({}\w+)(?:\s+(?:\\\n\s*)?\w+ +/\*((?:(?!\*/).)*)\*/)?"
SEPARATOR = re.compile(r"(?:[;,]? or|[;,]) ")
MANY = 3  # more functions than this are named collectively


class Function(NamedTuple):
    header: str
    result: str
    parameters: list
    items: list  # after "Returns": (status, reason, functions with the same errors, other errors)


class Headers(NamedTuple):
    text: str
    functions: dict
    reasons: dict  # {status: general reason}, in order
    common: list  # the headers that reveille.h includes


def flat(comment):
    return " ".join(re.sub(r"^ \*", "", comment, flags=re.MULTILINE).split())


def read_items(where, comment):
    items, begun = [], [each.end() for each in re.finditer(r"\bReturns (?=RVL_|as rvl_)", comment)]
    at = begun[0] if len(begun) == 1 else None
    while at is not None and (item := ITEM.match(comment, at)):
        items.append(item.groups(""))
        if re.match(r"\.( |$)", comment[item.end():]):
            return items
        separator = SEPARATOR.match(comment, item.end())
        at = separator.end() if separator else None
    raise SyntaxError(f'{where}: expected is once "Returns RVL_OK; RVL_ERR_X (reason); ...", and not: {comment}')


def read_functions(name, text):
    found = {}
    for comment, declarations, *_ in COMMENTED.findall(text):
        for result, function, parameters in re.findall(DECLARATION, declarations):
            items = read_items(f"{name}: {function}", flat(comment)) if result == "rvl_status" else []
            found[function] = Function(name, result, re.split(r", (?![^()]*\))", " ".join(parameters.split())), items)
    if len(found) != text.count("\nRVL_API "):
        raise SyntaxError(f"{name}: a function is not declared below a comment as `RVL_API type rvl_x(...);`")
    return found


def read_headers(texts):
    """Reads {name: text}. Everything that the headers refer to must exist."""
    before, _, after = texts["status.h"].partition("#define RVL_STATUS_MAP")
    general, functions = dict(re.findall(rf"(RVL_ERR_\w+){REASON}", flat(before))), {}
    reasons = {f"RVL_{each}": general.get(f"RVL_{each}") for each in re.findall(r"X\((ERR_\w+), -", after)}
    for name, text in texts.items():
        functions |= read_functions(name, text)
    items = [item for function in functions.values() for item in function.items]
    named = {each for status, _, others, _ in items for each in re.findall(r"\w+_\w+", f"{status} {others}")}
    missing = {*(each for each, reason in reasons.items() if not reason), *(named - {"RVL_OK", *functions, *reasons})}
    if missing:
        raise SyntaxError(f"not declared, or in status.h without a reason: {', '.join(sorted(missing))}")
    return Headers("".join(texts.values()), functions, reasons, re.findall(r'"reveille/(\w+\.h)"', texts["reveille.h"]))


def returned(headers, function):
    """The errors of a function as [(status, reason)]. Other errors have the status ""."""
    found = []
    for status, reason, others, other in headers.functions[function].items:
        for each in re.findall(r"\w+_\w+", others):
            found += [pair for pair in returned(headers, each) if pair[0] != "RVL_OK"]
        found += [] if others else [(status, reason or other or headers.reasons.get(status))]
    return dict.fromkeys(found)


def by_reason(headers, functions, status):
    """{reason: functions that return the status for it}"""
    found = {}
    for function in functions:
        for _, reason in (pair for pair in returned(headers, function) if pair[0] == status and pair[1]):
            found.setdefault(reason, []).append(function)
    return found


def marked(text):
    """Puts text in backquotes and names with a _ in bold, and each sentence on its own line."""
    return re.sub(r"`([^`]+)`|\b(\w*_\w+)\b", r"\\fB\1\2\\fP", re.sub(r"\. (?=[A-Z`])", ".\n", text)) + "."


def sentence(text):
    return marked(text if re.match(r"`|\w*_|\w+\(", text) else text[0].upper() + text[1:])


def listed(functions):
    return " and ".join(", ".join(f"\\fB{each}\\fP()" for each in functions).rsplit(", ", 1))


def subject(functions):
    return f"{listed(functions)} {'return' if len(functions) > 1 else 'returns'}"


def synopsis(headers, functions):
    included = [headers.functions[each].header for each in functions]
    lines = dict.fromkeys(f".In reveille/{'reveille.h' if each in headers.common else each}" for each in included)
    lines = [".Sh SYNOPSIS", *lines]
    for function in functions:
        _, result, parameters, _ = headers.functions[function]
        lines += [f".Ft {result}", f".Fo {function}", *(f'.Fa "{each}"' for each in parameters), ".Fc"]
    return lines


def return_value(headers, functions):
    able = [each for each in functions if headers.functions[each].items]
    others = [each for each in functions if each not in able]
    who = subject(able)
    if len(able) > MANY:
        who = f"All{' but ' if others else ''}{listed(others)} return"
        who = who if len(others) <= MANY else "Functions of type \\fBrvl_status\\fP return"
    lines = [f"{who} \\fBRVL_OK\\fP or a negative status."] if able else []
    lines += [f"{subject(of)} \\fBRVL_OK\\fP {marked(reason)}"
              for reason, of in by_reason(headers, able, "RVL_OK").items()]
    return [".Sh RETURN VALUE", *lines]


def errors(headers, functions):
    lines = []
    for status, general in headers.reasons.items():
        found = by_reason(headers, functions, status)
        able = {each for of in found.values() for each in of}
        lines += [f".It Dv {status}"] if found else []
        for reason in sorted(found, key=lambda each: each != general):
            if reason == general or {*found[reason]} == able:
                lines.append(sentence(reason))
            else:
                lines.append(f"{listed(found[reason])}: {marked(reason)}")
    lines = [".Bl -tag -width Ds", *lines, ".El"] if lines else ["There are none."]
    for other, of in by_reason(headers, functions, "").items():
        lines += [".Pp", f"{listed(of)} also {subject(of).split()[-1]} {marked(other)}"]
    return [".Sh ERRORS", *lines]


def macros(text, prefix):
    """[(name, comment)]"""
    found = re.findall(MACRO.format(prefix), text, re.DOTALL)
    if not found or not all(comment for _, comment in found):
        raise SyntaxError(f"{prefix}*: above the struct must be macros, and on their lines comments")
    return [(name, flat(comment.replace("\\", ""))) for name, comment in found]


def fields(text, struct):
    """The fields of a struct, with their comments. A field without one is listed with the field before it."""
    found = re.search(rf"typedef struct {struct} \{{\n(.*?)\}} {struct};", text, re.DOTALL)
    if not found:
        raise SyntaxError(f"no struct {struct}")
    items = []
    for before, name, after in FIELD.findall(found[1]):
        comment = flat(before or after)
        if name in ("struct_size", "reserved"):
            continue
        if flags := re.fullmatch(r"(RVL_\w+_)\*", comment):
            items += [(f"{name}, {macro}", said) for macro, said in macros(text[:found.start()], flags[1])]
        elif comment:
            items.append((name, comment))
        elif items and re.search(r"_(count|size|user)$", name):
            items[-1] = f"{items[-1][0]}, {name}", items[-1][1]
        else:
            raise SyntaxError(f"{struct}: {name} has no comment")
    lines = [f"Set \\fBstruct_size\\fP of \\fB{struct}\\fP to its size.", "Its other fields:", ".Bl -tag -width Ds"]
    for name, comment in items:
        lines += [f".It \\fB{name}\\fP", *(sentence(each) for each in comment.rstrip(".").split("; "))]
    return "\n".join([*lines, ".El"])


def page(source, headers):
    """The functions of a source, and its page."""
    sections = r"(.*?)(\.Sh DESCRIPTION\n.*?)(?:\.Sh RETURN VALUE\n(.*?))?(\.Sh NOTES\n.*)"
    parts = re.fullmatch(sections, source, re.DOTALL)
    if not parts or re.search(r"^\.Sh (SYNOPSIS|ERRORS)$", source, re.MULTILINE):
        raise SyntaxError("expected are NAME, DESCRIPTION, perhaps RETURN VALUE, and NOTES, with no SYNOPSIS or ERRORS")
    head, description, said, rest = parts.groups("")
    description = re.sub(r'\.\\" fields (\w+)', lambda struct: fields(headers.text, struct[1]), description)
    functions = re.findall(r"^\.Nm (rvl_\w+)", head, re.MULTILINE)
    if unknown := [each for each in functions if each not in headers.functions]:
        raise SyntaxError(f"in no header: {', '.join(unknown)}")
    made = [synopsis(headers, functions), return_value(headers, functions), errors(headers, functions)]
    before, returns, after = ["\n".join(lines) + "\n" for lines in made]
    return functions, head + before + description + returns + said + after + rest


def main(output, *paths):
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.3"):
        old.unlink()
    where = "headers"
    try:
        headers = read_headers({Path(each).name: Path(each).read_text() for each in paths if each.endswith(".h")})
        for where in (each for each in paths if each.endswith(".3")):
            (_, *others), text = page(Path(where).read_text(), headers)
            (folder / Path(where).name).write_text(text)
            for each in others:
                (folder / f"{each}.3").write_text(f".so man3/{Path(where).name}\n")
    except SyntaxError as error:
        sys.exit(f"{where}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
