/* SPDX-License-Identifier: MIT */
/*
 * The trace reader. What it reads without an error is written by the writer and read again, which
 * must give the same events.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "reveille/trace.h"

#define PATH_BYTES 64
#define PROCESSES_MAX 4096

/* What the writer makes; kept, as fuzz_file()'s is. */
static const char *copy_path(void)
{
    static int file = -1;
    static char path[PATH_BYTES];
    if (file < 0) {
        file = memfd_create("copy", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    require(file >= 0 && ftruncate(file, 0) == 0);
    require(lseek(file, 0, SEEK_SET) == 0); /* the writer goes on where the descriptor is */
    return path;
}

static rvl_trace_reader *open_reader(const char *path, bool partial)
{
    rvl_trace_reader_options options = {.struct_size = sizeof options,
                                        .flags = partial ? RVL_TRACE_PARTIAL : 0};
    rvl_error error = {.struct_size = sizeof error};
    rvl_trace_reader *reader = NULL;
    rvl_status status = rvl_trace_reader_open(&path, 1, &options, &reader);
    rvl_last_error(&error);
    require((status == RVL_OK) == (reader != NULL));
    require(status == RVL_OK || error.message[0] != '\0');
    return reader;
}

/* Reads all; the last status, which must stay the same. */
static rvl_status read_all(const char *path, bool partial)
{
    rvl_trace_event event;
    rvl_status status;
    rvl_trace_reader *reader = open_reader(path, partial);
    if (reader == NULL)
        return RVL_ERR_CORRUPT_TRACE;
    do
        status = rvl_trace_reader_next(reader, &event, sizeof event);
    while (status == RVL_OK);
    require(rvl_trace_reader_next(reader, &event, sizeof event) == status);
    rvl_trace_reader_close(reader);
    return status;
}

static void write_again(const char *from, const char *to)
{
    static bool declared[PROCESSES_MAX];
    rvl_trace_device devices[RVL_MAX_DEVICES];
    rvl_trace_header header = {.struct_size = sizeof header,
                               .devices = devices,
                               .device_size = sizeof *devices,
                               .minor = RVL_TRACE_MINOR};
    rvl_trace_writer *writer = NULL;
    rvl_trace_event event;
    rvl_trace_reader *reader = open_reader(from, false);
    memset(declared, 0, sizeof declared);
    require(rvl_trace_reader_get_devices(reader, devices, sizeof *devices, RVL_MAX_DEVICES,
                                         &header.device_count) == RVL_OK);
    require(rvl_trace_writer_open(to, &header, &writer) == RVL_OK);
    while (rvl_trace_reader_next(reader, &event, sizeof event) == RVL_OK) {
        require(event.process_index < PROCESSES_MAX);
        if (!declared[event.process_index])
            require(rvl_trace_writer_add_process(writer, event.process, 0) == RVL_OK);
        declared[event.process_index] = true;
        require(rvl_trace_writer_add_event(writer, &event, sizeof event) == RVL_OK);
    }
    require(rvl_trace_writer_close(writer) == RVL_OK);
    rvl_trace_reader_close(reader);
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_event(const rvl_trace_event *a, const rvl_trace_event *b)
{
    return a->kind == b->kind && a->time_ns == b->time_ns && a->id == b->id &&
           a->bytes == b->bytes && a->access_mask == b->access_mask && a->thread == b->thread &&
           a->device == b->device && a->tag_index == b->tag_index && a->flags == b->flags &&
           a->backup == b->backup && a->skip_content == b->skip_content &&
           same_text(a->process, b->process) && same_text(a->tag, b->tag) &&
           same_text(a->name, b->name);
}

static void require_same(const char *path_a, const char *path_b)
{
    rvl_trace_event a, b;
    rvl_status status;
    rvl_trace_reader *reader_a = open_reader(path_a, false);
    rvl_trace_reader *reader_b = open_reader(path_b, false);
    require(reader_a != NULL && reader_b != NULL);
    do {
        status = rvl_trace_reader_next(reader_a, &a, sizeof a);
        require(rvl_trace_reader_next(reader_b, &b, sizeof b) == status);
        require(status != RVL_OK || same_event(&a, &b));
    } while (status == RVL_OK);
    rvl_trace_reader_close(reader_a);
    rvl_trace_reader_close(reader_b);
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    bool whole = read_all(path, false) == RVL_ERR_NOT_FOUND;
    bool partly = read_all(path, true) == RVL_ERR_NOT_FOUND;
    require(partly || !whole);
    if (whole) {
        const char *copy = copy_path();
        write_again(path, copy);
        require_same(path, copy);
    }
    return whole;
}
