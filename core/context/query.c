/* SPDX-License-Identifier: MIT */
/* Queries for allocations, backups and statistics. They change nothing. */
#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"
#include "core/backup/backup.h"
#include "core/backup/disk_space.h"
#include "core/backup/store/client.h"

/* ---- Allocations ---- */

/* Returns the host backup of an allocation, or of its carrier; NULL if there is none. */
static const rvli_backup *host_backup(const rvli_allocation *allocation)
{
    const rvli_backup *backup = rvli_mover(allocation)->backup;
    return backup != NULL && backup->store != &rvli_disk_store ? backup : NULL;
}

static rvl_allocation describe(const rvli_allocation *allocation)
{
    return (rvl_allocation){
        .addr = allocation->addr,
        .size_bytes = allocation->size,
        .id = allocation->id,
        .tag = allocation->tag->number,
        .process = allocation->tag->process->number,
        .device = allocation->device,
        .backup = (rvl_backup)allocation->policy,
        .state = (rvl_state)rvli_mover(allocation)->state,
        .flags = allocation->flags,
        .access_mask = allocation->access_mask,
        .backup_bytes = host_backup(allocation) != NULL ? allocation->size : 0,
    };
}

rvl_status rvl_allocation_find(rvl_context *context, rvl_addr addr, rvl_allocation *allocation_out)
{
    rvl_allocation result;
    rvli_allocation *allocation = NULL;
    rvl_status status = rvli_context_check(context);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    status = rvli_index_containing(&context->by_addr, addr, &allocation);
    bool found = status == RVL_OK && allocation != NULL && !allocation->freeing;
    if (found)
        result = describe(allocation);
    rvli_unlock(context);
    if (status != RVL_OK)
        return status;
    if (!found)
        return rvli_error(RVL_ERR_NOT_FOUND, "no allocation contains this address");
    return rvli_result_write(allocation_out, &result, sizeof result);
}

/*
 * Finds the first allocation at or above an address that no thread is freeing. With the lock held.
 */
static rvl_status next_settled(rvl_context *context, rvl_addr from,
                               rvli_allocation **allocation_out)
{
    rvl_status status = rvli_index_next(&context->by_addr, from, allocation_out);
    while (status == RVL_OK && *allocation_out != NULL && (*allocation_out)->freeing)
        status = rvli_index_next(&context->by_addr, (*allocation_out)->addr + 1, allocation_out);
    return status;
}

rvl_status rvl_allocation_next(rvl_context *context, rvl_addr from, rvl_allocation *allocation_out)
{
    rvl_allocation result;
    rvli_allocation *allocation = NULL;
    rvl_status status = rvli_context_check(context);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    status = next_settled(context, from, &allocation);
    bool found = status == RVL_OK && allocation != NULL;
    if (found)
        result = describe(allocation);
    rvli_unlock(context);
    if (status != RVL_OK)
        return status;
    if (!found)
        return rvli_error(RVL_ERR_NOT_FOUND, "no allocation at or above this address");
    return rvli_result_write(allocation_out, &result, sizeof result);
}

/* ---- Backups ---- */

/* A position in an allocation, and the backup of its memory. */
typedef struct backup_place {
    const rvli_backup *backup;
    uint64_t offset; /* in the backup */
    uint64_t size;   /* from there to the end of the allocation */
} backup_place;

/* Finds the backup with the content of addr, on disk or in host memory. With the lock held. */
static rvl_status find_backup(rvl_context *context, rvl_addr addr, bool on_disk,
                              backup_place *place_out)
{
    rvli_allocation *allocation = NULL;
    rvl_status status = rvli_index_containing(&context->by_addr, addr, &allocation);
    if (status != RVL_OK)
        return status;
    const rvli_allocation *mover =
        allocation != NULL && !allocation->freeing ? rvli_mover(allocation) : NULL;
    bool held = mover != NULL && mover->backup != NULL &&
                (mover->backup->store == &rvli_disk_store) == on_disk;
    /* A retained backup may be older than the content. */
    if (!held || mover->state == RVL_STATE_ACTIVE || mover->state == RVL_STATE_PAUSING)
        return rvli_error(RVL_ERR_NOT_FOUND, on_disk
                                                 ? "no disk backup is held for this address now"
                                                 : "no host backup is held for this address now");
    if (context->devices[allocation->device].facts.host_accounted)
        return rvli_error(RVL_ERR_NOT_SUPPORTED, "accounted memory has no bytes to point to");
    *place_out = (backup_place){
        .backup = mover->backup,
        .offset = addr - mover->addr,
        .size = allocation->size - (addr - allocation->addr),
    };
    return RVL_OK;
}

