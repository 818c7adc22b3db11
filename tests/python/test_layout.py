# SPDX-License-Identifier: MIT
"""ctypes declarations against what the C compiler and the headers say."""

import ctypes
import os
import re
import shutil
import subprocess

import pytest
from conftest import SOURCE
from reveille import _c, errors

HEADERS = ("communicator", "context", "control", "cuda", "memory", "model", "parts", "plan", "record", "replay", "sim", "sleep", "stats", "status", "trace",
           "store", "transition", "verdict", "wake")  # fmt: skip
POINTER_TYPE = type(ctypes.POINTER(ctypes.c_int))


def structs():
    """Every struct that _c declares."""
    found = [each for each in vars(_c).values() if isinstance(each, type)]
    return [s for s in found if issubclass(s, ctypes.Structure) and hasattr(s, "_fields_")]


def c_name(struct):
    """ContextOptions: rvl_context_options."""
    return "rvl" + re.sub(r"([A-Z])", r"_\1", struct.__name__).lower()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Runs a C program that prints expressions, and answers their values."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler: set CC")
    folder = tmp_path_factory.mktemp("layout")
    include = SOURCE / "include"

    def values(expressions):
        lines = [f"#include <reveille/{name}.h>" for name in HEADERS]
        lines += ["#include <stddef.h>", "#include <stdio.h>", "int main(void)", "{"]
        lines += [f'    printf("%lld\\n", (long long)({each}));' for each in expressions]
        program = folder / "layout.c"
        program.write_text("\n".join([*lines, "    return 0;", "}", ""]))
        command = [compiler, "-std=c11", f"-I{include}", "-o", folder / "layout", program]
        subprocess.run(command, check=True)
        output = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True)
        return [int(line) for line in output.stdout.split()]

    return values


def test_structs_lie_as_in_c(compiled):
    expected, expressions = {}, []
    for struct in structs():
        expressions.append(f"sizeof({c_name(struct)})")
        expected[expressions[-1]] = ctypes.sizeof(struct)
        for field, *_rest in struct._fields_:
            place = f"{c_name(struct)}, {field}"
            expressions.append(f"offsetof({place})")
            expected[expressions[-1]] = getattr(struct, field).offset
            expressions.append(f"sizeof((({c_name(struct)} *)0)->{field})")
            expected[expressions[-1]] = getattr(struct, field).size
    assert len(structs()) == 38
    assert dict(zip(expressions, compiled(expressions))) == expected


def test_fields_are_all_there(source):
    """Sizes alone would not tell a field that fills padding."""
    text = "".join((source / f"include/reveille/{name}.h").read_text() for name in HEADERS)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for struct in structs():
        name = c_name(struct)
        body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", text, re.DOTALL).group(1)
        body = re.sub(r"#.*", "", body)
        if struct in (_c.CostModel, _c.CostWaits, _c.DeviceStats, _c.DriverUse):  # by an X-macro
            continue
        fields = re.findall(r"(\w+)(?:\[\w+\])?;", body)
        assert [field for field, *_rest in struct._fields_] == fields, name


def test_enums_and_constants_are_those_of_c(compiled):
    prefixes = {
        "RVL_BACKUP_": _c.BACKUPS,
        "RVL_STATE_": _c.STATES,
        "RVL_SIM_": _c.SIM_MEMORIES,
        "RVL_HOST_KEEP_": _c.HOST_KEEPS,
        "RVL_WAKE_": _c.WAKES,
        "RVL_LOG_": _c.LOG_LEVELS,
        "RVL_PIECE_": _c.PIECE_STATES,
        "RVL_MODEL_": _c.MODEL_TERMS,
        "RVL_MODEL_DOUBT_": _c.MODEL_DOUBTS,
        "RVL_PLAN_": _c.PLAN_STATES,
    }
    expected = {
        prefix + name.upper().replace(" ", "_"): value
        for prefix, names in prefixes.items()
        for value, name in enumerate(names)
    }
    for name in ("OK", "ERR_INVALID", "ERR_NOT_SUPPORTED", "ERR_NO_BACKEND", "ERR_NOT_FOUND",
                 "ERR_VETOED", "ERR_FORKED", "NO_DEVICE", "ALLOC_EXPORTABLE", "ALLOC_RDMA",
                 "ALLOC_PAUSED", "CONTEXT_LOG_OPS", "CONTEXT_NO_VERIFY", "CONTEXT_DISK_TMPFS",
                 "TAG_RETAIN_BACKUPS", "TAG_POISON", "PAUSE_DISCARD", "RESUME_NO_RESTORE", "SIM_OVERCOMMIT",
                 "SIM_HOST_AHEAD", "CUDA_HOST_AHEAD", "CUDA_HOST_PAGEABLE",
                 "REPLAY_PARTIAL", "SUMMARY_BYTES", "MODEL_SEGMENTS", "PLAN_REFUSED"):  # fmt: skip
        expected["RVL_" + name] = getattr(_c, name)
    assert dict(zip(expected, compiled(expected))) == expected


