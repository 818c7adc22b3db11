/* SPDX-License-Identifier: MIT */
/* Allocates memory of regions, and finds allocations and their backups. */
#include "hooks/region/saver_internal.h"

#include <stdlib.h>

#include "base/error.h"
#include "hooks/record/recorder.h"

_Atomic bool rvli_saver_exportable;

/* ---- Allocating ---- */

static rvl_status check_margin(const rvli_saved_context *in, const char *tag, uint64_t size_bytes)
{
    uint64_t margin = rvli_saver_margin(), free_bytes = 0, total_bytes = 0;
    if (margin == 0)
        return RVL_OK;
    rvl_status status = rvl_device_get_memory(in->context, 0, &free_bytes, &total_bytes);
    if (status != RVL_OK)
        return status;
    uint64_t mask = in->granularity_bytes - 1;
    uint64_t needed = size_bytes > UINT64_MAX - mask ? UINT64_MAX : (size_bytes + mask) & ~mask;
    if (needed <= free_bytes && margin <= free_bytes - needed)
        return RVL_OK;
    rvli_recorder_refuse(&(rvli_refused){
        .tag = tag, .device = in->device, .requested_bytes = needed, .free_bytes = free_bytes});
    rvli_error(RVL_ERR_DEVICE_OOM, "the allocation would leave less than the memory margin free");
    rvli_error_bytes(in->device, needed, free_bytes);
    return RVL_ERR_DEVICE_OOM;
}

static rvl_status backup_of(const rvli_thread_settings *settings, rvl_backup *backup_out)
{
    if (settings->host_backup && settings->disk_backup)
        return rvli_error(RVL_ERR_INVALID, "a region has its backup in host memory or on disk, not "
                                           "both: disable one");
    *backup_out = settings->host_backup   ? RVL_BACKUP_HOST
                  : settings->disk_backup ? RVL_BACKUP_DISK
                                          : RVL_BACKUP_NONE;
    return RVL_OK;
}

/*
 * Some systems cannot make exportable memory (containers, MIG). Then the memory is not exportable.
 */
static rvl_status allocate_for(rvli_saved *new, uint64_t size_bytes)
{
    rvli_saved_context *in = new->in;
    rvl_alloc_options options = {
        .struct_size = sizeof options, .tag_id = new->tag->number, .backup = new->backup};
    if (atomic_load_explicit(&rvli_saver_exportable, memory_order_relaxed) &&
        !atomic_load_explicit(&in->not_exportable, memory_order_relaxed))
        options.flags = RVL_ALLOC_EXPORTABLE;
    rvl_status status = rvl_alloc(in->context, size_bytes, &options, &new->addr);
    if (options.flags == 0 || (status != RVL_ERR_NOT_SUPPORTED && status != RVL_ERR_INVALID))
        return status;
    options.flags = 0;
    status = rvl_alloc(in->context, size_bytes, &options, &new->addr);
    if (status == RVL_OK)
        atomic_store(&in->not_exportable, true);
    return status;
}

static rvl_status allocate(rvli_saved *new, uint64_t size_bytes)
{
    rvl_status status = check_margin(new->in, new->tag->name, size_bytes);
    if (status == RVL_OK)
        status = allocate_for(new, size_bytes);
    if (status != RVL_OK)
        return status;
    status = rvli_saver_insert(new);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvl_free(new->in->context, new->addr);
        rvli_error_set(&cause);
    }
    return status;
}

rvl_status rvli_saver_alloc(int device, uint64_t size_bytes, const rvli_thread_settings *settings,
                            rvl_addr *addr_out)
{
    rvli_saver_free_deferred();
    rvli_saved *new = calloc(1, sizeof *new);
    if (new == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for an allocation");
    new->size_bytes = size_bytes;
    new->reclaimed = settings->reclaimed;
    rvl_status status = backup_of(settings, &new->backup);
    if (status == RVL_OK)
        status = rvli_saver_context_of(
            device, new->backup == RVL_BACKUP_DISK ? rvli_saver_directory() : NULL, &new->in);
    if (status == RVL_OK)
        status = rvli_saver_tag_of(new->in, settings->tag, &new->tag);
    if (status == RVL_OK)
        status = allocate(new, size_bytes);
    if (status == RVL_OK)
        *addr_out = new->addr;
    else
        free(new);
    return status;
}

/* ---- Finding ---- */

bool rvli_saver_find(rvl_addr addr, rvl_context **context_out, rvl_addr *begin_out)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    if (atomic_load(&rvli_saver_live) == 0)
        return false;
    rvli_saver_lock();
    const rvli_saved *in = rvli_saver_floor(addr, begin_out);
    if (in != NULL)
        *context_out = in->in->context;
    rvli_saver_unlock();
    if (in == NULL)
        return false;
    rvl_status status = rvl_allocation_find(*context_out, addr, &facts);
    return (status == RVL_OK && facts.addr == *begin_out) ||
           (status == RVL_ERR_FORKED && addr == *begin_out);
}

/* With the lock held. */
static const uint8_t *find_backup(rvl_addr addr, uint64_t bytes)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    const void *host = NULL;
    uint64_t begin = 0, left = 0;
    const rvli_saved *in = rvli_saver_floor(addr, &begin);
    if (in == NULL || rvl_allocation_find(in->in->context, addr, &facts) != RVL_OK ||
        facts.addr != begin || facts.backup_bytes == 0 || bytes > facts.size_bytes - (addr - begin))
        return NULL;
    if (rvl_backup_find(in->in->context, addr, &host, &left) == RVL_OK)
        return host;
    return in->host != NULL ? in->host + (addr - begin) : NULL;
}

const uint8_t *rvli_saver_backup(rvl_addr addr, uint64_t bytes)
{
    rvli_saver_lock();
    const uint8_t *host = find_backup(addr, bytes);
    rvli_saver_unlock();
    return host;
}

/* ---- Host memory ---- */

void rvli_saver_trim(uint64_t keep_bytes)
{
    const rvli_saved_context *in = rvli_saver_newest_context();
    if (in != NULL) /* all contexts share the pool */
        (void)rvl_host_trim(in->context, rvli_settings()->keep_host ? keep_bytes : 0);
}
