/* SPDX-License-Identifier: MIT */
#include "tests/simcuda/nccl_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

void check_line(int line, const char *expected)
{
    char text[ANSWER_BYTES];
    snprintf(text, sizeof text, "%s", answer.out);
    char *at = text;
    for (int i = 0; i < line; i++) {
        at = strchr(at, '\n');
        assert_non_null(at);
        at++;
    }
    at[strcspn(at, "\n")] = '\0';
    assert_string_equal(at, expected);
}

void check_number(int line, long long expected)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", expected);
    check_line(line, text);
}

void check_file(const char *name, const char *part)
{
    char text[8192];
    folder_read(name, text, sizeof text);
    check_contains(text, part);
}

int run_ranks(int ranks, const char *words)
{
    char line[4096];
    snprintf(line, sizeof line,
             "rm -f id [0-9]; " COMMAND_WORD " run --gpus 8 -- sh -c '" PROGRAM
             " nccl id id >made; rank() { " PROGRAM
             " nccl device $1 %s; }; for r in $(seq 1 %d); do rank $r >$r 2>&1 & done; rank 0 "
             ">0 2>err; wait' >table 2>machine; status=$?; cat 0; exit $status",
             words, ranks - 1);
    return run_shell(line);
}
