/* SPDX-License-Identifier: MIT */
/*
 * Elements of arrays between versions. The program is built with version 0.1's API alone, hands
 * over elements as 0.1 has them and longer ones, and does so with two libraries: today's, and
 * tomorrow's, in which every element has one field more. There 0.1's are the older ones.
 *
 *     abi_elements GROWN_BYTES     how much longer than 0.1's the library's elements are
 *
 * Each interface below is called with an element size, and lays its arrays out at that step.
 */
/* mkstemp() */
#define _GNU_SOURCE

#include "v0_1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GRANULE (UINT64_C(2) << 20)
#define GIB (UINT64_C(1) << 30)
#define CANARY 0x5a
#define SIZE_MAX_BYTES 4096 /* the largest element there may be */
#define ROOM_BYTES (4 * SIZE_MAX_BYTES)

static size_t grown_bytes;
static char trace_path[] = "/tmp/reveille-elements-XXXXXX";

/* ---- Arrays at a step ---- */

/* The arrays of a call: elements of `size` bytes, as the callee is told. */
typedef struct step {
    size_t size;
    unsigned char tail; /* the last byte of the last element, where that is beyond 0.1's */
} step;

/* Room for a few elements, aligned as they are. */
typedef union room {
    uint64_t aligned;
    unsigned char bytes[ROOM_BYTES];
} room;

/* Lays 0.1's elements out. A size that is too small is told, and not meant. */
static void *lay(room *into, const step *how, const void *elements, size_t known, size_t count)
{
    size_t size = how->size >= known && how->size <= SIZE_MAX_BYTES ? how->size : known;
    memset(into, 0, sizeof *into);
    for (size_t i = 0; i < count; i++)
        memcpy(into->bytes + i * size, (const unsigned char *)elements + i * known, known);
    if (size > known)
        into->bytes[count * size - 1] = how->tail;
    return into->bytes;
}

#define LAY(into, how, elements)                                                                   \
    lay((into), (how), (elements), sizeof *(elements), sizeof(elements) / sizeof *(elements))

static void *begin_results(room *into)
{
    memset(into, CANARY, sizeof *into);
    return into->bytes;
}

/*
 * Reads the element of an index as 0.1 knows it. What the caller's has beyond that is 0, and what
 * lies behind the last one untouched.
 */
static void take(const room *from, const step *how, size_t index, size_t count, void *known_out,
                 size_t known)
{
    const unsigned char *at = from->bytes + index * how->size;
    memcpy(known_out, at, known);
    for (size_t i = known; i < how->size; i++)
        assert_int_equal(at[i], 0);
    for (size_t i = count * how->size; i < sizeof *from; i++)
        assert_int_equal(from->bytes[i], CANARY);
}

#define TAKE(from, how, index, count, known_out)                                                   \
    take((from), (how), (index), (count), (known_out), sizeof *(known_out))

/* After a call that failed nothing is written. */
static void assert_untouched(const room *array)
{
    for (size_t i = 0; i < sizeof *array; i++)
        assert_int_equal(array->bytes[i], CANARY);
}

/* ---- What is handed over ---- */

static const rvl_trace_device devices[] = {
    {.index = 0, .profile = "h200", .capacity_bytes = GIB, .granularity_bytes = GRANULE},
    {.index = 3, .capacity_bytes = 2 * GIB, .granularity_bytes = 4096},
};

static const rvl_trace_event events[] = {
    {.kind = RVL_EVENT_STAGE, .process = "engine", .name = "rollout"},
    {.kind = RVL_EVENT_ALLOC, .process = "engine", .time_ns = 1, .id = 1, .bytes = 64 * GRANULE},
    {.kind = RVL_EVENT_ALLOC,
     .process = "engine",
     .time_ns = 2,
     .id = 2,
     .bytes = 32 * GRANULE,
     .tag = "kv_cache"},
};
#define EVENTS (sizeof events / sizeof *events)

