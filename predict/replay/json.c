/* SPDX-License-Identifier: MIT */
/*
 * The result as JSON, schema 1 (docs/replay.md). Keys appear in the order in which they are set.
 *
 * Each stage is built and written before the next one, so that a result of many stages is never in
 * memory as a whole.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "predict/replay/replay_internal.h"
#include "reveille/verdict.h"

#define SCHEMA 1
#define SECONDS_DIGITS 15 /* significant digits: nanoseconds of eleven days */
#define NS_PER_SECOND 1e9

static json_t *stage_name_of(const rvl_replay *replay, size_t device, uint32_t stage)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    if (rvl_replay_get_stage(replay, device, stage, &stats, NULL) != RVL_OK)
        return json_null(); /* nothing happened, so no stage is listed */
    return rvli_json_text(stats.name);
}

static json_t *holders_to_json(const rvl_holder *holders, size_t count, bool *ok)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *holder = json_object();
        rvli_json_set(holder, "process", rvli_json_text(holders[i].process), ok);
        rvli_json_set(holder, "tag", rvli_json_text(holders[i].tag), ok);
        rvli_json_set(holder, "bytes", rvli_json_bytes(holders[i].bytes), ok);
        rvli_json_append(array, holder, ok);
    }
    return array;
}

/* The number and the sum of the holders that are not listed. */
static json_t *others_to_json(size_t count, uint64_t bytes, bool *ok)
{
    json_t *object = json_object();
    rvli_json_set(object, "count", json_integer((json_int_t)count), ok);
    rvli_json_set(object, "bytes", rvli_json_bytes(bytes), ok);
    return object;
}

/* Adds measured and sampled bytes, if there are any. Having none is not a failure of the call. */
static void add_truth(json_t *object, const rvl_replay *replay, size_t device, uint32_t stage,
                      bool *ok)
{
    uint64_t peak_bytes, end_bytes, read_bytes, predicted_bytes;
    rvl_error before = *rvli_error_get();
    if (rvl_replay_get_measured(replay, device, stage, &peak_bytes, &end_bytes) == RVL_OK) {
        rvli_json_set(object, "measured_peak_bytes", rvli_json_bytes(peak_bytes), ok);
        rvli_json_set(object, "measured_end_bytes", rvli_json_bytes(end_bytes), ok);
    }
    if (rvl_replay_get_reading(replay, device, stage, &read_bytes, &predicted_bytes) == RVL_OK) {
        rvli_json_set(object, "read_bytes", rvli_json_bytes(read_bytes), ok);
        rvli_json_set(object, "predicted_bytes", rvli_json_bytes(predicted_bytes), ok);
    }
    rvli_error_set(&before);
}

/* Adds the process and number of a stage if its name is ambiguous. */
static void add_mark(json_t *object, const rvl_replay *replay, size_t device, uint32_t stage,
                     const rvl_stage_stats *stats, bool *ok)
{
    rvl_replay_mark mark = {.struct_size = sizeof mark};
    if (rvl_replay_get_mark(replay, device, stage, &mark) != RVL_OK)
        *ok = false;
    if (!(mark.flags & RVL_REPLAY_MARK_OF_PROCESS))
        return;
    rvli_json_set(object, "mark", rvli_json_text(stats->mark), ok);
    rvli_json_set(object, "instance", json_integer(mark.number), ok);
    rvli_json_set(object, "process", rvli_json_text(mark.process), ok);
    rvli_json_set(object, "rank", mark.rank != RVL_NO_RANK ? json_integer(mark.rank) : json_null(),
                  ok);
    if (mark.count > 1)
        rvli_json_set(object, "merged", json_integer(mark.count), ok);
}

static json_t *stage_to_json(const rvl_replay *replay, size_t device, uint32_t stage, bool *ok)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    size_t count = 0;
    json_t *object = json_object();
    if (rvl_replay_get_stage(replay, device, stage, &stats, NULL) != RVL_OK ||
        rvl_replay_get_holders(replay, device, stage, holders, sizeof *holders,
                               RVL_REPLAY_LISTED_HOLDERS, &count) != RVL_OK)
        *ok = false;
    size_t listed = count < RVL_REPLAY_LISTED_HOLDERS ? count : RVL_REPLAY_LISTED_HOLDERS;
    rvli_json_set(object, "name", rvli_json_text(stats.name), ok);
    rvli_json_set(object, "peak_bytes", rvli_json_bytes(stats.peak_bytes), ok);
    rvli_json_set(object, "end_bytes", rvli_json_bytes(stats.end_bytes), ok);
    rvli_json_set(object, "free_at_peak_bytes", rvli_json_bytes(stats.free_at_peak_bytes), ok);
    rvli_json_set(object, "host_bytes", rvli_json_bytes(stats.host_bytes), ok);
    rvli_json_set(object, "seconds", json_real((double)stats.transition_ns / NS_PER_SECOND), ok);
    rvli_json_set(object, "at_peak", holders_to_json(holders, listed, ok), ok);
    add_truth(object, replay, device, stage, ok);
    if (count > listed) {
        uint64_t rest_bytes = stats.peak_bytes;
        for (size_t i = 0; i < listed; i++)
            rest_bytes -= holders[i].bytes;
        rvli_json_set(object, "at_peak_others", others_to_json(count - listed, rest_bytes, ok), ok);
    }
    add_mark(object, replay, device, stage, &stats, ok);
    return object;
}

