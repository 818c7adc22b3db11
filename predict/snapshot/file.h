/* SPDX-License-Identifier: MIT */
/* The bytes of a snapshot: a file as it is, or the unpacked contents of a gzip file. */
#ifndef RVL_PREDICT_SNAPSHOT_FILE_H
#define RVL_PREDICT_SNAPSHOT_FILE_H

#include <stddef.h>

#include "reveille/status.h"

typedef struct rvli_file {
    const unsigned char *data;
    uint64_t size;
    void *mapping; /* NULL: data is from malloc() or rvli_memory_alloc() */
    size_t mapping_bytes;
    size_t unpacked_bytes; /* size given to rvli_memory_alloc(); 0: data is not from there */
} rvli_file;

/*
 * Opens a file. RVL_OK, RVL_ERR_IO, RVL_ERR_CORRUPT_TRACE (a broken gzip stream) or
 * RVL_ERR_HOST_OOM. *why_out: the reason in words; NULL: out of memory. After RVL_OK the caller
 * closes it.
 */
rvl_status rvli_file_open(const char *path, rvli_file *file_out, const char **why_out);
void rvli_file_close(rvli_file *file);

#endif