static const rvl_trace_header header = {.struct_size = sizeof header,
                                        .devices = devices,
                                        .device_count = 2,
                                        .device_size = sizeof *devices};

static const rvl_replay_events list = {.struct_size = sizeof list,
                                       .devices = devices,
                                       .device_count = 2,
                                       .device_size = sizeof *devices,
                                       .events = events,
                                       .event_count = EVENTS,
                                       .event_size = sizeof *events};

static rvl_status replay_list(const rvl_replay_events *given, const rvl_replay_options *options,
                              rvl_replay_device *device_out, size_t index)
{
    rvl_replay *replay = NULL;
    rvl_status status = rvl_replay_run_events(given, options, &replay);
    *device_out = (rvl_replay_device){.struct_size = sizeof *device_out};
    if (status == RVL_OK)
        assert_int_equal(rvl_replay_get_device(replay, index, device_out), RVL_OK);
    rvl_replay_close(replay);
    return status;
}

static rvl_status header_devices(const step *how)
{
    static room array;
    rvl_trace_header given = header;
    rvl_trace_writer *writer = NULL;
    given.devices = LAY(&array, how, devices);
    given.device_size = how->size;
    rvl_status status = rvl_trace_writer_open(trace_path, &given, &writer);
    if (status != RVL_OK)
        return status;
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    const char *path = trace_path;
    rvl_trace_reader *reader = NULL;
    rvl_trace_device found[2];
    size_t count = 0;
    assert_int_equal(rvl_trace_reader_open(&path, 1, NULL, &reader), RVL_OK);
    assert_int_equal(rvl_trace_reader_get_devices(reader, found, sizeof *found, 2, &count), RVL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(found[0].profile, "h200");
    assert_int_equal(found[1].index, 3);
    assert_int_equal(found[1].capacity_bytes, 2 * GIB);
    rvl_trace_reader_close(reader);
    return RVL_OK;
}

static rvl_status written_events(const step *how)
{
    static room array;
    rvl_trace_writer *writer = NULL;
    rvl_status status = RVL_OK;
    assert_int_equal(rvl_trace_writer_open_draft("/dev/null", &header, &writer), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_process(writer, "engine", 0), RVL_OK);
    for (size_t i = 0; i < EVENTS && status == RVL_OK; i++)
        status = rvl_trace_writer_add_event(writer, lay(&array, how, &events[i], sizeof *events, 1),
                                            how->size);
    rvl_trace_writer_discard(writer);
    return status;
}

static rvl_status listed_events(const step *how)
{
    static room array;
    rvl_replay_events given = list;
    rvl_replay_device device;
    given.events = LAY(&array, how, events);
    given.event_size = how->size;
    rvl_status status = replay_list(&given, NULL, &device, 0);
    if (status == RVL_OK)
        assert_int_equal(device.peak_bytes, 96 * GRANULE);
    return status;
}

static rvl_status listed_devices(const step *how)
{
    static room array;
    rvl_replay_events given = list;
    rvl_replay_device device;
    given.devices = LAY(&array, how, devices);
    given.device_size = how->size;
    rvl_status status = replay_list(&given, NULL, &device, 1);
    if (status == RVL_OK)
        assert_int_equal(device.capacity_bytes, 2 * GIB);
    return status;
}

/* A source that fills all that it says it has room for. */
typedef struct source {
    const step *how;
    size_t at;
} source;

static rvl_status next_of_source(void *user, rvl_trace_event *event_out)
{
    source *from = user;
    unsigned char *bytes = (unsigned char *)event_out;
    if (from->at == EVENTS)
        return RVL_ERR_NOT_FOUND;
    for (size_t i = sizeof *event_out; i < from->how->size; i++)
        assert_int_equal(bytes[i], 0);
    *event_out = events[from->at++];
    if (from->how->size > sizeof *event_out && from->at == EVENTS)
        bytes[from->how->size - 1] = from->how->tail;
    return RVL_OK;
}

static rvl_status events_of_a_source(const step *how)
{
    source from = {.how = how};
    const rvl_replay_source given = {.struct_size = sizeof given,
                                     .devices = devices,
                                     .device_count = 2,
                                     .device_size = sizeof *devices,
                                     .event_size = how->size,
                                     .next = next_of_source,
                                     .user = &from};
    rvl_replay *replay = NULL;
    rvl_status status = rvl_replay_run_source(&given, NULL, &replay);
    if (status == RVL_OK)
        assert_int_equal(rvl_replay_event_count(replay, NULL), EVENTS);
    rvl_replay_close(replay);
    return status;
}

static rvl_status devices_of_a_source(const step *how)
{
    static room array;
    static const step today = {.size = sizeof(rvl_trace_event)};
    source from = {.how = &today};
    const rvl_replay_source given = {.struct_size = sizeof given,
                                     .devices = LAY(&array, how, devices),
                                     .device_count = 2,
                                     .device_size = how->size,
                                     .event_size = sizeof(rvl_trace_event),
                                     .next = next_of_source,
                                     .user = &from};
    rvl_replay *replay = NULL;
    rvl_status status = rvl_replay_run_source(&given, NULL, &replay);
    if (status == RVL_OK)
        assert_int_equal(rvl_replay_device_count(replay), 2);
    rvl_replay_close(replay);
    return status;
}

/* Halves what is allocated; of the first event it sets the last byte. */
static rvl_status halve(void *user, rvl_trace_event *event, bool *keep_out)
{
    const step *how = user;
    unsigned char *bytes = (unsigned char *)event;
    (void)keep_out;
    if (event == NULL)
        return RVL_OK;
    for (size_t i = sizeof *event; i < how->size; i++)
        assert_int_equal(bytes[i], 0);
    event->bytes /= 2;
    if (how->size > sizeof *event)
        bytes[how->size - 1] = how->tail;
    return RVL_OK;
}

static rvl_status filtered_events(const step *how)
{
    step shown = *how;
    rvl_replay_device device;
    const rvl_replay_options options = {.struct_size = sizeof options,
                                        .filter = halve,
                                        .filter_user = &shown,
                                        .event_size = how->size};
    rvl_status status = replay_list(&list, &options, &device, 0);
    if (status == RVL_OK)
        assert_int_equal(device.peak_bytes, 48 * GRANULE);
    return status;
}

/* The second is exceeded, by a granule. */
static rvl_status budgets(const step *how)
{
    static room array;
    static const rvl_budget bounds[] = {{"rollout", GIB}, {"rollout", 95 * GRANULE}};
    rvl_replay_device device;
    const rvl_replay_options options = {.struct_size = sizeof options,
                                        .budgets = LAY(&array, how, bounds),
                                        .budget_count = 2,
                                        .budget_size = how->size};
    rvl_status status = replay_list(&list, &options, &device, 0);
    if (status == RVL_OK)
        assert_false(device.within_budgets);
    return status;
}

static rvl_model *open_model(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 256}";
    rvl_model *model = NULL;
    assert_int_equal(rvl_model_parse(config, sizeof config - 1, &model), RVL_OK);
    return model;
}

