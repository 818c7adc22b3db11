/* SPDX-License-Identifier: MIT */
#include "core/backup/content.h"

#include <stdlib.h>

#include "base/error.h"
#include "core/backup/backup.h"
#include "core/backup/backup_disk.h"
#include "core/backup/shared_lookup.h"
#include "core/backup/shared_transfer.h"
#include "core/copies.h"

static const rvli_device_facts *facts_of(const rvli_transition *transition,
                                         const rvli_allocation *allocation)
{
    return &transition->context->devices[allocation->device].facts;
}

static bool digests_equal(rvli_digest a, rvli_digest b)
{
    return a.low == b.low && a.high == b.high;
}

/* ---- Digests ---- */

/* Stores the digests in item->digests, at the index of each granule. */
rvl_status rvli_content_learn(rvli_transition *transition, rvli_move_item *item, rvli_stretch what,
                              bool arriving)
{
    rvl_context *context = transition->context;
    const rvli_allocation *allocation = item->allocation;
    uint64_t granule = facts_of(transition, allocation)->granularity_bytes;
    if (item->digests == NULL)
        item->digests = malloc(allocation->size / granule * sizeof *item->digests);
    if (item->digests == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for digests");
    rvl_status status =
        context->ops.digest(context->self, allocation->device, allocation->addr + what.offset,
                            what.size, arriving, NULL, item->digests + what.offset / granule);
    if (status != RVL_OK)
        rvli_error_op("digest");
    return status;
}

static rvl_status learn_all(rvli_transition *transition, rvli_move_item *item)
{
    const rvli_stretch all = {.size = item->allocation->size};
    return rvli_content_learn(transition, item, all, false);
}

bool rvli_content_is_right(const rvli_transition *transition, const rvli_move_item *item,
                           rvli_stretch what)
{
    uint64_t granule = facts_of(transition, item->allocation)->granularity_bytes;
    const rvli_digest *wanted = item->allocation->backup->digests;
    uint64_t end = (what.offset + what.size) / granule;
    for (uint64_t i = what.offset / granule; i < end; i++)
        if (!digests_equal(item->digests[i], wanted[i]))
            return false;
    return true;
}

rvli_digest rvli_content_digest(const rvli_transition *transition, const rvli_move_item *item,
                                rvli_stretch what)
{
    uint64_t granule = facts_of(transition, item->allocation)->granularity_bytes;
    const rvli_digest *digests = item->allocation->backup->digests;
    return rvli_digest_of(digests + what.offset / granule, what.size / granule * sizeof *digests);
}

/* ---- Saving ---- */

static bool has_policy(const rvli_move_item *item)
{
    return item->allocation->policy != RVL_BACKUP_NONE;
}

static bool is_for_store(const rvli_transition *transition, const rvli_move_item *item)
{
    const rvli_allocation *allocation = item->allocation;
    return rvli_backup_is_shared(transition->context, allocation->device,
                                 (rvl_backup)allocation->policy);
}

/*
 * Returns whether an item needs digests: to check restored content from the backup or from other
 * processes (reveille/parts.h), or to find what has changed.
 */
static bool wants_digests(const rvli_transition *transition, const rvli_move_item *item)
{
    const rvli_allocation *allocation = item->allocation;
    return facts_of(transition, allocation)->digests &&
           (transition->context->verify || allocation->tag->retain_backups ||
            is_for_store(transition, item));
}

/* Takes the retained backups, and computes what has changed since. */
static rvl_status digest_retained(rvli_transition *transition, size_t *failed_out)
{
    uint64_t device_mask = 0;
    for (size_t i = 0; i < transition->item_count; i++) {
        rvli_move_item *item = &transition->items[i];
        *failed_out = i;
        item->backup = item->allocation->backup;
        if (item->backup == NULL || !wants_digests(transition, item))
            continue;
        rvl_status status = learn_all(transition, item);
        if (status != RVL_OK)
            return status;
        device_mask |= UINT64_C(1) << item->allocation->device;
    }
    return rvli_copies_wait(transition->context, device_mask);
}

/*
 * Returns whether a retained backup still equals the content, by the digests of digest_retained().
 */
static bool is_unchanged(const rvli_transition *transition, const rvli_move_item *item)
{
    const rvli_stretch all = {.size = item->allocation->size};
    return item->backup != NULL && item->backup->current && item->digests != NULL &&
           rvli_content_is_right(transition, item, all);
}

/*
 * Computes names before anything is copied, for all items that go to the store at once. Otherwise
 * the device would be waited for after each allocation.
 */
static rvl_status name_for_store(rvli_transition *transition, size_t *failed_out)
{
    uint64_t device_mask = 0;
    for (size_t i = 0; i < transition->item_count; i++) {
        rvli_move_item *item = &transition->items[i];
        *failed_out = i;
        if (!is_for_store(transition, item) || !facts_of(transition, item->allocation)->digests ||
            is_unchanged(transition, item))
            continue;
        const rvli_secret *secret = NULL;
        rvl_status status = rvli_shared_begin(transition, &secret);
        if (status == RVL_OK)
            status = rvli_shared_name(transition->context, item, secret);
        if (status != RVL_OK)
            return status;
        device_mask |= UINT64_C(1) << item->allocation->device;
    }
    return rvli_copies_wait(transition->context, device_mask);
}

static rvl_status save_piece(rvli_transition *transition, rvli_move_item *item, uint64_t offset,
                             uint64_t size)
{
    item->overwritten = true;
    if (!rvli_backup_is_in_store(item->backup)) /* the store counts what it has to copy */
        item->copied_bytes += size;
    return item->backup->store->save(transition, item->allocation, item->backup, offset, size);
}

/*
 * Copies the granules with digests that differ from the backup's. Neighbours are copied together.
 */
static rvl_status save_changed(rvli_transition *transition, rvli_move_item *item)
{
    const rvli_allocation *allocation = item->allocation;
    uint64_t granule = facts_of(transition, allocation)->granularity_bytes;
    uint64_t begin = 0;
    rvl_status status = RVL_OK;
    for (uint64_t at = 0; at <= allocation->size && status == RVL_OK; at += granule) {
        uint64_t i = at / granule;
        bool changed =
            at < allocation->size && !digests_equal(item->digests[i], item->backup->digests[i]);
        if (changed)
            continue;
        if (at > begin)
            status = save_piece(transition, item, begin, at - begin);
        begin = at + granule;
    }
    return status;
}

/*
 * Host memory is made after host_alloc returns, and a copy waits for it. So all of it is requested
 * before the first copy: then the makers never run out of work while a copy waits.
 */
static rvl_status hold_in_host(rvli_transition *transition, size_t *failed_out)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < transition->item_count && status == RVL_OK; i++) {
        rvli_move_item *item = &transition->items[i];
        *failed_out = i;
        if (item->backup == NULL && has_policy(item) &&
            rvli_backup_is_in_host(transition->context, item->allocation))
            status = rvli_backup_hold(transition, item->allocation, &item->backup);
    }
    return status;
}

