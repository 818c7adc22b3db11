#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Has man/pages.py make a page from small headers, and refuse what it cannot read.

    test_pages.py SOURCE_DIR
"""
import pathlib
import subprocess
import sys
import tempfile

REVEILLE = '#include "reveille/small.h"\n#include "reveille/status.h"\n'
STATUS = """
/* The list. RVL_ERR_INVALID (an argument is wrong)
 * RVL_ERR_IO (a file cannot
 * be read) */
#define RVL_STATUS_MAP(X) \\
    X(OK, 0, "success") \\
    X(ERR_INVALID, -1, "invalid") \\
    X(ERR_IO, -9, "input/output")
"""
OPEN = """
/*
 * Opens one. Returns RVL_OK (also for
 * NULL); RVL_ERR_IO (`path` is no file. Make it); RVL_ERR_INVALID; or the driver's error.
 */
RVL_API rvl_status rvl_open(const char *path, bool (*write)(void *user,
                                                            int fd));
"""
SHUT = """
/* Shuts one. Returns as rvl_open(), or RVL_ERR_INVALID (rvl_open() has not
 * made it). */
RVL_API rvl_status rvl_shut(int fd);
"""
NAME = """
/* Its name. */
RVL_API const char *rvl_name(void);
"""
OPTIONS = """
#define RVL_OPEN_NEW                                                           \\
    1u /* make it,                                                             \\
          if needed */
#define RVL_OPEN_OLD 2u /* leave it */

typedef struct rvl_open_options {
    size_t struct_size;
    uint64_t flags;    /* RVL_OPEN_* */
    const char **names; /* other names,
                           each of 1 byte; NULL: none */
    size_t name_count;
    /* of rvl_open() */
    char place[8];
    uint32_t reserved; /* 0 */
} rvl_open_options;
#define RVL_OPEN_LATE 4u /* of something else */
"""
SOURCE = """.Sh NAME
.Nm rvl_open ,
.Nm rvl_shut ,
.Nm rvl_name
.Nd files
.Sh DESCRIPTION
Prose.
.\\" fields rvl_open_options
.Sh RETURN VALUE
\\fBrvl_name\\fP() returns a string.
.Sh NOTES
None.
"""
MADE = """.Sh NAME
.Nm rvl_open ,
.Nm rvl_shut ,
.Nm rvl_name
.Nd files
.Sh SYNOPSIS
.In reveille/reveille.h
.Ft rvl_status
.Fo rvl_open
.Fa "const char *path"
.Fa "bool (*write)(void *user, int fd)"
.Fc
.Ft rvl_status
.Fo rvl_shut
.Fa "int fd"
.Fc
.Ft const char *
.Fo rvl_name
.Fa "void"
.Fc
.Sh DESCRIPTION
Prose.
Set \\fBstruct_size\\fP of \\fBrvl_open_options\\fP to its size.
Its other fields:
.Bl -tag -width Ds
.It \\fBflags, RVL_OPEN_NEW\\fP
Make it, if needed.
.It \\fBflags, RVL_OPEN_OLD\\fP
Leave it.
.It \\fBnames, name_count\\fP
Other names, each of 1 byte.
NULL: none.
.It \\fBplace\\fP
Of \\fBrvl_open\\fP().
.El
.Sh RETURN VALUE
\\fBrvl_open\\fP() and \\fBrvl_shut\\fP() return \\fBRVL_OK\\fP or a negative status.
\\fBrvl_open\\fP() returns \\fBRVL_OK\\fP also for NULL.
\\fBrvl_name\\fP() returns a string.
.Sh ERRORS
.Bl -tag -width Ds
.It Dv RVL_ERR_INVALID
An argument is wrong.
\\fBrvl_shut\\fP(): \\fBrvl_open\\fP() has not made it.
.It Dv RVL_ERR_IO
\\fBpath\\fP is no file.
Make it.
.El
.Pp
\\fBrvl_open\\fP() and \\fBrvl_shut\\fP() also return the driver's error.
.Sh NOTES
None.
"""
# What is wrong, what is put in the place of what, and what the script says.
WRONG = [
    ("a reason without parentheses", "RVL_ERR_INVALID; or", "RVL_ERR_INVALID if it is; or", "small.h: rvl_open"),
    ("a reason without an end", "Make it)", "Make it", "small.h: rvl_open"),
    ("no clause", "Returns RVL_OK (also", "Gives RVL_OK (also", "small.h: rvl_open"),
    ("two clauses", "Opens one.", "Returns RVL_OK.", "small.h: rvl_open"),
    ("a status that is not in the map", "RVL_ERR_INVALID; or", "RVL_ERR_SPILT; or", "RVL_ERR_SPILT"),
    ("a function to go by that is not there", "as rvl_open()", "as rvl_close()", "rvl_close"),
    ("a function without a comment", "/* Its name. */", "", "small.h"),
    ("a page of a function that is not there", ".Nm rvl_name", ".Nm rvl_names", "rvl_names"),
    ("errors by hand", ".Sh NOTES", ".Sh ERRORS\n.Sh NOTES", "rvl_open.3"),
    ("a page without notes", ".Sh NOTES", ".Sh NOTE", "rvl_open.3"),
    ("fields of a struct that is not there", "fields rvl_open", "fields rvl_shut", "rvl_shut_options"),
    ("a field without a comment", "/* of rvl_open() */", "", "rvl_open_options: place"),
    ("a flag without a comment", "2u /* leave it */", "2u", "RVL_OPEN_*"),
    ("flags of another name", "/* RVL_OPEN_* */", "/* RVL_OPENED_* */", "RVL_OPENED_*"),
    ("a general reason that is missing", "RVL_ERR_IO (a file", "RVL_ERR_IO a (file", "RVL_ERR_IO"),
]


def run(script, old="", new=""):
    """What the script says, and {page: text} that it has made."""
    texts = {"reveille.h": REVEILLE, "status.h": STATUS, "small.h": OPTIONS + OPEN + SHUT + NAME, "rvl_open.3": SOURCE}
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, name) for name in texts]
        for path in paths:
            path.write_text(texts[path.name].replace(old, new) if old else texts[path.name])
        made = pathlib.Path(folder, "made")
        done = subprocess.run([sys.executable, script, made, *paths], capture_output=True, text=True, check=False)
        pages = {path.name: path.read_text() for path in made.glob("*")}
    return done.returncode, done.stderr, pages


def main():
    script, faults = pathlib.Path(sys.argv[1], "man", "pages.py"), []
    wanted = {"rvl_open.3": MADE, "rvl_shut.3": ".so man3/rvl_open.3\n", "rvl_name.3": ".so man3/rvl_open.3\n"}
    code, said, pages = run(script)
    if (code, said, pages) != (0, "", wanted):
        faults.append(f"{said}made: {pages}\nexpected: {wanted}")
    for what, old, new, named in WRONG:
        code, said, _ = run(script, old, new)
        if code != 1 or named not in said or "Traceback" in said:
            faults.append(f"{what}: exit status {code}, {named} is expected in: {said}")
    print(f"1 page, {len(WRONG)} refusals")
    if faults:
        sys.exit("\n".join(faults))


main()