static rvl_status given_terms(const step *how)
{
    static room array;
    static const rvl_model_given given[] = {{.term = RVL_MODEL_WEIGHTS, .bytes = 1000},
                                            {.term = RVL_MODEL_KV_CACHE, .bytes = 3000}};
    rvl_model *model = open_model();
    rvl_model_step *made = NULL;
    const rvl_model_options options = {.struct_size = sizeof options,
                                       .given = LAY(&array, how, given),
                                       .given_count = 2,
                                       .given_size = how->size};
    rvl_status status = rvl_model_step_make(model, &options, &made);
    if (status == RVL_OK)
        assert_int_equal(rvl_model_step_bytes(made, RVL_MODEL_KV_CACHE), 3000);
    rvl_model_step_close(made);
    rvl_model_close(model);
    return status;
}

static rvl_status device_of_a_snapshot(const step *how)
{
    static room array;
    const rvl_snapshot_trace given = {.struct_size = sizeof given,
                                      .device = lay(&array, how, devices, sizeof *devices, 1),
                                      .device_size = how->size};
    return rvl_snapshot_write_trace(RVL_SOURCE_DIR "/traces/snapshots/dev-default.pickle.gz", NULL,
                                    &given, trace_path);
}

/* ---- What is filled in ---- */

static void write_list(void)
{
    rvl_trace_writer *writer = NULL;
    assert_int_equal(rvl_trace_writer_open(trace_path, &header, &writer), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_process(writer, "engine", 0), RVL_OK);
    for (size_t i = 0; i < EVENTS; i++)
        assert_int_equal(rvl_trace_writer_add_event(writer, &events[i], sizeof events[i]), RVL_OK);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
}

