/* SPDX-License-Identifier: MIT */
#include "core/backup.h"

#include "base/error.h"

static rvl_status host_hold(rvl_context *context, const rvli_allocation *allocation,
                            void **backup_out)
{
    rvl_status status =
        context->ops.host_alloc(context->self, allocation->device, allocation->size, backup_out);
    if (status != RVL_OK)
        rvli_error_op("host_alloc");
    return status;
}

static rvl_status host_save(rvl_context *context, const rvli_allocation *allocation, void *backup)
{
    rvl_status status = context->ops.copy_to_host(context->self, allocation->device, backup,
                                                  allocation->addr, allocation->size);
    if (status != RVL_OK)
        rvli_error_op("copy_to_host");
    return status;
}

static rvl_status host_load(rvl_context *context, const rvli_allocation *allocation,
                            const void *backup)
{
    rvl_status status = context->ops.copy_to_device(context->self, allocation->device,
                                                    allocation->addr, backup, allocation->size);
    if (status != RVL_OK)
        rvli_error_op("copy_to_device");
    return status;
}

/* A buffer that cannot be given back is lost to this process, and nothing depends on it. */
static void host_drop(rvl_context *context, int device, uint64_t size, void *backup)
{
    const rvli_backend_ops *ops = &context->ops;
    if (ops->host_free(context->self, device, backup, size) != RVL_OK &&
        ops->host_free(context->self, device, backup, size) != RVL_OK)
        rvli_log(context, RVL_LOG_WARN, "the host memory of a backup could not be given back");
}

static const rvli_backup_store host_store = {
    .name = "host",
    .hold = host_hold,
    .save = host_save,
    .load = host_load,
    .drop = host_drop,
};

const rvli_backup_store *rvli_backup_store_of(rvl_backup policy)
{
    return policy == RVL_BACKUP_HOST ? &host_store : NULL;
}

bool rvli_backup_supported(rvl_backup policy)
{
    return policy == RVL_BACKUP_NONE || rvli_backup_store_of(policy) != NULL;
}
