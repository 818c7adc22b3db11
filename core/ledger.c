/* SPDX-License-Identifier: MIT */
#include "core/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "core/tables.h"

/* Process name of the ledger's own holders (kept and stranded blocks). */
#define OWN_PROCESS "reveille"

void rvli_ledger_init(rvli_ledger *ledger)
{
    ledger->kept.process = OWN_PROCESS;
    ledger->kept.tag = "kept";
    ledger->stranded.process = OWN_PROCESS;
    ledger->stranded.tag = "stranded";
    ledger->imported.tag = "imported"; /* external: another process holds it */
}

/* On a holder's first change in an epoch, saves its share of the peak. */
static void note_peak_share(rvli_ledger *ledger, rvli_holder *holder)
{
    if (!holder->past.touched)
        rvli_history_touch(&ledger->history, holder);
    if (holder->epoch != ledger->epoch) {
        holder->bytes_at_peak = holder->bytes;
        holder->epoch = ledger->epoch;
    }
}

static uint64_t share_at_peak(const rvli_ledger *ledger, const rvli_holder *holder)
{
    return holder->epoch == ledger->epoch ? holder->bytes_at_peak : holder->bytes;
}

void rvli_ledger_add(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;

    note_peak_share(ledger, holder);
    ledger->used_bytes += bytes;
    if (ledger->used_bytes > ledger->stage.peak_bytes) {
        ledger->stage.peak_bytes = ledger->used_bytes;
        ledger->part_bytes_at_peak = ledger->part_bytes;
        ledger->epoch++;
    }
    if (ledger->used_bytes > ledger->peak_bytes) {
        ledger->peak_bytes = ledger->used_bytes;
        ledger->peak_stage = context->stage_count - 1;
    }
    holder->bytes += bytes;
    if (holder->bytes > holder->peak_bytes)
        holder->peak_bytes = holder->bytes;
}

void rvli_ledger_sub(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    note_peak_share(ledger, holder);
    ledger->used_bytes -= bytes;
    holder->bytes -= bytes;
}

void rvli_ledger_hand_over(rvl_context *context, int device, rvli_holder *from, rvli_holder *to,
                           uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    note_peak_share(ledger, from);
    note_peak_share(ledger, to);
    from->bytes -= bytes;
    to->bytes += bytes;
    if (to->bytes > to->peak_bytes)
        to->peak_bytes = to->bytes;
}

void rvli_ledger_part_add(rvl_context *context, int device, rvli_holder *segment, rvli_holder *part,
                          uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    rvli_ledger_hand_over(context, device, segment, part, bytes);
    ledger->part_bytes += bytes;
    if (ledger->used_bytes == ledger->stage.peak_bytes &&
        ledger->part_bytes > ledger->part_bytes_at_peak) {
        ledger->part_bytes_at_peak = ledger->part_bytes;
        ledger->epoch++;
    }
}

void rvli_ledger_part_sub(rvl_context *context, int device, rvli_holder *segment, rvli_holder *part,
                          uint64_t bytes)
{
    rvli_ledger_hand_over(context, device, part, segment, bytes);
    context->devices[device].ledger.part_bytes -= bytes;
}

void rvli_ledger_host_add(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    ledger->host_bytes += bytes;
    holder->host_bytes += bytes;
    if (ledger->host_bytes > ledger->host_peak_bytes)
        ledger->host_peak_bytes = ledger->host_bytes;
    if (ledger->host_bytes > ledger->stage.host_bytes)
        ledger->stage.host_bytes = ledger->host_bytes;
}

void rvli_ledger_host_sub(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes)
{
    context->devices[device].ledger.host_bytes -= bytes;
    holder->host_bytes -= bytes;
}

void rvli_ledger_disk_add(rvl_context *context, int device, uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    ledger->disk_bytes += bytes;
    if (ledger->disk_bytes > ledger->disk_peak_bytes)
        ledger->disk_peak_bytes = ledger->disk_bytes;
}