static rvl_status save_by_policy(rvli_transition *transition, rvli_move_item *item)
{
    rvl_status status = RVL_OK;
    if (item->backup != NULL && item->backup->current && item->digests != NULL)
        return save_changed(transition, item);
    if (item->backup == NULL)
        status = rvli_backup_hold(transition, item->allocation, &item->backup);
    if (status == RVL_OK && item->digests == NULL && wants_digests(transition, item))
        status = learn_all(transition, item);
    return status == RVL_OK ? save_piece(transition, item, 0, item->allocation->size) : status;
}

/*
 * Saves on disk what was meant for the store. The commit replaces a backup that was retained in the
 * store.
 */
static rvl_status save_on_disk(rvli_transition *transition, rvli_move_item *item)
{
    rvl_context *context = transition->context;
    rvli_backup *retained = item->allocation->backup;
    rvli_backup *in_store = item->backup;
    item->backup = NULL;
    item->copied_bytes = 0;
    if (in_store != retained)
        rvli_backup_drop(context, in_store);
    rvli_lock(context);
    if (retained != NULL)
        retained->current = false; /* it may contain part of the new content */
    rvli_unlock(context);
    rvl_status status = rvli_backup_hold_on_disk(transition, item->allocation, &item->backup);
    return status == RVL_OK ? save_piece(transition, item, 0, item->allocation->size) : status;
}

