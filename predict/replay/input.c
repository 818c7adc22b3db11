/* SPDX-License-Identifier: MIT */
/*
 * The input of a replay: files, read by the trace reader, or a caller's source.
 *
 * A source has no tables of names, so this file numbers and copies them, as the reader does for a
 * file. It refuses in an event what the reader refuses in a file.
 */
#include <stdlib.h>
#include <string.h>

#include "predict/replay/replay_internal.h"

static rvl_status no_memory(rvl_replay *replay)
{
    return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_HOST_OOM, "no host memory for a source");
}

/* ---- Names ---- */

/* Finds the entry of a name, or makes it. NULL: no memory. */
static rvli_replay_name *intern(rvli_replay_name **names, const char *text)
{
    rvli_replay_name *name;
    size_t length = strlen(text);
    HASH_FIND(hh, *names, text, length, name);
    if (name != NULL)
        return name;
    name = malloc(sizeof *name + length + 1);
    if (name == NULL)
        return NULL;
    memcpy(name->text, text, length + 1);
    name->index = HASH_COUNT(*names);
    HASH_ADD_KEYPTR(hh, *names, name->text, length, name);
    if (name->hh.tbl == NULL) {
        free(name);
        return NULL;
    }
    return name;
}

static void free_names(rvli_replay_name **names)
{
    rvli_replay_name *name, *next;
    HASH_ITER (hh, *names, name, next) {
        HASH_DEL(*names, name);
        free(name);
    }
}

/* ---- A source ---- */

static rvl_status copy_device(rvl_replay *replay, size_t index)
{
    rvli_replay_memory *memory = &replay->memory;
    rvl_trace_device *device = &replay->traced[index];
    rvl_status status =
        rvli_trace_device_read(device, memory->source.devices, memory->source.device_size, index);
    if (status != RVL_OK)
        return status;
    if (device->index >= RVL_MAX_DEVICES)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "a source declares a device %u: the last possible is %d",
                                  device->index, RVL_MAX_DEVICES - 1);
    for (size_t i = 0; i < index; i++) {
        if (replay->traced[i].index == device->index)
            return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                      "a source declares device %u twice", device->index);
    }
    if (device->profile == NULL)
        return RVL_OK;
    memory->profiles[index] = strdup(device->profile);
    device->profile = memory->profiles[index];
    return device->profile != NULL ? RVL_OK : no_memory(replay);
}

static rvl_status open_source(rvl_replay *replay)
{
    rvli_replay_memory *memory = &replay->memory;
    if (memory->source.device_count == 0 || memory->source.device_count > RVL_MAX_DEVICES)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "a source has 1 to %d devices, not %zu", RVL_MAX_DEVICES,
                                  memory->source.device_count);
    replay->traced_count = memory->source.device_count;
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < replay->traced_count && status == RVL_OK; i++)
        status = copy_device(replay, i);
    return status;
}

/* Returns why no trace could hold this event; NULL: the event is valid. */
static const char *fault_of(const rvli_replay_memory *memory, const rvl_trace_event *event)
{
    if ((unsigned)event->kind >= RVL_EVENT_KIND_COUNT)
        return "an event of a kind that there is not";
    if (event->process == NULL || event->process[0] == '\0')
        return "an event without a process";
    if ((event->kind == RVL_EVENT_STAGE || event->kind == RVL_EVENT_EXTERNAL ||
         event->kind == RVL_EVENT_ENTER) &&
        (event->name == NULL || event->name[0] == '\0'))
        return "a stage or external bytes without a name";
    if ((event->kind == RVL_EVENT_ALLOC || event->kind == RVL_EVENT_FREE ||
         event->kind == RVL_EVENT_PART) &&
        event->id == 0)
        return "an allocation without an id: ids begin at 1";
    if (event->kind == RVL_EVENT_ENTER && event->id == 0)
        return "a range without an id: ids begin at 1";
    if (event->kind == RVL_EVENT_PART && event->tag == NULL)
        return "a part without a tag";
    if (event->time_ns < memory->last_ns)
        return "an event earlier than the one before it: times must not fall";
    return NULL;
}

/* Sets the place of an event, for messages. */
static void number_event(const rvli_replay_memory *memory, rvl_trace_event *event)
{
    event->file = 0;
    event->line = memory->events < UINT32_MAX ? (uint32_t)memory->events + 1 : UINT32_MAX;
}

