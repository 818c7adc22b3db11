/* SPDX-License-Identifier: MIT */
/* Memory that processes share, as the machine counts it. ipc_facts.c has CUDA's results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define RUN COMMAND_WORD " run "

/* Two contexts, and 64 MiB that both processes have open, in one process for two devices. */
static void it_is_counted_once(void **state)
{
    (void)state;
    assert_int_equal(run_shell(RUN "--gpus 2 --json -- " PROGRAM " devices 2>err"), 0);
    check_printed("\"peak_bytes\":1168506880");
    check_printed("\"peak_bytes\":1101398016"); /* only contexts on the second */
}

static void devices_that_a_process_does_not_see(void **state)
{
    (void)state;
    assert_int_equal(run_shell(RUN "--gpus 2 -- " PROGRAM " visible 2>err"), 0);
    check_printed("import from a device that it does not see: cudaErrorInvalidDevice\n"
                  "all is given back: +0\n"
                  "open from the one that it sees: cudaSuccess, reads d\n"
                  "it is of its first: cudaSuccess, 0\n");
}

/* The machine has a file for each open descriptor, and keeps some for later processes. */
static void there_can_be_no_more_descriptors(void **state)
{
    (void)state;
    /* The program ends where it needs a descriptor. */
    assert_int_equal(run_shell("ulimit -n 70 && " RUN "-- " PROGRAM " files 2>err"), 1);
    check_printed("\nfile: CUDA_ERROR_OPERATING_SYSTEM\n");
    check_printed("\nimport one's own: CUDA_ERROR_UNKNOWN, +0\n");
}

/* Contents would be far out in a file, so they are not kept, and the program is not ended. */
static void files_have_a_limit(void **state)
{
    (void)state;
    assert_int_equal(
        run_shell("ulimit -f 100000 && " RUN "-- " PROGRAM " memory 2>err | tr '\\000' '.'"), 0);
    check_printed("\nopen: cudaSuccess, +0\nreads: .\n");
    check_printed("\nwrites: cudaSuccess, here b\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_counted_once),
        cmocka_unit_test(devices_that_a_process_does_not_see),
        cmocka_unit_test(there_can_be_no_more_descriptors),
        cmocka_unit_test(files_have_a_limit),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
