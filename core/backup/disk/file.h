/* SPDX-License-Identifier: MIT */
/*
 * One backup file.
 *
 * It has no name: whatever becomes of the process, the kernel gives its space back. All its space
 * is reserved when it is opened, so that a full disk is found then, and not in the middle of a
 * backup. Where the file system allows it, reads and writes go past the page cache, which would
 * hold the backup in the very memory that is short.
 */
#ifndef RVL_CORE_BACKUP_DISK_FILE_H
#define RVL_CORE_BACKUP_DISK_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "reveille/status.h"

/* What buffers, offsets and sizes are multiples of. */
#define RVLI_DISK_ALIGNMENT UINT64_C(4096)

typedef struct rvli_disk_file {
    int fd;
    bool direct;         /* past the page cache */
    bool reserved;       /* false: the file system cannot; its free space was enough at open */
    uint64_t size_bytes; /* as asked for, rounded up to RVLI_DISK_ALIGNMENT */
} rvli_disk_file;

/*
 * Whether backup files can be kept in a directory. File systems in memory (tmpfs, ramfs) are
 * refused unless allowed. RVL_ERR_INVALID if it is missing, not a directory, not writable or in
 * memory; RVL_ERR_IO if it cannot be examined.
 */
rvl_status rvli_disk_directory_check(const char *path, bool allow_tmpfs);

/*
 * Opens a file of size_bytes in a directory and reserves its space. RVL_ERR_INVALID if the size is
 * 0 or no file can have it, or the path too long; RVL_ERR_DISK_FULL; RVL_ERR_IO.
 */
rvl_status rvli_disk_file_open(const char *directory, uint64_t size_bytes,
                               rvli_disk_file *file_out);

/* Gives the file and its space back. Nothing of it may be in flight. */
void rvli_disk_file_close(rvli_disk_file *file);

#endif
