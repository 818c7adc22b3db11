/* SPDX-License-Identifier: MIT */
/* Memory that processes share, as the machine has it. What CUDA answers is in ipc_facts.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define RUN COMMAND_WORD " run "

/* Two contexts, and 64 MiB that both processes have open, one of them for two devices. */
static void it_is_counted_once(void **state)
{
    (void)state;
    assert_int_equal(run_shell(RUN "--gpus 2 --json -- " PROGRAM " devices 2>err"), 0);
    check_printed("\"peak_bytes\":1168506880");
    check_printed("\"peak_bytes\":1101398016"); /* on the second nothing but contexts */
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

/* The machine has one file for each descriptor that is open, and keeps some for processes to come.
 */
static void there_can_be_no_more_descriptors(void **state)
{
    (void)state;
    /* The program gives up where it cannot do without one. */
    assert_int_equal(run_shell("ulimit -n 70 && " RUN "-- " PROGRAM " files 2>err"), 1);
    check_printed("\nfile: CUDA_ERROR_OPERATING_SYSTEM\n");
    check_printed("\nimport one's own: CUDA_ERROR_UNKNOWN, +0\n");
}

/* Contents would lie far out in a file: they are not kept, and the program is not ended. */
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