def test_every_status_has_its_exception(source):
    text = (source / "include/reveille/status.h").read_text()
    statuses = dict(re.findall(r"X\((\w+), (-?\d+), ", text))
    del statuses["OK"]
    by_status = {status: cls for status, cls in errors.BY_STATUS.items() if status != 0}
    assert {int(value) for value in statuses.values()} == set(by_status)
    for name, value in statuses.items():
        error = errors.error_of(int(value), "a message")
        assert type(error) is by_status[int(value)]
        assert error.status_name == f"RVL_{name}"
        assert (str(error), error.status) == ("a message", int(value))


def expected_type(c_type):
    """What ctypes type a C type is declared as; None for any pointer to what _c does not know."""
    c_type = re.sub(r"\bconst\b", "", c_type).strip()
    stars, base = c_type.count("*"), c_type.replace("*", "").split()
    base = base[0] if base else ""
    known = {c_name(struct): struct for struct in structs()}
    if stars == 0:
        plain = {"uint64_t": ctypes.c_uint64, "rvl_addr": ctypes.c_uint64, "bool": ctypes.c_bool,
                 "uint32_t": ctypes.c_uint32, "rvl_tag": ctypes.c_uint32, "void": None,
                 "rvl_process": ctypes.c_uint32, "size_t": ctypes.c_size_t}  # fmt: skip
        return plain.get(base, ctypes.c_int)
    if base in known:
        return (
            ctypes.POINTER(known[base])
            if stars == 1
            else ctypes.POINTER(ctypes.POINTER(known[base]))
        )
    return "pointer"


def assert_declared(name, declared, c_type):
    expected = expected_type(c_type)
    if expected == "pointer":
        kinds = (ctypes.c_void_p, ctypes.c_char_p)
        assert declared in kinds or isinstance(declared, POINTER_TYPE), (name, c_type)
    else:
        assert declared is expected, (name, c_type, declared)


def test_prototypes_are_those_of_the_headers(source):
    paths = [f"include/reveille/{name}.h" for name in (*HEADERS, "hooks")]
    text = "".join((source / path).read_text() for path in (*paths, "hooks/shim/abi.h"))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = {
        name: (result, arguments)
        for result, name, arguments in re.findall(
            r"RVL_API\s+([\w\s]+?[\s*]+)((?:rvl|tms|set)_\w+)\(([^;]*)\);", text
        )
    }
    hooks = {**_c.HOOK_PROTOTYPES, **_c.SAVER_PROTOTYPES}
    prototypes = {**_c.CORE_PROTOTYPES, **_c.REPLAY_PROTOTYPES, **_c.CUDA_PROTOTYPES, **hooks}
    cuda = (source / "include/reveille/communicator.h").read_text()
    lacking = set(re.findall(r"RVL_API [\w ]*?\b(rvl_\w+)\(", cuda))
    assert "rvl_communicator_add" in lacking
    assert not lacking & set(_c.CORE_PROTOTYPES), "a build without CUDA lacks these"
    del prototypes["rvl_version"]  # its header is generated
    for name, (result, arguments) in prototypes.items():
        c_result, c_arguments = found[name]
        parts = [] if c_arguments.strip() == "void" else c_arguments.split(",")
        assert len(arguments) == len(parts), name
        assert_declared(name, result, c_result)
        for declared, part in zip(arguments, parts):
            assert_declared(name, declared, re.sub(r"\w+$", "", part.strip()))