void rvli_ledger_disk_sub(rvl_context *context, int device, uint64_t bytes)
{
    context->devices[device].ledger.disk_bytes -= bytes;
}

void rvli_ledger_check_fit(rvl_context *context, int device, rvl_tag tag, rvl_process process,
                           uint64_t requested_bytes)
{
    rvli_device *owner = &context->devices[device];
    rvli_ledger *ledger = &owner->ledger;
    uint64_t capacity = owner->facts.capacity_bytes;
    uint64_t used = ledger->used_bytes;
    uint64_t free_bytes = used < capacity ? capacity - used : 0;

    if (!owner->facts.overcommit || ledger->oom.happened || requested_bytes <= free_bytes)
        return;
    ledger->oom = (rvl_oom){
        .happened = true,
        .stage = context->stage_count - 1,
        .external = tag == 0,
        .process = process,
        .tag = tag,
        .requested_bytes = requested_bytes,
        .free_bytes = free_bytes,
    };
    atomic_store_explicit(&owner->overcommitted, true, memory_order_release);
}

void rvli_ledger_spend(rvl_context *context, int device, uint64_t ns)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    ledger->transition_ns += ns;
    ledger->stage.transition_ns += ns;
}

/* ---- Stages ---- */

static rvli_mark *find_mark(rvl_context *context, const char *name)
{
    rvli_mark *mark = NULL;
    size_t length = strlen(name);
    HASH_FIND(hh, context->marks, name, length, mark);
    if (mark != NULL)
        return mark;
    mark = calloc(1, sizeof *mark + length + 1);
    if (mark == NULL)
        return NULL;
    memcpy(mark->name, name, length + 1);
    HASH_ADD_KEYPTR(hh, context->marks, mark->name, length, mark);
    if (mark->hh.tbl == NULL) { /* uthash found no memory and removed it */
        free(mark);
        return NULL;
    }
    return mark;
}

/* Returns a name such as "rollout#2". NULL: no memory. */
static char *numbered_name(const rvli_mark *mark)
{
    size_t size = strlen(mark->name) + sizeof "#4294967295";
    char *name = malloc(size);
    if (name != NULL)
        snprintf(name, size, "%s#%u", mark->name, mark->count + 1);
    return name;
}

static bool grow_stages(rvl_context *context)
{
    return RVLI_ROOM(context->stages, context->stage_count, context->stage_capacity, 16);
}

/* Returns the current stage as if it ended now. */
static rvli_stage_device ended_now(const rvli_ledger *ledger)
{
    rvli_stage_device stage = ledger->stage;
    stage.end_bytes = ledger->used_bytes;
    stage.host_end_bytes = ledger->host_bytes;
    return stage;
}

/* Records the shares of the current stage's peak. Holders with different bytes now stay touched. */
static void settle_shares(rvli_ledger *ledger)
{
    rvli_history *history = &ledger->history;
    rvli_holder *holder = history->touched;
    history->touched = NULL;
    history->touched_count = 0;
    while (holder != NULL) {
        rvli_holder *next = holder->past.next;
        holder->past.touched = false;
        if (rvli_history_settle(history, holder, share_at_peak(ledger, holder)))
            rvli_history_touch(history, holder);
        holder = next;
    }
}

/* Begins a stage with what is in use: its peak is at least that. */
static void begin_with_what_is(rvli_ledger *ledger)
{
    ledger->stage =
        (rvli_stage_device){.peak_bytes = ledger->used_bytes, .host_bytes = ledger->host_bytes};
    ledger->part_bytes_at_peak = ledger->part_bytes;
    ledger->epoch++;
}

static void turn_stage(rvli_ledger *ledger, uint32_t ending)
{
    rvli_stage_device ended = ended_now(ledger);
    settle_shares(ledger);
    rvli_history_end_stage(&ledger->history, ending, &ended);
    begin_with_what_is(ledger);
}

