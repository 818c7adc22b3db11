/* SPDX-License-Identifier: MIT */
/*
 * Writing and reading traces: ns for each event and MB/s of text, best of 5, on a file in memory.
 *
 *     bench_trace [EVENTS]
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "reveille/trace.h"

#define ROUNDS 5

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "bench_trace: %s failed\n", what);
    exit(1);
}

/* Allocations and frees by turns. */
static void write_trace(const char *path, uint64_t events)
{
    const rvl_trace_device device = {.capacity_bytes = UINT64_C(1) << 37,
                                     .granularity_bytes = UINT64_C(1) << 21};
    const rvl_trace_header header = {.struct_size = sizeof header,
                                     .devices = &device,
                                     .device_count = 1,
                                     .device_size = sizeof device};
    rvl_trace_writer *writer = NULL;
    require(rvl_trace_writer_open(path, &header, &writer) == RVL_OK, "opening the writer");
    require(rvl_trace_writer_add_process(writer, "engine", 1) == RVL_OK, "declaring a process");
    for (uint64_t i = 0; i < events; i++) {
        rvl_trace_event event = {.kind = i % 2 == 0 ? RVL_EVENT_ALLOC : RVL_EVENT_FREE,
                                 .process = "engine",
                                 .time_ns = i * 1000,
                                 .id = i / 2 + 1,
                                 .bytes = (i % 64 + 1) << 21,
                                 .tag = "weights"};
        require(rvl_trace_writer_add_event(writer, &event, sizeof event) == RVL_OK,
                "writing an event");
    }
    require(rvl_trace_writer_close(writer) == RVL_OK, "closing the writer");
}

static void read_trace(const char *path, uint64_t events)
{
    rvl_trace_reader *reader = NULL;
    rvl_trace_event event;
    uint64_t count = 0;
    require(rvl_trace_reader_open(&path, 1, NULL, &reader) == RVL_OK, "opening the reader");
    while (rvl_trace_reader_next(reader, &event, sizeof event) == RVL_OK)
        count++;
    require(count == events, "reading all events");
    rvl_trace_reader_close(reader);
}

/* An open file is written on from where it is, as standard output is. */
static void rewind_file(int file)
{
    require(lseek(file, 0, SEEK_SET) == 0 && ftruncate(file, 0) == 0, "emptying the file");
}

static void measure(const char *what, void (*run)(const char *, uint64_t), int file, bool empty,
                    uint64_t events)
{
    uint64_t best_ns = UINT64_MAX;
    struct stat facts;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    for (int round = 0; round < ROUNDS; round++) {
        if (empty)
            rewind_file(file);
        uint64_t begin_ns = now_ns();
        run(path, events);
        uint64_t took_ns = now_ns() - begin_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    require(fstat(file, &facts) == 0, "examining the file");
    printf("%-6s %10" PRIu64 " events  %7.1f ns/event  %7.1f MB/s\n", what, events,
           (double)best_ns / (double)events, (double)facts.st_size * 1e3 / (double)best_ns);
}

int main(int argc, char **argv)
{
    uint64_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_C(1000000);
    int file = memfd_create("bench_trace", MFD_CLOEXEC);
    require(file >= 0 && events > 0, "making a file in memory");
    measure("write", write_trace, file, true, events);
    measure("read", read_trace, file, false, events);
    return 0;
}
