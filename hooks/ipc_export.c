/* SPDX-License-Identifier: MIT */
/* The allocations that have a handle: given out, looked up, and forgotten when they are freed. */
#include "hooks/ipc_export_internal.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"

pthread_mutex_t rvli_ipc_lock = PTHREAD_MUTEX_INITIALIZER;
rvli_ipc_shared *rvli_ipc_exports;

static _Atomic unsigned export_count;
static uint64_t last_export_id;

/* ---- Fork ---- */

static void lock_all(void)
{
    pthread_mutex_lock(&rvli_ipc_lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&rvli_ipc_lock);
}

/* The parent's connections are not the child's to keep open, and nobody serves here. */
static void begin_anew(void)
{
    rvli_ipc_stop_serving();
    rvli_ipc_exports = NULL;
    atomic_store(&export_count, 0);
    rvli_ipc_begin_rounds();
    pthread_mutex_init(&rvli_ipc_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, begin_anew);
}

/* ---- Looking up ---- */

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

/* The one of an allocation that importers can have now, NULL if there is none. */
static rvli_ipc_shared *find_export(const rvl_context *context, rvl_addr addr,
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

/* What to do about it where a handle is asked for. */
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

/* ---- Exporting ---- */

/* With the lock held. */
static rvl_status add_export(const rvli_ipc_shared *draft, rvli_ipc_shared **export_out)
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

static rvl_status export_draft(const rvli_ipc_shared *draft, rvli_ipc_handle *handle_out)
{
    rvl_status status = rvli_ipc_serve();
    if (status != RVL_OK)
        return status;
    rvli_ipc_shared *found = find_export(draft->context, draft->addr, draft->allocation_id);
    if (found == NULL)
        status = add_export(draft, &found);
    if (status != RVL_OK)
        return status;
    const rvli_ipc_name name = {.process = (uint32_t)getpid(),
                                .nonce = rvli_ipc_nonce(),
                                .export_id = found->export_id,
                                .size_bytes = found->size_bytes};
    rvli_ipc_write_handle(&name, handle_out);
    return RVL_OK;
}

/* No pause can begin before the export is among those it looks at. With the lock held. */
static rvl_status draft_export(rvl_context *context, rvl_addr addr, rvli_ipc_shared *draft_out)
{
    rvl_export facts = {.struct_size = sizeof facts};
    rvl_status status = rvli_ipc_read_blocks(context, addr, NULL, NULL, NULL, 0, &facts);
    if (status == RVL_OK)
        *draft_out = (rvli_ipc_shared){.context = context,
                                       .addr = addr,
                                       .allocation_id = facts.allocation_id,
                                       .size_bytes = facts.size_bytes};
    return status;
}

rvl_status rvli_ipc_export(rvl_context *context, rvl_addr addr, rvli_ipc_handle *handle_out)
{
    rvli_ipc_shared draft;
    pthread_mutex_lock(&rvli_ipc_lock);
    rvl_status status = draft_export(context, addr, &draft);
    if (status == RVL_OK)
        status = export_draft(&draft, handle_out);
    pthread_mutex_unlock(&rvli_ipc_lock);
    return status;
}

bool rvli_ipc_is_own(uint64_t nonce)
{
    pthread_mutex_lock(&rvli_ipc_lock);
    bool own = rvli_ipc_nonce() != 0 && nonce == rvli_ipc_nonce();
    pthread_mutex_unlock(&rvli_ipc_lock);
    return own;
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