static rvl_trace_reader *open_list(void)
{
    const char *path = trace_path;
    rvl_trace_reader *reader = NULL;
    write_list();
    assert_int_equal(rvl_trace_reader_open(&path, 1, NULL, &reader), RVL_OK);
    return reader;
}

/* A size that is refused takes no event. */
static rvl_status read_events(const step *how)
{
    static room array;
    rvl_trace_reader *reader = open_list();
    rvl_trace_event event;
    rvl_status status = rvl_trace_reader_next(reader, begin_results(&array), how->size);
    if (status != RVL_OK)
        assert_untouched(&array);
    for (size_t i = 0; i < EVENTS && status == RVL_OK; i++) {
        TAKE(&array, how, 0, 1, &event);
        assert_int_equal(event.kind, events[i].kind);
        assert_int_equal(event.bytes, events[i].bytes);
        assert_int_equal(event.line, 6 + i);
        assert_memory_equal(event.reserved, events[i].reserved, sizeof event.reserved);
        rvl_status next = rvl_trace_reader_next(reader, begin_results(&array), how->size);
        assert_int_equal(next, i + 1 < EVENTS ? RVL_OK : RVL_ERR_NOT_FOUND);
    }
    if (status != RVL_OK)
        assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_OK);
    rvl_trace_reader_close(reader);
    return status;
}

static rvl_status read_devices(const step *how)
{
    static room array;
    rvl_trace_reader *reader = open_list();
    rvl_trace_device device;
    size_t count = 7;
    rvl_status status =
        rvl_trace_reader_get_devices(reader, begin_results(&array), how->size, 2, &count);
    if (status == RVL_OK) {
        TAKE(&array, how, 1, 2, &device);
        assert_int_equal(count, 2);
        assert_int_equal(device.index, 3);
        assert_int_equal(device.granularity_bytes, 4096);
    } else {
        assert_untouched(&array);
        assert_int_equal(count, 7);
    }
    rvl_trace_reader_close(reader);
    return status;
}

