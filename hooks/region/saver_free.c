/* SPDX-License-Identifier: MIT */
/*
 * Frees memory of regions. During a capture no device can be synchronized, and memory prepared for
 * a move belongs to that move. Allocations freed then are removed from the table at once, and their
 * memory is freed when the capture or the move has ended.
 */
#include "hooks/region/saver_internal.h"

#include <stdlib.h>

#include "base/error.h"
#include "hooks/export/export.h"
#include "hooks/process/captures.h"
#include "hooks/process/message.h"

static _Atomic(rvli_saved *) deferred; /* changed with the lock held */

/*
 * Waits for the device, as cudaFree() does, and frees the memory. On success, `gone` is freed, too.
 */
static rvl_status release(rvli_saved *gone, const rvl_allocation *facts)
{
    rvl_context *context = gone->in->context;
    rvl_status status = RVL_OK;
    if (facts->state != RVL_STATE_PAUSED)
        status = rvl_device_synchronize(context, 0);
    if (status == RVL_OK)
        status = rvl_free(context, gone->addr);
    if (status != RVL_OK)
        return status;
    rvli_ipc_forget(context, facts->id);
    rvli_disk_name_remove(gone->name);
    free(gone);
    if (facts->backup_bytes > 0) /* then the program expects the host memory back, too */
        rvli_saver_trim(0);
    return RVL_OK;
}

static void defer(rvli_saved *gone)
{
    rvli_saver_lock();
    gone->next_deferred = deferred;
    atomic_store(&deferred, gone);
    rvli_saver_unlock();
}

static rvli_saved *next_deferred(void)
{
    rvli_saver_lock();
    rvli_saved *first = deferred;
    if (first != NULL)
        atomic_store(&deferred, first->next_deferred);
    rvli_saver_unlock();
    return first;
}

/*
 * Frees a deferred allocation, or defers it again and returns false. In a forked child, only the
 * entry is freed: the memory is the parent's.
 */
static bool free_deferred(rvli_saved *gone)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    if (rvl_allocation_find(gone->in->context, gone->addr, &facts) != RVL_OK) {
        free(gone);
        return true;
    }
    rvl_status status = release(gone, &facts);
    if (status == RVL_OK)
        return true;
    if (status != RVL_ERR_BUSY) /* RVL_ERR_BUSY: still prepared for a move */
        rvli_say_error("freeing memory of a region that could not go before");
    defer(gone);
    return false;
}

void rvli_saver_free_deferred(void)
{
    if (atomic_load(&deferred) == NULL || rvli_capture_running())
        return;
    rvl_error before = *rvli_error_get();
    rvli_saved *each;
    while ((each = next_deferred()) != NULL && free_deferred(each)) {
    }
    rvli_error_set(&before);
}

static rvl_status release_or_defer(rvli_saved *gone, const rvl_allocation *facts)
{
    rvl_error before = *rvli_error_get();
    rvl_status status = release(gone, facts);
    if (status != RVL_ERR_BUSY)
        return status;
    rvli_error_set(&before);
    rvli_ipc_forget(gone->in->context, facts->id);
    defer(gone);
    return RVL_OK;
}

static rvl_status free_found(rvli_saved *gone, const rvl_allocation *facts)
{
    if (facts->state == RVL_STATE_PAUSED || !rvli_capture_running())
        return release_or_defer(gone, facts);
    if (rvli_capture_forbids_frees())
        return rvli_error(RVL_ERR_BUSY, "memory cannot be freed while a stream is captured: end "
                                        "the capture first");
    rvli_ipc_forget(gone->in->context, facts->id);
    defer(gone);
    rvli_saver_free_deferred(); /* the capture may have ended meanwhile */
    return RVL_OK;
}

rvl_status rvli_saver_free(rvl_addr addr)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    /* Removed from the table first: once freed, another thread may get the address. */
    rvli_saved *gone = rvli_saver_remove(addr);
    if (gone == NULL)
        return RVL_ERR_NOT_FOUND;
    rvl_status status = rvl_allocation_find(gone->in->context, addr, &facts);
    if (status == RVL_OK)
        status = free_found(gone, &facts);
    if (status == RVL_OK)
        return RVL_OK;
    rvl_error cause = *rvli_error_get();
    if (rvli_saver_insert(gone) != RVL_OK)
        free(gone);
    rvli_error_set(&cause);
    return status;
}