static rvl_status reserve_histories(rvl_context *context)
{
    rvl_status status = RVL_OK;
    for (int device = 0; device < context->device_count && status == RVL_OK; device++)
        status = rvli_history_reserve(&context->devices[device].ledger.history);
    return status;
}

/* Reserves room for one more stage, and for the end of the current one. */
static rvl_status reserve_stage(rvl_context *context)
{
    if (!grow_stages(context))
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a stage");
    return context->stage_count > 0 ? reserve_histories(context) : RVL_OK;
}

/* Requires reserve_stage(). */
static void add_stage(rvl_context *context, const char *name, const char *mark)
{
    for (int device = 0; context->stage_count > 0 && device < context->device_count; device++)
        turn_stage(&context->devices[device].ledger, context->stage_count - 1);
    context->stages[context->stage_count++] =
        (rvli_stage){.name = name, .mark = mark, .step = context->step};
}

rvl_status rvli_ledger_begin_stage(rvl_context *context, const char *name)
{
    rvli_mark *mark = find_mark(context, name);
    if (mark == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a stage");
    rvl_status status = reserve_stage(context);
    if (status != RVL_OK)
        return status;
    char *numbered = NULL;
    if (mark->count > 0 && (numbered = numbered_name(mark)) == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a stage");
    mark->count++;
    add_stage(context, numbered != NULL ? numbered : mark->name, mark->name);
    return RVL_OK;
}

rvl_status rvli_ledger_next_segment(rvl_context *context)
{
    static const char name[] = "segment";
    rvl_status status = reserve_stage(context);
    if (status == RVL_OK)
        add_stage(context, name, name);
    return status;
}

void rvli_ledger_begin_again(rvl_context *context)
{
    for (int device = 0; device < context->device_count; device++)
        begin_with_what_is(&context->devices[device].ledger);
}

rvli_stage_device rvli_ledger_stage(const rvl_context *context, uint32_t stage, int device)
{
    const rvli_ledger *ledger = &context->devices[device].ledger;
    return stage + 1 == context->stage_count ? ended_now(ledger)
                                             : rvli_history_stage(&ledger->history, stage);
}

/*
 * The current stage has no recorded changes yet. So this shows them in the view, and then undoes
 * that.
 */
static size_t copy_current(rvli_ledger *ledger, const rvli_elements_out *holders_out)
{
    rvli_history *history = &ledger->history;
    for (rvli_holder *each = history->touched; each != NULL; each = each->past.next)
        rvli_history_show(history, each, share_at_peak(ledger, each));
    size_t count = rvli_history_copy_view(history, holders_out);
    for (rvli_holder *each = history->touched; each != NULL; each = each->past.next)
        rvli_history_show(history, each, each->past.recorded_bytes);
    return count;
}

size_t rvli_ledger_copy_holders(rvl_context *context, uint32_t stage, int device,
                                const rvli_elements_out *holders_out)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    rvli_history_look_at(&ledger->history, stage);
    if (stage + 1 == context->stage_count)
        return copy_current(ledger, holders_out);
    return rvli_history_copy_view(&ledger->history, holders_out);
}

void rvli_ledger_destroy(rvl_context *context)
{
    for (uint32_t i = 0; i < context->stage_count; i++) {
        if (context->stages[i].name != context->stages[i].mark)
            free((void *)(uintptr_t)context->stages[i].name);
    }
    free(context->stages);

    rvli_mark *mark, *next_mark;
    HASH_ITER (hh, context->marks, mark, next_mark) {
        HASH_DEL(context->marks, mark);
        free(mark);
    }
    /* There are no devices yet if opening has failed. */
    for (int device = 0; context->devices != NULL && device < context->device_count; device++) {
        rvli_cause *cause, *next_cause;
        rvli_history_destroy(&context->devices[device].ledger.history);
        HASH_ITER (hh, context->devices[device].ledger.causes, cause, next_cause) {
            HASH_DEL(context->devices[device].ledger.causes, cause);
            free(cause);
        }
    }
}
