/* SPDX-License-Identifier: MIT */
/* The result, field by field and as JSON, schema 1 (docs/snapshot.md). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/options.h"
#include "predict/snapshot/json.h"
#include "predict/snapshot/run.h"

#define SCHEMA 1

/* ---- Fields ---- */

rvl_status rvl_snapshot_get_facts(const rvl_snapshot *snapshot, rvl_snapshot_facts *facts_out)
{
    if (snapshot == NULL)
        return RVL_ERR_INVALID;
    return rvli_result_write(facts_out, &snapshot->facts, sizeof snapshot->facts);
}

const char *rvl_snapshot_note(const rvl_snapshot *snapshot, uint32_t note)
{
    static const char *const texts[] = {
#define NOTE_TEXT(name, text) text,
        RVLI_NOTE_MAP(NOTE_TEXT)
#undef NOTE_TEXT
    };
    for (uint32_t i = 0; snapshot != NULL && i < RVLI_NOTE_COUNT; i++) {
        if (snapshot->notes[i] && note-- == 0)
            return texts[i];
    }
    return NULL;
}

rvl_status rvl_snapshot_get_stage(const rvl_snapshot *snapshot, uint32_t stage,
                                  rvl_snapshot_stage *stage_out)
{
    if (snapshot == NULL)
        return RVL_ERR_INVALID;
    if (stage >= snapshot->facts.stage_count)
        return RVL_ERR_NOT_FOUND;
    const rvli_snapshot_stage *from = &snapshot->stages[stage];
    const rvli_bytes *bytes = &from->at_peak;
    rvl_snapshot_stage to = {
        .struct_size = sizeof to,
        .name = from->name,
        .peak_allocated_bytes = from->peak_allocated,
        .peak_reserved_bytes = bytes->reserved,
        .end_reserved_bytes = from->end_reserved,
        .num_alloc_retries = from->retries,
        .rounding_bytes = bytes->allocated - bytes->requested,
        .split_bytes = bytes->free_bytes - bytes->releasable,
        .cached_bytes = bytes->releasable,
        .pending_bytes = bytes->pending,
        .pinned_bytes = from->pinned,
        .pinning_event = from->pinning_event,
        .pinning_addr = from->pinning_addr,
        .pinning_size_bytes = from->pinning_size,
    };
    return rvli_result_write(stage_out, &to, sizeof to);
}

rvl_status rvl_snapshot_get_part(const rvl_snapshot *snapshot, uint32_t stage, uint32_t part,
                                 rvl_snapshot_part *part_out)
{
    if (snapshot == NULL)
        return RVL_ERR_INVALID;
    if (stage >= snapshot->facts.stage_count || part >= snapshot->stages[stage].holdings.part_count)
        return RVL_ERR_NOT_FOUND;
    const rvli_held_part *from = &snapshot->stages[stage].holdings.parts[part];
    rvl_snapshot_part to = {
        .struct_size = sizeof to, .tag = from->tag, .module = from->module, .bytes = from->bytes};
    return rvli_result_write(part_out, &to, sizeof to);
}

static rvl_status write_line(const rvli_held_line *from, rvl_snapshot_line *line_out)
{
    rvl_snapshot_line to = {.struct_size = sizeof to,
                            .tag = from->tag,
                            .name = from->name,
                            .file = from->file,
                            .via_name = from->via_name,
                            .via_file = from->via_file,
                            .module = from->module,
                            .line = from->line,
                            .via_line = from->via_line,
                            .bytes = from->bytes,
                            .count = from->count};
    return rvli_result_write(line_out, &to, sizeof to);
}

rvl_status rvl_snapshot_get_line(const rvl_snapshot *snapshot, uint32_t stage, uint32_t line,
                                 rvl_snapshot_line *line_out)
{
    if (snapshot == NULL)
        return RVL_ERR_INVALID;
    if (stage >= snapshot->facts.stage_count || line >= snapshot->stages[stage].holdings.line_count)
        return RVL_ERR_NOT_FOUND;
    return write_line(&snapshot->stages[stage].holdings.lines[line], line_out);
}

rvl_status rvl_snapshot_get_call(const rvl_snapshot *snapshot, uint32_t stage, uint32_t call,
                                 rvl_snapshot_line *call_out)
{
    if (snapshot == NULL)
        return RVL_ERR_INVALID;
    if (stage >= snapshot->facts.stage_count || call >= snapshot->stages[stage].holdings.call_count)
        return RVL_ERR_NOT_FOUND;
    return write_line(&snapshot->stages[stage].holdings.calls[call], call_out);
}

/* ---- JSON ---- */

static json_t *divergence_to_json(const rvl_snapshot_facts *facts, bool *ok)
{
    if (!facts->diverged)
        return json_null();
    json_t *object = json_object();
    const char *action = facts->diverged_action;
    rvli_json_set(object, "event", rvli_json_bytes(facts->diverged_at), ok);
    rvli_json_set(object, "action", rvli_json_text(action), ok);
    rvli_json_set(object, "why", json_string(facts->diverged_why), ok);
    rvli_json_set(object, "recorded_addr", rvli_json_bytes(facts->diverged_addr), ok);
    rvli_json_set(object, "recorded_bytes", rvli_json_bytes(facts->diverged_bytes), ok);
    rvli_json_set(object, "model_addr", rvli_json_bytes(facts->diverged_expected_addr), ok);
    rvli_json_set(object, "model_bytes", rvli_json_bytes(facts->diverged_expected_bytes), ok);
    return object;
}