static json_t *oom_to_json(const rvl_replay *replay, size_t index, const rvl_replay_device *device,
                           bool *ok)
{
    if (device->oom_process == NULL)
        return json_null();
    json_t *object = json_object();
    rvli_json_set(object, "file", rvli_json_text(device->oom_file), ok);
    rvli_json_set(object, "line", json_integer(device->oom_line), ok);
    rvli_json_set(object, "stage", stage_name_of(replay, index, device->oom_stage), ok);
    rvli_json_set(object, "process", rvli_json_text(device->oom_process), ok);
    rvli_json_set(object, "tag", rvli_json_text(device->oom_tag), ok);
    rvli_json_set(object, "requested_bytes", rvli_json_bytes(device->oom_requested_bytes), ok);
    rvli_json_set(object, "free_bytes", rvli_json_bytes(device->oom_free_bytes), ok);
    return object;
}

static json_t *device_to_json(const rvl_replay *replay, size_t index,
                              const rvl_replay_device *device, bool has_verdict, bool *ok)
{
    json_t *object = json_object();
    rvli_json_set(object, "device", json_integer(device->device), ok);
    rvli_json_set(object, "profile", rvli_json_text(device->profile), ok);
    rvli_json_set(object, "capacity_bytes", rvli_json_bytes(device->capacity_bytes), ok);
    rvli_json_set(object, "peak_bytes", rvli_json_bytes(device->peak_bytes), ok);
    rvli_json_set(object, "peak_stage", stage_name_of(replay, index, device->peak_stage), ok);
    rvli_json_set(object, "fits", has_verdict ? json_boolean(device->fits) : json_null(), ok);
    rvli_json_set(object, "oom", oom_to_json(replay, index, device, ok), ok);
    return object;
}

/* ---- Writing ---- */

typedef struct writer {
    rvl_replay_write_fn write;
    void *user;
    rvl_status status; /* of the first failure */
} writer;

static void put(writer *out, const char *text, size_t size)
{
    if (out->status == RVL_OK && !out->write(out->user, text, size))
        out->status =
            rvli_error(RVL_ERR_IO, "the function that takes the text of the replay has failed");
}

static void put_text(writer *out, const char *text)
{
    put(out, text, strlen(text));
}

/* Writes a value and releases it. goes_on: leaves out the brace at the end of the object. */
static void put_json(writer *out, json_t *value, bool ok, bool goes_on)
{
    char *text = ok ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(SECONDS_DIGITS)) : NULL;
    json_decref(value);
    if (text == NULL && out->status == RVL_OK)
        out->status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for a device of a replay");
    if (text != NULL)
        put(out, text, strlen(text) - goes_on);
    free(text);
}

/* Writes the doubt of a capacity that is only an upper bound. */
static void put_doubt(writer *out, const rvl_replay_device *device)
{
    char text[96];
    bool surely = device->fits && !(device->flags & RVL_REPLAY_DEVICE_DOUBTFUL);
    if (device->capacity_doubt_bytes == 0)
        return;
    snprintf(text, sizeof text, ",\"capacity_doubt_bytes\":%" PRIu64 ",\"fits_surely\":%s",
             device->capacity_doubt_bytes, surely ? "true" : "false");
    put_text(out, text);
}

static void put_device(writer *out, const rvl_replay *replay, size_t index, bool has_verdict)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    bool ok = rvl_replay_get_device(replay, index, &device) == RVL_OK;
    json_t *object = device_to_json(replay, index, &device, has_verdict, &ok);
    put_json(out, object, ok, true);
    put_text(out, ",\"stages\":[");
    for (uint32_t stage = 0; stage < device.stage_count && out->status == RVL_OK; stage++) {
        bool whole = true;
        object = stage_to_json(replay, index, stage, &whole);
        if (stage > 0)
            put_text(out, ",");
        put_json(out, object, whole, false);
    }
    put_text(out, device.flags & RVL_REPLAY_DEVICE_ASSUMED ? "],\"assumed\":true" : "]");
    put_doubt(out, &device);
    put_text(out, "}");
}

/* A refused request; null: there is none. */
static json_t *refusal_to_json(const rvli_refusal *refusal, bool *ok)
{
    if (refusal->number == 0)
        return json_null();
    json_t *object = json_object();
    rvli_json_set(object, "process", rvli_json_text(refusal->process), ok);
    rvli_json_set(object, "tag", rvli_json_text(refusal->tag), ok);
    rvli_json_set(object, "device",
                  refusal->device == RVL_NO_DEVICE ? json_null() : json_integer(refusal->device),
                  ok);
    rvli_json_set(object, "stage", rvli_json_text(refusal->stage), ok);
    rvli_json_set(object, "where", rvli_json_text(refusal->where), ok);
    rvli_json_set(object, "requested_bytes", rvli_json_bytes(refusal->requested_bytes), ok);
    rvli_json_set(object, "free_bytes", rvli_json_bytes(refusal->free_bytes), ok);
    return object;
}