static rvl_status holders_of_a_context(const step *how)
{
    static room array;
    rvl_context *context = NULL;
    rvl_holder holder;
    size_t count = 7;
    assert_int_equal(rvl_context_open("sim", NULL, &context), RVL_OK);
    assert_int_equal(rvl_external_set(context, 0, "driver", 3 * GRANULE), RVL_OK);
    assert_int_equal(rvl_external_set(context, 0, "nccl", GRANULE), RVL_OK);
    rvl_status status =
        rvl_stage_get_holders(context, 0, 0, begin_results(&array), how->size, 2, &count);
    if (status == RVL_OK) {
        TAKE(&array, how, 1, 2, &holder);
        assert_int_equal(count, 2);
        assert_string_equal(holder.tag, "nccl");
        assert_int_equal(holder.bytes, GRANULE);
    } else {
        assert_untouched(&array);
        assert_int_equal(count, 7);
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    return status;
}

static rvl_status holders_of_a_replay(const step *how)
{
    static room array;
    rvl_replay *replay = NULL;
    rvl_holder holder;
    size_t count = 7;
    assert_int_equal(rvl_replay_run_events(&list, NULL, &replay), RVL_OK);
    rvl_status status =
        rvl_replay_get_holders(replay, 0, 0, begin_results(&array), how->size, 2, &count);
    if (status == RVL_OK) {
        TAKE(&array, how, 1, 2, &holder);
        assert_int_equal(count, 2);
        assert_string_equal(holder.tag, "kv_cache");
        assert_int_equal(holder.bytes, 32 * GRANULE);
    } else {
        assert_untouched(&array);
        assert_int_equal(count, 7);
    }
    rvl_replay_close(replay);
    return status;
}

static rvl_status values_of_a_timeline(const step *how)
{
    static room array;
    rvl_replay *replay = NULL;
    rvl_timeline *timeline = NULL;
    rvl_timeline_value value;
    size_t count = 7;
    assert_int_equal(rvl_timeline_open(NULL, &timeline), RVL_OK);
    const rvl_replay_options options = {.struct_size = sizeof options, .timeline = timeline};
    assert_int_equal(rvl_replay_run_events(&list, &options, &replay), RVL_OK);
    rvl_status status =
        rvl_timeline_get_values(timeline, 0, 1, begin_results(&array), how->size, 2, &count);
    if (status == RVL_OK) {
        TAKE(&array, how, 0, 1, &value);
        assert_int_equal(count, 1);
        assert_int_equal(value.series, 1);
        assert_int_equal(value.at_peak_bytes, 32 * GRANULE);
    } else {
        assert_untouched(&array);
        assert_int_equal(count, 7);
    }
    rvl_replay_close(replay);
    rvl_timeline_close(timeline);
    return status;
}

static rvl_model_step *make_step(void)
{
    rvl_model *model = open_model();
    rvl_model_step *made = NULL;
    assert_int_equal(rvl_model_step_make(model, NULL, &made), RVL_OK);
    rvl_model_close(model);
    return made;
}

static rvl_status device_of_a_step(const step *how)
{
    static room array;
    rvl_model_step *made = make_step();
    rvl_trace_device device;
    rvl_status status = rvl_model_step_get_device(made, begin_results(&array), how->size);
    if (status == RVL_OK) {
        TAKE(&array, how, 0, 1, &device);
        assert_string_equal(device.profile, "h200");
        assert_int_equal(device.granularity_bytes, GRANULE);
    } else {
        assert_untouched(&array);
    }
    rvl_model_step_close(made);
    return status;
}

static rvl_status events_of_a_step(const step *how)
{
    static room array;
    rvl_model_step *made = make_step();
    rvl_trace_event event, first[3];
    size_t count = 7, all = 0;
    assert_int_equal(rvl_model_step_get_events(made, first, sizeof *first, 3, &all), RVL_OK);
    rvl_status status =
        rvl_model_step_get_events(made, begin_results(&array), how->size, 3, &count);
    if (status == RVL_OK) {
        TAKE(&array, how, 2, 3, &event);
        assert_true(count > 3 && count == all);
        assert_int_equal(event.kind, first[2].kind);
        assert_int_equal(event.bytes, first[2].bytes);
        assert_ptr_equal(event.name, first[2].name);
    } else {
        assert_untouched(&array);
        assert_int_equal(count, 7);
    }
    rvl_model_step_close(made);
    return status;
}

/* ---- All of them ---- */

/* What elements have grown by since 0.1: an event by what refusals and ends have. */
#define SINCE_0_1_OF_EVENTS 16
#define SINCE_0_1_OF_OTHERS 0

#define INTERFACE(call, type, noun, filled)                                                        \
    {                                                                                              \
#call, call, #type, noun "_size", sizeof(type),                                            \
            strcmp(noun, "event") == 0 ? SINCE_0_1_OF_EVENTS : SINCE_0_1_OF_OTHERS, filled         \
    }

static const struct {
    const char *name;
    rvl_status (*call)(const step *how);
    const char *type;
    const char *size_name;
    size_t known;
    size_t grown; /* today's library knows so much more */
    bool filled;  /* by the library */
} interfaces[] = {
    INTERFACE(header_devices, rvl_trace_device, "device", false),
    INTERFACE(written_events, rvl_trace_event, "event", false),
    INTERFACE(listed_events, rvl_trace_event, "event", false),
    INTERFACE(listed_devices, rvl_trace_device, "device", false),
    INTERFACE(events_of_a_source, rvl_trace_event, "event", false),
    INTERFACE(devices_of_a_source, rvl_trace_device, "device", false),
    INTERFACE(filtered_events, rvl_trace_event, "event", false),
    INTERFACE(budgets, rvl_budget, "budget", false),
    INTERFACE(given_terms, rvl_model_given, "given", false),
    INTERFACE(device_of_a_snapshot, rvl_trace_device, "device", false),
    INTERFACE(read_events, rvl_trace_event, "event", true),
    INTERFACE(read_devices, rvl_trace_device, "device", true),
    INTERFACE(holders_of_a_context, rvl_holder, "holder", true),
    INTERFACE(holders_of_a_replay, rvl_holder, "holder", true),
    INTERFACE(values_of_a_timeline, rvl_timeline_value, "value", true),
    INTERFACE(device_of_a_step, rvl_trace_device, "device", true),
    INTERFACE(events_of_a_step, rvl_trace_event, "event", true),
};
#define INTERFACES (sizeof interfaces / sizeof *interfaces)

static void expect(size_t interface, size_t size, unsigned char tail, rvl_status expected)
{
    const step how = {.size = size, .tail = tail};
    rvl_error error = {.struct_size = sizeof error};
    rvl_status status = interfaces[interface].call(&how);
    rvl_last_error(&error);
    if (status != expected)
        fail_msg("%s, elements of %zu bytes that end in %u: %s, expected %s: %s",
                 interfaces[interface].name, size, tail, rvl_status_name(status),
                 rvl_status_name(expected), error.message);
}

static void elements_of_version_0_1(void **state)
{
    (void)state;
    for (size_t i = 0; i < INTERFACES; i++)
        expect(i, interfaces[i].known, 0, RVL_OK);
}

static void longer_elements_that_end_in_zeroes(void **state)
{
    (void)state;
    for (size_t i = 0; i < INTERFACES; i++) {
        expect(i, interfaces[i].known + 8, 0, RVL_OK);
        expect(i, interfaces[i].known + 64, 0, RVL_OK);
        expect(i, SIZE_MAX_BYTES, 0, RVL_OK);
    }
}

/* What the library knows is taken, and what it does not know is refused. */
static void longer_elements_that_do_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < INTERFACES; i++) {
        if (interfaces[i].filled)
            continue;
        size_t grown = interfaces[i].grown + grown_bytes;
        for (size_t more = 8; more <= grown + 16; more += 8)
            expect(i, interfaces[i].known + more, 1, more <= grown ? RVL_OK : RVL_ERR_VERSION);
        rvl_error error = {.struct_size = sizeof error};
        rvl_last_error(&error);
        assert_int_equal(error.status, RVL_ERR_VERSION);
        char wanted[128];
        snprintf(wanted, sizeof wanted,
                 "an %s uses fields that this version of the library lacks: it knows %zu bytes",
                 interfaces[i].type, interfaces[i].known + grown);
        if (strstr(error.message, wanted) == NULL)
            fail_msg("%s: \"%s\", expected \"%s\"", interfaces[i].name, error.message, wanted);
    }
}

