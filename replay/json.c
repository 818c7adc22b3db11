/* SPDX-License-Identifier: MIT */
/*
 * The result as JSON, schema 1 (docs/replay.md). Keys appear in the order in which they are set.
 *
 * jansson takes over every value that is set, and setting NULL, which is what making a value
 * answers without memory, fails: so one flag carries every failure to the end.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/model.h"

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

static json_t *holders_to_json(const rvl_replay *replay, size_t device, uint32_t stage, bool *ok)
{
    const rvl_holder *holders = NULL;
    size_t count = 0;
    json_t *array = json_array();
    if (rvl_replay_get_holders(replay, device, stage, &holders, &count) != RVL_OK)
        *ok = false;
    for (size_t i = 0; i < count; i++) {
        json_t *holder = json_object();
        set(holder, "process", text_or_null(holders[i].process), ok);
        set(holder, "tag", text_or_null(holders[i].tag), ok);
        set(holder, "bytes", bytes_of(holders[i].bytes), ok);
        append(array, holder, ok);
    }
    return array;
}

static json_t *stage_to_json(const rvl_replay *replay, size_t device, uint32_t stage, bool *ok)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    json_t *object = json_object();
    if (rvl_replay_get_stage(replay, device, stage, &stats, NULL) != RVL_OK)
        *ok = false;
    set(object, "name", text_or_null(stats.name), ok);
    set(object, "peak_bytes", bytes_of(stats.peak_bytes), ok);
    set(object, "end_bytes", bytes_of(stats.end_bytes), ok);
    set(object, "free_at_peak_bytes", bytes_of(stats.free_at_peak_bytes), ok);
    set(object, "host_bytes", bytes_of(stats.host_bytes), ok);
    set(object, "seconds", json_real((double)stats.transition_ns / NS_PER_SECOND), ok);
    set(object, "at_peak", holders_to_json(replay, device, stage, ok), ok);
    uint64_t peak_bytes, end_bytes;
    if (rvl_replay_get_measured(replay, device, stage, &peak_bytes, &end_bytes) == RVL_OK) {
        set(object, "measured_peak_bytes", bytes_of(peak_bytes), ok);
        set(object, "measured_end_bytes", bytes_of(end_bytes), ok);
    }
    uint64_t read_bytes, predicted_bytes;
    if (rvl_replay_get_reading(replay, device, stage, &read_bytes, &predicted_bytes) == RVL_OK) {
        set(object, "read_bytes", bytes_of(read_bytes), ok);
        set(object, "predicted_bytes", bytes_of(predicted_bytes), ok);
    }
    return object;
}

static json_t *oom_to_json(const rvl_replay *replay, size_t index, const rvl_replay_device *device,
                           bool *ok)
{
    if (device->fits)
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

static json_t *device_to_json(const rvl_replay *replay, size_t index, bool *ok)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    json_t *object = json_object();
    json_t *stages = json_array();
    if (rvl_replay_get_device(replay, index, &device) != RVL_OK)
        *ok = false;
    for (uint32_t stage = 0; stage < device.stage_count; stage++)
        append(stages, stage_to_json(replay, index, stage, ok), ok);
    set(object, "device", json_integer(device.device), ok);
    set(object, "profile", text_or_null(device.profile), ok);
    set(object, "capacity_bytes", bytes_of(device.capacity_bytes), ok);
    set(object, "peak_bytes", bytes_of(device.peak_bytes), ok);
    set(object, "peak_stage", stage_name_of(replay, index, device.peak_stage), ok);
    set(object, "fits", json_boolean(device.fits), ok);
    set(object, "oom", oom_to_json(replay, index, &device, ok), ok);
    set(object, "stages", stages, ok);
    return object;
}

rvl_status rvl_replay_to_json(const rvl_replay *replay, char **json_out)
{
    if (replay == NULL || json_out == NULL)
        return RVL_ERR_INVALID;
    bool ok = true;
    json_t *root = json_object();
    json_t *devices = json_array();
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++)
        append(devices, device_to_json(replay, i, &ok), &ok);
    set(root, "schema", json_integer(SCHEMA), &ok);
    set(root, "devices", devices, &ok);
    set(root, "events", bytes_of(rvl_replay_event_count(replay, NULL)), &ok);

    char *text = ok ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(SECONDS_DIGITS)) : NULL;
    json_decref(root);
    if (text == NULL)
        return RVL_ERR_HOST_OOM;
    *json_out = text;
    return RVL_OK;
}

void rvl_replay_string_free(char *string)
{
    free(string);
}
