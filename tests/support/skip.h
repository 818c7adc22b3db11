/* SPDX-License-Identifier: MIT */
/*
 * A test that cannot be tried says so in a line "SKIP: reason" on stdout, which a summary of all
 * tests shows, and is skipped: by cmocka, or as a program by exit status 77.
 */
#ifndef RVL_TESTS_SUPPORT_SKIP_H
#define RVL_TESTS_SUPPORT_SKIP_H

#include <stdio.h>

#define SKIPPED 77

/* One test of several. */
#define SKIP_TEST(...)                                                                             \
    do {                                                                                           \
        SKIP_LINE(__VA_ARGS__);                                                                    \
        skip();                                                                                    \
    } while (0)

/* Before main() answers SKIPPED. */
#define SKIP_LINE(...) (void)printf("SKIP: " __VA_ARGS__), (void)puts("")

#endif
