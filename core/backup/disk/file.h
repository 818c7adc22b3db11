/* SPDX-License-Identifier: MIT */
/*
 * One backup file.
 *
 * It has no name, so the kernel frees its space however the process ends. All its space is reserved
 * when it is opened, so that a full disk is found then, and not in the middle of a backup. If the
 * file system allows it, reads and writes bypass the page cache, which would hold the backup in the
 * very memory that is short.
 */
#ifndef RVL_CORE_BACKUP_DISK_FILE_H
#define RVL_CORE_BACKUP_DISK_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "reveille/status.h"

/* Buffers, offsets and sizes are multiples of this. */
#define RVLI_DISK_ALIGNMENT UINT64_C(4096)

typedef struct rvli_disk_file {
    int fd;
    bool direct;         /* bypasses the page cache */
    bool reserved;       /* false: the file system cannot reserve; its free space was enough at
                            open */
    uint64_t size_bytes; /* as requested, rounded up to RVLI_DISK_ALIGNMENT */
} rvli_disk_file;

/*
 * Checks whether a directory can hold backup files. File systems in memory (tmpfs, ramfs) are
 * refused unless allowed. RVL_ERR_INVALID if it is missing, not a directory, not writable or in
 * memory; RVL_ERR_IO if it cannot be examined.
 */
rvl_status rvli_disk_directory_check(const char *path, bool allow_tmpfs);

/*
 * Opens a file of size_bytes in a directory and reserves its space. RVL_ERR_INVALID if the size is
 * 0 or no file can have it, or the path is too long; RVL_ERR_DISK_FULL; RVL_ERR_IO.
 */
rvl_status rvli_disk_file_open(const char *directory, uint64_t size_bytes,
                               rvli_disk_file *file_out);

/* Closes the file and frees its space. No request on it may be in flight. */
void rvli_disk_file_close(rvli_disk_file *file);

#endif
