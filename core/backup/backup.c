/* SPDX-License-Identifier: MIT */
#include "core/backup/backup.h"

#include <stdlib.h>

#include "base/error.h"
#include "core/backup/host_buffer.h"

/* ---- In host memory ---- */

static rvl_status host_hold(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup *backup)
{
    return rvli_host_buffer_make(transition->context, allocation->device, allocation->size,
                                 &backup->host);
}

/* Returns NULL in a rehearsal, where nothing is copied. */
static char *place_in(const rvli_backup *backup, uint64_t offset)
{
    return backup->host != NULL ? (char *)backup->host + offset : NULL;
}

rvl_status rvli_host_save(rvli_transition *transition, const rvli_allocation *allocation,
                          rvli_backup *backup, uint64_t offset, uint64_t size)
{
    rvl_context *context = transition->context;
    rvl_status status =
        context->ops.copy_to_host(context->self, allocation->device, place_in(backup, offset),
                                  allocation->addr + offset, size);
    if (status != RVL_OK)
        rvli_error_op("copy_to_host");
    return status;
}

rvl_status rvli_host_load(rvli_transition *transition, const rvli_allocation *allocation,
                          const rvli_backup *backup, uint64_t offset, uint64_t size)
{
    rvl_context *context = transition->context;
    rvl_status status =
        context->ops.copy_to_device(context->self, allocation->device, allocation->addr + offset,
                                    place_in(backup, offset), size);
    if (status != RVL_OK)
        rvli_error_op("copy_to_device");
    return status;
}

/* A buffer that cannot be freed is lost to this process. Nothing depends on it. */
static void host_drop(rvl_context *context, rvli_backup *backup)
{
    rvli_error_before before;
    rvli_error_keep(&before);
    if (rvli_host_buffer_give_back(context, backup->device, backup->host, backup->size) != RVL_OK &&
        rvli_host_buffer_give_back(context, backup->device, backup->host, backup->size) != RVL_OK)
        rvli_log(context, RVL_LOG_WARN, "the host memory of a backup could not be given back");
    rvli_error_put_back(&before);
}

const rvli_backup_store rvli_host_store = {
    .name = "host",
    .hold = host_hold,
    .save = rvli_host_save,
    .load = rvli_host_load,
    .drop = host_drop,
};

/* ---- In any store ---- */

bool rvli_backup_is_in_store(const rvli_backup *backup)
{
    return backup->store == &rvli_shared_store && backup->segments != NULL;
}

static const rvli_backup_store *store_of(const rvl_context *context,
                                         const rvli_allocation *allocation)
{
    rvl_backup policy = (rvl_backup)allocation->policy;
    if (policy == RVL_BACKUP_DISK)
        return &rvli_disk_store;
    return rvli_backup_is_shared(context, allocation->device, policy) ? &rvli_shared_store
                                                                      : &rvli_host_store;
}

bool rvli_backup_is_in_host(const rvl_context *context, const rvli_allocation *allocation)
{
    return store_of(context, allocation) == &rvli_host_store;
}

rvl_status rvli_backup_check(const rvl_context *context, int device, rvl_backup policy)
{
    if ((unsigned)policy > RVL_BACKUP_DISK)
        return rvli_error(RVL_ERR_INVALID, "a backup policy that this version does not know");
    if (policy == RVL_BACKUP_DISK && context->disk_directory == NULL &&
        !context->devices[device].facts.host_accounted)
        return rvli_error(RVL_ERR_INVALID, "no directory for disk backups: name one when opening "
                                           "the context (disk_directory)");
    return RVL_OK;
}

static rvl_status hold(rvli_transition *transition, const rvli_allocation *allocation,
                       const rvli_backup_store *store, rvli_backup **backup_out)
{
    rvli_backup *backup = malloc(sizeof *backup);
    if (backup == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a backup");
    *backup = (rvli_backup){
        .store = store,
        .size = allocation->size,
        .device = allocation->device,
    };
    rvl_status status = backup->store->hold(transition, allocation, backup);
    if (status == RVL_OK)
        *backup_out = backup;
    else
        free(backup);
    return status;
}

rvl_status rvli_backup_hold(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup **backup_out)
{
    return hold(transition, allocation, store_of(transition->context, allocation), backup_out);
}

rvl_status rvli_backup_hold_on_disk(rvli_transition *transition, const rvli_allocation *allocation,
                                    rvli_backup **backup_out)
{
    return hold(transition, allocation, &rvli_disk_store, backup_out);
}

void rvli_backup_drop(rvl_context *context, rvli_backup *backup)
{
    if (backup == NULL)
        return;
    backup->store->drop(context, backup);
    free(backup->digests);
    free(backup);
}

void rvli_backup_count(rvl_context *context, const rvli_tag *tag, const rvli_backup *backup)
{
    if (backup->store == &rvli_disk_store)
        rvli_ledger_disk_add(context, backup->device, backup->size);
    else
        rvli_ledger_host_add(context, backup->device, tag->holders[backup->device], backup->size);
}

void rvli_backup_uncount(rvl_context *context, const rvli_tag *tag, const rvli_backup *backup)
{
    if (backup->store == &rvli_disk_store)
        rvli_ledger_disk_sub(context, backup->device, backup->size);
    else
        rvli_ledger_host_sub(context, backup->device, tag->holders[backup->device], backup->size);
}
