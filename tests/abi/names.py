#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The names in the public headers follow the rule of docs/api.md, and comments name what exists.

usage: names.py SOURCE
"""

import re
import sys
from pathlib import Path

# Acts on the whole library or on memory: the noun is understood.
PLAIN = {"alloc", "free", "pause", "resume", "sleep", "stage", "step", "last_error", "version",
         "wake_up"}
NOUNS = """address allocation backup clock communicator context control cuda device external hooks host import listener model
model_options model_setting model_step pause plan plan_result process profile record replay resume size sleep snapshot stage state status store string tag
verdict timeline trace trace_reader trace_writer transition wake_up""".split()
# What a call does, as the word behind its noun.
VERBS = """abort add allow ask begin cancel check close commit copy define discard export fill find finish fit flush forbid forecast
end free get load make mark next open parse pause prepare refuse release remove replay resume run serve set stage start step stop
sweep synchronize to trim visit wait write""".split()
# Units at the end of names, and words for what would be one without its unit.
UNITS = {"size": "bytes", "length": "bytes", "capacity": "bytes", "time": "ns", "timeout": "ns",
         "duration": "ns"}  # fmt: skip
# Read from the environment, not declared.
ENVIRONMENT = {"RVL_CUDA_LIBRARY", "RVL_IPC_TIMEOUT_MS", "RVL_NVML_LIBRARY"}
# Words of others, and of traces, that look like names of ours.
FOREIGN = {"device_traces", "empty_cache", "model_type", "no_restore", "quantization_config",
           "torch_memory_saver"}  # fmt: skip
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FUNCTION = re.compile(r"RVL_API\s+([\w\s]+?\**)\s*\b(rvl_\w+)\((.*?)\);", re.DOTALL)
STRUCT = re.compile(r"typedef struct (rvl_\w+) \{(.*?)\} \1;", re.DOTALL)
FIELD = re.compile(r"(?:\(\*(\w+)\)\(|(\w+)(?:\[\w+\])?;)")


def noun_of(name):
    """The longest noun that the name begins with."""
    words = name.split("_")
    for count in range(len(words), 0, -1):
        if "_".join(words[:count]) in NOUNS:
            return "_".join(words[:count])
    return None


def problems_of_functions(text):
    for result, name, parameters in FUNCTION.findall(text):
        rest = name.removeprefix("rvl_")
        if rest in PLAIN:
            continue
        noun = noun_of(rest)
        if noun is None:
            yield f"{name}: begins with none of the nouns"
            continue
        verb = rest[len(noun) + 1:].split("_")[0]
        if result.strip() in ("rvl_status", "void") and verb not in VERBS:
            yield f"{name}: {verb!r} is none of the verbs"
        outputs = [part.split()[-1].lstrip("*") for part in parameters.split(",")
                   if re.search(r"\*\w+$", part.strip()) and "const" not in part.split("*")[0]]
        for output in outputs:
            struct = re.search(rf"(rvl_\w+) \*{output}\b", parameters)
            is_handle = struct and f"typedef struct {struct[1]} {{" not in text
            if struct and not is_handle and not output.endswith("_out") and verb == "get":
                yield f"{name}: what it fills in is called {output}_out"


def problems_of_fields(text):
    # What elements of an array are as large as: holder_size is that of a rvl_holder.
    sizes_of_structs = {struct.split("_")[-1] + "_size" for struct, _ in STRUCT.findall(text)}
    for struct, body in STRUCT.findall(text):
        for names in FIELD.findall(body):
            field = names[0] or names[1]
            last = field.split("_")[-1]
            if last in UNITS and field != "struct_size" and field not in sizes_of_structs:
                yield f"{struct}.{field}: has no unit: {field}_{UNITS[last]}"


def problems_of_comments(text, plain):
    """`rvl_struct.field`, RVL_NAME and rvl_function() in comments are there."""
    fields = {struct: set(a or b for a, b in FIELD.findall(body))
              for struct, body in STRUCT.findall(plain)}
    words = set(re.findall(r"\w+", plain)) | FOREIGN
    for comment in COMMENT.findall(text):
        for name in re.findall(r"(?<![\w./-])[a-z]+(?:_[a-z0-9]+)+\b(?!\.\w|[/(*])", comment):
            if name not in words:
                yield f"comment: {name} is not there"
        for struct, field in re.findall(r"\b(rvl_\w+)\.([a-z]\w*)", comment):
            if struct in fields and field not in fields[struct] and f"X({field})" not in plain:
                yield f"comment: {struct}.{field} is not there"
        for function in re.findall(r"\b(rvl_\w+)\(\)", comment):
            if not re.search(rf"\b{function}\(", plain):
                yield f"comment: {function}() is not there"
        for name in re.findall(r"\b(RVL_[A-Z0-9_]+[A-Z0-9])\b(?!_)", comment):
            tail = name.removeprefix("RVL_")
            known = name in plain or any(
                re.search(rf"X\({tail[cut:]}\b", plain) for cut in range(len(tail))
                if cut == 0 or tail[cut - 1] == "_")
            if not known and not name.endswith("_MAP") and name not in ENVIRONMENT:
                yield f"comment: {name} is not there"


def problems(text):
    plain = COMMENT.sub("", text)
    yield from problems_of_functions(plain)
    yield from problems_of_fields(plain)
    yield from problems_of_comments(text, plain)


# Each breaks the rule in one way.
BAD = (
    "RVL_API rvl_status rvl_get_thing(int a);",
    "RVL_API rvl_status rvl_device_memory(int a);",
    "typedef struct rvl_a { int b; } rvl_a; RVL_API rvl_status rvl_tag_get_stats(rvl_a *filled);",
    "typedef struct rvl_a { uint64_t timeout; } rvl_a;",
    "typedef struct rvl_a { size_t b_size; } rvl_a;",
    "/* As rvl_a.gone says. */ typedef struct rvl_a { int b; } rvl_a;",
    "/* See rvl_tag_gone(). */",
    "/* At most gone_bytes. */",
    "/* Answers RVL_ERR_GONE. */",
)


def main():
    headers = sorted((Path(sys.argv[1]) / "include/reveille").glob("*.h"))
    text = "\n".join(path.read_text() for path in headers)
    found = list(problems(text))
    found += [f"the rule does not see what is wrong with: {bad}" for bad in BAD
              if not list(problems(bad))]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found or len(headers) < 10 else 0


sys.exit(main())