static rvl_status save_item(rvli_transition *transition, rvli_move_item *item)
{
    rvli_error_before before;
    rvli_error_keep(&before);
    rvl_status status = save_by_policy(transition, item);
    if (status != RVL_ERR_HOST_OOM || !transition->context->store_overflow ||
        !rvli_shared_was_full(transition))
        return status;
    status = save_on_disk(transition, item);
    if (status == RVL_OK)
        rvli_error_put_back(&before);
    return status;
}

rvl_status rvli_content_save(rvli_transition *transition, size_t *failed_out)
{
    rvl_status status = digest_retained(transition, failed_out);
    if (status == RVL_OK)
        status = name_for_store(transition, failed_out);
    if (status == RVL_OK)
        status = hold_in_host(transition, failed_out);
    for (size_t i = 0; i < transition->item_count && status == RVL_OK; i++) {
        *failed_out = i;
        if (has_policy(&transition->items[i]))
            status = save_item(transition, &transition->items[i]);
    }
    status = rvli_shared_settle(transition, status, failed_out);
    if (status == RVL_OK)
        status = rvli_disk_settle(transition);
    return status == RVL_OK ? rvli_copies_wait(transition->context, transition->device_mask)
                            : status;
}

void rvli_content_saved(rvli_move_item *item)
{
    rvli_backup *backup = item->backup;
    free(backup->digests);
    backup->digests = item->digests;
    backup->current = item->digests != NULL;
    item->digests = NULL;
}

void rvli_content_unsaved(rvli_move_item *item)
{
    if (item->overwritten)
        item->allocation->backup->current = false;
}

/* ---- Restoring ---- */

rvl_status rvli_content_load(rvli_transition *transition, const rvli_allocation *allocation,
                             const rvli_backup *backup, rvli_stretch what)
{
    return backup->store->load(transition, allocation, backup, what.offset, what.size);
}

bool rvli_content_is_known(const rvli_move_item *item)
{
    const rvli_backup *backup = item->allocation->backup;
    return backup != NULL && backup->current;
}

static bool wants_check(const rvli_transition *transition, const rvli_move_item *item)
{
    return transition->context->verify && rvli_content_is_known(item) && item->load.size > 0;
}

rvl_status rvli_content_queue_check(rvli_transition *transition, rvli_move_item *item)
{
    return wants_check(transition, item) ? rvli_content_learn(transition, item, item->load, true)
                                         : RVL_OK;
}

static rvl_status queue_checks(rvli_transition *transition, size_t *failed_out)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < transition->item_count && status == RVL_OK; i++) {
        *failed_out = i;
        status = rvli_content_queue_check(transition, &transition->items[i]);
    }
    return status;
}

rvl_status rvli_content_differs(void)
{
    rvli_error(RVL_ERR_DIGEST_MISMATCH, "restored content differs from what was backed up: the "
                                        "backup is kept; resume with no_restore to go on without "
                                        "it");
    rvli_error_op("digest");
    return RVL_ERR_DIGEST_MISMATCH;
}

rvl_status rvli_content_check(const rvli_transition *transition, const rvli_move_item *item)
{
    if (!wants_check(transition, item) || rvli_content_is_right(transition, item, item->load))
        return RVL_OK;
    return rvli_content_differs();
}

rvl_status rvli_content_settle(rvli_transition *transition, bool check, size_t *failed_out)
{
    rvl_status status = rvli_disk_settle(transition);
    if (status == RVL_OK && check)
        status = queue_checks(transition, failed_out);
    if (status == RVL_OK)
        status = rvli_copies_wait(transition->context, transition->device_mask);
    for (size_t i = 0; i < transition->item_count && status == RVL_OK && check; i++) {
        *failed_out = i;
        status = rvli_content_check(transition, &transition->items[i]);
    }
    return status;
}

void rvli_content_quiesce(rvli_transition *transition)
{
    rvl_error cause = *rvli_error_get();
    rvli_copies_quiesce(transition->context, transition->device_mask);
    rvli_disk_abort(transition);
    rvli_error_set(&cause);
}