static json_t *failure_to_json(const rvli_failure *failure, bool *ok)
{
    json_t *object = json_object();
    rvli_json_set(object, "process", rvli_json_text(failure->process), ok);
    if (failure->stage != NULL)
        rvli_json_set(object, "stage", rvli_json_text(failure->stage), ok);
    if (failure->how != NULL)
        rvli_json_set(object, "how", rvli_json_text(failure->how), ok);
    return object;
}

static json_t *refused_to_json(const rvl_replay *replay, bool *ok)
{
    json_t *object = json_object();
    rvli_json_set(object, "count", json_integer((json_int_t)replay->outcome.refused), ok);
    rvli_json_set(object, "cured", json_integer((json_int_t)replay->outcome.cured), ok);
    rvli_json_set(object, "first", refusal_to_json(&replay->outcome.first, ok), ok);
    return object;
}

static void put_verdict(writer *out, const rvl_replay *replay, const rvl_verdict *verdict)
{
    bool ok = true;
    json_t *object = json_object(), *said = json_object();
    rvli_json_set(said, "kind", json_string(rvl_verdict_keyword(verdict->kind)), &ok);
    rvli_json_set(said, "text", rvli_json_text(verdict->text), &ok);
    rvli_json_set(said, "spare_bytes", rvli_json_bytes(verdict->spare_bytes), &ok);
    rvli_json_set(said, "headroom_bytes", rvli_json_bytes(verdict->headroom_bytes), &ok);
    if (verdict->waits != NULL)
        rvli_json_set(said, "waits", rvli_json_text(verdict->waits), &ok);
    const rvli_outcome *outcome = &replay->outcome;
    if (verdict->kind == RVL_VERDICT_FAILED && outcome->failure.process != NULL)
        rvli_json_set(said, "failed_first", failure_to_json(&outcome->failure, &ok), &ok);
    if (verdict->kind == RVL_VERDICT_FAILED && outcome->reason.process != NULL)
        rvli_json_set(said, "failed_because", failure_to_json(&outcome->reason, &ok), &ok);
    rvli_json_set(object, "verdict", said, &ok);
    rvli_json_set(object, "refused", refused_to_json(replay, &ok), &ok);
    if (verdict->ended)
        rvli_json_set(object, verdict->by_signal ? "signal" : "exit_status",
                      json_integer(verdict->exit_status), &ok);
    char *text = ok ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text == NULL && out->status == RVL_OK)
        out->status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for the verdict of a replay");
    if (text != NULL) {
        put_text(out, ",");
        put_text(out, text + 1); /* its keys continue the open object */
    }
    free(text);
}

rvl_status rvl_replay_write_json(const rvl_replay *replay, rvl_replay_write_fn write, void *user)
{
    writer out = {.write = write, .user = user, .status = RVL_OK};
    char text[64];
    if (replay == NULL || write == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay or write is NULL");
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    rvl_status status = rvl_replay_get_verdict(replay, &verdict);
    if (status != RVL_OK)
        return status;
    bool has_verdict = verdict.kind != RVL_VERDICT_FAILED && verdict.kind != RVL_VERDICT_NO_GPU &&
                       verdict.kind != RVL_VERDICT_CUT_OFF;
    snprintf(text, sizeof text, "{\"schema\":%d,\"devices\":[", SCHEMA);
    put_text(&out, text);
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        if (i > 0)
            put_text(&out, ",");
        put_device(&out, replay, i, has_verdict);
    }
    snprintf(text, sizeof text, "],\"events\":%" PRIu64, rvl_replay_event_count(replay, NULL));
    put_text(&out, text);
    put_verdict(&out, replay, &verdict);
    return out.status;
}

/* ---- In memory ---- */

typedef struct text_buffer {
    char *text;
    size_t size;
    size_t capacity;
} text_buffer;

/* Appends text, and keeps room for the final zero byte. */
static bool add_text(void *user, const char *text, size_t size)
{
    text_buffer *buffer = user;
    if (buffer->size + size >= buffer->capacity) {
        size_t capacity = 2 * buffer->capacity + size + 1;
        char *grown = realloc(buffer->text, capacity);
        if (grown == NULL)
            return false;
        buffer->text = grown;
        buffer->capacity = capacity;
    }
    memcpy(buffer->text + buffer->size, text, size);
    buffer->size += size;
    buffer->text[buffer->size] = '\0';
    return true;
}

rvl_status rvl_replay_to_json(const rvl_replay *replay, char **json_out)
{
    text_buffer buffer = {0};
    if (replay == NULL || json_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay or json_out is NULL");
    rvl_status status = rvl_replay_write_json(replay, add_text, &buffer);
    if (status != RVL_OK) {
        free(buffer.text);
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the text of a replay");
    }
    *json_out = buffer.text;
    return RVL_OK;
}
