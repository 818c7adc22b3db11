/* SPDX-License-Identifier: MIT */
/*
 * Snapshots beside traces (predict/replay/snapshot_input.h).
 *
 * A snapshot does not record its device. The traces beside it may declare it; otherwise the options
 * name it.
 */
#include "predict/replay/snapshot_input.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "reveille/snapshot.h"

#define DEFAULT_PROFILE "h200"
#define DEFAULT_PROCESS "trainer"
#define PATH_BYTES 64
#define NAME_BYTES 256

/* The inputs of an opening. */
typedef struct joining {
    rvli_joined *joined;
    const rvl_replay_options *options;
} joining;

static rvl_status refuse(rvl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static rvl_status refuse(rvl_status status, const char *format, ...)
{
    char message[sizeof rvli_error_get()->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return rvli_error(status, message);
}

static rvl_status no_memory(void)
{
    return refuse(RVL_ERR_HOST_OOM, "no host memory for paths");
}

static bool ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), tail = strlen(end);
    return length >= tail && strcmp(path + length - tail, end) == 0;
}

static uint64_t trace_flags(uint64_t replay_flags)
{
    return replay_flags & RVL_REPLAY_PARTIAL ? RVL_TRACE_PARTIAL : 0;
}

static bool is_snapshot(const char *path)
{
    return ends_with(path, ".pickle") || ends_with(path, ".pickle.gz");
}

static size_t count_snapshots(const rvli_joined *joined)
{
    size_t count = 0;
    for (size_t i = 0; i < joined->path_count; i++)
        count += is_snapshot(joined->paths[i]);
    return count;
}

/* ---- The device ---- */

/* Returns the first trace that declares a device; NULL: none can be read again. */
static const char *declaring_trace(const joining *j, const char *const *traces, size_t count,
                                   uint32_t index)
{
    rvl_trace_reader_options options = {.struct_size = sizeof options,
                                        .flags = trace_flags(j->options->flags)};
    const char *found = NULL;
    for (size_t i = 0; i < count && found == NULL; i++) {
        rvl_trace_device devices[RVL_MAX_DEVICES];
        rvl_trace_reader *reader;
        if (rvl_trace_reader_open(&traces[i], 1, &options, &reader) != RVL_OK)
            continue;
        size_t device_count = 0;
        rvl_trace_reader_get_devices(reader, devices, sizeof *devices, RVL_MAX_DEVICES,
                                     &device_count);
        for (size_t k = 0; k < device_count; k++) {
            if (devices[k].index == index)
                found = traces[i];
        }
        rvl_trace_reader_close(reader);
    }
    return found;
}

/*
 * Replaces the name of the profile, which the reader owns, by that of a known profile, which stays
 * valid.
 */
static rvl_status keep_profile(const joining *j, const char *const *traces, size_t count,
                               rvl_trace_device *device)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    if (device->profile == NULL)
        return RVL_OK;
    if (rvl_profile_find(device->profile, &profile) != RVL_OK || profile.name == NULL ||
        strcmp(profile.name, device->profile) != 0) {
        refuse(RVL_ERR_INVALID,
               "a snapshot cannot join device %u: the traces beside it say that it is a %.64s, "
               "which no profile describes (`reveille devices` lists them)",
               device->index, device->profile);
        rvl_error cause = *rvli_error_get();
        const char *file = declaring_trace(j, traces, count, device->index);
        rvli_error_set(&cause);
        if (file != NULL)
            rvli_error_place(file, 0, 0);
        return RVL_ERR_INVALID;
    }
    device->profile = profile.name;
    return RVL_OK;
}

/*
 * Finds the device of this index in the headers of traces. RVL_ERR_NOT_FOUND: they do not declare
 * it.
 */
