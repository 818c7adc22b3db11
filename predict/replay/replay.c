/* SPDX-License-Identifier: MIT */
/*
 * Runs a replay: trace -> core on a backend -> result.
 *
 * The reader and the context stay open in the result, which returns their strings.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/replay/asleep.h"
#include "predict/replay/replay_internal.h"

/* Events between two calls of the caller's progress function. */
#define PROGRESS_EVENTS 65536u

#define DEFAULT_PROFILE "h200" /* its costs are used for devices of unknown kind */

/* ---- Errors ---- */

rvl_status rvli_replay_refuse(rvl_replay *replay, const rvl_trace_event *event, uint32_t field,
                              rvl_status status, const char *format, ...)
{
    char message[sizeof rvli_error_get()->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    uint32_t column = event != NULL ? rvli_replay_input_column(replay, event, field) : 0;
    rvli_error(status, message);
    if (event != NULL)
        rvli_error_place(replay->paths[event->file], event->line, column);
    return status;
}

rvl_status rvli_replay_pass_on(rvl_replay *replay, const rvl_trace_event *event, uint32_t field,
                               rvl_status cause, rvl_status status, const char *what)
{
    if (rvli_error_get()->status != cause)
        rvli_error(cause, rvl_status_text(cause));
    rvl_error error = *rvli_error_get(); /* finding the column may overwrite the record */
    uint32_t column = event != NULL ? rvli_replay_input_column(replay, event, field) : 0;
    error.status = status;
    rvli_error_set(&error);
    if (what != NULL) {
        char message[sizeof error.message];
        snprintf(message, sizeof message, "%s: %.180s", what, error.message);
        rvli_error_message(message);
    }
    if (event != NULL)
        rvli_error_place(replay->paths[event->file], event->line, column);
    return status;
}

/* ---- The conductor ---- */

bool rvli_replay_conducts(rvli_replay_conductor *conductor, const rvl_trace_event *event)
{
    if (conductor->name != NULL)
        return strcmp(conductor->name, event->process) == 0;
    if (!conductor->seen) {
        conductor->seen = true;
        conductor->process_index = event->process_index;
    }
    return conductor->process_index == event->process_index;
}

/* ---- Devices ---- */

static const char *backend_of(const rvl_replay *replay)
{
    return replay->options.backend != NULL ? replay->options.backend : "sim";
}

static bool is_simulated(const rvl_replay *replay)
{
    return strcmp(backend_of(replay), "sim") == 0;
}

/* Loads the kind of device that the options name for all devices. */
static rvl_status named_profile(rvl_replay *replay, rvl_profile *profile_out)
{
    const char *device = replay->options.device;
    rvl_status status = rvl_profile_load(device, profile_out);
    if (status != RVL_ERR_NOT_FOUND)
        return status;
    return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                              "unknown device \"%.64s\": neither a profile nor a size", device);
}

/*
 * Describes a device as the trace's header does. Costs are those of its profile, or of the default
 * one if that is not known.
 */
static rvl_status traced_profile(rvl_replay *replay, const rvl_trace_device *device,
                                 rvl_profile *profile_out)
{
    rvl_status status = RVL_ERR_NOT_FOUND;
    if (device->profile != NULL)
        status = rvl_profile_find(device->profile, profile_out);
    if (status != RVL_OK)
        status = rvl_profile_find(DEFAULT_PROFILE, profile_out);
    if (status != RVL_OK)
        return rvli_replay_pass_on(replay, NULL, 0, status, status, "the profile of a device");
    profile_out->name = device->profile;
    if (profile_out->capacity_bytes != device->capacity_bytes) /* as the card itself reports it */
        profile_out->capacity_doubt_bytes = 0;
    profile_out->capacity_bytes = device->capacity_bytes;
    profile_out->granularity_bytes = device->granularity_bytes;
    return RVL_OK;
}

static rvl_status describe_devices(rvl_replay *replay, rvl_profile *profiles)
{
    const rvl_trace_device *traced = replay->traced;
    memset(replay->device_of_index, -1, sizeof replay->device_of_index);
    for (size_t i = 0; i < replay->traced_count; i++) {
        profiles[i] = (rvl_profile){.struct_size = sizeof profiles[i]};
        rvl_status status = replay->options.device != NULL
                                ? named_profile(replay, &profiles[i])
                                : traced_profile(replay, &traced[i], &profiles[i]);
        if (status != RVL_OK)
            return status;
        replay->device_of_index[traced[i].index] = (int)i;
        replay->devices[i].trace_index = (int)traced[i].index;
        replay->devices[i].profile = profiles[i].name;
        replay->devices[i].granularity_bytes = profiles[i].granularity_bytes;
        replay->devices[i].capacity_doubt_bytes = profiles[i].capacity_doubt_bytes;
        if (is_simulated(replay))
            replay->devices[i].driver = profiles[i].driver;
        replay->device_count = (int)i + 1;
    }
    return RVL_OK;
}