/* Completes an event as a reader would return it. */
static rvl_status adopt(rvl_replay *replay, rvl_trace_event *event)
{
    rvli_replay_memory *memory = &replay->memory;
    number_event(memory, event);
    event->tag_index = RVL_TRACE_NO_TAG;
    rvl_status status = rvli_trace_event_check(event);
    if (status != RVL_OK)
        return rvli_replay_pass_on(replay, event, 0, status, status, NULL);
    const char *fault = fault_of(memory, event);
    if (fault != NULL)
        return rvli_replay_refuse(replay, event, 0, RVL_ERR_CORRUPT_TRACE, "%s", fault);
    rvli_replay_name *process = intern(&memory->processes, event->process);
    rvli_replay_name *tag = event->tag != NULL ? intern(&memory->tags, event->tag) : NULL;
    rvli_replay_name *name = event->name != NULL ? intern(&memory->others, event->name) : NULL;
    if (process == NULL || (event->tag != NULL && tag == NULL) ||
        (event->name != NULL && name == NULL))
        return no_memory(replay);
    event->process = process->text;
    event->process_index = process->index;
    event->tag = tag != NULL ? tag->text : NULL;
    event->tag_index = tag != NULL ? tag->index : RVL_TRACE_NO_TAG;
    event->name = name != NULL ? name->text : NULL;
    memory->last_ns = event->time_ns;
    memory->events++;
    return RVL_OK;
}

/* ---- Callers with a newer version of the event ---- */

/* Copies an event to where such a caller gets it. Fields that this library does not know are 0. */
static rvl_trace_event *show_newer(rvl_replay *replay, const rvl_trace_event *event, size_t size)
{
    memset(&replay->newer, 0, size);
    replay->newer.known = *event;
    return &replay->newer.known;
}

/* Copies the event back. The caller must not have set fields that this library does not know. */
static rvl_status take_newer(rvl_replay *replay, size_t size, rvl_trace_event *event)
{
    rvl_trace_event known;
    rvl_status status = rvli_element_read(RVLI_TRACE_EVENT, &known, &replay->newer, size);
    if (status != RVL_OK)
        return rvli_replay_pass_on(replay, event, 0, status, status, NULL);
    *event = known;
    return RVL_OK;
}

/* ---- A source's events ---- */

static rvl_status refuse_as_source(rvl_replay *replay, rvl_status status)
{
    if (status != RVL_ERR_NOT_FOUND) {
        rvli_replay_refuse(replay, NULL, 0, status, "the source: %s", rvl_status_text(status));
        rvli_error_place(replay->paths[0], 0, 0);
    }
    return status;
}

static rvl_status next_of_source(rvl_replay *replay, rvl_trace_event *event_out)
{
    const rvl_replay_source *source = &replay->memory.source;
    bool newer = source->event_size > sizeof *event_out;
    *event_out = (rvl_trace_event){.tag_index = RVL_TRACE_NO_TAG};
    rvl_trace_event *room = newer ? show_newer(replay, event_out, source->event_size) : event_out;
    rvl_status status = source->next(source->user, room);
    if (status != RVL_OK)
        return refuse_as_source(replay, status);
    if (newer) {
        number_event(&replay->memory, event_out);
        status = take_newer(replay, source->event_size, event_out);
    }
    return status == RVL_OK ? adopt(replay, event_out) : status;
}

/* ---- Files or a source ---- */

rvl_status rvli_replay_input_reader(rvl_replay *replay, rvl_trace_reader **reader_out)
{
    return rvli_joined_reader(&replay->joined, replay->options.flags & RVL_REPLAY_PARTIAL,
                              reader_out);
}

rvl_status rvli_replay_input_open(rvl_replay *replay)
{
    if (replay->memory.source.next != NULL)
        return open_source(replay);
    rvl_status status = rvli_joined_open((const char *const *)replay->paths, replay->path_count,
                                         &replay->options, &replay->joined);
    if (status == RVL_OK)
        status = rvli_replay_input_reader(replay, &replay->reader);
    if (status != RVL_OK)
        return status;
    return rvl_trace_reader_get_devices(replay->reader, replay->traced, sizeof *replay->traced,
                                        RVL_MAX_DEVICES, &replay->traced_count);
}

static rvl_status refuse_as_filter(rvl_replay *replay, const rvl_trace_event *event,
                                   rvl_status status)
{
    return rvli_replay_refuse(replay, event, 0, status, "the filter: %s", rvl_status_text(status));
}

rvl_status rvli_replay_input_begin(rvl_replay *replay)
{
    rvl_status status = RVL_OK;
    if (replay->options.filter != NULL)
        status = replay->options.filter(replay->options.filter_user, NULL, NULL);
    return status == RVL_OK ? RVL_OK : refuse_as_filter(replay, NULL, status);
}

