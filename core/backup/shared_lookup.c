/* SPDX-License-Identifier: MIT */
#include "core/backup/shared_lookup.h"

#include <stdlib.h>

#include "base/error.h"
#include "core/backup/segments.h"

static uint64_t granule_of(const rvl_context *context, const rvli_move_item *item)
{
    return context->devices[item->allocation->device].facts.granularity_bytes;
}

rvl_status rvli_shared_name(rvl_context *context, rvli_move_item *item, const rvli_secret *secret)
{
    const rvli_allocation *allocation = item->allocation;
    item->names = calloc(allocation->size / granule_of(context, item), sizeof *item->names);
    if (item->names == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for digests");
    rvl_status status = context->ops.digest(context->self, allocation->device, allocation->addr,
                                            allocation->size, false, secret, item->names);
    if (status != RVL_OK)
        rvli_error_op("digest");
    return status;
}

rvli_digest rvli_shared_name_of(const rvl_context *context, const rvli_move_item *item,
                                uint64_t number, const rvli_secret *secret)
{
    uint64_t granule = granule_of(context, item);
    uint64_t first = rvli_segment_offset(item->backup, number) / granule;
    uint64_t end = first + rvli_segment_bytes(item->backup, number) / granule;
    rvli_digest name = {0};
    for (uint64_t i = first; i < end; i++)
        name = rvli_secret_digest_join(secret, name, item->names[i], granule);
    return name;
}
