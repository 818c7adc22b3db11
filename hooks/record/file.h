/* SPDX-License-Identifier: MIT */
/* The names and headers of the recorder's files. */
#ifndef RVL_HOOKS_RECORD_FILE_H
#define RVL_HOOKS_RECORD_FILE_H

#include <limits.h>

#include "reveille/trace.h"

/*
 * Makes a pattern absolute and ensures that it has %p: without one, ".%p" is inserted before the
 * extension. RVL_ERR_INVALID: a % that is neither %p nor %%, too long, or .zst.
 */
rvl_status rvli_record_file_pattern(const char *given, char pattern[PATH_MAX]);

/* Checks that files can be created there. RVL_ERR_IO with errno's value as the native code. */
rvl_status rvli_record_file_check(const char *pattern);

/*
 * Opens the file of this process; %p becomes its id. A file that this process wrote before it
 * called exec() is kept: then ".2" is inserted before the extension, and so on. start_ns: the
 * monotonic clock at time 0. Reads the devices from rvli_usage_load(), which must have succeeded.
 */
rvl_status rvli_record_file_open(const char *pattern, uint64_t start_ns,
                                 rvl_trace_writer **writer_out);

#endif
