/* SPDX-License-Identifier: MIT */
/* Exports allocations as handles, and handles fork. */
#include "hooks/export/export_internal.h"

#include <unistd.h>

#include "base/error.h"

/* ---- Fork ---- */

static void lock_all(void)
{
    pthread_mutex_lock(&rvli_ipc_lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&rvli_ipc_lock);
}

/* In a forked child: closes the parent's connections. Nothing serves here yet. */
static void begin_again(void)
{
    rvli_ipc_stop_serving();
    rvli_ipc_forget_exports();
    rvli_ipc_begin_rounds();
    pthread_mutex_init(&rvli_ipc_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, begin_again);
}

/* ---- Exporting ---- */

static rvl_status export_draft(const rvli_ipc_shared *draft, rvli_ipc_handle *handle_out)
{
    rvl_status status = rvli_ipc_serve();
    if (status != RVL_OK)
        return status;
    rvli_ipc_shared *found =
        rvli_ipc_find_export_of(draft->context, draft->addr, draft->allocation_id);
    if (found == NULL)
        status = rvli_ipc_add_export(draft, &found);
    if (status != RVL_OK)
        return status;
    const rvli_ipc_name name = {.process = (uint32_t)getpid(),
                                .nonce = rvli_ipc_nonce(),
                                .export_id = found->export_id,
                                .size_bytes = found->size_bytes};
    rvli_ipc_write_handle(&name, handle_out);
    return RVL_OK;
}

/* With the lock held, so that no pause begins before the export is in the list that it checks. */
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
