# SPDX-License-Identifier: MIT
"""What is made of the headers for ctypes, against what the C compiler says."""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess

import pytest
from conftest import SOURCE
from reveille import _headers, errors


def structs():
    """Every struct of the headers."""
    found = [each for each in vars(_headers).values() if isinstance(each, type)]
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
    (folder / "reveille").mkdir()
    version = (include / "reveille/version.h.in").read_text()
    (folder / "reveille/version.h").write_text(re.sub(r"@\w+@", "0", version))

    def values(expressions):
        lines = [f"#include <reveille/{path.name}>" for path in include.glob("reveille/*.h")]
        lines += ["#include <stddef.h>", "#include <stdio.h>", "int main(void)", "{"]
        lines += [f'    printf("%lld\\n", (long long)({each}));' for each in expressions]
        program = folder / "layout.c"
        program.write_text("\n".join([*lines, "    return 0;", "}", ""]))
        command = [compiler, "-std=c11", f"-I{include}", f"-I{folder}", "-o", folder / "layout", program]
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
    assert {_headers.Error, _headers.PlanResult, _headers.Cost} < set(structs())
    assert dict(zip(expressions, compiled(expressions))) == expected


def test_constants_are_those_of_c(compiled):
    expected = {
        f"RVL_{name}": value
        for name, value in vars(_headers).items()
        if isinstance(value, int) and not name.startswith(("_", "VERSION_"))
    }
    assert {"RVL_OK", "RVL_NO_DEVICE", "RVL_CONTROL_WAKE_UP", "RVL_MODEL_UPDATE_WHOLE"} < set(expected)
    signed = [f"({name})" for name in expected]  # UINT64_MAX is printed as -1
    found = dict(zip(expected, compiled(signed)))
    assert found == {name: ctypes.c_int64(value).value for name, value in expected.items()}


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


@pytest.fixture
def headers():
    """python/headers.py, as new: it keeps the types that it has read."""
    spec = importlib.util.spec_from_file_location("headers", SOURCE / "python/headers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_made_of_a_header(headers):
    text = """
    typedef unsigned int uint32_t;
    typedef enum rvl_colour { RVL_COLOUR_RED = 0, RVL_COLOUR_DARK_RED, RVL_COLOUR_COUNT } rvl_colour;
    typedef enum rvl_gap { RVL_GAP_ONE = (1), RVL_GAP_TWO } rvl_gap;
    typedef uint32_t rvl_number;
    typedef struct rvl_hidden rvl_hidden;
    typedef _Bool (*rvl_asked_fn)(void *user, const char *text, char *answer_out);
    typedef struct rvl_point { size_t struct_size; char name[2 * 8u]; const rvl_number *numbers;
                               void (*done)(rvl_colour colour); } rvl_point;
    rvl_gap rvl_open(const char *const *paths, const rvl_point *point, rvl_hidden **out);
    char *rvl_text(void);
    """
    made = {}
    exec(headers.module(text, 'M_RVL_WIDE = (1UL << 40),\nM_RVL_WORD = "nccl"'), made)
    assert made["COLOUR_NAMES"] == ("red", "dark_red") and "GAP_NAMES" not in made
    assert (made["COLOUR_DARK_RED"], made["GAP_TWO"], made["WIDE"], made["WORD"]) == (1, 2, 1 << 40, "nccl")
    assert made["AskedFunction"]._argtypes_ == (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    point = made["Point"]
    assert [name for name, _type in point._fields_] == ["struct_size", "name", "numbers", "done"]
    assert (point.name.size, point().struct_size) == (16, ctypes.sizeof(point))
    assert made["PROTOTYPES"] == {
        "rvl_open": (
            ctypes.c_int,
            [ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(point), ctypes.POINTER(ctypes.c_void_p)],
        ),
        "rvl_text": (ctypes.c_void_p, []),
    }


@pytest.mark.parametrize(
    "text",
    [
        "typedef struct rvl_x { int a, b; } rvl_x;",
        "typedef struct rvl_x { unsigned a : 3; } rvl_x;",
        "typedef struct rvl_x { unsigned int a; } rvl_x;",
        "typedef struct rvl_x { int a[2][2]; } rvl_x;",
        "typedef struct rvl_x { struct { int a; } b; } rvl_x;",
        "typedef struct rvl_x { float a; } rvl_x;",
        "typedef union rvl_x { int a; } rvl_x;",
        "typedef enum { RVL_A } rvl_x;",
        "struct rvl_x { int a; };",
        "int rvl_f(int);",
        "int rvl_f(int a, ...);",
        "int rvl_f(struct rvl_x *x);",
        "int rvl_f(int (*g)(int a, int b));",
        "int rvl_variable;",
        "int rvl_f(void)",
    ],
)
def test_what_our_headers_do_not_have_is_refused(headers, text):
    with pytest.raises((SyntaxError, KeyError, NameError)):
        headers.module(text, "")
