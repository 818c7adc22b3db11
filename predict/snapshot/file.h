/* SPDX-License-Identifier: MIT */
/* The bytes of a snapshot: a file in memory as it is, or what a gzip file unpacks to. */
#ifndef RVL_PREDICT_SNAPSHOT_FILE_H
#define RVL_PREDICT_SNAPSHOT_FILE_H

#include <stddef.h>

#include "reveille/status.h"

typedef struct rvli_file {
    const unsigned char *data;
    uint64_t size;
    void *mapping; /* NULL: data is from malloc, or from rvli_memory_alloc() */
    size_t mapping_bytes;
    size_t unpacked_bytes; /* as asked of rvli_memory_alloc(); 0: it is not from there */
} rvli_file;

/*
 * Opens a file. RVL_ERR_IO, RVL_ERR_CORRUPT_TRACE (a broken gzip stream) or RVL_ERR_HOST_OOM;
 * *why_out says in words what is wrong, NULL for no memory. After RVL_OK the caller closes it.
 */
rvl_status rvli_file_open(const char *path, rvli_file *file_out, const char **why_out);
void rvli_file_close(rvli_file *file);

#endif
