/* SPDX-License-Identifier: MIT */
/*
 * Backups, and the stores that keep them: what holds the content of an allocation while it is
 * paused.
 *
 * A store finds a place for the content, fills it from the device, and writes it back. What it
 * queues has ended when settle() and an event recorded after it have. A backup that its tag retains
 * outlives the resume, with the digests of what it holds, so that the next pause copies only what
 * has changed since.
 */
#ifndef RVL_CORE_BACKUP_BACKUP_H
#define RVL_CORE_BACKUP_BACKUP_H

#include "core/moving.h"
#include "core/tables.h"

struct rvli_disk_share;
struct rvli_shared_segments;

typedef struct rvli_backup_store {
    const char *name;
    /* A place for the allocation's content. On failure nothing is held. */
    rvl_status (*hold)(rvli_transition *transition, const rvli_allocation *allocation,
                       rvli_backup *backup);
    /* Queues the copy of a piece that begins at an offset of the allocation. */
    rvl_status (*save)(rvli_transition *transition, const rvli_allocation *allocation,
                       rvli_backup *backup, uint64_t offset, uint64_t size);
    /* Queues the copy of a piece back. */
    rvl_status (*load)(rvli_transition *transition, const rvli_allocation *allocation,
                       const rvli_backup *backup, uint64_t offset, uint64_t size);
    /* Gives the place back. */
    void (*drop)(rvl_context *context, rvli_backup *backup);
} rvli_backup_store;

struct rvli_backup {
    const rvli_backup_store *store;
    uint64_t size;
    uint8_t device;
    bool current; /* digests are there, and those of what it holds */
    union {
        struct {
            void *host; /* contiguous, since callers read it through a pointer */
            struct rvli_shared_segments *segments; /* of one in the store of the node */
        };
        struct rvli_disk_share *disk;
    };
    rvli_digest *digests; /* one for each granule; NULL: none */
};

/* Host memory. */
extern const rvli_backup_store rvli_host_store;
/* The store of the node: core/backup/backup_shared.c. */
extern const rvli_backup_store rvli_shared_store;
/* Files: core/backup/backup_disk.h. */
extern const rvli_backup_store rvli_disk_store;

/*
 * Whether allocations of a device may ask for a policy. RVL_ERR_INVALID: disk, and the context has
 * no directory.
 */
rvl_status rvli_backup_check(const rvl_context *context, int device, rvl_backup policy);

/* Queue copies from the device to host memory, wherever it lies, and back. */
rvl_status rvli_host_save(rvli_transition *transition, const rvli_allocation *allocation,
                          rvli_backup *backup, uint64_t offset, uint64_t size);
rvl_status rvli_host_load(rvli_transition *transition, const rvli_allocation *allocation,
                          const rvli_backup *backup, uint64_t offset, uint64_t size);

/* Whether a backup lies there. False for those of a rehearsal. */
bool rvli_backup_is_in_store(const rvli_backup *backup);

/* Whether an allocation's backup lies in host memory of this process. */
bool rvli_backup_is_in_host(const rvl_context *context, const rvli_allocation *allocation);

/* A backup for an allocation, by its policy. RVL_ERR_HOST_OOM, RVL_ERR_DISK_FULL, RVL_ERR_IO. */
rvl_status rvli_backup_hold(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup **backup_out);
/* The same on disk, whatever the policy. */
rvl_status rvli_backup_hold_on_disk(rvli_transition *transition, const rvli_allocation *allocation,
                                    rvli_backup **backup_out);
/* Gives it back; NULL is fine. Never with the lock held. */
void rvli_backup_drop(rvl_context *context, rvli_backup *backup);

/* Counts a backup among its tag's and device's, or no longer. With the lock held. */
void rvli_backup_count(rvl_context *context, const rvli_tag *tag, const rvli_backup *backup);
void rvli_backup_uncount(rvl_context *context, const rvli_tag *tag, const rvli_backup *backup);

#endif
