/* SPDX-License-Identifier: MIT */
/*
 * The result as JSON, schema 1 (docs/replay.md). Keys appear in the order in which they are set.
 *
 * A stage is made and written before the next one, so that a result of many stages never lies in
 * memory as a whole. jansson takes over every value that is set, and setting NULL, which is what
 * making a value answers without memory, fails: so one flag carries every failure to the end.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "predict/replay/replay_internal.h"
#include "reveille/verdict.h"

#define SCHEMA 1
#define SECONDS_DIGITS 15 /* significant ones: nanoseconds of eleven days */
#define NS_PER_SECOND 1e9

static void set(json_t *object, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(object, key, value) != 0)
        *ok = false;
}

static void append(json_t *array, json_t *value, bool *ok)
{
    if (json_array_append_new(array, value) != 0)
        *ok = false;
}

/* Names come from a trace and may hold any bytes; those that are no UTF-8 stay as traces write
 * them. */
static json_t *percent_encoded(const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    char *encoded = malloc(strlen(text) * 3 + 1);
    if (encoded == NULL)
        return NULL;
    char *end = encoded;
    for (const char *byte = text; *byte != '\0'; byte++) {
        unsigned char value = (unsigned char)*byte;
        if (value < 0x80) {
            *end++ = *byte;
            continue;
        }
        *end++ = '%';
        *end++ = digits[value >> 4];
        *end++ = digits[value & 15];
    }
    *end = '\0';
    json_t *json = json_string(encoded);
    free(encoded);
    return json;
}

static json_t *text_or_null(const char *text)
{
    if (text == NULL)
        return json_null();
    json_t *json = json_string(text);
    return json != NULL ? json : percent_encoded(text);
}

static json_t *bytes_of(uint64_t bytes)
{
    return json_integer(bytes > (uint64_t)INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

static json_t *stage_name_of(const rvl_replay *replay, size_t device, uint32_t stage)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    if (rvl_replay_get_stage(replay, device, stage, &stats, NULL) != RVL_OK)
        return json_null(); /* nothing happened: no stage is listed */
    return text_or_null(stats.name);
}

static json_t *holders_to_json(const rvl_holder *holders, size_t count, bool *ok)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *holder = json_object();
        set(holder, "process", text_or_null(holders[i].process), ok);
        set(holder, "tag", text_or_null(holders[i].tag), ok);
        set(holder, "bytes", bytes_of(holders[i].bytes), ok);
        append(array, holder, ok);
    }
    return array;
}

/* Holders that are not listed, as a sum. */
static json_t *others_to_json(size_t count, uint64_t bytes, bool *ok)
{
    json_t *object = json_object();
    set(object, "count", json_integer((json_int_t)count), ok);
    set(object, "bytes", bytes_of(bytes), ok);
    return object;
}

/* What was measured and read, where there is something: to have nothing is no failure of the call.
 */
static void add_truth(json_t *object, const rvl_replay *replay, size_t device, uint32_t stage,
                      bool *ok)
{
    uint64_t peak_bytes, end_bytes, read_bytes, predicted_bytes;
    rvl_error before = *rvli_error_get();
    if (rvl_replay_get_measured(replay, device, stage, &peak_bytes, &end_bytes) == RVL_OK) {
        set(object, "measured_peak_bytes", bytes_of(peak_bytes), ok);
        set(object, "measured_end_bytes", bytes_of(end_bytes), ok);
    }
    if (rvl_replay_get_reading(replay, device, stage, &read_bytes, &predicted_bytes) == RVL_OK) {
        set(object, "read_bytes", bytes_of(read_bytes), ok);
        set(object, "predicted_bytes", bytes_of(predicted_bytes), ok);
    }
    rvli_error_set(&before);
}

