/* SPDX-License-Identifier: MIT */
/* Memory that processes share, on the fake driver: each scenario is two processes or more. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/run_command.h"

static _Noreturn void become(const char *scenario, const char *setting, int out)
{
    char library[] = "RVL_CUDA_LIBRARY=" RVL_CUDA_FAKE_PATH;
    char preload[] = "LD_PRELOAD=" RVL_PRELOAD_PATH;
    char *environment[] = {library, preload, (char *)(uintptr_t)setting, NULL};
    char *arguments[] = {RVL_PROGRAM_PATH, (char *)(uintptr_t)scenario, NULL};
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execve(RVL_PROGRAM_PATH, arguments, environment);
    _exit(127);
}

/* says: all that it must write has this in it, line for line; NULL: it must write nothing. */
static void run(const char *scenario, const char *setting, const char *says)
{
    char text[8192];
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0)
        become(scenario, setting, ends[1]);
    close(ends[1]);
    int status = run_read(child, ends[0], text, sizeof text);
    if (status != 0 || (says == NULL ? text[0] != '\0' : strstr(text, says) == NULL))
        fail_msg("%s: status %x, says: %s", scenario, (unsigned)status, text);
}

#define SOON "RVL_IPC_TIMEOUT_MS=200"
#define IN_TIME "RVL_IPC_TIMEOUT_MS=2000"

static void test_sharing(void **state)
{
    (void)state;
    run("share", NULL, NULL);
    run("count_openings", NULL, NULL);
    run("many_blocks", NULL, NULL);
    run("coalesced", NULL, NULL);
    run("in_threads", NULL, NULL);
    run("by_driver", NULL, "cudaIpcOpenMemHandle failed: the handle is this process's own");
}

static void test_pausing(void **state)
{
    (void)state;
    run("cycle", NULL, "cudaIpcOpenMemHandle failed: the handle is from before a pause");
    run("slow", SOON, "memory was paused, but is not free yet: process ");
}

static void test_handles_that_are_no_good(void **state)
{
    (void)state;
    run("bad_handles", NULL, "cudaIpcOpenMemHandle failed: the handle was damaged");
    run("freed", NULL, "was freed");
    run("not_exportable", "FAKE_CUDA_EXPORT_REFUSED=1",
        "cudaIpcGetMemHandle failed: the driver did not make");
}

static void test_importers_that_do_not_let_go(void **state)
{
    (void)state;
    run("killed", NULL, NULL);
    run("stopped", IN_TIME, NULL);
    run("capturing", NULL, "cudaIpcCloseMemHandle failed: a stream is being captured");
    run("hostile", NULL, NULL);
}

static void test_one_deadline(void **state)
{
    (void)state;
    run("stalled", IN_TIME, NULL);
    run("stalled_between", IN_TIME, "memory was paused, but is not free yet");
}

static void test_failures_change_nothing(void **state)
{
    (void)state;
    run("pause_fails", NULL, NULL);
    run("restore_fails", NULL, "mapping it again after a failed pause failed");
    run("opening_fails", NULL, "importing a block");
}

static void test_ends(void **state)
{
    (void)state;
    run("exporter_ends", NULL, "the process that gave this handle is gone");
    run("exporter_stops", SOON, "does not answer");
    run("forked", NULL, "RVL_ERR_FORKED");
    run("ends_while_held", NULL, NULL);
    run("unloaded", NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_pausing),
        cmocka_unit_test(test_handles_that_are_no_good),
        cmocka_unit_test(test_importers_that_do_not_let_go),
        cmocka_unit_test(test_one_deadline),
        cmocka_unit_test(test_failures_change_nothing),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
