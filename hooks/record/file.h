/* SPDX-License-Identifier: MIT */
/* The files of the recorder: what they are called, and what their headers say. */
#ifndef RVL_HOOKS_RECORD_FILE_H
#define RVL_HOOKS_RECORD_FILE_H

#include <limits.h>

#include "reveille/trace.h"

/*
 * Makes a pattern absolute and sees to it that it has %p: ".%p" goes before the extension.
 * RVL_ERR_INVALID: a % that is neither %p nor %%, too long, or .zst.
 */
rvl_status rvli_record_file_pattern(const char *given, char pattern[PATH_MAX]);

/* Whether files can be made there. RVL_ERR_IO with errno's value as the native code. */
rvl_status rvli_record_file_check(const char *pattern);

/*
 * Opens the file of this process: with %p its id. One that this process has written before it
 * called exec() is left alone: then ".2" goes before the extension, and so on. start_ns: the
 * monotonic clock at time 0. What rvli_usage_load() opened says what the devices are.
 */
rvl_status rvli_record_file_open(const char *pattern, uint64_t start_ns,
                                 rvl_trace_writer **writer_out);

#endif
