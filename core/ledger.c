/* SPDX-License-Identifier: MIT */
#include "core/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/model.h"

/* Process name of the ledger's own holders (kept and stranded blocks). */
#define OWN_PROCESS "reveille"

/* Before a holder changes for the first time in an epoch: what it had at the peak is what it has.
 */
static void note_peak_share(const rvli_ledger *ledger, rvli_holder *holder)
{
    if (holder->epoch != ledger->epoch) {
        holder->bytes_at_peak = holder->bytes;
        holder->epoch = ledger->epoch;
    }
}

static uint64_t share_at_peak(const rvli_ledger *ledger, const rvli_holder *holder)
{
    return holder->epoch == ledger->epoch ? holder->bytes_at_peak : holder->bytes;
}

static rvli_stage_device *current_stage(rvl_context *context, int device)
{
    return &context->stages[context->stage_count - 1].devices[device];
}

void rvli_ledger_add(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    rvli_stage_device *stage = current_stage(context, device);

    ledger->used_bytes += bytes;
    if (ledger->used_bytes > stage->peak_bytes) {
        stage->peak_bytes = ledger->used_bytes;
        ledger->epoch++;
    } else {
        note_peak_share(ledger, holder);
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

void rvli_ledger_host_add(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    rvli_stage_device *stage = current_stage(context, device);
    ledger->host_bytes += bytes;
    holder->host_bytes += bytes;
    if (ledger->host_bytes > ledger->host_peak_bytes)
        ledger->host_peak_bytes = ledger->host_bytes;
    if (ledger->host_bytes > stage->host_bytes)
        stage->host_bytes = ledger->host_bytes;
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
    context->devices[device].ledger.transition_ns += ns;
    current_stage(context, device)->transition_ns += ns;
}

/* ---- Shares of a peak ---- */

static size_t count_holders(const rvl_context *context, int device)
{
    const rvli_ledger *ledger = &context->devices[device].ledger;
    return atomic_load_explicit(&context->tag_count, memory_order_relaxed) +
           HASH_COUNT(ledger->causes) + 2;
}

static int compare_text(const char *left, const char *right)
{
    return strcmp(left ? left : "", right ? right : "");
}

static int compare_shares(const void *left, const void *right)
{
    const rvli_share *a = left;
    const rvli_share *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if ((a->process == NULL) != (b->process == NULL))
        return a->process == NULL ? 1 : -1;
    int by_process = compare_text(a->process, b->process);
    return by_process != 0 ? by_process : compare_text(a->tag, b->tag);
}

typedef struct share_list {
    rvli_share *shares;
    size_t count;
} share_list;

static void add_share(share_list *list, const rvli_ledger *ledger, const rvli_holder *holder,
                      const char *process, const char *tag)
{
    uint64_t bytes = share_at_peak(ledger, holder);
    if (bytes > 0)
        list->shares[list->count++] = (rvli_share){.process = process, .tag = tag, .bytes = bytes};
}

rvl_status rvli_ledger_shares(rvl_context *context, int device, rvli_share **shares_out,
                              size_t *count_out)
{
    const rvli_ledger *ledger = &context->devices[device].ledger;
    share_list list = {malloc(count_holders(context, device) * sizeof(rvli_share)), 0};
    if (list.shares == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the breakdown of a peak");

    uint32_t tag_count = atomic_load_explicit(&context->tag_count, memory_order_relaxed);
    for (rvl_tag number = 1; number <= tag_count; number++) {
        const rvli_tag *tag = rvli_tag_get(context, number);
        const char *name = tag->key->name[0] != '\0' ? tag->key->name : NULL;
        add_share(&list, ledger, &tag->holders[device], tag->process->name, name);
    }
    for (const rvli_cause *cause = ledger->causes; cause != NULL; cause = cause->hh.next)
        add_share(&list, ledger, &cause->holder, NULL, cause->name);
    add_share(&list, ledger, &ledger->kept, OWN_PROCESS, "kept");
    add_share(&list, ledger, &ledger->stranded, OWN_PROCESS, "stranded");

    qsort(list.shares, list.count, sizeof *list.shares, compare_shares);
    *shares_out = list.shares;
    *count_out = list.count;
    return RVL_OK;
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
    if (mark->hh.tbl == NULL) { /* uthash found no memory and took it out again */
        free(mark);
        return NULL;
    }
    return mark;
}

static char *stage_name(const rvli_mark *mark)
{
    size_t size = strlen(mark->name) + 16;
    char *name = malloc(size);
    if (name == NULL)
        return NULL;
    if (mark->count == 0)
        snprintf(name, size, "%s", mark->name);
    else
        snprintf(name, size, "%s#%u", mark->name, mark->count + 1);
    return name;
}

static bool grow_stages(rvl_context *context)
{
    if (context->stage_count < context->stage_capacity)
        return true;
    uint32_t capacity = context->stage_capacity ? context->stage_capacity * 2 : 16;
    rvli_stage *stages = realloc(context->stages, capacity * sizeof *stages);
    if (stages == NULL)
        return false;
    context->stages = stages;
    context->stage_capacity = capacity;
    return true;
}

static void free_shares(rvl_context *context, rvli_stage_device *devices)
{
    for (int device = 0; device < context->device_count; device++) {
        free(devices[device].shares);
        devices[device].shares = NULL;
        devices[device].share_count = 0;
    }
}

/* Writes down what the current stage ends with. */
static rvl_status end_stage(rvl_context *context)
{
    rvli_stage_device *devices = context->stages[context->stage_count - 1].devices;
    for (int device = 0; device < context->device_count; device++) {
        rvl_status status = rvli_ledger_shares(context, device, &devices[device].shares,
                                               &devices[device].share_count);
        if (status != RVL_OK) {
            free_shares(context, devices);
            return status;
        }
        devices[device].end_bytes = context->devices[device].ledger.used_bytes;
    }
    return RVL_OK;
}

/* A stage inherits what is in use: its peak is at least that. */
static void open_stage(rvl_context *context, rvli_stage *stage)
{
    context->stages[context->stage_count++] = *stage;
    for (int device = 0; device < context->device_count; device++) {
        rvli_ledger *ledger = &context->devices[device].ledger;
        stage->devices[device].peak_bytes = ledger->used_bytes;
        stage->devices[device].host_bytes = ledger->host_bytes;
        ledger->epoch++;
    }
}

rvl_status rvli_ledger_begin_stage(rvl_context *context, const char *name)
{
    rvli_mark *mark = find_mark(context, name);
    if (mark == NULL || !grow_stages(context))
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a stage");
    rvli_stage stage = {
        .name = stage_name(mark),
        .mark = mark->name,
        .step = context->step,
        .devices = calloc((size_t)context->device_count, sizeof(rvli_stage_device)),
    };
    rvl_status status = RVL_OK;
    if (stage.name == NULL || stage.devices == NULL)
        status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for a stage");
    else if (context->stage_count > 0)
        status = end_stage(context);
    if (status != RVL_OK) {
        free(stage.name);
        free(stage.devices);
        return status;
    }
    mark->count++;
    open_stage(context, &stage);
    return RVL_OK;
}

void rvli_ledger_destroy(rvl_context *context)
{
    for (uint32_t i = 0; i < context->stage_count; i++) {
        free_shares(context, context->stages[i].devices);
        free(context->stages[i].devices);
        free(context->stages[i].name);
    }
    free(context->stages);

    rvli_mark *mark, *next_mark;
    HASH_ITER (hh, context->marks, mark, next_mark) {
        HASH_DEL(context->marks, mark);
        free(mark);
    }
    /* There may be no records yet: opening has failed. */
    for (int device = 0; context->devices != NULL && device < context->device_count; device++) {
        rvli_cause *cause, *next_cause;
        HASH_ITER (hh, context->devices[device].ledger.causes, cause, next_cause) {
            HASH_DEL(context->devices[device].ledger.causes, cause);
            free(cause);
        }
    }
}
