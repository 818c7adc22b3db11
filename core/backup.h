/* SPDX-License-Identifier: MIT */
/*
 * Backup stores: what keeps the content of an allocation while it is paused.
 *
 * A store holds a buffer, fills it from the device, and writes it back. Copies are queued; they
 * have ended when an event recorded after them has passed. The buffer of the host store is
 * contiguous, since callers read it through a pointer.
 */
#ifndef RVL_CORE_BACKUP_H
#define RVL_CORE_BACKUP_H

#include "core/model.h"

typedef struct rvli_backup_store {
    const char *name;
    /* A place for the allocation's content. RVL_ERR_HOST_OOM; nothing is held then. */
    rvl_status (*hold)(rvl_context *context, const rvli_allocation *allocation, void **backup_out);
    /* Queues the copies. */
    rvl_status (*save)(rvl_context *context, const rvli_allocation *allocation, void *backup);
    rvl_status (*load)(rvl_context *context, const rvli_allocation *allocation, const void *backup);
    /* Gives the place of size bytes back. By numbers: the allocation may be gone by then. */
    void (*drop)(rvl_context *context, int device, uint64_t size, void *backup);
} rvli_backup_store;

/* The store of a policy; NULL for none, and for a policy this build has no store for. */
const rvli_backup_store *rvli_backup_store_of(rvl_backup policy);

/* Whether allocations may ask for a policy. */
bool rvli_backup_supported(rvl_backup policy);

#endif