static rvl_status read_device(const joining *j, const char *const *traces, size_t count,
                              rvl_trace_device *device)
{
    rvl_trace_reader_options options = {.struct_size = sizeof options,
                                        .flags = trace_flags(j->options->flags)};
    rvl_trace_device devices[RVL_MAX_DEVICES];
    size_t device_count = 0;
    rvl_trace_reader *reader;
    rvl_status status = rvl_trace_reader_open(traces, count, &options, &reader);
    if (status != RVL_OK)
        return status;
    rvl_trace_reader_get_devices(reader, devices, sizeof *devices, RVL_MAX_DEVICES, &device_count);
    status = RVL_ERR_NOT_FOUND;
    for (size_t i = 0; i < device_count && status == RVL_ERR_NOT_FOUND; i++) {
        if (devices[i].index != device->index)
            continue;
        *device = devices[i];
        status = keep_profile(j, traces, count, device);
    }
    rvl_trace_reader_close(reader);
    return status;
}

/*
 * Finds the device as the traces declare it. RVL_ERR_NOT_FOUND: they do not, or there are no
 * traces.
 */
static rvl_status declared_device(const joining *j, rvl_trace_device *device)
{
    const rvli_joined *joined = j->joined;
    const char **traces = calloc(joined->path_count, sizeof *traces);
    size_t count = 0;
    if (traces == NULL)
        return no_memory();
    for (size_t i = 0; i < joined->path_count; i++) {
        if (!is_snapshot(joined->paths[i]))
            traces[count++] = joined->paths[i];
    }
    rvl_status status = count > 0 ? read_device(j, traces, count, device) : RVL_ERR_NOT_FOUND;
    free(traces);
    return status;
}

static rvl_status find_device(const joining *j, rvl_trace_device *device_out)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    *device_out = (rvl_trace_device){.index = j->options->snapshot_device};
    if (device_out->index >= RVL_MAX_DEVICES)
        return refuse(RVL_ERR_INVALID, "snapshot_device %u: the last possible is %d",
                      device_out->index, RVL_MAX_DEVICES - 1);
    rvl_status status = declared_device(j, device_out);
    if (status != RVL_ERR_NOT_FOUND)
        return status;
    j->joined->device_assumed = j->options->device == NULL;
    const char *name = j->options->device != NULL ? j->options->device : DEFAULT_PROFILE;
    status = rvl_profile_load(name, &profile);
    if (status != RVL_OK && status != RVL_ERR_NOT_FOUND)
        return status;
    if (status != RVL_OK)
        return refuse(RVL_ERR_INVALID, "unknown device \"%.64s\": neither a profile nor a size",
                      name);
    device_out->profile = profile.name;
    device_out->capacity_bytes = profile.capacity_bytes;
    device_out->granularity_bytes = profile.granularity_bytes;
    return RVL_OK;
}

/* ---- Their traces ---- */

/*
 * Names the process of a snapshot: "trainer", "trainer2", ... They differ, since the ids of one
 * process must rise over all files.
 */
static void name_process(const joining *j, size_t number, char name[NAME_BYTES])
{
    const char *base = j->options->snapshot_process;
    if (base == NULL)
        base = DEFAULT_PROCESS;
    if (number == 0)
        snprintf(name, NAME_BYTES, "%s", base);
    else
        snprintf(name, NAME_BYTES, "%s%zu", base, number + 1);
}

static rvl_status write_trace(const joining *j, size_t path, size_t number,
                              const rvl_trace_device *device)
{
    char name[NAME_BYTES];
    name_process(j, number, name);
    bool parts = j->options->flags & RVL_REPLAY_SNAPSHOT_PARTS;
    rvl_snapshot_trace how = {.struct_size = sizeof how,
                              .process = name,
                              .device = device,
                              .device_size = sizeof *device,
                              .flags = parts ? RVL_SNAPSHOT_BY_PART : 0};
    rvl_status status =
        rvl_snapshot_write_trace(j->joined->paths[path], NULL, &how, j->joined->reader_paths[path]);
    if (status == RVL_ERR_INVALID)
        return refuse(status, "snapshot_process \"%.64s\": no name", name);
    return status;
}

/* Sets the path that the reader opens. */
static rvl_status place_file(const joining *j, size_t path)
{
    rvli_joined *joined = j->joined;
    char text[PATH_BYTES];
    if (!is_snapshot(joined->paths[path])) {
        joined->reader_paths[path] = joined->paths[path];
        return RVL_OK;
    }
    joined->snapshot_traces[path] = memfd_create("reveille-snapshot", MFD_CLOEXEC);
    if (joined->snapshot_traces[path] < 0)
        return refuse(RVL_ERR_IO, "no file in memory for a snapshot's trace");
    snprintf(text, sizeof text, "/proc/self/fd/%d", joined->snapshot_traces[path]);
    joined->reader_paths[path] = strdup(text);
    return joined->reader_paths[path] != NULL ? RVL_OK : no_memory();
}

