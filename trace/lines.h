/* SPDX-License-Identifier: MIT */
/*
 * Lines of a file, plain or zstd, through one buffer. A line is not copied: it is good until the
 * next is asked for. The byte after it is its newline, and RVLI_LINES_PADDING bytes from there on
 * may be read, so that digits can be looked at eight at a time.
 */
#ifndef RVL_TRACE_LINES_H
#define RVL_TRACE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"

#define RVLI_LINES_PADDING 16u

typedef struct rvli_lines rvli_lines;

/* RVL_ERR_IO, RVL_ERR_HOST_OOM. zstd if the path ends in .zst. */
rvl_status rvli_lines_open(const char *path, rvli_lines **lines_out);
void rvli_lines_close(rvli_lines *lines);

/*
 * The next line. RVL_ERR_NOT_FOUND at the end; RVL_ERR_CORRUPT_TRACE (message in *why_out) for a
 * last line without newline, a line that is too long, a broken zstd stream; RVL_ERR_IO.
 */
rvl_status rvli_lines_next(rvli_lines *lines, const char **line_out, size_t *length_out,
                           const char **why_out);

/* Whether the last failure was that the file breaks off, rather than that it is wrong. */
bool rvli_lines_cut(const rvli_lines *lines);

/* Column, from 1, up to which the line that failed is whole: where its next byte should be. */
uint32_t rvli_lines_column(const rvli_lines *lines);

/* Bytes read of the file as it lies on disk, and its size (0: not known). */
uint64_t rvli_lines_bytes_read(const rvli_lines *lines);
uint64_t rvli_lines_bytes_total(const rvli_lines *lines);

#endif
