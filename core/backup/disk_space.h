/* SPDX-License-Identifier: MIT */
/*
 * Space on the disk: files, the backups' shares of them, and freeing shares.
 *
 * A file system takes time to free space. On a disk mounted with the option discard, it takes a
 * tenth of the time of reading that space, or more. So shares are collected, and a thread frees
 * them after the call that drops them has returned. It punches a share out of a file that has other
 * users, and closes a file without users. A backup that finds the disk full waits for the thread.
 */
#ifndef RVL_CORE_BACKUP_DISK_SPACE_H
#define RVL_CORE_BACKUP_DISK_SPACE_H

#include "core/tables.h"
#include "core/backup/disk/file.h"

typedef struct rvli_disk_space {
    rvli_disk_file file;
    uint64_t used_bytes; /* handed out so far */
    uint64_t users;      /* number of shares; guarded by the lock of the context's remover */
} rvli_disk_space;

typedef struct rvli_disk_share {
    rvli_disk_space *in; /* NULL: a simulated disk */
    uint64_t offset;
    uint64_t size;
    bool last;                    /* once dropped: freeing it closes the file */
    struct rvli_disk_share *next; /* in the list of shares to be freed */
} rvli_disk_share;

/* The thread that frees space. */
typedef struct rvli_disk_remover rvli_disk_remover;

/* RVL_ERR_HOST_OOM. */
rvl_status rvli_disk_remover_new(rvli_disk_remover **remover_out);
/* Frees all remaining shares, and ends the thread. NULL is fine. */
void rvli_disk_remover_delete(rvli_disk_remover *remover);

/*
 * Opens a new file with a first share of size 0, which keeps the file open while others are added.
 * RVL_ERR_DISK_FULL only after all dropped space has been freed; RVL_ERR_IO; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_disk_space_open(rvl_context *context, uint64_t size, rvli_disk_share **keeper_out);

/*
 * Makes a share of the next `size` bytes of a file. in: NULL for a simulated disk.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_disk_share_new(rvl_context *context, rvli_disk_space *in, uint64_t size,
                               rvli_disk_share **share_out);
/* Drops a share: adds it to those to be freed. */
void rvli_disk_share_drop(rvl_context *context, rvli_disk_share *share);

/* Starts freeing the dropped shares. */
void rvli_disk_space_clear(rvl_context *context);

#endif