static void sizes_that_no_version_has(void **state)
{
    (void)state;
    for (size_t i = 0; i < INTERFACES; i++) {
        const size_t bad[] = {0, 8, interfaces[i].known - 8, interfaces[i].known + 1,
                              SIZE_MAX_BYTES + 8};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            expect(i, bad[k], 0, RVL_ERR_INVALID);
            rvl_error error = {.struct_size = sizeof error};
            rvl_last_error(&error);
            char wanted[256];
            snprintf(wanted, sizeof wanted,
                     "%s is %zu, and no %s has that size: set it to sizeof(%s)",
                     interfaces[i].size_name, bad[k], interfaces[i].type, interfaces[i].type);
            assert_string_equal(error.message, wanted);
        }
    }
}

/* What is reserved is for fields of later versions. */
static void reserved_fields_are_refused(void **state)
{
    (void)state;
    const rvl_trace_device device = {
        .reserved = 1, .capacity_bytes = GIB, .granularity_bytes = GRANULE};
    const rvl_trace_event event = {.process = "engine", .reserved = {0, 0, 1}};
    const rvl_model_given given = {.term = RVL_MODEL_WEIGHTS, .reserved = 1, .bytes = 1};
    rvl_trace_header of_header = header;
    rvl_replay_events of_list = list;
    rvl_trace_writer *writer = NULL;
    rvl_replay_device found;
    of_header.devices = &device, of_header.device_count = 1;
    assert_int_equal(rvl_trace_writer_open(trace_path, &of_header, &writer), RVL_ERR_VERSION);
    assert_int_equal(rvl_trace_writer_open_draft("/dev/null", &header, &writer), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_process(writer, "engine", 0), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_event(writer, &event, sizeof event), RVL_ERR_VERSION);
    rvl_trace_writer_discard(writer);
    of_list.devices = &device, of_list.device_count = 1;
    assert_int_equal(replay_list(&of_list, NULL, &found, 0), RVL_ERR_VERSION);
    of_list = list;
    of_list.events = &event, of_list.event_count = 1;
    assert_int_equal(replay_list(&of_list, NULL, &found, 0), RVL_ERR_VERSION);
    rvl_error error = {.struct_size = sizeof error};
    rvl_last_error(&error);
    assert_string_equal(error.file, "events");
    assert_int_equal(error.line, 1);

    rvl_model *model = open_model();
    rvl_model_step *made = NULL;
    rvl_model_options options = {.struct_size = sizeof options,
                                 .given = &given,
                                 .given_count = 1,
                                 .given_size = sizeof given};
    assert_int_equal(rvl_model_step_make(model, &options, &made), RVL_ERR_VERSION);
    options.given = NULL;
    assert_int_equal(rvl_model_step_make(model, &options, &made), RVL_ERR_INVALID);
    assert_null(made);
    rvl_model_close(model);
}

