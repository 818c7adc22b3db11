/* SPDX-License-Identifier: MIT */
#include "core/forecast/rehearsal.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/backup/backup.h"
#include "core/backup/disk_space.h"
#include "core/context/context.h"
#include "core/forecast/pricing_ops.h"
#include "core/memory/blocks.h"

static rvl_status no_memory(void)
{
    return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a dry run");
}

/* ---- Copies from the model ---- */

/*
 * Names the tag by the number of the model's tag, because names belong to processes and the
 * rehearsal has only one.
 */
static rvl_status copy_tag(rvl_context *rehearsal, const rvli_tag *from, rvli_tag **tag_out)
{
    char name[32];
    rvli_text text = rvli_text_begin(name, sizeof name);
    rvli_text_add_u64(&text, from->number);
    rvl_status status = rvli_tag_add(rehearsal, 0, name, tag_out);
    if (status != RVL_OK)
        return status;
    (*tag_out)->block_bytes = from->block_bytes;
    (*tag_out)->retain_backups = from->retain_backups;
    (*tag_out)->poison = from->poison;
    return RVL_OK;
}

static rvl_status copy_blocks(rvl_context *rehearsal, const rvli_block *from, rvli_holder *holder,
                              rvli_block **list_out)
{
    for (rvli_block **link = list_out; from != NULL; from = from->next) {
        rvli_block *block = rvli_pool_get(&rehearsal->block_pool);
        if (block == NULL)
            return no_memory();
        *block = *from;
        block->next = NULL;
        *link = block;
        link = &block->next;
        rvli_ledger_add(rehearsal, block->device, holder, block->size);
    }
    return RVL_OK;
}

static rvl_status copy_kept(rvl_context *rehearsal, const rvl_context *model)
{
    rvl_status status = RVL_OK;
    rehearsal->kept_bytes = model->kept_bytes;
    for (int device = 0; device < model->device_count && status == RVL_OK; device++) {
        rvli_device *to = &rehearsal->devices[device];
        to->kept_bytes = model->devices[device].kept_bytes;
        status = copy_blocks(rehearsal, model->devices[device].kept, &to->ledger.kept, &to->kept);
    }
    return status;
}

/* Sets digests that pricing_digest() never returns if the content counts as changed. */
static rvl_status copy_digests(const rvl_context *rehearsal, const rvli_backup *from, bool changed,
                               rvli_backup *to)
{
    uint64_t granules = from->size / rehearsal->devices[from->device].facts.granularity_bytes;
    to->current = from->current;
    if (from->digests == NULL)
        return RVL_OK;
    to->digests = malloc(granules * sizeof *to->digests);
    if (to->digests == NULL)
        return no_memory();
    memset(to->digests, changed ? 0xFF : 0, granules * sizeof *to->digests);
    return RVL_OK;
}

static rvl_status copy_backup(rvl_context *rehearsal, const rvli_backup *from, bool changed,
                              rvli_allocation *allocation)
{
    rvli_backup *to = malloc(sizeof *to);
    if (to == NULL)
        return no_memory();
    *to = (rvli_backup){.store = from->store, .size = from->size, .device = from->device};
    rvl_status status = copy_digests(rehearsal, from, changed, to);
    if (status == RVL_OK && to->store == &rvli_disk_store)
        status = rvli_disk_share_new(rehearsal, NULL, to->size, &to->disk);
    if (status != RVL_OK) {
        free(to->digests);
        free(to);
        return status;
    }
    rvli_backup_count(rehearsal, allocation->tag, to);
    allocation->backup = to;
    return RVL_OK;
}

/* A carrier moves as one allocation, so its riders are not copied. */
static rvl_status copy_item(rvl_context *rehearsal, const rvli_move_item *item, rvli_tag *tag,
                            bool changed, rvli_allocation **copy_out)
{
    const rvli_allocation *from = item->allocation;
    rvli_allocation *to = rvli_pool_get(&rehearsal->allocation_pool);
    if (to == NULL)
        return no_memory();
    *to = (rvli_allocation){
        .addr = from->addr,
        .size = from->size,
        .id = from->id,
        .tag = tag,
        .access_mask = from->access_mask,
        .device = from->device,
        .state = from->state,
        .policy = from->policy,
        .flags = from->flags,
    };
    rvl_status status = rvli_tag_reach(tag, to->device);
    if (status != RVL_OK)
        return status;
    rvli_tag_link(to);
    status = copy_blocks(rehearsal, from->blocks, tag->holders[to->device], &to->blocks);
    if (status == RVL_OK && from->backup != NULL)
        status = copy_backup(rehearsal, from->backup, changed, to);
    *copy_out = to;
    return status;
}

static rvl_status copy_items(rvl_context *rehearsal, const rvli_transition *transition,
                             bool changed)
{
    rvli_tag *tag = NULL;
    const rvli_tag *from = NULL;
    rvli_allocation *copy = NULL;
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < transition->item_count && status == RVL_OK; i++) {
        const rvli_move_item *item = &transition->items[i];
        if (item->allocation->tag != from) {
            from = item->allocation->tag;
            status = copy_tag(rehearsal, from, &tag);
        }
        if (status == RVL_OK)
            status = copy_item(rehearsal, item, tag, changed, &copy);
        if (status == RVL_OK && transition->order != NULL)
            status = rvli_index_insert(&rehearsal->by_addr, copy);
    }
    return status;
}

/* ---- The rehearsal ---- */

rvl_status rvli_rehearsal_begin(const rvli_transition *transition, bool changed,
                                rvl_context **rehearsal_out)
{
    rvl_context *model = transition->context;
    rvl_context *rehearsal = NULL;
    rvl_context_options options = {
        .struct_size = sizeof options,
        .backend_options = model,
        .keep_bytes = model->keep_bytes,
        .flags = model->verify ? 0 : RVL_CONTEXT_NO_VERIFY,
    };
    rvl_status status = rvli_context_open_ops(&rvli_pricing_ops, &options, &rehearsal);
    if (status == RVL_OK)
        status = copy_kept(rehearsal, model);
    if (status == RVL_OK)
        status = copy_items(rehearsal, transition, changed);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvli_rehearsal_end(rehearsal);
        rvli_error_set(&cause);
        return status;
    }
    *rehearsal_out = rehearsal;
    return RVL_OK;
}

/*
 * Records of blocks and allocations are freed with their pools, so the table of addresses is
 * emptied first.
 */
void rvli_rehearsal_end(rvl_context *rehearsal)
{
    uint32_t tags = rehearsal != NULL ? atomic_load(&rehearsal->tag_count) : 0;
    for (rvl_tag number = 1; number <= tags; number++)
        for (rvli_allocation *allocation = rvli_tag_get(rehearsal, number)->allocations;
             allocation != NULL; allocation = allocation->next)
            rvli_backup_drop(rehearsal, allocation->backup);
    if (rehearsal != NULL) {
        rvli_index_destroy(&rehearsal->by_addr);
        rvli_index_init(&rehearsal->by_addr);
    }
    (void)rvl_context_close(rehearsal, NULL);
}
