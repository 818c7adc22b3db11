/* SPDX-License-Identifier: MIT */
/* Tests that leave something out say why, in a line that scripts/summary.py reads. After
 * <cmocka.h>. */
#ifndef RVL_TESTS_SKIP_H
#define RVL_TESTS_SKIP_H

/* The exit status of a program that leaves out all that it has. */
#define SKIPPED 77

#define SKIP_LINE "SKIP: %s\n"

/* Leaves out the rest of this test. */
#define skip_because(reason)                                                                       \
    do {                                                                                           \
        print_message(SKIP_LINE, reason);                                                          \
        skip();                                                                                    \
    } while (0)

#endif
