/* SPDX-License-Identifier: MIT */
/*
 * Where the events come from: files through the trace reader, or a caller's source.
 *
 * A source has no tables, so names are given numbers here, and copied, as the reader does with
 * those of a file. What the reader refuses in a file is refused here in an event.
 */
#include <stdlib.h>
#include <string.h>

#include "predict/replay/replay_internal.h"

static rvl_status no_memory(rvl_replay *replay)
{
    return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_HOST_OOM, "no host memory for a source");
}

/* ---- Names ---- */

/* The entry of a name, made if need be. NULL: no memory. */
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
    rvl_trace_device *device = &memory->devices[index];
    *device = memory->source.devices[index];
    if (device->index >= RVL_MAX_DEVICES)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "a source declares a device %u: the last possible is %d",
                                  device->index, RVL_MAX_DEVICES - 1);
    for (size_t i = 0; i < index; i++) {
        if (memory->devices[i].index == device->index)
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
    memory->device_count = memory->source.device_count;
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < memory->device_count && status == RVL_OK; i++)
        status = copy_device(replay, i);
    return status;
}

/* Why no trace could hold this event; NULL: it may be. */
static const char *fault_of(const rvli_replay_memory *memory, const rvl_trace_event *event)
{
    if ((unsigned)event->kind >= RVL_EVENT_KIND_COUNT)
        return "an event of a kind that there is not";
    if (event->process == NULL || event->process[0] == '\0')
        return "an event without a process";
    if ((event->kind == RVL_EVENT_STAGE || event->kind == RVL_EVENT_EXTERNAL) &&
        (event->name == NULL || event->name[0] == '\0'))
        return "a stage or external bytes without a name";
    if ((event->kind == RVL_EVENT_ALLOC || event->kind == RVL_EVENT_FREE) && event->id == 0)
        return "an allocation without an id: ids begin at 1";
    if (event->time_ns < memory->last_ns)
        return "an event earlier than the one before it: times must not fall";
    return NULL;
}

/* The event as a reader would give it. */
static rvl_status adopt(rvl_replay *replay, rvl_trace_event *event)
{
    rvli_replay_memory *memory = &replay->memory;
    event->file = 0;
    event->line = memory->events < UINT32_MAX ? (uint32_t)memory->events + 1 : UINT32_MAX;
    event->tag_index = RVL_TRACE_NO_TAG;
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

static rvl_status next_of_source(rvl_replay *replay, rvl_trace_event *event_out)
{
    rvli_replay_memory *memory = &replay->memory;
    *event_out = (rvl_trace_event){.tag_index = RVL_TRACE_NO_TAG};
    rvl_status status = memory->source.next(memory->source.user, event_out);
    if (status == RVL_OK)
        return adopt(replay, event_out);
    if (status != RVL_ERR_NOT_FOUND) {
        rvli_replay_refuse(replay, NULL, 0, status, "the source: %s", rvl_status_text(status));
        rvli_error_place(replay->paths[0], 0, 0);
    }
    return status;
}

/* ---- Either ---- */

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
    return status == RVL_OK ? rvli_replay_input_reader(replay, &replay->reader) : status;
}

size_t rvli_replay_input_devices(const rvl_replay *replay, const rvl_trace_device **devices_out)
{
    if (replay->reader != NULL)
        return rvl_trace_reader_devices(replay->reader, devices_out);
    *devices_out = replay->memory.devices;
    return replay->memory.device_count;
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
    return reader != NULL ? rvl_trace_reader_next(reader, event_out)
                          : next_of_source(replay, event_out);
}

rvl_status rvli_replay_input_next(rvl_replay *replay, rvl_trace_reader *reader,
                                  rvl_trace_event *event_out)
{
    rvl_status status = next_event(replay, reader, event_out);
    while (replay->options.filter != NULL && status == RVL_OK) {
        bool keep = true;
        status = replay->options.filter(replay->options.filter_user, event_out, &keep);
        if (status != RVL_OK) {
            refuse_as_filter(replay, event_out, status);
        } else if (keep) {
            break;
        } else {
            status = next_event(replay, reader, event_out);
        }
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
    const rvl_trace_event *events;
    size_t count;
    size_t at;
} event_list;

static rvl_status next_of_list(void *user, rvl_trace_event *event_out)
{
    event_list *list = user;
    if (list->at == list->count)
        return RVL_ERR_NOT_FOUND;
    *event_out = list->events[list->at++];
    return RVL_OK;
}

static rvl_status rewind_list(void *user)
{
    event_list *list = user;
    list->at = 0;
    return RVL_OK;
}

rvl_status rvl_replay_run_events(const char *name, const rvl_trace_device *devices,
                                 size_t device_count, const rvl_trace_event *events,
                                 size_t event_count, const rvl_replay_options *options,
                                 rvl_replay **replay_out)
{
    event_list list = {.events = events, .count = events != NULL ? event_count : 0};
    rvl_replay_source source = {
        .struct_size = sizeof source,
        .name = name,
        .devices = devices,
        .device_count = device_count,
        .next = next_of_list,
        .rewind = rewind_list,
        .user = &list,
    };
    return rvl_replay_run_source(&source, options, replay_out);
}
