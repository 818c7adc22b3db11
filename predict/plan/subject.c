/* SPDX-License-Identifier: MIT */
/*
 * The events of traces or of a step, which can be read and replayed repeatedly. Nothing of a trace
 * is kept, so a trace of any length only takes the memory of its replay.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "predict/plan/plan_internal.h"

#define PATH_BYTES 32
#define COPY_BYTES 65536

/* ---- Pipes can only be read once, so they are copied into memory ---- */

static bool is_pipe(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

/* Whether to copy on. A device such as /dev/zero never ends. */
static bool may_be_trace(const char *bytes, size_t size)
{
    static const char first[] = "reveille-trace ";
    size_t length = sizeof first - 1;
    return memcmp(bytes, first, size < length ? size : length) == 0;
}

/* Copies a trace. Of anything else, copies only enough for the reader to refuse it. */
static bool copy_to(int from, int to)
{
    char bytes[COPY_BYTES];
    for (bool begun = false;; begun = true) {
        ssize_t count = read(from, bytes, sizeof bytes);
        if (count <= 0)
            return count == 0;
        for (ssize_t written = 0; written < count;) {
            ssize_t more = write(to, bytes + written, (size_t)(count - written));
            if (more < 0)
                return false;
            written += more;
        }
        if (!begun && !may_be_trace(bytes, (size_t)count))
            return true;
    }
}

/* Copies a pipe to an unnamed file. -1: it could not be made. */
static int drain(const char *path)
{
    int pipe = open(path, O_RDONLY | O_CLOEXEC);
    int file = pipe >= 0 ? memfd_create("reveille-plan", MFD_CLOEXEC) : -1;
    bool whole = file >= 0 && copy_to(pipe, file);
    if (pipe >= 0)
        close(pipe);
    if (file >= 0 && !whole) {
        close(file);
        file = -1;
    }
    return file;
}

/* Makes paths that can be read repeatedly. */
static rvl_status place_paths(rvli_subject *subject, const char *const *paths, size_t count)
{
    subject->paths = calloc(count, sizeof(char *));
    subject->files = malloc(count * sizeof *subject->files);
    if (subject->paths == NULL || subject->files == NULL)
        return RVL_ERR_HOST_OOM;
    subject->names = paths;
    for (size_t i = 0; i < count; i++) {
        char placed[PATH_BYTES];
        int file = is_pipe(paths[i]) ? drain(paths[i]) : -1;
        if (file < 0 && is_pipe(paths[i])) {
            rvli_error(RVL_ERR_IO, "the pipe cannot be read to its end");
            rvli_error_place(paths[i], 0, 0);
            return RVL_ERR_IO;
        }
        snprintf(placed, sizeof placed, "/proc/self/fd/%d", file);
        subject->paths[i] = strdup(file >= 0 ? placed : paths[i]);
        if (subject->paths[i] == NULL) {
            if (file >= 0)
                close(file);
            return RVL_ERR_HOST_OOM;
        }
        subject->files[i] = file;
        subject->path_count++;
    }
    return RVL_OK;
}

/* Replaces the path in the error record by the caller's name for it. */
static void name_place(const rvli_subject *subject)
{
    const rvl_error *error = rvli_error_get();
    for (size_t i = 0; i < subject->path_count; i++) {
        if (error->file[0] != '\0' && strcmp(error->file, subject->paths[i]) == 0) {
            rvli_error_place(subject->names[i], error->line, error->column);
            return;
        }
    }
}

/* ---- Reading ---- */

static rvl_status open_reader(const rvli_subject *subject, rvl_trace_reader **reader_out)
{
    rvl_status status = rvl_replay_open_reader((const char *const *)subject->paths,
                                               subject->path_count, &subject->reading, reader_out);
    name_place(subject);
    return status;
}

static rvl_status walk_reader(const rvli_subject *subject, rvl_trace_reader *reader,
                              rvli_visit_fn visit, void *user)
{
    rvl_trace_event event;
    rvl_status status = rvl_trace_reader_next(reader, &event, sizeof event);
    while (status == RVL_OK && visit(user, &event))
        status = rvl_trace_reader_next(reader, &event, sizeof event);
    name_place(subject);
    return status == RVL_ERR_NOT_FOUND ? RVL_OK : status;
}

rvl_status rvli_subject_walk(const rvli_subject *subject, rvli_visit_fn visit, void *user)
{
    rvl_trace_reader *reader;
    if (subject->paths == NULL) {
        for (size_t i = 0; i < subject->count && visit(user, &subject->events[i]); i++) {
        }
        return RVL_OK;
    }
    rvl_status status = open_reader(subject, &reader);
    if (status != RVL_OK)
        return status;
    status = walk_reader(subject, reader, visit, user);
    rvl_trace_reader_close(reader);
    return status;
}

static bool note_stage(void *user, const rvl_trace_event *event)
{
    bool *has_stage = user;
    *has_stage = *has_stage || event->kind == RVL_EVENT_STAGE || event->kind == RVL_EVENT_ENTER;
    return true;
}

/* Reads the traces once. The reader stays open, since it owns the devices' strings. */
static rvl_status read_once(rvli_subject *subject, bool *has_stage_out)
{
    *has_stage_out = false;
    rvl_status status = open_reader(subject, &subject->reader);
    if (status != RVL_OK)
        return status;
    status =
        rvl_trace_reader_get_devices(subject->reader, subject->devices, sizeof *subject->devices,
                                     RVL_MAX_DEVICES, &subject->device_count);
    if (status != RVL_OK)
        return status;
    return walk_reader(subject, subject->reader, note_stage, has_stage_out);
}

rvl_status rvli_subject_open(const char *const *paths, size_t path_count,
                             const rvl_replay_options *reading, rvli_subject *subject_out)
{
    rvli_subject subject = {.reading = *reading};
    bool has_stage = false;
    rvl_status status = place_paths(&subject, paths, path_count);
    if (status == RVL_OK)
        status = read_once(&subject, &has_stage);
    if (status == RVL_OK && has_stage) {
        *subject_out = subject;
        return RVL_OK;
    }
    rvli_subject_close(&subject);
    if (status != RVL_OK)
        return status;
    rvli_error(RVL_ERR_NOT_FOUND,
               "the trace has no stage, so there is none to fit: mark them with rvl_stage() or "
               "reveille.stage(), or with ranges (`reveille run --stages`)");
    rvli_error_place(paths[0], 0, 0);
    return RVL_ERR_NOT_FOUND;
}

rvl_status rvli_subject_of_step(const rvl_model_step *step, rvli_subject *subject_out)
{
    rvli_subject subject = {.device_count = 1};
    rvl_status status = rvl_model_step_get_device(step, subject.devices, sizeof *subject.devices);
    if (status == RVL_OK)
        status = rvl_model_step_get_events(step, NULL, 0, 0, &subject.count);
    if (status != RVL_OK)
        return status;
    subject.events = calloc(subject.count, sizeof *subject.events);
    if (subject.events == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the events of a step");
    status = rvl_model_step_get_events(step, subject.events, sizeof *subject.events, subject.count,
                                       &subject.count);
    if (status == RVL_OK)
        *subject_out = subject;
    else
        free(subject.events);
    return status;
}

void rvli_subject_close(rvli_subject *subject)
{
    for (size_t i = 0; i < subject->path_count; i++) {
        free(subject->paths[i]);
        if (subject->files[i] >= 0)
            close(subject->files[i]);
    }
    free(subject->paths);
    free(subject->files);
    free(subject->events);
    rvl_trace_reader_close(subject->reader);
    *subject = (rvli_subject){0};
}

/* ---- Replaying ---- */

rvl_status rvli_subject_replay(const rvli_subject *subject, const rvl_replay_options *options,
                               rvl_replay **replay_out)
{
    const rvl_replay_events of_step = {.struct_size = sizeof of_step,
                                       .name = "the plan",
                                       .devices = subject->devices,
                                       .device_count = subject->device_count,
                                       .device_size = sizeof *subject->devices,
                                       .events = subject->events,
                                       .event_count = subject->count,
                                       .event_size = sizeof *subject->events};
    if (subject->paths == NULL)
        return rvl_replay_run_events(&of_step, options, replay_out);
    rvl_replay_options of_files = *options;
    of_files.flags |= subject->reading.flags;
    of_files.snapshot_process = subject->reading.snapshot_process;
    of_files.snapshot_device = subject->reading.snapshot_device;
    rvl_status status = rvl_replay_run((const char *const *)subject->paths, subject->path_count,
                                       &of_files, replay_out);
    name_place(subject);
    return status;
}
