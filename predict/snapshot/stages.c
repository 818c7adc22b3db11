/* SPDX-License-Identifier: MIT */
/*
 * Stages: their edges, and the peaks between edges. Peaks are only kept since the last edge. At the
 * next edge they are passed to every open stage. So stages may overlap, and an entry costs two
 * comparisons.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/snapshot/run.h"

#define WHOLE_TRACE "all"
/* Each stage is compared with the others of its name, and with the open ones. */
#define STAGES_MAX 8192u
#define NAME_BYTES_MAX 255u /* as in traces */
/* Blocks and buckets to visit for pins in a run. Beyond this, pins are no longer searched for. */
#define PINNING_WORK_MAX (UINT64_C(1) << 24)

/* ---- Finding stages ---- */

static bool is_stage(const rvli_run *run, const rvli_annotation_row *row, const char *prefix,
                     bool any_device)
{
    size_t length = strlen(prefix);
    return (any_device || row->device == run->recording.device) && row->name_length >= length &&
           memcmp(run->recording.pickle.data + row->name_at, prefix, length) == 0;
}

rvl_status rvli_stages_check(const rvli_run *run, const char *prefix, char *message, size_t size)
{
    uint32_t starts = 0;
    for (uint32_t i = 0; i < run->recording.annotation_count; i++) {
        const rvli_annotation_row *row = &run->recording.annotations[i];
        if (!is_stage(run, row, prefix, true))
            continue;
        starts += row->start ? 1 : 0;
        if (row->name_length - strlen(prefix) > NAME_BYTES_MAX) {
            snprintf(message, size, "byte %" PRIu64 ": a stage's name of more than %u bytes",
                     row->name_at, NAME_BYTES_MAX);
            return RVL_ERR_CORRUPT_TRACE;
        }
        /* The rest of the code uses names as C strings. */
        if (memchr(run->recording.pickle.data + row->name_at, '\0', row->name_length) != NULL) {
            snprintf(message, size,
                     "byte %" PRIu64 ": a stage's name with a NUL in it: rename that annotation",
                     row->name_at);
            return RVL_ERR_CORRUPT_TRACE;
        }
    }
    if (starts <= STAGES_MAX)
        return RVL_OK;
    snprintf(message, size,
             "%" PRIu32 " annotations begin a stage, and %u may: name a longer prefix, which fewer "
             "of them have (--stage-prefix)",
             starts, STAGES_MAX);
    return RVL_ERR_CORRUPT_TRACE;
}

static bool same_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

/* Makes the name of a stage. A repeated name gets a number: "train", "train#2". NULL: no memory. */
static char *name_stage(const rvli_run *run, const char *text, size_t length)
{
    const rvl_snapshot *result = run->result;
    unsigned times = 1;
    char *name = NULL;
    for (uint32_t i = 0; i < result->facts.stage_count; i++) {
        const char *other = result->stages[i].name;
        if (strncmp(other, text, length) == 0 && (other[length] == '\0' || other[length] == '#'))
            times++;
    }
    if (times == 1)
        return strndup(text, length);
    return asprintf(&name, "%.*s#%u", (int)length, text, times) >= 0 ? name : NULL;
}

static rvl_status add_edge(rvli_run *run, int64_t time_us, uint32_t stage, bool start)
{
    run->edges[run->edge_count++] = (rvli_edge){.time_us = time_us, .stage = stage, .start = start};
    return RVL_OK;
}

static rvl_status add_stage(rvli_run *run, const char *text, size_t length, int64_t time_us)
{
    rvl_snapshot *result = run->result;
    char *name = name_stage(run, text, length);
    if (name == NULL)
        return RVL_ERR_HOST_OOM;
    uint32_t stage = result->facts.stage_count++;
    result->stages[stage] = (rvli_snapshot_stage){.name = name, .open = true};
    return add_edge(run, time_us, stage, true);
}

/* Ends the open stage of a name that began last. */
static void end_stage(rvli_run *run, const char *text, size_t length, int64_t time_us)
{
    rvl_snapshot *result = run->result;
    for (uint32_t i = result->facts.stage_count; i > 0; i--) {
        rvli_snapshot_stage *stage = &result->stages[i - 1];
        const char *number = strrchr(stage->name, '#');
        size_t plain = number != NULL && !same_name(stage->name, text, length)
                           ? (size_t)(number - stage->name)
                           : strlen(stage->name);
        if (stage->open && plain == length && memcmp(stage->name, text, length) == 0) {
            stage->open = false;
            add_edge(run, time_us, i - 1, false);
            return;
        }
    }
    result->notes[RVLI_NOTE_OPEN_STAGE] = true;
}

static rvl_status whole_trace(rvli_run *run)
{
    run->result->notes[RVLI_NOTE_NO_STAGES] = true;
    return add_stage(run, WHOLE_TRACE, strlen(WHOLE_TRACE), INT64_MIN);
}

static rvl_status find_on(rvli_run *run, const char *prefix, bool any_device)
{
    const rvli_recording *recording = &run->recording;
    size_t skip = strlen(prefix);
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < recording->annotation_count && status == RVL_OK; i++) {
        const rvli_annotation_row *row = &recording->annotations[i];
        if (!is_stage(run, row, prefix, any_device))
            continue;
        const char *text = (const char *)recording->pickle.data + row->name_at + skip;
        if (row->start)
            status = add_stage(run, text, row->name_length - skip, row->time_us);
        else
            end_stage(run, text, row->name_length - skip, row->time_us);
    }
    return status;
}

