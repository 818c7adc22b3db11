/* SPDX-License-Identifier: MIT */
/*
 * Backups in files.
 *
 * What one pause puts on disk lies in one file. Its space is reserved before anything is
 * unmapped; each backup has a share of it. Content passes through a ring of staging buffers in host
 * memory that copies at link speed: while some are being written or read, others are copied from or
 * to the device.
 *
 * Accounted memory has no bytes: a simulated disk then takes time alone.
 */
#ifndef RVL_CORE_BACKUP_BACKUP_DISK_H
#define RVL_CORE_BACKUP_BACKUP_DISK_H

#include "core/moving.h"

/* What a transition needs for disk backups. */
typedef struct rvli_disk_transfer rvli_disk_transfer;

/* Waits for the disk, and queues the last copies to the device. Nothing to do without a transfer.
 */
rvl_status rvli_disk_settle(rvli_transition *transition);

/* What has been asked of the disk so far. */
typedef struct rvli_disk_mark {
    uint64_t pieces;
    uint64_t end_ns; /* when a simulated disk is done with it */
} rvli_disk_mark;

rvli_disk_mark rvli_disk_mark_now(const rvli_transition *transition);
/* As rvli_disk_settle(), for what was asked before a mark. */
rvl_status rvli_disk_settle_to(rvli_transition *transition, const rvli_disk_mark *mark);
/* Whether so much was asked since that all before the mark has been settled for it. */
bool rvli_disk_is_past(const rvli_transition *transition, const rvli_disk_mark *mark);

/* After a failure, and once the device is quiet: nothing is in flight, the ring can be used again.
 */
void rvli_disk_abort(rvli_transition *transition);

/* Gives everything back but the shares. */
void rvli_disk_end(rvli_transition *transition);

#endif
