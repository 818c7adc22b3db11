/* SPDX-License-Identifier: MIT */
/*
 * Snapshots beside traces: each becomes a trace in a file without a name, which the reader then
 * merges as it merges any other, by the wall clock.
 *
 * A snapshot does not say what it ran on. Its device is as the traces beside it declare it; where
 * they have none, as the options name it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "replay/model.h"
#include "reveille/snapshot.h"

#define DEFAULT_PROFILE "h200"
#define DEFAULT_PROCESS "trainer"
#define PATH_BYTES 64
#define NAME_BYTES 256

static rvl_status no_memory(rvl_replay *replay)
{
    return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_HOST_OOM, "no host memory for paths");
}

static bool ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), tail = strlen(end);
    return length >= tail && strcmp(path + length - tail, end) == 0;
}

static bool is_snapshot(const char *path)
{
    return ends_with(path, ".pickle") || ends_with(path, ".pickle.gz");
}

static size_t count_snapshots(const rvl_replay *replay)
{
    size_t count = 0;
    for (size_t i = 0; i < replay->path_count; i++)
        count += is_snapshot(replay->paths[i]);
    return count;
}

/* ---- The device ---- */

/* As the traces declare it. RVL_ERR_NOT_FOUND: they do not, or there are none. */
static rvl_status declared_device(rvl_replay *replay, rvl_trace_device *device_out)
{
    const char **traces = calloc(replay->path_count, sizeof *traces);
    const rvl_trace_device *devices;
    rvl_trace_reader *reader;
    size_t count = 0;
    if (traces == NULL)
        return no_memory(replay);
    for (size_t i = 0; i < replay->path_count; i++) {
        if (!is_snapshot(replay->paths[i]))
            traces[count++] = replay->paths[i];
    }
    rvl_trace_reader_options options = {.struct_size = sizeof options,
                                        .partial = replay->options.partial};
    rvl_status status = RVL_ERR_NOT_FOUND;
    if (count > 0)
        status = rvl_trace_reader_open(traces, count, &options, &replay->error, &reader);
    if (status == RVL_OK) {
        size_t device_count = rvl_trace_reader_devices(reader, &devices);
        status = RVL_ERR_NOT_FOUND;
        for (size_t i = 0; i < device_count; i++) {
            if (devices[i].index != device_out->index)
                continue;
            *device_out = devices[i];
            status = RVL_OK;
        }
        /* Its name is the reader's; a known profile has a name that stays. */
        rvl_profile profile = {.struct_size = sizeof profile};
        bool known = status == RVL_OK && device_out->profile != NULL &&
                     rvl_profile_find(device_out->profile, &profile) == RVL_OK;
        if (known && profile.name != NULL && strcmp(profile.name, device_out->profile) == 0)
            device_out->profile = profile.name;
        else if (status == RVL_OK && device_out->profile != NULL)
            status = rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                        "device %u is a %.64s, which no profile describes: a "
                                        "snapshot cannot join it",
                                        device_out->index, device_out->profile);
        rvl_trace_reader_close(reader);
    }
    free(traces);
    return status;
}

static rvl_status find_device(rvl_replay *replay, rvl_trace_device *device_out)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    *device_out = (rvl_trace_device){.index = replay->options.snapshot_device};
    if (device_out->index >= RVL_MAX_DEVICES)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "snapshot_device %u: the last possible is %d", device_out->index,
                                  RVL_MAX_DEVICES - 1);
    rvl_status status = declared_device(replay, device_out);
    if (status != RVL_ERR_NOT_FOUND)
        return status;
    const char *name = replay->options.device != NULL ? replay->options.device : DEFAULT_PROFILE;
    status = rvl_profile_find(name, &profile);
    if (status != RVL_OK)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "unknown device \"%.64s\": neither a profile nor a size", name);
    device_out->profile = profile.name;
    device_out->capacity_bytes = profile.capacity_bytes;
    device_out->granularity_bytes = profile.granularity_bytes;
    return RVL_OK;
}

/* ---- Their traces ---- */

/* "trainer", "trainer2", ...: ids of one process rise over all files. */
static void name_process(const rvl_replay *replay, size_t number, char name[NAME_BYTES])
{
    const char *base = replay->options.snapshot_process;
    if (base == NULL)
        base = DEFAULT_PROCESS;
    if (number == 0)
        snprintf(name, NAME_BYTES, "%s", base);
    else
        snprintf(name, NAME_BYTES, "%s%zu", base, number + 1);
}

static rvl_status write_trace(rvl_replay *replay, size_t path, size_t number,
                              const rvl_trace_device *device)
{
    char name[NAME_BYTES];
    name_process(replay, number, name);
    rvl_snapshot_trace how = {.struct_size = sizeof how, .process = name, .device = *device};
    rvl_status status = rvl_snapshot_write_trace(replay->paths[path], NULL, &how,
                                                 replay->reader_paths[path], &replay->error);
    if (status == RVL_ERR_INVALID)
        return rvli_replay_refuse(replay, NULL, 0, status, "snapshot_process \"%.64s\": no name",
                                  name);
    return status;
}

/* The path that the reader opens. */
static rvl_status place_file(rvl_replay *replay, size_t path)
{
    char text[PATH_BYTES];
    if (!is_snapshot(replay->paths[path])) {
        replay->reader_paths[path] = replay->paths[path];
        return RVL_OK;
    }
    replay->snapshot_traces[path] = memfd_create("reveille-snapshot", MFD_CLOEXEC);
    if (replay->snapshot_traces[path] < 0)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_IO,
                                  "no file in memory for a snapshot's trace");
    snprintf(text, sizeof text, "/proc/self/fd/%d", replay->snapshot_traces[path]);
    replay->reader_paths[path] = strdup(text);
    return replay->reader_paths[path] != NULL ? RVL_OK : no_memory(replay);
}

rvl_status rvli_replay_join_snapshots(rvl_replay *replay)
{
    rvl_trace_device device;
    if (count_snapshots(replay) == 0) {
        replay->reader_paths = replay->paths;
        return RVL_OK;
    }
    replay->reader_paths = calloc(replay->path_count, sizeof *replay->reader_paths);
    replay->snapshot_traces = malloc(replay->path_count * sizeof *replay->snapshot_traces);
    if (replay->reader_paths == NULL || replay->snapshot_traces == NULL)
        return no_memory(replay);
    for (size_t i = 0; i < replay->path_count; i++)
        replay->snapshot_traces[i] = -1;
    rvl_status status = find_device(replay, &device);
    size_t number = 0;
    for (size_t i = 0; i < replay->path_count && status == RVL_OK; i++) {
        status = place_file(replay, i);
        if (status == RVL_OK && is_snapshot(replay->paths[i]))
            status = write_trace(replay, i, number++, &device);
    }
    return status;
}

void rvli_replay_joined_destroy(rvl_replay *replay)
{
    if (replay->reader_paths == replay->paths)
        return;
    for (size_t i = 0; i < replay->path_count; i++) {
        if (replay->snapshot_traces != NULL && replay->snapshot_traces[i] >= 0)
            close(replay->snapshot_traces[i]);
        if (replay->reader_paths != NULL && replay->reader_paths[i] != replay->paths[i])
            free(replay->reader_paths[i]);
    }
    free(replay->reader_paths);
    free(replay->snapshot_traces);
}