static rvl_status open_context(rvl_replay *replay, const rvl_profile *profiles)
{
    const rvl_profile *devices[RVL_MAX_DEVICES];
    for (int i = 0; i < replay->device_count; i++)
        devices[i] = &profiles[i];
    rvl_sim_options sim = {
        .struct_size = sizeof sim,
        .memory = RVL_SIM_ACCOUNTED,
        .flags = RVL_SIM_OVERCOMMIT,
        .devices = devices,
        .device_count = (size_t)replay->device_count,
    };
    const char *backend = backend_of(replay);
    rvl_context_options options = {.struct_size = sizeof options,
                                   .backend_options = is_simulated(replay) ? &sim : NULL};
    rvl_status status = rvl_context_open(backend, &options, &replay->context);
    if (status != RVL_OK) {
        char what[64];
        snprintf(what, sizeof what, "backend %.32s", backend);
        return rvli_replay_pass_on(replay, NULL, 0, status, status, what);
    }
    rvli_replay_measure_begin(replay);
    if (rvl_device_count(replay->context) < replay->device_count)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_NO_DEVICE,
                                  "the trace needs more devices (%d) than backend %.32s has (%d)",
                                  replay->device_count, backend, rvl_device_count(replay->context));
    return RVL_OK;
}

static rvl_status open_devices(rvl_replay *replay)
{
    rvl_profile *profiles = calloc(RVL_MAX_DEVICES, sizeof *profiles);
    if (profiles == NULL)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_HOST_OOM, "no host memory for devices");
    rvl_status status = describe_devices(replay, profiles);
    if (status == RVL_OK)
        status = open_context(replay, profiles);
    free(profiles);
    return status;
}

/* ---- Running ---- */

static rvl_status check_options(rvl_replay *replay)
{
    const rvl_replay_options *options = &replay->options;
    if (rvli_flags_check(options->flags,
                         RVL_REPLAY_PARTIAL | RVL_REPLAY_SNAPSHOT_PARTS |
                             RVL_REPLAY_HEADROOM_BYTES | RVL_REPLAY_HEADROOM_PERCENT,
                         options->reserved) != RVL_OK)
        return RVL_ERR_VERSION;
    if (rvli_headroom_read(options, &replay->headroom) != RVL_OK)
        return RVL_ERR_INVALID;
    if ((unsigned)options->wake > RVL_WAKE_TOGETHER)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID, "unknown way to wake");
    if (options->filter != NULL &&
        rvli_element_check(RVLI_TRACE_EVENT, options->event_size) != RVL_OK)
        return RVL_ERR_INVALID;
    return rvli_replay_copy_budgets(replay);
}

static rvl_status copy_paths(rvl_replay *replay, const char *const *paths, size_t count)
{
    replay->paths = calloc(count, sizeof *replay->paths);
    for (size_t i = 0; replay->paths != NULL && i < count; i++) {
        if (paths[i] == NULL)
            return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID, "a path is NULL");
        replay->paths[i] = strdup(paths[i]);
        if (replay->paths[i] == NULL)
            break;
        replay->path_count++;
    }
    if (replay->path_count < count)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_HOST_OOM, "no host memory for paths");
    return RVL_OK;
}

static rvl_status prepare(rvl_replay *replay)
{
    rvl_status status = check_options(replay);
    if (status == RVL_OK)
        status = rvli_replay_input_open(replay);
    if (status == RVL_OK)
        status = open_devices(replay);
    if (status == RVL_OK)
        status = rvli_replay_stages_begin(replay);
    if (status == RVL_OK && replay->options.wake == RVL_WAKE_TOGETHER)
        status = rvli_replay_together_collect(replay);
    if (status == RVL_OK)
        status = rvli_replay_watch(replay);
    if (status == RVL_OK)
        status = rvli_replay_input_begin(replay);
    replay->conductor.name = replay->options.conductor;
    return status;
}

static void tell_progress(rvl_replay *replay)
{
    rvli_replay_input_progress(replay, &replay->progress);
    if (replay->options.progress != NULL)
        replay->options.progress(replay->options.progress_user, &replay->progress);
}