/* Which of several, where the name does not say it. */
static void add_mark(json_t *object, const rvl_replay *replay, size_t device, uint32_t stage,
                     const rvl_stage_stats *stats, bool *ok)
{
    rvl_replay_mark mark = {.struct_size = sizeof mark};
    if (rvl_replay_get_mark(replay, device, stage, &mark) != RVL_OK)
        *ok = false;
    if (!(mark.flags & RVL_REPLAY_MARK_OF_PROCESS))
        return;
    set(object, "mark", text_or_null(stats->mark), ok);
    set(object, "instance", json_integer(mark.number), ok);
    set(object, "process", text_or_null(mark.process), ok);
    set(object, "rank", mark.rank != RVL_NO_RANK ? json_integer(mark.rank) : json_null(), ok);
    if (mark.count > 1)
        set(object, "merged", json_integer(mark.count), ok);
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
    set(object, "name", text_or_null(stats.name), ok);
    set(object, "peak_bytes", bytes_of(stats.peak_bytes), ok);
    set(object, "end_bytes", bytes_of(stats.end_bytes), ok);
    set(object, "free_at_peak_bytes", bytes_of(stats.free_at_peak_bytes), ok);
    set(object, "host_bytes", bytes_of(stats.host_bytes), ok);
    set(object, "seconds", json_real((double)stats.transition_ns / NS_PER_SECOND), ok);
    set(object, "at_peak", holders_to_json(holders, listed, ok), ok);
    add_truth(object, replay, device, stage, ok);
    if (count > listed) {
        uint64_t rest_bytes = stats.peak_bytes;
        for (size_t i = 0; i < listed; i++)
            rest_bytes -= holders[i].bytes;
        set(object, "at_peak_others", others_to_json(count - listed, rest_bytes, ok), ok);
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
    set(object, "file", text_or_null(device->oom_file), ok);
    set(object, "line", json_integer(device->oom_line), ok);
    set(object, "stage", stage_name_of(replay, index, device->oom_stage), ok);
    set(object, "process", text_or_null(device->oom_process), ok);
    set(object, "tag", text_or_null(device->oom_tag), ok);
    set(object, "requested_bytes", bytes_of(device->oom_requested_bytes), ok);
    set(object, "free_bytes", bytes_of(device->oom_free_bytes), ok);
    return object;
}

static json_t *device_to_json(const rvl_replay *replay, size_t index,
                              const rvl_replay_device *device, bool has_verdict, bool *ok)
{
    json_t *object = json_object();
    set(object, "device", json_integer(device->device), ok);
    set(object, "profile", text_or_null(device->profile), ok);
    set(object, "capacity_bytes", bytes_of(device->capacity_bytes), ok);
    set(object, "peak_bytes", bytes_of(device->peak_bytes), ok);
    set(object, "peak_stage", stage_name_of(replay, index, device->peak_stage), ok);
    set(object, "fits", has_verdict ? json_boolean(device->fits) : json_null(), ok);
    set(object, "oom", oom_to_json(replay, index, device, ok), ok);
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
        out->status = rvli_error(RVL_ERR_IO, "what takes the text of a replay wants no more of it");
}

static void put_text(writer *out, const char *text)
{
    put(out, text, strlen(text));
}

/* Takes the value over. Of an object that goes on, the brace at its end is left out. */
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

/* Of a capacity that is an upper bound. */
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

/* A request that was refused; null: none was. */
static json_t *refusal_to_json(const rvli_refusal *refusal, bool *ok)
{
    if (refusal->number == 0)
        return json_null();
    json_t *object = json_object();
    set(object, "process", text_or_null(refusal->process), ok);
    set(object, "tag", text_or_null(refusal->tag), ok);
    set(object, "device",
        refusal->device == RVL_NO_DEVICE ? json_null() : json_integer(refusal->device), ok);
    set(object, "stage", text_or_null(refusal->stage), ok);
    set(object, "where", text_or_null(refusal->where), ok);
    set(object, "requested_bytes", bytes_of(refusal->requested_bytes), ok);
    set(object, "free_bytes", bytes_of(refusal->free_bytes), ok);
    return object;
}

static json_t *refused_to_json(const rvl_replay *replay, bool *ok)
{
    json_t *object = json_object();
    set(object, "count", json_integer((json_int_t)replay->outcome.refused), ok);
    set(object, "cured", json_integer((json_int_t)replay->outcome.cured), ok);
    set(object, "first", refusal_to_json(&replay->outcome.first, ok), ok);
    return object;
}

static void put_verdict(writer *out, const rvl_replay *replay, const rvl_verdict *verdict)
{
    bool ok = true;
    json_t *object = json_object(), *said = json_object();
    set(said, "kind", json_string(rvl_verdict_keyword(verdict->kind)), &ok);
    set(said, "text", text_or_null(verdict->text), &ok);
    set(said, "spare_bytes", bytes_of(verdict->spare_bytes), &ok);
    set(said, "headroom_bytes", bytes_of(verdict->headroom_bytes), &ok);
    if (verdict->waits != NULL)
        set(said, "waits", text_or_null(verdict->waits), &ok);
    set(object, "verdict", said, &ok);
    set(object, "refused", refused_to_json(replay, &ok), &ok);
    if (verdict->ended)
        set(object, verdict->by_signal ? "signal" : "exit_status",
            json_integer(verdict->exit_status), &ok);
    char *text = ok ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text == NULL && out->status == RVL_OK)
        out->status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for the verdict of a replay");
    if (text != NULL) {
        put_text(out, ",");
        put_text(out, text + 1); /* its keys go on in the object that is open */
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

/* Keeps room for the zero byte at the end. */
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
