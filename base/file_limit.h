/* SPDX-License-Identifier: MIT */
/*
 * The limit on the size of a file: `ulimit -f`.
 *
 * The kernel sends SIGXFSZ to the thread that passes the limit, and the signal ends the process. A
 * library must not change the signal handlers of its host process, so it checks the limit first.
 */
#ifndef RVL_BASE_FILE_LIMIT_H
#define RVL_BASE_FILE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether a file may have this size. */
bool rvli_file_may_have(uint64_t size_bytes);

/*
 * Returns whether this many bytes may be written at the current position of a file. Always true for
 * files without a size, such as pipes.
 */
bool rvli_file_may_take(int fd, size_t size_bytes);

#endif
