/* SPDX-License-Identifier: MIT */
#include "core/backup/host_buffer.h"

#include <stdatomic.h>

#include "base/error.h"

static void raise_to(_Atomic uint64_t *most, uint64_t bytes)
{
    uint64_t seen = atomic_load_explicit(most, memory_order_relaxed);
    while (seen < bytes && !atomic_compare_exchange_weak_explicit(
                               most, &seen, bytes, memory_order_relaxed, memory_order_relaxed))
        continue;
}

rvl_status rvli_host_buffer_make(rvl_context *context, int device, uint64_t size, void **host_out)
{
    rvli_host_count *count = &context->devices[device].host;
    rvl_status status = context->ops.host_alloc(context->self, device, size, host_out);
    if (status != RVL_OK) {
        rvli_error_op("host_alloc");
        return status;
    }
    raise_to(&count->most_bytes,
             atomic_fetch_add_explicit(&count->bytes, size, memory_order_relaxed) + size);
    return RVL_OK;
}

/*
 * Calls the backend only when the number of chunks changes, so that several small allocations take
 * one call.
 */
void rvli_host_buffer_ahead(rvl_context *context, int device)
{
    rvli_host_count *count = &context->devices[device].host;
    if (!context->devices[device].facts.host_ahead)
        return;
    uint64_t wanted = atomic_load(&count->wanted_bytes), coming = 0;
    uint64_t chunks = (wanted + RVL_HOST_CHUNK_BYTES - 1) / RVL_HOST_CHUNK_BYTES;
    if (atomic_exchange(&count->asked_chunks, chunks) == chunks)
        return;
    rvli_error_before before;
    rvli_error_keep(&before);
    if (context->ops.host_ahead(context->self, device, wanted, &coming) == RVL_OK)
        raise_to(&count->most_bytes, coming);
    rvli_error_put_back(&before);
}

rvl_status rvli_host_buffer_give_back(rvl_context *context, int device, void *host, uint64_t size)
{
    rvl_status status = context->ops.host_free(context->self, device, host, size);
    if (status == RVL_OK)
        atomic_fetch_sub_explicit(&context->devices[device].host.bytes, size, memory_order_relaxed);
    return status;
}
