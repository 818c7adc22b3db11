/* SPDX-License-Identifier: MIT */
/*
 * A kernel that has no nameless files (O_TMPFILE), as on file systems that cannot make them: a
 * filter of system calls answers EOPNOTSUPP in this process, for good, and in those it becomes.
 */
#ifndef RVL_TESTS_SUPPORT_NO_NAMELESS_H
#define RVL_TESTS_SUPPORT_NO_NAMELESS_H

#include <stdbool.h>

/* false: there can be no such filter here. */
bool no_nameless_files(void);

#endif