rvl_status rvl_backup_find(rvl_context *context, rvl_addr addr, const void **host_out,
                           uint64_t *size_out)
{
    backup_place place;
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && (host_out == NULL || size_out == NULL))
        status = rvli_error(RVL_ERR_INVALID, "host_out or size_out is NULL");
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    status = find_backup(context, addr, false, &place);
    if (status == RVL_OK) {
        *host_out = (const char *)place.backup->host + place.offset;
        *size_out = place.size;
    }
    rvli_unlock(context);
    return status;
}

rvl_status rvl_backup_find_file(rvl_context *context, rvl_addr addr, int *fd_out,
                                uint64_t *offset_out, uint64_t *size_out)
{
    backup_place place;
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && (fd_out == NULL || offset_out == NULL || size_out == NULL))
        status = rvli_error(RVL_ERR_INVALID, "fd_out, offset_out or size_out is NULL");
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    status = find_backup(context, addr, true, &place);
    if (status == RVL_OK) {
        const rvli_disk_share *share = place.backup->disk;
        *fd_out = share->in->file.fd;
        *offset_out = share->offset + place.offset;
        *size_out = place.size;
    }
    rvli_unlock(context);
    return status;
}

/* ---- Statistics ---- */

static rvl_device_stats device_stats(const rvli_device *device)
{
    const rvli_ledger *ledger = &device->ledger;
    return (rvl_device_stats){
        .capacity_bytes = device->facts.capacity_bytes,
        .used_bytes = ledger->used_bytes,
        .external_bytes = ledger->external_bytes,
        .kept_bytes = ledger->kept.bytes,
        .stranded_bytes = ledger->stranded.bytes,
        .peak_bytes = ledger->peak_bytes,
        .host_backup_bytes = ledger->host_bytes,
        .host_peak_bytes = ledger->host_peak_bytes,
        .disk_backup_bytes = ledger->disk_bytes,
        .disk_peak_bytes = ledger->disk_peak_bytes,
        .allocation_count = ledger->allocation_count,
        .alloc_calls = ledger->alloc_calls,
        .free_calls = ledger->free_calls,
        .pauses = ledger->pauses,
        .resumes = ledger->resumes,
        .backup_out_bytes = ledger->backup_out_bytes,
        .backup_in_bytes = ledger->backup_in_bytes,
        .transition_ns = ledger->transition_ns,
        .peak_stage = ledger->peak_stage,
        .oom = ledger->oom,
        .imported_bytes = ledger->imported.bytes,
        .filled_in_bytes = ledger->filled_in_bytes,
        .prepared_bytes = ledger->prepared_bytes,
    };
}

rvl_status rvl_device_get_memory(rvl_context *context, int device, uint64_t *free_bytes_out,
                                 uint64_t *total_bytes_out)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_device_check(context, device);
    if (status == RVL_OK && (free_bytes_out == NULL || total_bytes_out == NULL))
        status = rvli_error(RVL_ERR_INVALID, "no place for the answer");
    if (status != RVL_OK)
        return status;
    status = context->ops.memory_info(context->self, device, free_bytes_out, total_bytes_out);
    if (status != RVL_OK)
        rvli_error_op("memory_info");
    return status;
}

rvl_status rvl_host_get_memory(rvl_context *context, rvl_host_memory *memory_out)
{
    rvli_host_facts facts;
    rvl_status status = rvli_context_check(context);
    if (status != RVL_OK)
        return status;
    status = context->ops.host_memory(context->self, &facts);
    if (status != RVL_OK) {
        rvli_error_op("host_memory");
        return status;
    }
    const rvli_store_bytes in_store =
        context->store != NULL ? rvli_store_counted(context->store) : (rvli_store_bytes){0};
    const rvl_host_memory memory = {
        .used_bytes = facts.used_bytes,
        .pinned_bytes = facts.pinned_bytes,
        .pageable_bytes = facts.pageable_bytes,
        .staged_copy_bytes = facts.staged_copy_bytes,
        .registering_refused = facts.registering_refused,
        .store_bytes = in_store.kept,
        .store_found_bytes = in_store.found,
    };
    return rvli_result_write(memory_out, &memory, sizeof memory);
}

