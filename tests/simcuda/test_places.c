/* SPDX-License-Identifier: MIT */
/*
 * `reveille run` in places other than a developer's machine: a program that has switched to
 * another user, a file that may not grow or that another run also writes, a container that
 * refuses files in memory or has a small /dev/shm.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/folder.h"
#include "tests/support/no_files.h"
#include "tests/support/run_command.h"
#include "tests/support/skip.h"

#define H200_CONTEXT "552402944\n" /* what the driver takes for a process */

static char own_path[PATH_MAX];

/* Checks stderr of the command, and its own exit status. */
static void check_run(const char *line, int status, const char *part)
{
    char err[4096];
    assert_int_equal(run_shell(line), status);
    folder_read("err", err, sizeof err);
    check_contains(err, part);
}

/* As su, gosu and setpriv do in a command of root. */
static void another_user_is_told_what_to_do(void **state)
{
    (void)state;
    if (geteuid() != 0)
        SKIP_TEST("you are not root");
    check_run(COMMAND_WORD " run --no-gpu-ok -- " PROGRAM " become 65534 memory memory 2>err", 0,
              "reveille: `reveille run` was started by another user than this program's: no "
              "simulated GPU can be used: become that user first, as with su -c 'reveille run "
              "...'\n");
    check_printed("0\n-100\n-100\n"); /* cudaErrorNoDevice */
    check_run(COMMAND_WORD " run -- " PROGRAM " memory become 65534 memory 2>err", 0, "");
    check_printed(H200_CONTEXT "0\n" H200_CONTEXT); /* existing connections stay */
}

/* The run is over. The message says which file, why, and what to do. */
static void a_trace_that_cannot_grow(void **state)
{
    char line[4096] = "ulimit -f 1; " COMMAND_WORD " run -o x.rvt -- " PROGRAM;
    (void)state;
    for (int i = 0; i < 100; i++)
        strcat(line, " malloc 2097152");
    strcat(line, " 2>err >out");
    check_run(line, 1,
              "reveille: x.rvt: the trace is larger than a file may be: raise ulimit -f: EFBIG\n");
}

/* Each run reports its own result. The file is from the run that began last. */
static void two_runs_into_one_file(void **state)
{
    (void)state;
    check_run(
        "{ rm -f in out gone; (" COMMAND_WORD " run -o two.rvt --json -- " PROGRAM
        " malloc 4194304 mark in until out >first 2>err; touch gone) & "
        "until [ -e in ]; do sleep 0.02; done; " COMMAND_WORD " run -o two.rvt --json -- " PROGRAM
        " malloc 1073741824 mark out until gone && wait $!; }",
        0,
        "reveille: two.rvt was replaced or removed while this ran, so its trace is lost: name "
        "another file for each run\n");
    check_printed("\"peak_bytes\":1626144768"); /* a context and 1 GiB */
    char first[4096];
    folder_read("first", first, sizeof first);
    check_contains(first, "\"peak_bytes\":556597248"); /* and 4 MiB */
    assert_int_equal(run_command("replay --json two.rvt"), 0);
    check_printed("\"peak_bytes\":1626144768");
}

static void what_cannot_be_written_or_run_leaves_the_old_file(void **state)
{
    char text[64];
    (void)state;
    folder_write("old.rvt", "of an older run");
    check_run(COMMAND_WORD " run --device nosuch -o old.rvt -- " PROGRAM " memory 2>err", 2,
              "nosuch");
    check_run(COMMAND_WORD " run -o old.rvt -- ./nosuch 2>err", 2, "./nosuch does not exist");
    check_run(COMMAND_WORD " run -o none/x.rvt -- " PROGRAM " memory 2>err", 2,
              "reveille: none/x.rvt: No such file or directory: name a file in a directory that "
              "exists\n");
    check_run(COMMAND_WORD " run -o old.rvt.zst -- " PROGRAM " memory 2>err", 2,
              "-o old.rvt.zst: this writes .rvt, and the name says .zst: end it in .rvt");
    check_run(COMMAND_WORD " run -o /dev/stdout -- " PROGRAM " memory 2>err | cat", 0,
              "-o /dev/stdout: the table is made of the trace, which cannot be read again from "
              "there: name a file, or leave -o out\n");
    assert_string_equal(answer.out, ""); /* the program was not started */
    folder_read("old.rvt", text, sizeof text);
    assert_string_equal(text, "of an older run");
}

static void no_files_in_memory(void **state)
{
    (void)state;
    check_run("\"$OWN\" --without-memory-files " COMMAND_WORD " run -- " PROGRAM " memory 2>err", 1,
              "no memory for the trace, by memfd_create(): Operation not permitted: allow it in "
              "the seccomp profile of this container\n");
    check_run("\"$OWN\" --without-memory-files " COMMAND_WORD " run -o y.rvt -- " PROGRAM
              " memory 2>err",
              2, "memfd_create(): a container's seccomp profile must allow them)");
}

/* Docker gives a container 64 MiB of /dev/shm. Here there is none. */
static void no_shared_memory_folder(void **state)
{
    (void)state;
    if (run_shell("unshare --mount true 2>err") != 0)
        SKIP_TEST("this machine allows no namespaces (unshare --mount)");
    check_run("unshare --mount --propagation private sh -c 'mount -t tmpfs -o size=4k,mode=0 tmpfs "
              "/dev/shm && \"$@\"' - " COMMAND_WORD " run --gpus 2 -- " PROGRAM
              " memory device 1 memory 2>err",
              0, "");
    check_printed(H200_CONTEXT "0\n");
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_user_is_told_what_to_do),
        cmocka_unit_test(a_trace_that_cannot_grow),
        cmocka_unit_test(two_runs_into_one_file),
        cmocka_unit_test(what_cannot_be_written_or_run_leaves_the_old_file),
        cmocka_unit_test(no_files_in_memory),
        cmocka_unit_test(no_shared_memory_folder),
    };
    if (count > 2 && strcmp(words[1], "--without-memory-files") == 0) {
        if (no_memory_files())
            execv(words[2], words + 2);
        return 126;
    }
    if (realpath(words[0], own_path) == NULL)
        return 1;
    setenv("OWN", own_path, 1);
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