static rvl_status run_events(rvl_replay *replay)
{
    const rvl_trace_event *event;
    uint32_t until_progress = PROGRESS_EVENTS;
    bool measures = replay->measured[0].free_before > 0;
    for (;;) {
        rvl_status status = rvli_replay_ahead_next(replay, &event);
        if (status == RVL_ERR_NOT_FOUND)
            break;
        if (status == RVL_OK)
            status = rvli_replay_apply(replay, event);
        if (status == RVL_OK)
            rvli_replay_note_event(replay, event);
        if (status != RVL_OK)
            return status;
        if (measures)
            rvli_replay_measure(replay);
        replay->last_ns = event->time_ns;
        if (--until_progress == 0) {
            tell_progress(replay);
            until_progress = PROGRESS_EVENTS;
        }
    }
    tell_progress(replay);
    if (replay->conductor.name != NULL && !replay->conductor.seen)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "unknown conductor \"%.64s\": no process has this name",
                                  replay->conductor.name);
    return RVL_OK;
}

/*
 * Ends the outcome of all processes. Refusals on the recorded device do not apply to another device
 * that the options name.
 */
static void end_outcome(rvl_replay *replay)
{
    replay->outcome.other_device = replay->options.device != NULL;
    replay->outcome.cut_off = replay->progress.cut_files > 0;
    for (uint32_t i = 0; i < replay->process_capacity; i++)
        rvli_outcome_end(&replay->outcome, &replay->processes[i].refusals);
}

/* Frees what only a running replay needs. */
static void forget_run(rvl_replay *replay)
{
    rvli_replay_together_destroy(&replay->together);
    free(replay->watched);
    replay->watched = NULL;
    rvli_intmap_destroy(&replay->tags);
    for (uint32_t i = 0; i < replay->process_capacity; i++) {
        rvli_intmap_destroy(&replay->processes[i].addrs);
        rvli_replay_parts_destroy(&replay->processes[i]);
        rvli_replay_sleeper_destroy(&replay->processes[i]);
        rvli_replay_stages_forget_process(&replay->processes[i].stages);
    }
    replay->options = (rvl_replay_options){0};
    replay->conductor.name = NULL;
}

static rvl_status run(rvl_replay *replay, const char *const *paths, size_t path_count,
                      const rvl_replay_options *options)
{
    rvl_status status = rvli_options_read(&replay->options, sizeof replay->options, options);
    if (status != RVL_OK)
        return rvli_replay_refuse(replay, NULL, 0, status, "options: %s", rvl_status_text(status));
    status = copy_paths(replay, paths, path_count);
    if (status == RVL_OK)
        status = prepare(replay);
    if (status == RVL_OK)
        status = run_events(replay);
    end_outcome(replay);
    if (status == RVL_OK)
        status = rvli_replay_stages_end(replay);
    if (status == RVL_OK)
        status = rvli_replay_watch_end(replay);
    if (status == RVL_OK)
        status = rvli_replay_finish(replay);
    return status;
}

/* paths: those of files, or the one name of a source. */
static rvl_status start(const rvl_replay_source *source, const char *const *paths,
                        size_t path_count, const rvl_replay_options *options,
                        rvl_replay **replay_out)
{
    rvl_replay *replay = calloc(1, sizeof *replay);
    if (replay == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the replay");
    replay->progress.struct_size = sizeof replay->progress;
    if (source != NULL)
        replay->memory.source = *source;
    const rvl_error before = *rvli_error_get();
    rvl_status status = run(replay, paths, path_count, options);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvl_replay_close(replay);
        rvli_error_set(&cause);
        return status;
    }
    forget_run(replay);
    rvli_error_set(&before); /* a successful call leaves the record unchanged */
    *replay_out = replay;
    return RVL_OK;
}

rvl_status rvl_replay_run(const char *const *paths, size_t path_count,
                          const rvl_replay_options *options, rvl_replay **replay_out)
{
    if (paths == NULL || path_count == 0 || replay_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "no trace, or no place for the result");
    return start(NULL, paths, path_count, options, replay_out);
}

rvl_status rvl_replay_run_source(const rvl_replay_source *source, const rvl_replay_options *options,
                                 rvl_replay **replay_out)
{
    rvl_replay_source known;
    if (source == NULL || replay_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "no source, or no place for the result");
    rvl_status status = rvli_options_read(&known, sizeof known, source);
    if (status != RVL_OK)
        return status;
    if (known.next == NULL || known.devices == NULL)
        return rvli_error(RVL_ERR_INVALID, "a source without devices or next");
    status = rvli_element_check(RVLI_TRACE_EVENT, known.event_size);
    if (status != RVL_OK)
        return status;
    const char *name = known.name != NULL ? known.name : "events";
    return start(&known, &name, 1, options, replay_out);
}

void rvl_replay_close(rvl_replay *replay)
{
    if (replay == NULL)
        return;
    forget_run(replay);
    free(replay->processes);
    rvli_replay_result_destroy(replay);
    rvli_replay_stages_destroy(replay);
    rvl_context_close(replay->context, NULL);
    rvli_replay_input_close(replay);
    for (size_t i = 0; i < replay->path_count; i++)
        free(replay->paths[i]);
    free(replay->paths);
    free(replay);
}
