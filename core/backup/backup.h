/* SPDX-License-Identifier: MIT */
/*
 * Backups, which hold the content of an allocation while it is paused, and the stores that keep
 * them.
 *
 * A store finds room for the content, fills it from the device, and writes it back. Queued work of
 * a store has ended when both settle() and an event recorded after it have. A backup that its tag
 * retains outlives the resume, with the digests of its content, so that the next pause copies only
 * what has changed since.
 */
#ifndef RVL_CORE_BACKUP_BACKUP_H
#define RVL_CORE_BACKUP_BACKUP_H

#include "core/moving.h"
#include "core/tables.h"

struct rvli_disk_share;
struct rvli_shared_segments;

typedef struct rvli_backup_store {
    const char *name;
    /* Gets room for the allocation's content. On failure nothing is held. */
    rvl_status (*hold)(rvli_transition *transition, const rvli_allocation *allocation,
                       rvli_backup *backup);
    /* Queues the copy of a piece to the backup. offset: of the piece in the allocation. */
    rvl_status (*save)(rvli_transition *transition, const rvli_allocation *allocation,
                       rvli_backup *backup, uint64_t offset, uint64_t size);
    /* Queues the copy of a piece from the backup. */
    rvl_status (*load)(rvli_transition *transition, const rvli_allocation *allocation,
                       const rvli_backup *backup, uint64_t offset, uint64_t size);
    /* Frees the room. */
    void (*drop)(rvl_context *context, rvli_backup *backup);
} rvli_backup_store;

struct rvli_backup {
    const rvli_backup_store *store;
    uint64_t size;
    uint8_t device;
    bool current; /* its digests exist and match its content */
    union {
        struct {
            void *host; /* contiguous, because callers read it through a pointer */
            struct rvli_shared_segments *segments; /* if it is in the node's store */
        };
        struct rvli_disk_share *disk;
    };
    rvli_digest *digests; /* one for each granule; NULL: none */
};

/* Host memory. */
extern const rvli_backup_store rvli_host_store;
/* The node's store: core/backup/backup_shared.c. */
extern const rvli_backup_store rvli_shared_store;
/* Files: core/backup/backup_disk.h. */
extern const rvli_backup_store rvli_disk_store;

/*
 * Checks whether allocations of a device may use a policy. RVL_ERR_INVALID: disk, but the context
 * has no directory.
 */
rvl_status rvli_backup_check(const rvl_context *context, int device, rvl_backup policy);

/* Queue copies from the device to host memory of any kind, and back. */
rvl_status rvli_host_save(rvli_transition *transition, const rvli_allocation *allocation,
                          rvli_backup *backup, uint64_t offset, uint64_t size);
rvl_status rvli_host_load(rvli_transition *transition, const rvli_allocation *allocation,
                          const rvli_backup *backup, uint64_t offset, uint64_t size);

/* Returns whether a backup is in the node's store. False for those of a rehearsal. */
bool rvli_backup_is_in_store(const rvli_backup *backup);

/* Returns whether an allocation's backup is in host memory of this process. */
bool rvli_backup_is_in_host(const rvl_context *context, const rvli_allocation *allocation);

/*
 * Makes a backup for an allocation, by its policy. RVL_ERR_HOST_OOM, RVL_ERR_DISK_FULL, RVL_ERR_IO.
 */
rvl_status rvli_backup_hold(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup **backup_out);
/* Makes a backup on disk, whatever the policy. */
rvl_status rvli_backup_hold_on_disk(rvli_transition *transition, const rvli_allocation *allocation,
                                    rvli_backup **backup_out);
/* Frees a backup. NULL is fine. Never call it with the lock held. */
void rvli_backup_drop(rvl_context *context, rvli_backup *backup);

/* Adds a backup to the counts of its tag and device, or subtracts it. With the lock held. */
void rvli_backup_count(rvl_context *context, const rvli_tag *tag, const rvli_backup *backup);
void rvli_backup_uncount(rvl_context *context, const rvli_tag *tag, const rvli_backup *backup);

#endif