/* Without elements their size does not matter: options that are all 0 stay options. */
static void no_elements_need_no_size(void **state)
{
    (void)state;
    rvl_replay_device device;
    const rvl_replay_options options = {.struct_size = sizeof options};
    assert_int_equal(replay_list(&list, &options, &device, 0), RVL_OK);
    rvl_model *model = open_model();
    rvl_model_step *made = NULL;
    const rvl_model_options of_step = {.struct_size = sizeof of_step};
    size_t count = 0;
    assert_int_equal(rvl_model_step_make(model, &of_step, &made), RVL_OK);
    assert_int_equal(rvl_model_step_get_events(made, NULL, 0, 0, &count), RVL_OK);
    assert_true(count > 3);
    rvl_model_step_close(made);
    rvl_model_close(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_of_version_0_1),
        cmocka_unit_test(longer_elements_that_end_in_zeroes),
        cmocka_unit_test(longer_elements_that_do_not),
        cmocka_unit_test(sizes_that_no_version_has),
        cmocka_unit_test(reserved_fields_are_refused),
        cmocka_unit_test(no_elements_need_no_size),
    };
    int file = mkstemp(trace_path);
    if (argc != 2 || file < 0)
        return 1;
    close(file);
    grown_bytes = strtoul(argv[1], NULL, 10);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(trace_path);
    return failed;
}
