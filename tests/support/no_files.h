/* SPDX-License-Identifier: MIT */
/*
 * Kernels and containers that refuse some files: a filter of system calls answers in their place,
 * in this process, for good, and in those it becomes.
 */
#ifndef RVL_TESTS_SUPPORT_NO_FILES_H
#define RVL_TESTS_SUPPORT_NO_FILES_H

#include <stdbool.h>

/* No nameless files (O_TMPFILE): EOPNOTSUPP, as on file systems that cannot make them. false: there
 * can be no such filter here. */
bool no_nameless_files(void);

/* No files in memory (memfd_create()): EPERM, as seccomp profiles of containers may have it. */
bool no_memory_files(void);

#endif
