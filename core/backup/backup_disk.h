/* SPDX-License-Identifier: MIT */
/*
 * Backups in files.
 *
 * All disk backups of one pause are in one file. Its space is reserved before anything is unmapped,
 * and each backup has a share of it. Content passes through a ring of staging buffers in host
 * memory that copies at link speed: while some are written or read, others are copied from or to
 * the device.
 *
 * Accounted memory has no bytes: a simulated disk then only takes time.
 */
#ifndef RVL_CORE_BACKUP_BACKUP_DISK_H
#define RVL_CORE_BACKUP_BACKUP_DISK_H

#include "core/moving.h"

/* The state of a transition's disk backups. */
typedef struct rvli_disk_transfer rvli_disk_transfer;

/* Waits for the disk, and queues the last copies to the device. Does nothing without a transfer. */
rvl_status rvli_disk_settle(rvli_transition *transition);

/* The disk requests so far. */
typedef struct rvli_disk_mark {
    uint64_t pieces;
    uint64_t end_ns; /* when a simulated disk will have finished them */
} rvli_disk_mark;

rvli_disk_mark rvli_disk_mark_now(const rvli_transition *transition);
/* Like rvli_disk_settle(), for the requests before a mark. */
rvl_status rvli_disk_settle_to(rvli_transition *transition, const rvli_disk_mark *mark);
/* Returns whether so many requests followed that everything before the mark is already settled. */
bool rvli_disk_is_past(const rvli_transition *transition, const rvli_disk_mark *mark);

/*
 * After a failure, once the device is quiet: ensures that nothing is in flight, so that the ring
 * can be used again.
 */
void rvli_disk_abort(rvli_transition *transition);

/* Frees everything except the shares. */
void rvli_disk_end(rvli_transition *transition);

#endif
