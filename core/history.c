/* SPDX-License-Identifier: MIT */
#include "core/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/ledger.h"

#define FIRST_CAPACITY 16u
#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

/* ---- Writing ---- */

void rvli_history_touch(rvli_history *history, rvli_holder *holder)
{
    rvli_past *past = &holder->past;
    if (past->number == 0)
        past->number = ++history->holder_count;
    past->touched = true;
    past->next = history->touched;
    history->touched = holder;
    history->touched_count++;
}

/* Returns a list with room for that many, or NULL: no memory, and the list is unchanged. */
static void *with_room(void *items, size_t item_bytes, size_t *capacity, size_t wanted)
{
    size_t larger = *capacity > 0 ? *capacity : FIRST_CAPACITY;
    if (wanted <= *capacity)
        return items;
    while (larger < wanted)
        larger *= 2;
    void *grown = realloc(items, larger * item_bytes);
    if (grown != NULL)
        *capacity = larger;
    return grown;
}

rvl_status rvli_history_reserve(rvli_history *history)
{
    rvli_stage_record *records = with_room(history->records, sizeof *records,
                                           &history->record_capacity, history->record_count + 1);
    if (records == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a stage");
    history->records = records;
    rvli_change *changes = with_room(history->changes, sizeof *changes, &history->change_capacity,
                                     history->change_count +
                                         (history->touched_count > 0 ? history->touched_count : 1));
    if (changes == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the breakdown of a peak");
    history->changes = changes;
    return RVL_OK;
}

bool rvli_history_settle(rvli_history *history, rvli_holder *holder, uint64_t share_bytes)
{
    rvli_past *past = &holder->past;
    if (past->recorded_bytes != share_bytes) {
        history->changes[history->change_count++] = (rvli_change){
            .holder = holder, .before_bytes = past->recorded_bytes, .after_bytes = share_bytes};
        past->recorded_bytes = share_bytes;
    }
    return holder->bytes != share_bytes;
}

/* Returns a stage in which nothing happens after this one. */
static rvli_stage_device idle_after(const rvli_stage_record *record)
{
    return (rvli_stage_device){.peak_bytes = record->what.end_bytes,
                               .end_bytes = record->what.end_bytes,
                               .host_bytes = record->what.host_end_bytes,
                               .host_end_bytes = record->what.host_end_bytes};
}

static bool is_same(const rvli_stage_device *a, const rvli_stage_device *b)
{
    return a->peak_bytes == b->peak_bytes && a->end_bytes == b->end_bytes &&
           a->host_bytes == b->host_bytes && a->host_end_bytes == b->host_end_bytes &&
           a->transition_ns == b->transition_ns;
}

void rvli_history_end_stage(rvli_history *history, uint32_t stage, const rvli_stage_device *what)
{
    rvli_stage_record none = {0};
    const rvli_stage_record *last =
        history->record_count > 0 ? &history->records[history->record_count - 1] : &none;
    rvli_stage_device idle = idle_after(last);
    if (last->change_count == history->change_count && is_same(&idle, what))
        return;
    history->records[history->record_count++] =
        (rvli_stage_record){.what = *what, .stage = stage, .change_count = history->change_count};
}

/* ---- Reading ---- */

/* Returns the last record up to a stage, or NULL. */
static const rvli_stage_record *record_of(const rvli_history *history, uint32_t stage)
{
    size_t low = 0, high = history->record_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (history->records[middle].stage <= stage)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &history->records[low - 1] : NULL;
}

rvli_stage_device rvli_history_stage(const rvli_history *history, uint32_t stage)
{
    const rvli_stage_record *record = record_of(history, stage);
    if (record == NULL)
        return (rvli_stage_device){0};
    return record->stage == stage ? record->what : idle_after(record);
}

/* ---- The view ---- */

static uint64_t priority_of(const rvli_holder *holder)
{
    uint64_t mixed = holder->past.number * GOLDEN;
    return (mixed ^ (mixed >> 29)) * GOLDEN;
}

static int compare_text(const char *left, const char *right)
{
    return strcmp(left != NULL ? left : "", right != NULL ? right : "");
}

/* Larger shares first; then by process and tag, external bytes last. */
static bool is_before(const rvli_holder *a, const rvli_holder *b)
{
    if (a->past.viewed_bytes != b->past.viewed_bytes)
        return a->past.viewed_bytes > b->past.viewed_bytes;
    if ((a->process == NULL) != (b->process == NULL))
        return b->process == NULL;
    int order = compare_text(a->process, b->process);
    if (order == 0)
        order = compare_text(a->tag, b->tag);
    return order != 0 ? order < 0 : a->past.number < b->past.number;
}

/* Splits a tree into the holders before and after a holder. */
static void split(rvli_holder *tree, const rvli_holder *at, rvli_holder **before,
                  rvli_holder **behind)
{
    while (tree != NULL) {
        if (is_before(tree, at)) {
            *before = tree;
            before = &tree->past.right;
            tree = tree->past.right;
        } else {
            *behind = tree;
            behind = &tree->past.left;
            tree = tree->past.left;
        }
    }
    *before = NULL;
    *behind = NULL;
}

/* Joins two trees. All of the first are before all of the second. */
static rvli_holder *join(rvli_holder *before, rvli_holder *behind)
{
    rvli_holder *root, **place = &root;
    while (before != NULL && behind != NULL) {
        if (priority_of(before) >= priority_of(behind)) {
            *place = before;
            place = &before->past.right;
            before = before->past.right;
        } else {
            *place = behind;
            place = &behind->past.left;
            behind = behind->past.left;
        }
    }
    *place = before != NULL ? before : behind;
    return root;
}

static void put_in(rvli_history *history, rvli_holder *holder)
{
    rvli_holder **place = &history->view;
    uint64_t priority = priority_of(holder);
    while (*place != NULL && priority_of(*place) >= priority)
        place = is_before(*place, holder) ? &(*place)->past.right : &(*place)->past.left;
    rvli_holder *rest = *place;
    *place = holder;
    split(rest, holder, &holder->past.left, &holder->past.right);
    history->view_count++;
}

static void take_out(rvli_history *history, rvli_holder *holder)
{
    rvli_holder **place = &history->view;
    while (*place != holder)
        place = is_before(*place, holder) ? &(*place)->past.right : &(*place)->past.left;
    *place = join(holder->past.left, holder->past.right);
    history->view_count--;
}

void rvli_history_show(rvli_history *history, rvli_holder *holder, uint64_t share_bytes)
{
    if (holder->past.viewed_bytes == share_bytes)
        return;
    if (holder->past.viewed_bytes > 0)
        take_out(history, holder);
    holder->past.viewed_bytes = share_bytes;
    if (share_bytes > 0)
        put_in(history, holder);
}

void rvli_history_look_at(rvli_history *history, uint32_t stage)
{
    const rvli_stage_record *record = record_of(history, stage);
    size_t wanted = record != NULL ? record->change_count : 0;
    for (; history->view_at < wanted; history->view_at++) {
        const rvli_change *change = &history->changes[history->view_at];
        rvli_history_show(history, change->holder, change->after_bytes);
    }
    for (; history->view_at > wanted; history->view_at--) {
        const rvli_change *change = &history->changes[history->view_at - 1];
        rvli_history_show(history, change->holder, change->before_bytes);
    }
}

/* Copies in order, from an index on, as many as fit. Returns the index after the last. */
static size_t copy_tree(const rvli_holder *tree, const rvli_elements_out *out, size_t index)
{
    while (tree != NULL && index < out->capacity) {
        index = copy_tree(tree->past.left, out, index);
        const rvl_holder holder = {
            .process = tree->process, .tag = tree->tag, .bytes = tree->past.viewed_bytes};
        rvli_elements_put(out, index++, &holder);
        tree = tree->past.right;
    }
    return index;
}

size_t rvli_history_copy_view(const rvli_history *history, const rvli_elements_out *holders_out)
{
    copy_tree(history->view, holders_out, 0);
    return history->view_count;
}

void rvli_history_destroy(rvli_history *history)
{
    free(history->records);
    free(history->changes);
    *history = (rvli_history){0};
}