static rvl_status next_event(rvl_replay *replay, rvl_trace_reader *reader,
                             rvl_trace_event *event_out)
{
    if (reader == NULL)
        reader = replay->reader;
    return reader != NULL ? rvl_trace_reader_next(reader, event_out, sizeof *event_out)
                          : next_of_source(replay, event_out);
}

static rvl_status ask_filter(rvl_replay *replay, rvl_trace_event *event, bool *keep_out)
{
    const rvl_replay_options *options = &replay->options;
    bool newer = options->event_size > sizeof *event;
    rvl_trace_event *shown = newer ? show_newer(replay, event, options->event_size) : event;
    *keep_out = true;
    rvl_status status = options->filter(options->filter_user, shown, keep_out);
    if (status != RVL_OK)
        return refuse_as_filter(replay, event, status);
    return newer ? take_newer(replay, options->event_size, event) : RVL_OK;
}

rvl_status rvli_replay_input_next(rvl_replay *replay, rvl_trace_reader *reader,
                                  rvl_trace_event *event_out)
{
    rvl_status status = next_event(replay, reader, event_out);
    bool keep = replay->options.filter == NULL;
    while (status == RVL_OK && !keep) {
        status = ask_filter(replay, event_out, &keep);
        if (status == RVL_OK && !keep)
            status = next_event(replay, reader, event_out);
    }
    return status;
}

uint32_t rvli_replay_input_column(const rvl_replay *replay, const rvl_trace_event *event,
                                  uint32_t field)
{
    if (replay->reader == NULL || field == 0)
        return 0;
    const char *const *paths =
        replay->joined.reader_paths != NULL ? replay->joined.reader_paths : replay->joined.paths;
    return rvl_trace_find_column(paths[event->file], event->line, field);
}

void rvli_replay_input_progress(const rvl_replay *replay, rvl_trace_progress *progress_out)
{
    if (replay->reader != NULL)
        rvl_trace_reader_get_progress(replay->reader, progress_out);
    else
        progress_out->events = replay->memory.events;
}

rvl_status rvli_replay_input_rewind(rvl_replay *replay)
{
    rvli_replay_memory *memory = &replay->memory;
    rvl_status status = memory->source.rewind(memory->source.user);
    if (status != RVL_OK)
        return rvli_replay_refuse(replay, NULL, 0, status, "the source cannot begin again: %s",
                                  rvl_status_text(status));
    memory->last_ns = 0;
    memory->events = 0;
    return RVL_OK;
}

void rvli_replay_input_close(rvl_replay *replay)
{
    rvl_trace_reader_close(replay->reader);
    rvli_joined_destroy(&replay->joined);
    for (size_t i = 0; i < RVL_MAX_DEVICES; i++)
        free(replay->memory.profiles[i]);
    free_names(&replay->memory.processes);
    free_names(&replay->memory.tags);
    free_names(&replay->memory.others);
}

/* ---- Events in memory ---- */

typedef struct event_list {
    const unsigned char *events;
    size_t event_size;
    size_t count;
    size_t at;
} event_list;

static rvl_status next_of_list(void *user, rvl_trace_event *event_out)
{
    event_list *list = user;
    if (list->at == list->count)
        return RVL_ERR_NOT_FOUND;
    memcpy(event_out, list->events + list->at++ * list->event_size, list->event_size);
    return RVL_OK;
}

static rvl_status rewind_list(void *user)
{
    event_list *list = user;
    list->at = 0;
    return RVL_OK;
}

rvl_status rvl_replay_run_events(const rvl_replay_events *events, const rvl_replay_options *options,
                                 rvl_replay **replay_out)
{
    rvl_replay_events known;
    if (events == NULL)
        return rvli_error(RVL_ERR_INVALID, "no events");
    rvl_status status = rvli_options_read(&known, sizeof known, events);
    if (status != RVL_OK)
        return status;
    if (known.events == NULL && known.event_count > 0)
        return rvli_error(RVL_ERR_INVALID, "event_count without events");
    event_list list = {.events = (const unsigned char *)known.events,
                       .event_size = known.event_size,
                       .count = known.event_count};
    const rvl_replay_source source = {
        .struct_size = sizeof source,
        .name = known.name,
        .devices = known.devices,
        .device_count = known.device_count,
        .device_size = known.device_size,
        .event_size = known.event_size,
        .next = next_of_list,
        .rewind = rewind_list,
        .user = &list,
    };
    return rvl_replay_run_source(&source, options, replay_out);
}