rvl_status rvli_stages_find(rvli_run *run, const char *prefix)
{
    const rvli_recording *recording = &run->recording;
    size_t most = recording->annotation_count + 1u;
    run->edges = calloc(most, sizeof *run->edges);
    run->result->stages = calloc(most, sizeof *run->result->stages);
    if (run->edges == NULL || run->result->stages == NULL)
        return RVL_ERR_HOST_OOM;
    rvl_status status = find_on(run, prefix, false);
    if (status == RVL_OK && run->result->facts.stage_count == 0) {
        run->result->notes[RVLI_NOTE_OPEN_STAGE] = false;
        status = find_on(run, prefix, true);
        run->result->notes[RVLI_NOTE_OTHER_THREADS] = run->result->facts.stage_count > 0;
    }
    if (status == RVL_OK && run->result->facts.stage_count == 0)
        return whole_trace(run);
    for (uint32_t i = 0; i < run->result->facts.stage_count; i++) {
        if (run->result->stages[i].open)
            run->result->notes[RVLI_NOTE_OPEN_STAGE] = true;
        run->result->stages[i].open = false;
    }
    return status;
}

/* ---- Peaks ---- */

void rvli_stages_peak(rvli_run *run)
{
    run->epoch.at_peak = run->allocator.bytes;
    if (!run->changed && run->allocator.bytes.reserved > run->highest)
        run->highest = run->allocator.bytes.reserved;
    run->epoch.pinned = 0;
    if (run->pinning_work > PINNING_WORK_MAX)
        return;
    const rvli_cached_block *block =
        rvli_allocator_pinning(&run->allocator, &run->epoch.pinned, &run->pinning_work);
    if (block == NULL)
        return;
    run->epoch.pinning_event = block->event;
    run->epoch.pinning_size = block->requested;
    run->epoch.pinning_addr = block->addr;
}

bool rvli_stages_more(const rvli_bytes *bytes, const rvli_bytes *than)
{
    return bytes->reserved > than->reserved ||
           (bytes->reserved == than->reserved && bytes->allocated > than->allocated);
}

static void begin_epoch(rvli_run *run)
{
    run->epoch.allocated = run->allocator.bytes.allocated;
    run->epoch.held = (rvli_held){run->allocator.bytes, run->instant};
    rvli_stages_peak(run);
}

static void give_peaks(rvli_run *run)
{
    for (uint32_t i = 0; i < run->result->facts.stage_count; i++) {
        rvli_snapshot_stage *stage = &run->result->stages[i];
        const rvli_epoch *epoch = &run->epoch;
        if (!stage->open)
            continue;
        if (epoch->allocated > stage->peak_allocated)
            stage->peak_allocated = epoch->allocated;
        if (!stage->seen || rvli_stages_more(&epoch->held.bytes, &stage->held.bytes))
            stage->held = epoch->held;
        if (stage->seen && epoch->at_peak.reserved <= stage->at_peak.reserved)
            continue;
        stage->seen = true;
        stage->at_peak = epoch->at_peak;
        stage->pinned = epoch->pinned;
        stage->pinning_event = epoch->pinning_event;
        stage->pinning_size = epoch->pinning_size;
        stage->pinning_addr = epoch->pinning_addr;
    }
}

static void close_stage(rvli_run *run, rvli_snapshot_stage *stage)
{
    stage->open = false;
    stage->end_reserved = run->allocator.bytes.reserved;
    stage->retries = run->allocator.retries;
    stage->bursts = run->burst_count;
}

static bool any_open(const rvli_run *run)
{
    for (uint32_t i = 0; i < run->result->facts.stage_count; i++) {
        if (run->result->stages[i].open)
            return true;
    }
    return false;
}

/*
 * Writes an edge to the trace. A trace has one stage at a time: the one that began last, or, once
 * all have ended, none.
 */
static rvl_status take_down(rvli_run *run, const rvli_edge *edge)
{
    int64_t time_us = edge->time_us > run->last_us ? run->last_us : edge->time_us;
    if (run->tracer == NULL || (!edge->start && any_open(run)))
        return RVL_OK;
    rvl_status status = rvli_tracer_hold(run->tracer, time_us, &run->allocator.bytes);
    return status == RVL_OK
               ? rvli_tracer_stage(run->tracer, time_us, edge->start ? edge->stage : UINT32_MAX)
               : status;
}

static rvl_status pass_edge(rvli_run *run, const rvli_edge *edge)
{
    rvli_snapshot_stage *stage = &run->result->stages[edge->stage];
    rvl_status status = rvli_queue_settle(run, NULL);
    if (status == RVL_OK && edge->start && run->changed && run->empty_cache_at_stages)
        status = rvli_allocator_empty_cache(&run->allocator);
    give_peaks(run);
    if (edge->start)
        stage->open = true;
    else
        close_stage(run, stage);
    begin_epoch(run);
    return status == RVL_OK ? take_down(run, edge) : status;
}

/* A start comes before the entries of its microsecond, an end after them. */
rvl_status rvli_stages_pass(rvli_run *run, int64_t time_us)
{
    rvl_status status = RVL_OK;
    while (status == RVL_OK && run->next_edge < run->edge_count) {
        const rvli_edge *edge = &run->edges[run->next_edge];
        if (edge->start ? edge->time_us > time_us : edge->time_us >= time_us)
            break;
        run->next_edge++;
        status = pass_edge(run, edge);
    }
    return status;
}

rvl_status rvli_stages_end(rvli_run *run)
{
    rvl_status status = RVL_OK;
    while (status == RVL_OK && run->next_edge < run->edge_count)
        status = pass_edge(run, &run->edges[run->next_edge++]);
    if (status == RVL_OK)
        status = rvli_queue_settle(run, NULL);
    give_peaks(run);
    for (uint32_t i = 0; i < run->result->facts.stage_count; i++) {
        if (run->result->stages[i].open)
            close_stage(run, &run->result->stages[i]);
    }
    return status;
}
