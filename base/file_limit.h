/* SPDX-License-Identifier: MIT */
/*
 * How long a file may get: `ulimit -f`.
 *
 * The kernel sends SIGXFSZ to the thread that passes the limit, and the signal ends the process. A
 * library may not change what signals do in a process that is not its own, so it asks first.
 */
#ifndef RVL_BASE_FILE_LIMIT_H
#define RVL_BASE_FILE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether a file may have this size. */
bool rvli_file_may_have(uint64_t size_bytes);

/*
 * Whether this many bytes may be written to a file where it stands. true for what has no size of
 * its own, such as a pipe.
 */
bool rvli_file_may_take(int fd, size_t size_bytes);

#endif