static rvl_status join(const joining *j)
{
    rvli_joined *joined = j->joined;
    rvl_trace_device device;
    size_t number = 0;
    joined->reader_paths = calloc(joined->path_count, sizeof *joined->reader_paths);
    joined->snapshot_traces = malloc(joined->path_count * sizeof *joined->snapshot_traces);
    if (joined->reader_paths == NULL || joined->snapshot_traces == NULL)
        return no_memory();
    for (size_t i = 0; i < joined->path_count; i++)
        joined->snapshot_traces[i] = -1;
    rvl_status status = find_device(j, &device);
    for (size_t i = 0; i < joined->path_count && status == RVL_OK; i++) {
        status = place_file(j, i);
        if (status == RVL_OK && is_snapshot(joined->paths[i]))
            status = write_trace(j, i, number++, &device);
    }
    return status;
}

rvl_status rvli_joined_open(const char *const *paths, size_t path_count,
                            const rvl_replay_options *options, rvli_joined *joined_out)
{
    joining j = {.joined = joined_out, .options = options};
    *joined_out = (rvli_joined){.paths = paths, .path_count = path_count};
    return count_snapshots(joined_out) > 0 ? join(&j) : RVL_OK;
}

rvl_status rvli_joined_reader(const rvli_joined *joined, bool partial,
                              rvl_trace_reader **reader_out)
{
    rvl_trace_reader_options options = {.struct_size = sizeof options,
                                        .flags = partial ? RVL_TRACE_PARTIAL : 0,
                                        .names = joined->paths};
    const char *const *paths = joined->reader_paths != NULL ? joined->reader_paths : joined->paths;
    return rvl_trace_reader_open(paths, joined->path_count, &options, reader_out);
}

bool rvli_joined_is_snapshot(const rvli_joined *joined, uint32_t file)
{
    return joined->snapshot_traces != NULL && joined->snapshot_traces[file] >= 0;
}

void rvli_joined_destroy(rvli_joined *joined)
{
    bool made = joined->reader_paths != NULL && joined->snapshot_traces != NULL;
    for (size_t i = 0; made && i < joined->path_count; i++) {
        if (joined->snapshot_traces[i] < 0)
            continue;
        close(joined->snapshot_traces[i]);
        free((void *)(uintptr_t)joined->reader_paths[i]);
    }
    free(joined->reader_paths);
    free(joined->snapshot_traces);
    *joined = (rvli_joined){.device_assumed = joined->device_assumed};
}

/* ---- Readers without a replay ---- */

static rvl_status open_reader(const char *const *paths, size_t path_count,
                              const rvl_replay_options *options, rvl_trace_reader **reader_out)
{
    rvli_joined joined;
    rvl_status status = rvli_joined_open(paths, path_count, options, &joined);
    if (status == RVL_OK)
        status = rvli_joined_reader(&joined, options->flags & RVL_REPLAY_PARTIAL, reader_out);
    rvli_joined_destroy(&joined);
    return status;
}

rvl_status rvl_replay_open_reader(const char *const *paths, size_t path_count,
                                  const rvl_replay_options *user_options,
                                  rvl_trace_reader **reader_out)
{
    rvl_replay_options options;
    rvl_status status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = rvli_flags_check(options.flags, RVL_REPLAY_PARTIAL | RVL_REPLAY_SNAPSHOT_PARTS,
                                  options.reserved);
    if (status != RVL_OK)
        return status;
    bool named = paths != NULL && path_count > 0 && reader_out != NULL;
    for (size_t i = 0; named && i < path_count; i++)
        named = paths[i] != NULL;
    if (!named)
        return rvli_error(RVL_ERR_INVALID, "no trace, or no place for the reader");
    return open_reader(paths, path_count, &options, reader_out);
}
