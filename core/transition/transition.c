/* SPDX-License-Identifier: MIT */
#include "core/transition/transition.h"

#include <stdlib.h>

#include "base/error.h"
#include "core/backup/backup_disk.h"
#include "core/backup/disk_space.h"
#include "core/backup/shared_transfer.h"

/* ---- The set of tags ---- */

static int compare_tags(const void *left, const void *right)
{
    const rvli_tag *a = *(rvli_tag *const *)left;
    const rvli_tag *b = *(rvli_tag *const *)right;
    return (a->number > b->number) - (a->number < b->number);
}

static size_t drop_repeated(rvli_tag **tags, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || tags[kept - 1] != tags[i])
            tags[kept++] = tags[i];
    return kept;
}

static rvl_status resolve_named(rvl_context *context, const rvl_tag *numbers, size_t count,
                                rvli_tag **tags)
{
    for (size_t i = 0; i < count; i++) {
        tags[i] = rvli_tag_get(context, numbers[i]);
        if (tags[i] == NULL)
            return rvli_error(RVL_ERR_INVALID, "no tag of this number: rvl_tag_define() first");
    }
    return RVL_OK;
}

static size_t tags_of_process(rvl_context *context, rvl_process process, rvli_tag **tags,
                              size_t capacity)
{
    size_t count = 0;
    for (rvl_tag number = 1; number <= capacity; number++) {
        rvli_tag *tag = rvli_tag_get(context, number);
        if (tag->process->number == process)
            tags[count++] = tag;
    }
    return count;
}

static rvl_status resolve(rvl_context *context, const rvl_tag *numbers, size_t count,
                          rvl_process process, rvli_transition *transition)
{
    size_t capacity = count > 0 ? count : atomic_load(&context->tag_count);
    if (count > 0 && numbers == NULL)
        return rvli_error(RVL_ERR_INVALID, "tag_count without tags");
    /* Room for one more, because the list may be empty. The caller's count may be any number. */
    const size_t pair_bytes = 2 * sizeof(rvli_tag *);
    transition->tags =
        capacity < PTRDIFF_MAX / pair_bytes ? malloc((capacity + 1) * pair_bytes) : NULL;
    if (transition->tags == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the set of tags");
    transition->touched = transition->tags + capacity + 1;
    if (count == 0) {
        transition->tag_count = tags_of_process(context, process, transition->tags, capacity);
        return RVL_OK;
    }
    rvl_status status = resolve_named(context, numbers, count, transition->tags);
    if (status == RVL_OK) {
        qsort(transition->tags, count, sizeof(rvli_tag *), compare_tags);
        transition->tag_count = drop_repeated(transition->tags, count);
    }
    return status;
}

/* With the lock held. RVL_ERR_BUSY: no tag is claimed. */
static rvl_status claim(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    for (size_t i = 0; i < transition->tag_count; i++) {
        rvli_tag *tag = transition->tags[i];
        while (tag->moving && !tag->prepared)
            pthread_cond_wait(&context->moved, &context->lock);
        if (tag->prepared) {
            while (i > 0)
                transition->tags[--i]->moving = false;
            rvli_announce_moved(context);
            rvli_error(RVL_ERR_BUSY, "the tag is prepared for a move: commit or abort that first");
            rvli_error_tag(tag->key->name);
            return RVL_ERR_BUSY;
        }
        tag->moving = true;
    }
    return RVL_OK;
}

rvl_status rvli_transition_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                 rvl_process process, rvli_transition *transition)
{
    *transition = (rvli_transition){.context = context};
    rvl_status status = resolve(context, tags, tag_count, process, transition);
    if (status != RVL_OK) {
        free(transition->tags);
        return status;
    }
    rvli_lock(context);
    status = claim(transition);
    if (status == RVL_OK)
        rvli_change_begin(context);
    rvli_unlock(context);
    if (status != RVL_OK) {
        free(transition->tags);
        return status;
    }
    transition->start_ns = rvli_clock_now(&context->clock);
    return RVL_OK;
}