static json_t *pinned_to_json(const rvl_snapshot_stage *stage, bool *ok)
{
    if (stage->pinned_bytes == 0)
        return json_null();
    json_t *object = json_object();
    rvli_json_set(object, "bytes", rvli_json_bytes(stage->pinned_bytes), ok);
    bool known = stage->pinning_event != UINT64_MAX;
    rvli_json_set(object, "event", known ? rvli_json_bytes(stage->pinning_event) : json_null(), ok);
    rvli_json_set(object, "addr", rvli_json_bytes(stage->pinning_addr), ok);
    rvli_json_set(object, "size_bytes", rvli_json_bytes(stage->pinning_size_bytes), ok);
    return object;
}

static json_t *parts_to_json(const rvl_snapshot *snapshot, uint32_t stage, bool *ok)
{
    rvl_snapshot_part part = {.struct_size = sizeof part};
    json_t *array = json_array();
    for (uint32_t i = 0; rvl_snapshot_get_part(snapshot, stage, i, &part) == RVL_OK; i++)
        rvli_json_append(array, rvli_snapshot_part_json(&part, ok), ok);
    return array;
}

static json_t *lines_to_json(const rvl_snapshot *snapshot, uint32_t stage, bool *ok)
{
    rvl_snapshot_line line = {.struct_size = sizeof line};
    json_t *array = json_array();
    for (uint32_t i = 0; rvl_snapshot_get_line(snapshot, stage, i, &line) == RVL_OK; i++)
        rvli_json_append(array, rvli_snapshot_line_json(&line, ok), ok);
    return array;
}

static json_t *stage_to_json(const rvl_snapshot *snapshot, uint32_t index, bool *ok)
{
    rvl_snapshot_stage stage = {.struct_size = sizeof stage};
    json_t *object = json_object();
    json_t *gap = json_object();
    if (rvl_snapshot_get_stage(snapshot, index, &stage) != RVL_OK)
        *ok = false;
    rvli_json_set(gap, "rounding_bytes", rvli_json_bytes(stage.rounding_bytes), ok);
    rvli_json_set(gap, "split_bytes", rvli_json_bytes(stage.split_bytes), ok);
    rvli_json_set(gap, "cached_bytes", rvli_json_bytes(stage.cached_bytes), ok);
    rvli_json_set(gap, "pending_bytes", rvli_json_bytes(stage.pending_bytes), ok);
    rvli_json_set(object, "name", rvli_json_text(stage.name), ok);
    rvli_json_set(object, "peak_allocated_bytes", rvli_json_bytes(stage.peak_allocated_bytes), ok);
    rvli_json_set(object, "peak_reserved_bytes", rvli_json_bytes(stage.peak_reserved_bytes), ok);
    rvli_json_set(object, "end_reserved_bytes", rvli_json_bytes(stage.end_reserved_bytes), ok);
    rvli_json_set(object, "num_alloc_retries", rvli_json_bytes(stage.num_alloc_retries), ok);
    rvli_json_set(object, "gap", gap, ok);
    rvli_json_set(object, "pinned_by", pinned_to_json(&stage, ok), ok);
    if (snapshot->stages[index].holdings.part_count > 0) {
        rvli_json_set(object, "at_peak", parts_to_json(snapshot, index, ok), ok);
        rvli_json_set(object, "lines", lines_to_json(snapshot, index, ok), ok);
    }
    return object;
}

static json_t *oom_to_json(const rvl_snapshot_facts *facts, bool *ok)
{
    if (facts->oom_count == 0)
        return json_null();
    json_t *object = json_object();
    rvli_json_set(object, "count", rvli_json_bytes(facts->oom_count), ok);
    rvli_json_set(object, "event", rvli_json_bytes(facts->oom_event), ok);
    rvli_json_set(object, "requested_bytes", rvli_json_bytes(facts->oom_requested_bytes), ok);
    return object;
}

static json_t *capacity_to_json(const rvl_snapshot_facts *facts, bool *ok)
{
    if (facts->capacity_bytes == 0)
        return json_null();
    json_t *object = json_object();
    rvli_json_set(object, "bytes", rvli_json_bytes(facts->capacity_bytes), ok);
    rvli_json_set(object, "from", json_string(facts->capacity_recorded ? "recording" : "options"),
                  ok);
    return object;
}

rvl_status rvl_snapshot_to_json(const rvl_snapshot *snapshot, char **json_out)
{
    if (snapshot == NULL || json_out == NULL)
        return RVL_ERR_INVALID;
    const rvl_snapshot_facts *facts = &snapshot->facts;
    bool ok = true;
    json_t *root = json_object(), *stages = json_array(), *notes = json_array();
    for (uint32_t i = 0; i < facts->stage_count; i++)
        rvli_json_append(stages, stage_to_json(snapshot, i, &ok), &ok);
    for (uint32_t i = 0; i < facts->note_count; i++)
        rvli_json_append(notes, json_string(rvl_snapshot_note(snapshot, i)), &ok);
    rvli_json_set(root, "schema", json_integer(SCHEMA), &ok);
    rvli_json_set(root, "mode", json_string(facts->verify ? "verify" : "predict"), &ok);
    rvli_json_set(root, "diverged_at", divergence_to_json(facts, &ok), &ok);
    rvli_json_set(root, "stages", stages, &ok);
    rvli_json_set(root, "skipped_events", rvli_json_bytes(facts->skipped_count), &ok);
    rvli_json_set(root, "confidence", json_string(facts->exact ? "exact" : "interval"), &ok);
    rvli_json_set(root, "notes", notes, &ok);
    rvli_json_set(root, "oom", oom_to_json(facts, &ok), &ok);
    rvli_json_set(root, "capacity", capacity_to_json(facts, &ok), &ok);
    char *text = ok ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL)
        return RVL_ERR_HOST_OOM;
    *json_out = text;
    return RVL_OK;
}