rvl_status rvl_host_trim(rvl_context *context, uint64_t keep_bytes)
{
    rvl_status status = rvli_context_check(context);
    if (status != RVL_OK)
        return status;
    status = context->ops.host_trim(context->self, keep_bytes);
    if (status != RVL_OK)
        rvli_error_op("host_trim");
    return status;
}

rvl_status rvl_device_get_stats(rvl_context *context, int device, rvl_device_stats *stats_out)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_device_check(context, device);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    rvl_device_stats stats = device_stats(&context->devices[device]);
    rvli_unlock(context);
    return rvli_result_write(stats_out, &stats, sizeof stats);
}

bool rvl_device_overcommitted(const rvl_context *context, int device)
{
    return context != NULL && device >= 0 && device < context->device_count &&
           atomic_load_explicit(&context->devices[device].overcommitted, memory_order_acquire);
}

static void add_holder(rvl_tag_stats *stats, const rvli_holder *holder)
{
    stats->active_bytes += holder->bytes;
    stats->paused_bytes += holder->paused_bytes;
    stats->peak_bytes += holder->peak_bytes;
    stats->host_backup_bytes += holder->host_bytes;
    stats->allocation_count += holder->allocation_count;
    stats->pauses += holder->pauses;
    stats->resumes += holder->resumes;
}

rvl_status rvl_tag_get_stats(rvl_context *context, rvl_tag number, int device,
                             rvl_tag_stats *stats_out)
{
    rvl_tag_stats stats = {0};
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && device != -1)
        status = rvli_device_check(context, device);
    const rvli_tag *tag = status == RVL_OK ? rvli_tag_get(context, number) : NULL;
    if (status == RVL_OK && tag == NULL)
        status = rvli_error(RVL_ERR_INVALID, "no tag of this number");
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    for (int each = 0; each < context->device_count; each++)
        if ((device == -1 || device == each) && tag->holders[each] != NULL)
            add_holder(&stats, tag->holders[each]);
    rvli_unlock(context);
    return rvli_result_write(stats_out, &stats, sizeof stats);
}

/* ---- Stages ---- */

uint32_t rvl_stage_count(rvl_context *context)
{
    if (rvli_context_check(context) != RVL_OK)
        return 0;
    rvli_lock(context);
    uint32_t count = context->stage_count;
    rvli_unlock(context);
    return count;
}

static rvl_status check_stage(rvl_context *context, int device)
{
    rvl_status status = rvli_context_check(context);
    return status == RVL_OK ? rvli_device_check(context, device) : status;
}

static rvl_status no_such_stage(void)
{
    return rvli_error(RVL_ERR_NOT_FOUND, "no stage of this index");
}

static rvl_stage_stats stage_stats(const rvl_context *context, uint32_t index, int device)
{
    const rvli_stage *stage = &context->stages[index];
    const rvli_stage_device part = rvli_ledger_stage(context, index, device);
    uint64_t capacity = context->devices[device].facts.capacity_bytes;
    return (rvl_stage_stats){
        .name = stage->name,
        .mark = stage->mark,
        .step = stage->step,
        .peak_bytes = part.peak_bytes,
        .end_bytes = part.end_bytes,
        .free_at_peak_bytes = part.peak_bytes < capacity ? capacity - part.peak_bytes : 0,
        .host_bytes = part.host_bytes,
        .transition_ns = part.transition_ns,
    };
}

rvl_status rvl_stage_get_stats(rvl_context *context, uint32_t stage, int device,
                               rvl_stage_stats *stats_out)
{
    rvl_stage_stats stats = {0};
    rvl_status status = check_stage(context, device);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    bool found = stage < context->stage_count;
    if (found)
        stats = stage_stats(context, stage, device);
    rvli_unlock(context);
    return found ? rvli_result_write(stats_out, &stats, sizeof stats) : no_such_stage();
}

rvl_status rvl_stage_get_holders(rvl_context *context, uint32_t stage, int device,
                                 rvl_holder *holders_out, size_t holder_size, size_t capacity,
                                 size_t *count_out)
{
    const rvli_elements_out out = {.element = RVLI_ELEMENT(rvl_holder, bytes),
                                   .array = holders_out,
                                   .size = holder_size,
                                   .capacity = capacity};
    rvl_status status = check_stage(context, device);
    if (status == RVL_OK)
        status = rvli_elements_check(&out, count_out);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    bool found = stage < context->stage_count;
    if (found)
        *count_out = rvli_ledger_copy_holders(context, stage, device, &out);
    rvli_unlock(context);
    return found ? RVL_OK : no_such_stage();
}