void rvli_transition_end(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    rvli_lock(context);
    for (size_t i = 0; i < transition->tag_count; i++)
        transition->tags[i]->moving = transition->tags[i]->prepared = false;
    rvli_change_end(context);
    rvli_record_late(context, false);
    rvli_announce_moved(context);
    rvli_unlock(context);
    rvli_disk_end(transition);
    rvli_shared_end(transition);
    rvli_disk_space_clear(context);
    for (size_t i = 0; i < transition->item_count; i++) {
        free(transition->items[i].digests);
        free(transition->items[i].names);
    }
    free(transition->tags);
    free(transition->items);
    free(transition->order);
    free(transition->parts.pieces);
}

/* ---- The items ---- */

/*
 * Returns whether the move includes an allocation. A tag may have had paused memory before a sleep
 * paused it; the wake's resume leaves that memory paused.
 */
static bool takes(const rvli_transition *transition, const rvli_allocation *allocation,
                  rvli_move move)
{
    bool of_wake = move == RVLI_MOVE_RESUME_BEGIN && transition->context->sleep.tags != NULL;
    return (!of_wake || allocation->slept) &&
           rvli_state_move((rvl_state)allocation->state, move, NULL);
}

static size_t count_movable(const rvli_transition *transition, rvli_move move)
{
    size_t count = 0;
    for (size_t i = 0; i < transition->tag_count; i++)
        for (const rvli_allocation *allocation = transition->tags[i]->allocations;
             allocation != NULL; allocation = allocation->next)
            count += takes(transition, allocation, move);
    return count;
}

static void add_item(rvli_transition *transition, rvli_allocation *allocation)
{
    transition->items[transition->item_count++] = (rvli_move_item){
        .allocation = allocation,
        .id = allocation->id,
        .before = (rvl_state)allocation->state,
        .blocks = allocation->blocks,
        .had_blocks = allocation->blocks != NULL,
        .load = {.size = allocation->size},
    };
    transition->device_mask |= UINT64_C(1) << allocation->device;
    transition->access_mask |= allocation->access_mask;
}

static void collect_tag(rvli_transition *transition, rvli_tag *tag, rvli_move move, bool mark)
{
    for (rvli_allocation *allocation = tag->allocations; allocation != NULL;
         allocation = allocation->next) {
        if (!takes(transition, allocation, move))
            continue;
        add_item(transition, allocation);
        if (mark)
            rvli_allocation_move(allocation, move);
    }
}

static int compare_items(const void *left, const void *right)
{
    uint64_t a = ((const rvli_move_item *)left)->allocation->id;
    uint64_t b = ((const rvli_move_item *)right)->allocation->id;
    return (a > b) - (a < b);
}

rvl_status rvli_transition_collect(rvli_transition *transition, rvli_move move, bool mark)
{
    size_t count = count_movable(transition, move);
    transition->items = malloc((count + 1) * sizeof *transition->items);
    if (transition->items == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the list of allocations");
    for (size_t i = 0; i < transition->tag_count; i++) {
        size_t before = transition->item_count;
        collect_tag(transition, transition->tags[i], move, mark);
        if (transition->item_count > before)
            transition->touched[transition->touched_count++] = transition->tags[i];
    }
    qsort(transition->items, count, sizeof *transition->items, compare_items);
    return RVL_OK;
}

/* ---- Waiting ---- */

rvl_status rvli_streams_check(rvl_context *context, void *const *streams, size_t stream_count)
{
    if (stream_count > 0 && streams == NULL)
        return rvli_error(RVL_ERR_INVALID, "stream_count without streams");
    for (size_t i = 0; i < stream_count; i++) {
        bool capturing = false;
        rvl_status status = context->ops.is_capturing(context->self, streams[i], &capturing);
        if (status != RVL_OK) {
            rvli_error_op("is_capturing");
            return status;
        }
        if (capturing)
            return rvli_error(RVL_ERR_BUSY, "a stream is being captured: end the capture first");
    }
    return RVL_OK;
}

void rvli_transition_spend(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    uint64_t spent = rvli_clock_now(&context->clock) - transition->start_ns;
    for (int device = 0; device < context->device_count; device++)
        if (transition->device_mask >> device & 1)
            rvli_ledger_spend(context, device, spent);
}
