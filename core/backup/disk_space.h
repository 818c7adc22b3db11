/* SPDX-License-Identifier: MIT */
/*
 * Space on the disk: files, the shares that backups have in them, and giving shares back.
 *
 * A file system takes its time to give space back: on a disk that is told what is free (mount
 * option discard) a tenth of the time that reading it takes, or more. So shares are gathered, and a
 * thread gives them back once the call that drops them is over: it punches them out of a file that
 * others still use, and closes a file that nobody uses. A backup that finds the disk full waits for
 * it.
 */
#ifndef RVL_CORE_BACKUP_DISK_SPACE_H
#define RVL_CORE_BACKUP_DISK_SPACE_H

#include "core/tables.h"
#include "core/backup/disk/file.h"

typedef struct rvli_disk_space {
    rvli_disk_file file;
    uint64_t used_bytes; /* given out so far */
    uint64_t users;      /* shares; the lock of the context's remover guards it */
} rvli_disk_space;

typedef struct rvli_disk_share {
    rvli_disk_space *in; /* NULL: of a simulated disk */
    uint64_t offset;
    uint64_t size;
    bool last;                    /* given back: it closes the file */
    struct rvli_disk_share *next; /* among those that are to be given back */
} rvli_disk_share;

/* What gives space back. */
typedef struct rvli_disk_remover rvli_disk_remover;

/* RVL_ERR_HOST_OOM. */
rvl_status rvli_disk_remover_new(rvli_disk_remover **remover_out);
/* Gives back what there is, and ends; NULL is fine. */
void rvli_disk_remover_delete(rvli_disk_remover *remover);

/*
 * A new file with a first share of size 0, which keeps it while others are added.
 * RVL_ERR_DISK_FULL only when all that is to be given back has been; RVL_ERR_IO; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_disk_space_open(rvl_context *context, uint64_t size, rvli_disk_share **keeper_out);

/* A share of the next `size` bytes of a file; in: NULL for a simulated disk. RVL_ERR_HOST_OOM. */
rvl_status rvli_disk_share_new(rvl_context *context, rvli_disk_space *in, uint64_t size,
                               rvli_disk_share **share_out);
/* Gathers a share that is to be given back. */
void rvli_disk_share_drop(rvl_context *context, rvli_disk_share *share);

/* Begins to give back what was gathered. */
void rvli_disk_space_clear(rvl_context *context);

#endif
