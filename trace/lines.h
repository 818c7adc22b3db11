/* SPDX-License-Identifier: MIT */
/*
 * The lines of a file, plain or zstd, through one buffer. A line is not copied: it is valid until
 * the next call. The byte after it is its newline. RVLI_LINES_PADDING bytes from there on may be
 * read, so that the parser can read digits eight at a time.
 */
#ifndef RVL_TRACE_LINES_H
#define RVL_TRACE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"

#define RVLI_LINES_PADDING 16u

typedef struct rvli_lines rvli_lines;

/* Opens a file, as zstd if the path ends in .zst. RVL_ERR_IO, RVL_ERR_HOST_OOM. */
rvl_status rvli_lines_open(const char *path, rvli_lines **lines_out);
void rvli_lines_close(rvli_lines *lines);

/*
 * Reads the next line. RVL_ERR_NOT_FOUND: the end; RVL_ERR_CORRUPT_TRACE, with the message in
 * *why_out: the last line has no newline, a line is too long, or the zstd stream is broken;
 * RVL_ERR_IO.
 */
rvl_status rvli_lines_next(rvli_lines *lines, const char **line_out, size_t *length_out,
                           const char **why_out);

/* Whether the last failure was a file that is cut off, rather than one that is wrong. */
bool rvli_lines_cut(const rvli_lines *lines);

/* The column, from 1, of the first byte that the failed line lacks. */
uint32_t rvli_lines_column(const rvli_lines *lines);

/* The bytes read from the file on disk, compressed or not, and its size (0: unknown). */
uint64_t rvli_lines_bytes_read(const rvli_lines *lines);
uint64_t rvli_lines_bytes_total(const rvli_lines *lines);

#endif
