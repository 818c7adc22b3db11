/* SPDX-License-Identifier: MIT */
/* Parts of allocations: bytes allocated by one tag and charged to another. */
#include "base/error.h"
#include "core/ledger.h"
#include "core/prefetch.h"
#include "core/tables.h"

/* With the lock held. */
static rvl_status set_part(rvl_context *context, int device, rvli_tag *own, rvli_tag *part,
                           uint64_t before_bytes, uint64_t bytes)
{
    rvli_holder *from = own->holders[device];
    if (from == NULL || (bytes > before_bytes && bytes - before_bytes > from->bytes))
        return rvli_error(RVL_ERR_INVALID, "the tag has less memory on the device than the part");
    rvl_status status = rvli_tag_reach(part, device);
    if (status != RVL_OK)
        return status;
    rvli_holder *to = part->holders[device];
    if (bytes < before_bytes && before_bytes - bytes > to->bytes)
        return rvli_error(RVL_ERR_INVALID, "the part has less than is taken back");
    if (bytes > before_bytes)
        rvli_ledger_part_add(context, device, from, to, bytes - before_bytes);
    else if (bytes < before_bytes)
        rvli_ledger_part_sub(context, device, from, to, before_bytes - bytes);
    return RVL_OK;
}

rvl_status rvl_private_set_part(rvl_context *context, int device, rvl_tag own, rvl_tag part,
                                uint64_t before_bytes, uint64_t bytes)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_device_check(context, device);
    if (status != RVL_OK)
        return status;
    rvli_tag *of_own = rvli_tag_get(context, own);
    rvli_tag *of_part = rvli_tag_get(context, part);
    if (of_own == NULL || of_part == NULL || of_own == of_part)
        return rvli_error(RVL_ERR_INVALID, "no tag of this number, or a part of itself");
    rvli_lock(context);
    status = set_part(context, device, of_own, of_part, before_bytes, bytes);
    rvli_unlock(context);
    return status;
}
