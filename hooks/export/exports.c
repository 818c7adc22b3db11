/* SPDX-License-Identifier: MIT */
/* The list of allocations that have a handle. */
#include <stdlib.h>

#include "base/error.h"
#include "hooks/export/export_internal.h"

pthread_mutex_t rvli_ipc_lock = PTHREAD_MUTEX_INITIALIZER;
rvli_ipc_shared *rvli_ipc_exports;

static _Atomic unsigned export_count;
static uint64_t last_export_id;

rvl_status rvli_ipc_add_export(const rvli_ipc_shared *draft, rvli_ipc_shared **export_out)
{
    rvli_ipc_shared *new = malloc(sizeof *new);
    if (new == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a handle");
    *new = *draft;
    new->export_id = ++last_export_id;
    new->next = rvli_ipc_exports;
    rvli_ipc_exports = new;
    atomic_fetch_add(&export_count, 1);
    *export_out = new;
    return RVL_OK;
}

void rvli_ipc_drop_if_unused(rvli_ipc_shared *what)
{
    if (!what->gone || what->moving || what->importers > 0)
        return;
    rvli_ipc_shared **at = &rvli_ipc_exports;
    while (*at != what)
        at = &(*at)->next;
    *at = what->next;
    atomic_fetch_sub(&export_count, 1);
    free(what);
}

rvli_ipc_shared *rvli_ipc_find_export_of(const rvl_context *context, rvl_addr addr,
                                         uint64_t allocation_id)
{
    for (rvli_ipc_shared *each = rvli_ipc_exports; each != NULL; each = each->next)
        if (!each->gone && each->context == context && each->addr == addr &&
            each->allocation_id == allocation_id)
            return each;
    return NULL;
}

rvli_ipc_shared *rvli_ipc_find_export(uint64_t export_id)
{
    for (rvli_ipc_shared *each = rvli_ipc_exports; each != NULL; each = each->next)
        if (!each->gone && each->export_id == export_id)
            return each;
    return NULL;
}

/* What to do about an error, for a process that asked for a handle. */
static const char *remedy(rvl_status status)
{
    switch (status) {
    case RVL_ERR_NOT_FOUND:
        return "the memory was freed: pass a new handle on";
    case RVL_ERR_NOT_SUPPORTED:
        return "the driver did not make this memory exportable: share memory from outside regions "
               "instead";
    case RVL_ERR_STATE:
        return "the memory is paused: resume it, and pass a new handle on";
    default:
        return NULL;
    }
}

rvl_status rvli_ipc_read_blocks(rvl_context *context, rvl_addr addr,
                                const rvl_export_options *options, int *fds_out,
                                uint64_t *block_bytes_out, size_t capacity, rvl_export *export_out)
{
    rvl_status status = rvl_allocation_export(context, addr, options, fds_out, block_bytes_out,
                                              capacity, export_out);
    if (remedy(status) != NULL)
        rvli_error_message(remedy(status));
    return status;
}

void rvli_ipc_forget_exports(void)
{
    rvli_ipc_exports = NULL;
    atomic_store(&export_count, 0);
}

void rvli_ipc_forget(const rvl_context *context, uint64_t allocation_id)
{
    if (atomic_load_explicit(&export_count, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&rvli_ipc_lock);
    for (rvli_ipc_shared *each = rvli_ipc_exports, *next; each != NULL; each = next) {
        next = each->next;
        if (each->context != context || each->allocation_id != allocation_id)
            continue;
        each->gone = true;
        rvli_ipc_drop_if_unused(each);
    }
    pthread_mutex_unlock(&rvli_ipc_lock);
}
