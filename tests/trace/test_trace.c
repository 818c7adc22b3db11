/* SPDX-License-Identifier: MIT */
/*
 * Trace files: what the writer writes is compared byte for byte with golden files, what the reader
 * refuses by status, line and column, and merged files by the order and the times of their events.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zstd.h>

#include "reveille/trace.h"
#include "tests/support/short_memory.h"

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC

#define MAGIC "reveille-trace 1.0\n"
#define CLOCK "clock boot=- mono_ns=0 wall_ns=0\n"
#define DEVICES                                                                                    \
    "device 0 profile=- capacity_bytes=1048576 granularity_bytes=4096\n"                           \
    "device 1 profile=- capacity_bytes=1048576 granularity_bytes=4096\n"
/* Five lines; what follows begins at line 6. */
#define HEAD MAGIC CLOCK DEVICES "process p pid=1\n"
#define EVENTS_MAX 16
#define FILES 3

/* ---- Files ---- */

#define PATH_BYTES 40

static void new_path(char *path, const char *ending)
{
    strcpy(path, "/tmp/reveille-trace-XXXXXX");
    strcat(path, ending);
    int file = mkstemps(path, (int)strlen(ending));
    assert_true(file >= 0);
    close(file);
}

static void put_file(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static char *get_file(const char *path, size_t *length_out)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = calloc(1, 1 << 20);
    assert_non_null(bytes);
    *length_out = fread(bytes, 1, (1 << 20) - 1, file);
    fclose(file);
    return bytes;
}

/* ---- Reading a trace that is given as text ---- */

typedef struct outcome {
    rvl_status status; /* of the open if that failed, else of the last next */
    bool opened;
    rvl_error error;
    rvl_trace_progress progress;
    rvl_trace_reader *reader;
    size_t count;
    rvl_trace_event events[EVENTS_MAX];
} outcome;

static outcome read_paths(const char *const *paths, size_t count, bool partial)
{
    outcome got = {.error = {.struct_size = sizeof got.error},
                   .progress = {.struct_size = sizeof got.progress}};
    rvl_trace_reader_options options = {.struct_size = sizeof options,
                                        .flags = partial ? RVL_TRACE_PARTIAL : 0};
    got.status = rvl_trace_reader_open(paths, count, &options, &got.reader);
    got.opened = got.status == RVL_OK;
    while (got.status == RVL_OK && got.count < EVENTS_MAX) {
        got.status = rvl_trace_reader_next(got.reader, &got.events[got.count], sizeof *got.events);
        got.count += got.status == RVL_OK;
    }
    if (got.status != RVL_OK && got.status != RVL_ERR_NOT_FOUND)
        rvl_last_error(&got.error);
    if (got.opened)
        rvl_trace_reader_get_progress(got.reader, &got.progress);
    return got;
}

static outcome read_bytes(const void *bytes, size_t length, const char *ending, bool partial)
{
    static char path[PATH_BYTES];
    new_path(path, ending);
    put_file(path, bytes, length);
    const char *paths = path;
    outcome got = read_paths(&paths, 1, partial);
    if (got.error.line > 0)
        assert_string_equal(got.error.file, paths);
    unlink(path);
    return got;
}

static outcome read_text(const char *text)
{
    return read_bytes(text, strlen(text), "", false);
}

/* The error comes again, whatever was asked in between. */
static void assert_sticky(outcome *got)
{
    rvl_trace_event event;
    for (int i = 0; got->opened && i < 3; i++) {
        rvl_error again = {.struct_size = sizeof again};
        assert_int_equal(rvl_trace_reader_next(got->reader, &event, sizeof event), got->status);
        rvl_last_error(&again);
        if (got->status == RVL_ERR_NOT_FOUND)
            continue;
        assert_int_equal(again.line, got->error.line);
        assert_int_equal(again.column, got->error.column);
        assert_string_equal(again.message, got->error.message);
    }
}

static void check_error(outcome got, rvl_status status, uint32_t line, uint32_t column,
                        const char *part)
{
    if (got.status != status || got.error.line != line || got.error.column != column ||
        strstr(got.error.message, part) == NULL)
        fail_msg("wanted status %d %u:%u \"%s\", got %d %u:%u \"%s\"", (int)status, line, column,
                 part, (int)got.status, got.error.line, got.error.column, got.error.message);
    assert_sticky(&got);
    rvl_trace_reader_close(got.reader);
}

/* ---- Every kind of event, there and back ---- */

#define DECLARED(number, kind, capacity, granularity)                                              \
    {                                                                                              \
        .index = (number), .profile = (kind), .capacity_bytes = (capacity),                        \
        .granularity_bytes = (granularity)                                                         \
    }

static const rvl_trace_device golden_devices[] = {
    DECLARED(0, "h200", UINT64_C(150754820096), 2097152),
    DECLARED(1, NULL, UINT64_C(1073741824), 4096),
    DECLARED(63, NULL, INT64_MAX, UINT64_C(1) << 62),
};

static const rvl_trace_header golden_header = {
    .struct_size = sizeof golden_header,
    .boot_id = "boot 1",
    .mono_ns = 1000,
    .wall_ns = UINT64_C(1700000000000000000),
    .devices = golden_devices,
    .device_count = 3,
    .device_size = sizeof golden_devices[0],
};

#define NO_TAG .tag_index = RVL_TRACE_NO_TAG
#define TRAINER .process = "trainer"
#define DASH .process = "-", .process_index = 1

static const rvl_trace_event golden_events[] = {
    {RVL_EVENT_ALLOC, .time_ns = 0, TRAINER, .id = 1, .bytes = 1, NO_TAG},
    {RVL_EVENT_ALLOC, .time_ns = 5, TRAINER, .thread = UINT32_MAX, .id = 7, .bytes = INT64_MAX,
     .tag = "wei ghts%", .backup = RVL_BACKUP_HOST,
     .access_mask = UINT64_C(1) << 63 | UINT64_C(1) << 1,
     .flags = RVL_ALLOC_EXPORTABLE | RVL_ALLOC_RDMA | RVL_ALLOC_PAUSED},
    {RVL_EVENT_ALLOC, .time_ns = 5, DASH, .thread = 1, .id = 1, .device = 63, .bytes = 2097152,
     .tag = "-", .tag_index = 1, .backup = RVL_BACKUP_DISK},
    {RVL_EVENT_ALLOC, .time_ns = UINT64_MAX, TRAINER, .id = UINT64_MAX, .device = 1, .bytes = 4096,
     .tag = "größe#1", .tag_index = 2, .flags = RVL_ALLOC_RDMA},
    {RVL_EVENT_FREE, .time_ns = 1, TRAINER, .id = 1, NO_TAG},
    {RVL_EVENT_FREE, .time_ns = 2, DASH, .thread = 3, .id = UINT64_MAX, NO_TAG},
    {RVL_EVENT_PAUSE, .time_ns = 1, TRAINER, .tag = "weights"},
    {RVL_EVENT_PAUSE, .time_ns = 2, TRAINER, .tag = "kv", .tag_index = 1, .skip_content = true},
    {RVL_EVENT_PAUSE, .time_ns = 3, TRAINER, NO_TAG},
    {RVL_EVENT_RESUME, .time_ns = 1, TRAINER, .tag = "weights"},
    {RVL_EVENT_RESUME, .time_ns = 2, TRAINER, .tag = "kv", .tag_index = 1, .skip_content = true},
    {RVL_EVENT_RESUME, .time_ns = 3, TRAINER, NO_TAG, .skip_content = true},
    {RVL_EVENT_STAGE, .time_ns = 1, TRAINER, .name = "generate", NO_TAG},
    {RVL_EVENT_STAGE, .time_ns = 2, TRAINER, .name = "-", NO_TAG},
    {RVL_EVENT_STEP, .time_ns = 9, TRAINER, .thread = 2, NO_TAG},
    {RVL_EVENT_EXTERNAL, .time_ns = 1, TRAINER, .device = 1, .bytes = 1048576,
     .name = "cuda context", NO_TAG},
    {RVL_EVENT_EXTERNAL, .time_ns = 2, TRAINER, .device = 1, .name = "cuda context", NO_TAG},
    {RVL_EVENT_SAMPLE, .time_ns = 1, TRAINER, .device = 63, .bytes = INT64_MAX, NO_TAG},
    {RVL_EVENT_SAMPLE, .time_ns = 2, TRAINER, NO_TAG},
    {RVL_EVENT_PART, .time_ns = 1, TRAINER, .id = 1, .bytes = INT64_MAX, .tag = "logits"},
    {RVL_EVENT_PART, .time_ns = 2, DASH, .id = UINT64_MAX, .tag = "-", .tag_index = 1},
    {RVL_EVENT_ENTER, .time_ns = 1, TRAINER, .id = 1, .name = "forward", NO_TAG},
    {RVL_EVENT_ENTER, .time_ns = 2, DASH, .id = UINT64_MAX, .name = "-", NO_TAG},
    {RVL_EVENT_LEAVE, .time_ns = 1, TRAINER, .id = 1, NO_TAG},
    {RVL_EVENT_LEAVE, .time_ns = 2, DASH, NO_TAG},
    {RVL_EVENT_REFUSE, .time_ns = 1, TRAINER, .device = 63, .bytes = INT64_MAX, .tag = "wei ghts",
     .flags = RVL_REFUSE_BY_ALLOCATOR, .name = "train it.py:23"},
    {RVL_EVENT_REFUSE, .time_ns = 2, TRAINER, .device = RVL_TRACE_HOST, .bytes = 1,
     .free_bytes = INT64_MAX, NO_TAG},
    {RVL_EVENT_REFUSE, .time_ns = 3, DASH, .thread = 4, .bytes = 4096, .free_bytes = 1, .tag = "-",
     .tag_index = 1, .name = "-"},
    {RVL_EVENT_ENDED, .time_ns = 1, TRAINER, .exit_status = 255, NO_TAG},
    {RVL_EVENT_ENDED, .time_ns = 2, DASH, .thread = 7, .exit_status = 9, .bytes = 2,
     .flags = RVL_ENDED_BY_SIGNAL, NO_TAG},
    {RVL_EVENT_ENDED, .time_ns = 3, TRAINER, .name = "rank 0 of 2 waits", NO_TAG},
    {RVL_EVENT_ENDED, .time_ns = 4, TRAINER, .bytes = INT64_MAX, .name = "-", NO_TAG},
    {RVL_EVENT_SLEEP, .time_ns = 1, TRAINER, NO_TAG},
    {RVL_EVENT_SLEEP, .time_ns = 2, DASH, .thread = 3, .skip_content = true, NO_TAG},
    {RVL_EVENT_WAKE, .time_ns = 1, TRAINER, NO_TAG},
    {RVL_EVENT_WAKE, .time_ns = 2, DASH, .thread = 3, .skip_content = true, NO_TAG},
    {RVL_EVENT_FAIL, .time_ns = 1, TRAINER, .name = "ValueError: no weights", NO_TAG},
    {RVL_EVENT_FAIL, .time_ns = 2, DASH, .thread = 3, .name = "-", NO_TAG},
    {RVL_EVENT_FAIL, .time_ns = 3, TRAINER, NO_TAG},
};
#define GOLDEN_COUNT (sizeof golden_events / sizeof golden_events[0])

static const char *const keywords[] = {
#define KEYWORD(name, keyword) keyword,
    RVL_EVENT_MAP(KEYWORD)
#undef KEYWORD
};

static void golden_path(char *path, size_t size, size_t kind)
{
    snprintf(path, size, RVL_SOURCE_DIR "/tests/golden/events/%s.rvt", keywords[kind]);
}

static void assert_same_text(const char *a, const char *b)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a != NULL)
        assert_string_equal(a, b);
}

static void assert_same_event(const rvl_trace_event *a, const rvl_trace_event *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->process_index, b->process_index);
    assert_int_equal(a->time_ns, b->time_ns);
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->access_mask, b->access_mask);
    assert_int_equal(a->thread, b->thread);
    assert_int_equal(a->device, b->device);
    assert_int_equal(a->tag_index, b->tag_index);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->backup, b->backup);
    assert_int_equal(a->skip_content, b->skip_content);
    assert_same_text(a->process, b->process);
    assert_same_text(a->tag, b->tag);
    assert_same_text(a->name, b->name);
    assert_int_equal(a->free_bytes, b->free_bytes);
    assert_int_equal(a->exit_status, b->exit_status);
}

static rvl_trace_writer *open_writer_of(const char *path, uint32_t minor)
{
    rvl_trace_writer *writer = NULL;
    rvl_trace_header header = golden_header;
    header.minor = minor;
    assert_int_equal(rvl_trace_writer_open(path, &header, &writer), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_process(writer, "trainer", 4242), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_process(writer, "-", 0), RVL_OK);
    return writer;
}

static rvl_trace_writer *open_writer(const char *path)
{
    return open_writer_of(path, 0);
}

/* The first version that has a kind. */
static uint32_t minor_of(size_t kind)
{
    static const rvl_event_kind firsts[] = {RVL_EVENT_PART, RVL_EVENT_ENTER, RVL_EVENT_SLEEP,
                                            RVL_EVENT_FAIL};
    uint32_t minor = 0;
    while (minor < sizeof firsts / sizeof *firsts && kind >= firsts[minor])
        minor++;
    return minor;
}

static void writes_each_kind_as_golden(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < RVL_EVENT_KIND_COUNT; kind++) {
        char golden[512], path[PATH_BYTES];
        size_t wanted_length, length;
        new_path(path, "");
        golden_path(golden, sizeof golden, kind);
        rvl_trace_writer *writer = open_writer_of(path, minor_of(kind));
        for (size_t i = 0; i < GOLDEN_COUNT; i++)
            if (golden_events[i].kind == kind)
                assert_int_equal(
                    rvl_trace_writer_add_event(writer, &golden_events[i], sizeof golden_events[i]),
                    RVL_OK);
        assert_int_equal(rvl_trace_writer_flush(writer), RVL_OK);
        assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
        char *wanted = get_file(golden, &wanted_length);
        char *bytes = get_file(path, &length);
        assert_string_equal(bytes, wanted);
        assert_int_equal(length, wanted_length);
        free(wanted);
        free(bytes);
        unlink(path);
    }
}

static void reads_each_kind_from_golden(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < RVL_EVENT_KIND_COUNT; kind++) {
        char golden[512];
        const char *path = golden;
        rvl_trace_device devices[3];
        size_t device_count = 0;
        golden_path(golden, sizeof golden, kind);
        outcome got = read_paths(&path, 1, false);
        assert_int_equal(got.status, RVL_ERR_NOT_FOUND);
        assert_sticky(&got);
        size_t at = 0;
        for (size_t i = 0; i < GOLDEN_COUNT; i++)
            if (golden_events[i].kind == kind) {
                assert_same_event(&got.events[at], &golden_events[i]);
                assert_int_equal(got.events[at].line, 8 + at);
                at++;
            }
        assert_int_equal(got.count, at);
        assert_int_equal(got.progress.events, at);
        assert_int_equal(got.progress.bytes_read, got.progress.bytes_total);
        assert_int_equal(
            rvl_trace_reader_get_devices(got.reader, devices, sizeof *devices, 3, &device_count),
            RVL_OK);
        assert_int_equal(device_count, 3);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(devices[i].index, golden_devices[i].index);
            assert_int_equal(devices[i].capacity_bytes, golden_devices[i].capacity_bytes);
            assert_int_equal(devices[i].granularity_bytes, golden_devices[i].granularity_bytes);
            assert_same_text(devices[i].profile, golden_devices[i].profile);
        }
        rvl_trace_reader_close(got.reader);
    }
}

/* ---- What the reader refuses ---- */

typedef struct refusal {
    const char *text;
    uint32_t line, column;
    const char *part; /* of the message */
} refusal;

#define E(event) HEAD event "\n"
#define A(rest) HEAD "alloc 0 p 0 1 0 4096 t" rest "\n"
#define DEVICE(values) MAGIC CLOCK "device 0 " values "\n"

static const refusal refusals[] = {
    /* the first line */
    {"x\n", 1, 1, "not a Reveille trace: its first line must be `reveille-trace 1.N`, and is `x`"},
    {"\n", 1, 1, "must be `reveille-trace 1.N`, and is empty"},
    {"\x1f\x8b\b\n", 1, 1, "must be `reveille-trace 1.N`, and is not text"},
    {"{\"traceEvents\": [{\"name\": \"a step of \xc3\xa4\"}, {}]}\n", 1, 1,
     "and is `{\"traceEvents\": [{\"name\": \"a step of ??\"` and more"},
    {"reveille-trace x\n", 1, 16, "not a Reveille trace"},
    {"reveille-trace 1\n", 1, 17, "not a Reveille trace"},
    {"reveille-trace 1.\n", 1, 18, "not a Reveille trace"},
    {"reveille-trace 1.0 \n", 1, 19, "should end here"},
    {"reveille-trace 1.4294967296\n", 1, 1, "not a Reveille trace"},
    {"reveille-trace 01.0\n", 1, 16, "leading zeros"},
    {"reveille-trace 1.0\r\n", 1, 19, "carriage return stands before the newline"},
    {"reveille-trace 1.0", 1, 19, "breaks off in its first line, which must be `reveille-trace"},
    {"PK", 1, 3, "not a whole trace: it breaks off in its first line"},
    {"", 1, 1, "the file is empty"},
    /* header */
    {MAGIC, 2, 1, "end record is missing"},
    {MAGIC "end 0\n", 2, 1, "clock must be declared first"},
    {MAGIC "step 0 p 0\n", 2, 1, "clock must be declared before"},
    {MAGIC CLOCK "end 0\n", 3, 1, "no device record"},
    {MAGIC CLOCK "step 0 p 0\n", 3, 1, "a device must be declared"},
    {MAGIC CLOCK CLOCK, 3, 1, "declared once"},
    {MAGIC "clock\n", 2, 6, "boot=NAME"},
    {MAGIC "clock boot= mono_ns=0\n", 2, 12, "at least 1 byte"},
    {MAGIC "clock boot=%41 mono_ns=0\n", 2, 12, "must not be written as %XX"},
    {MAGIC "clock boot=-\n", 2, 13, "mono_ns=NUMBER"},
    {MAGIC "clock boot=- mono_ns=x\n", 2, 22, "a number should stand here"},
    {MAGIC "clock boot=- mono_ns=0 wall_ns=0 x\n", 2, 33, "should end here"},
    {MAGIC "clock boot=- mono_ns=0 wall_ns=0x\n", 2, 33, "should end here"},
    {MAGIC CLOCK "device\n", 3, 7, "a space and the number of the device"},
    {MAGIC CLOCK "device x\n", 3, 8, "number of the device"},
    {MAGIC CLOCK "device 64 \n", 3, 8, "0 to 63"},
    {MAGIC CLOCK DEVICES "device 1 \n", 5, 8, "declared already"},
    {DEVICE("x"), 3, 9, "profile=NAME"},
    {DEVICE("profile="), 3, 18, "at least 1 byte"},
    {DEVICE("profile=-"), 3, 19, "capacity_bytes=NUMBER"},
    {DEVICE("profile=- capacity_bytes=0"), 3, 35, "a capacity is"},
    {DEVICE("profile=- capacity_bytes=9223372036854775808"), 3, 35, "a capacity is"},
    {DEVICE("profile=- capacity_bytes=1"), 3, 36, "granularity_bytes=NUMBER"},
    {DEVICE("profile=- capacity_bytes=1 granularity_bytes=2048"), 3, 55, "power of two"},
    {DEVICE("profile=- capacity_bytes=1 granularity_bytes=12288"), 3, 55, "power of two"},
    {DEVICE("profile=- capacity_bytes=1 granularity_bytes=4096 x"), 3, 59, "should end here"},
    {E("process"), 6, 8, "a space and the name"},
    {E("process q"), 6, 10, "pid=NUMBER"},
    {E("process q pid=x"), 6, 15, "a number should stand here"},
    {E("process q pid=1x"), 6, 16, "should end here"},
    {E("process p pid=1"), 6, 9, "declared already"},
    {E("process - pid=1"), 6, 9, "a name must stand here"},
    {E("process a%zz pid=1"), 6, 10, "two upper-case"},
    {E("process a%0a pid=1"), 6, 10, "two upper-case"},
    {E("process a%2 pid=1"), 6, 10, "two upper-case"},
    {E("process a%00 pid=1"), 6, 10, "must not be written"},
    {E("process %2Da pid=1"), 6, 9, "must not be written"},
    {E("process a\tb pid=1"), 6, 10, "control bytes"},
    {E("step 0 p 0") "clock\n", 7, 1, "before the first event"},
    {E("step 0 p 0") "device\n", 7, 1, "before the first event"},
    /* what all events have */
    {E(" step 0 p 0"), 6, 1, "not a kind of line"},
    {E("nap 0 p 0"), 6, 1, "not a kind of line"},
    {E("step"), 6, 5, "a space and the time"},
    {E("step  0"), 6, 6, "the time in ns"},
    {E("step -1"), 6, 6, "the time in ns"},
    {E("step 00"), 6, 6, "leading zeros"},
    {E("step 18446744073709551616"), 6, 6, "does not fit into 64 bits"},
    {E("step 99999999999999999999999"), 6, 6, "does not fit into 64 bits"},
    {E("step 0"), 6, 7, "a space and the process"},
    {E("step 0 q 0"), 6, 8, "has not been declared"},
    {E("step 0 p"), 6, 9, "a space and the thread"},
    {E("step 0 p x"), 6, 10, "the thread"},
    {E("step 0 p 4294967296"), 6, 10, "32 bits"},
    {E("step 0 p 0 "), 6, 11, "should end here"},
    {E("step 0 p 0\r"), 6, 11, "should end here: a carriage return"},
    {E("step 0 p 0\rx"), 6, 11, "should end here"},
    {E("step 5 p 0") "step 4 p 0\n", 7, 6, "time goes back"},
    /* each kind */
    {E("alloc 0 p 0"), 6, 12, "a space and the id"},
    {E("alloc 0 p 0 x"), 6, 13, "the id"},
    {E("alloc 0 p 0 0"), 6, 13, "ids begin at 1"},
    {A("") "alloc 0 p 0 1 0 1 -\n", 7, 13, "ids rise"},
    {E("alloc 0 p 0 1"), 6, 14, "a space and the device"},
    {E("alloc 0 p 0 1 x"), 6, 15, "number of the device"},
    {E("alloc 0 p 0 1 2"), 6, 15, "has not been declared"},
    {E("alloc 0 p 0 1 64"), 6, 15, "has not been declared"},
    {E("alloc 0 p 0 1 0"), 6, 16, "a space and the bytes"},
    {E("alloc 0 p 0 1 0 x"), 6, 17, "number of bytes"},
    {E("alloc 0 p 0 1 0 0"), 6, 17, "a size of 0 bytes"},
    {E("alloc 0 p 0 1 0 9223372036854775808"), 6, 17, "2^63"},
    {E("alloc 0 p 0 1 0 1"), 6, 18, "a space and the tag"},
    {E("alloc 0 p 0 1 0 1 "), 6, 19, "at least 1 byte"},
    {A(" "), 6, 23, "should end here"},
    {A(" x"), 6, 23, "should end here"},
    {A(" backup=none"), 6, 31, "host or disk"},
    {A(" backup=host "), 6, 35, "should end here"},
    {A(" backup=host backup=host"), 6, 35, "should end here"},
    {A(" access=x"), 6, 31, "number of a device"},
    {A(" access=2"), 6, 31, "has not been declared"},
    {A(" access=64"), 6, 31, "has not been declared"},
    {A(" access=0"), 6, 31, "is not listed"},
    {A(" access=1,1"), 6, 33, "rise"},
    {A(" access=1,"), 6, 33, "number of a device"},
    {A(" access=1garbage"), 6, 32, "should end here"},
    {A(" access=1 backup=host"), 6, 32, "should end here"},
    {A(" flags="), 6, 30, "a flag is"},
    {A(" flags=rdma,"), 6, 35, "a flag is"},
    {A(" flags=rdma,rdma"), 6, 35, "in the order"},
    {A(" flags=paused,rdma"), 6, 37, "in the order"},
    {A(" flags=rdmax"), 6, 30, "a flag is"},
    {E("free 0 p 0"), 6, 11, "a space and the id"},
    {E("free 0 p 0 0"), 6, 12, "ids begin at 1"},
    {E("free 0 p 0 1garbage"), 6, 13, "should end here"},
    {E("pause 0 p 0"), 6, 12, "a space and the tag"},
    {E("pause 0 p 0 t discardXYZ"), 6, 14, "should end here"},
    {E("pause 0 p 0 t no_restore"), 6, 14, "should end here"},
    {E("resume 0 p 0 t discard"), 6, 15, "should end here"},
    {E("resume 0 p 0 t no_restore x"), 6, 26, "should end here"},
    {E("stage 0 p 0"), 6, 12, "a space and a name"},
    {E("stage 0 p 0 -"), 6, 13, "a name must stand here"},
    {E("stage 0 p 0 a b"), 6, 14, "should end here"},
    {E("external 0 p 0 0 0"), 6, 19, "a space and a name"},
    {E("external 0 p 0 2 0 c"), 6, 16, "has not been declared"},
    {E("external 0 p 0 0 x c"), 6, 18, "number of bytes"},
    {E("sample 0 p 0 0 9223372036854775808"), 6, 16, "2^63"},
    {E("sample 0 p 0 0 1 x"), 6, 17, "should end here"},
    /* the end */
    {E("step 0 p 0"), 7, 1, "end record is missing"},
    {E("end"), 6, 4, "a space and the number of events"},
    {E("end x"), 6, 5, "number of events"},
    {E("end 1"), 6, 5, "some are missing"},
    {E("end 0 x"), 6, 6, "should end here"},
    {E("end 0") "\n", 7, 1, "nothing may follow"},
    {E("end 0") "# c\n", 7, 1, "nothing may follow"},
    {HEAD "end 0", 6, 6, "no newline (--partial replays it as far as it is whole)"},
    {HEAD "s", 6, 2, "no newline"},
    {E("step 0 p 0") "step 1 p", 7, 9, "no newline"},
};

static void refuses_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *wanted = &refusals[i];
        check_error(read_text(wanted->text), RVL_ERR_CORRUPT_TRACE, wanted->line, wanted->column,
                    wanted->part);
    }
}

static void refuses_nul_bytes(void **state)
{
    static const char *const texts[] = {HEAD "# a@b\nend 0\n", HEAD "step 0 p 0@\nend 1\n",
                                        HEAD "st@p 0 p 0\n", HEAD "@\n", HEAD "stage 0 p 0 a@b\n"};
    static const uint32_t columns[] = {4, 11, 1, 1, 14};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char bytes[512];
        size_t length = strlen(texts[i]);
        memcpy(bytes, texts[i], length);
        *(char *)memchr(bytes, '@', length) = '\0';
        check_error(read_bytes(bytes, length, "", false), RVL_ERR_CORRUPT_TRACE, 6, columns[i], "");
    }
}

/* HEAD, a comment of `length` bytes in all, end. */
static size_t long_line(char *bytes, size_t length)
{
    size_t head = strlen(HEAD);
    memcpy(bytes, HEAD, head);
    memset(bytes + head, '#', length);
    memcpy(bytes + head + length, "\nend 0\n", 7);
    return head + length + 7;
}

static void limits_the_length_of_lines(void **state)
{
    char *bytes = malloc(1 << 20);
    (void)state;
    assert_non_null(bytes);
    outcome got = read_bytes(bytes, long_line(bytes, 65536), "", false);
    assert_int_equal(got.status, RVL_ERR_NOT_FOUND);
    rvl_trace_reader_close(got.reader);
    check_error(read_bytes(bytes, long_line(bytes, 65537), "", false), RVL_ERR_CORRUPT_TRACE, 6,
                65537, "longer than 65536");
    check_error(read_bytes(bytes, long_line(bytes, 600000), "", true), RVL_ERR_CORRUPT_TRACE, 6,
                65537, "longer than 65536");
    free(bytes);
}

static void limits_names_and_processes(void **state)
{
    char *text = calloc(1, 1 << 20);
    size_t length;
    (void)state;
    assert_non_null(text);
    length = (size_t)sprintf(text, HEAD "stage 0 p 0 ");
    memset(text + length, 'n', 256);
    strcpy(text + length + 256, "\n");
    check_error(read_text(text), RVL_ERR_CORRUPT_TRACE, 6, 13 + 255, "at most 255 bytes");
    strcpy(text + length + 255, "\nend 1\n");
    outcome got = read_text(text);
    assert_int_equal(got.count, 1);
    assert_int_equal(strlen(got.events[0].name), 255);
    rvl_trace_reader_close(got.reader);
    length = (size_t)sprintf(text, "%s", HEAD);
    for (int i = 0; i < 4096; i++)
        length += (size_t)sprintf(text + length, "process p%d pid=1\n", i);
    check_error(read_text(text), RVL_ERR_CORRUPT_TRACE, 6 + 4095, 1, "more than 4096 processes");
    free(text);
}

/* ---- Versions ---- */

#define NEWER "reveille-trace 1.7\n" CLOCK DEVICES "process p pid=1 host=a\n"

static void passes_over_what_a_newer_minor_added(void **state)
{
    (void)state;
    outcome got = read_text(NEWER "nap 1 p 0 anything at all\n"
                                  "alloc 2 p 0 1 0 1 - backup=host zeal=9\n"
                                  "pause 3 p 0 - discarding=1\n"
                                  "pause 3 p 0 - discard soon\n"
                                  "end 4 crc=1\n");
    assert_int_equal(got.status, RVL_ERR_NOT_FOUND);
    assert_int_equal(got.count, 3);
    assert_int_equal(got.events[0].backup, RVL_BACKUP_HOST);
    assert_false(got.events[1].skip_content);
    assert_true(got.events[2].skip_content);
    assert_int_equal(got.progress.skipped_events, 1);
    rvl_trace_reader_close(got.reader);
    check_error(read_text(NEWER "free 1 p 0 1garbage\n"), RVL_ERR_CORRUPT_TRACE, 6, 13,
                "a space or the end");
    check_error(read_text(NEWER " nap\n"), RVL_ERR_CORRUPT_TRACE, 6, 1, "begin with a space");
    check_error(read_text(NEWER "nap\nend 0\n"), RVL_ERR_CORRUPT_TRACE, 7, 5, "some are missing");
}

#define PARTS "reveille-trace 1.1\n" CLOCK DEVICES "process p pid=1\n"

/* Refusals, and how a command ended, came with 1.2. */
static void refusals_and_ends(void **state)
{
    (void)state;
#define REFUSALS "reveille-trace 1.2\n" CLOCK DEVICES "process p pid=1 refusals=yes\n"
    static const struct {
        const char *line;
        uint32_t column;
        const char *part;
    } wrong[] = {
        {"refuse 1 p 0 host 0 1 -", 19, "size of 0 bytes"},
        {"refuse 1 p 0 hosts 1 1 -", 14, "number of the device"},
        {"refuse 1 p 0 64 1 1 -", 14, "not been declared"},
        {"refuse 1 p 0 0 1 9223372036854775808 -", 18, "2^63"},
        {"refuse 1 p 0 0 1 1", 19, "tag"},
        {"refuse 1 p 0 0 1 1 - at=x by=allocator", 26, "should end here"},
        {"refuse 1 p 0 0 1 1 - at=", 25, "name"},
        {"ended 1 p 0", 12, "exit=NUMBER"},
        {"ended 1 p 0 exit=256", 18, "0 to 255"},
        {"ended 1 p 0 signal=0", 20, "1 to 64"},
        {"ended 1 p 0 signal=65", 20, "1 to 64"},
        {"ended 1 p 0 exit=1 now", 19, "should end here"},
        {"ended 1 p 0 exit=1 missed=0", 27, "1 to 2^63 - 1"},
        {"ended 1 p 0 exit=1 waits=", 26, "name"},
        {"ended 1 p 0 exit=1 waits=x missed=1", 27, "should end here"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[512];
        snprintf(text, sizeof text, REFUSALS "%s\nend 1\n", wrong[i].line);
        check_error(read_text(text), RVL_ERR_CORRUPT_TRACE, 6, wrong[i].column, wrong[i].part);
    }
    check_error(read_text(PARTS "refuse 1 p 0 0 1 1 -\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 1,
                "not a kind of line");
    check_error(read_text("reveille-trace 1.1\n" CLOCK DEVICES "process p pid=1 refusals=yes\n"),
                RVL_ERR_CORRUPT_TRACE, 5, 16, "should end here");

    outcome got = read_text(REFUSALS "process q pid=2\nprocess r pid=0\n"
                                     "step 1 p 0\nstep 2 q 0\nstep 3 r 0\nend 3\n");
    assert_int_equal(got.status, RVL_ERR_NOT_FOUND);
    assert_int_equal(got.events[0].process_flags, RVL_PROCESS_RAN | RVL_PROCESS_RECORDS_REFUSALS);
    assert_int_equal(got.events[1].process_flags, RVL_PROCESS_RAN);
    assert_int_equal(got.events[2].process_flags, 0);
    rvl_trace_reader_close(got.reader);
}

/* What the format cannot hold is not written. */
static void refusals_that_cannot_be_written(void **state)
{
    (void)state;
    static const rvl_trace_event wrong[] = {
        {RVL_EVENT_REFUSE, .process = "trainer", .bytes = 0},
        {RVL_EVENT_REFUSE, .process = "trainer", .bytes = 1, .device = 2},
        {RVL_EVENT_REFUSE, .process = "trainer", .bytes = 1, .free_bytes = UINT64_MAX},
        {RVL_EVENT_REFUSE, .process = "trainer", .bytes = 1, .flags = 2},
        {RVL_EVENT_REFUSE, .process = "trainer", .bytes = 1, .name = ""},
        {RVL_EVENT_ENDED, .process = "trainer", .exit_status = 256},
        {RVL_EVENT_ENDED, .process = "trainer", .flags = RVL_ENDED_BY_SIGNAL},
        {RVL_EVENT_ENDED, .process = "trainer", .exit_status = 65, .flags = RVL_ENDED_BY_SIGNAL},
        {RVL_EVENT_ENDED, .process = "trainer", .flags = 2},
        {RVL_EVENT_ENDED, .process = "trainer", .name = ""},
    };
    char path[PATH_BYTES];
    new_path(path, "");
    rvl_trace_writer *writer = open_writer_of(path, 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(rvl_trace_writer_add_event(writer, &wrong[i], sizeof wrong[i]),
                         RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    writer = open_writer_of(path, 1);
    const rvl_trace_event early = {RVL_EVENT_REFUSE, .process = "trainer", .bytes = 1};
    assert_int_equal(rvl_trace_writer_add_event(writer, &early, sizeof early), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    unlink(path);
}

/* Parts came with 1.1. */
static void parts_are_of_their_version(void **state)
{
    (void)state;
    static const rvl_trace_event part = {RVL_EVENT_PART, .time_ns = 1, .process = "trainer",
                                         .id = 1,        .bytes = 1,   .tag = "logits"};
    char path[PATH_BYTES];
    check_error(read_text(MAGIC CLOCK DEVICES "process p pid=1\npart 1 p 0 1 5 logits\nend 1\n"),
                RVL_ERR_CORRUPT_TRACE, 6, 1, "not a kind of line");
    check_error(read_text(PARTS "part 1 p 0 1 5 -\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 16,
                "a part has a tag");
    check_error(read_text(PARTS "part 1 p 0 0 5 logits\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 12,
                "1");
    check_error(read_text(PARTS "part 1 p 0 1\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 13, "bytes");
    check_error(read_text(PARTS "part 1 p 0 1 5 logits more\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6,
                22, "should end");
    check_error(read_text(PARTS "nap 1 p 0\n"), RVL_ERR_CORRUPT_TRACE, 6, 1, "not a kind of line");
    new_path(path, "");
    rvl_trace_writer *writer = open_writer(path);
    assert_int_equal(rvl_trace_writer_add_event(writer, &part, sizeof part), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    writer = open_writer_of(path, 1);
    rvl_trace_event untagged = part, unnumbered = part;
    untagged.tag = NULL;
    unnumbered.id = 0;
    assert_int_equal(rvl_trace_writer_add_event(writer, &untagged, sizeof part), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_event(writer, &unnumbered, sizeof part), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_event(writer, &part, sizeof part), RVL_OK);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    rvl_trace_header header = golden_header;
    header.minor = RVL_TRACE_MINOR + 1;
    assert_int_equal(rvl_trace_writer_open(path, &header, &writer), RVL_ERR_INVALID);
    header.minor = 1;
    header.flags = RVL_TRACE_RECORDS_REFUSALS; /* which version 1.1 cannot say */
    assert_int_equal(rvl_trace_writer_open(path, &header, &writer), RVL_ERR_INVALID);
    header.flags = 2;
    assert_int_equal(rvl_trace_writer_open(path, &header, &writer), RVL_ERR_INVALID);
    unlink(path);
}

/* Processes that fail came with 1.4. */
static void failure_is_of_its_version(void **state)
{
    (void)state;
    static const rvl_trace_event failure = {RVL_EVENT_FAIL, .time_ns = 1, .process = "trainer",
                                            .name = "killed"};
    char path[PATH_BYTES];
    check_error(read_text("reveille-trace 1.3\n" CLOCK DEVICES "process p pid=1\n"
                          "fail 1 p 0 how=killed\nend 1\n"),
                RVL_ERR_CORRUPT_TRACE, 6, 1, "not a kind of line");
    check_error(read_text("reveille-trace 1.4\n" CLOCK DEVICES "process p pid=1\n"
                          "fail 1 p 0 killed\nend 1\n"),
                RVL_ERR_CORRUPT_TRACE, 6, 11, "should end here");
    new_path(path, "");
    rvl_trace_writer *writer = open_writer_of(path, 3);
    assert_int_equal(rvl_trace_writer_add_event(writer, &failure, sizeof failure), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    writer = open_writer_of(path, 4);
    rvl_trace_event nameless = failure;
    nameless.name = "";
    assert_int_equal(rvl_trace_writer_add_event(writer, &nameless, sizeof failure),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_event(writer, &failure, sizeof failure), RVL_OK);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    unlink(path);
}

/* Sleep came with 1.3. */
static void sleep_is_of_its_version(void **state)
{
    (void)state;
#define SLEEPS "reveille-trace 1.3\n" CLOCK DEVICES "process p pid=1\n"
    static const rvl_trace_event sleep = {RVL_EVENT_SLEEP, .time_ns = 1, .process = "trainer"};
    char path[PATH_BYTES];
    check_error(read_text(REFUSALS "sleep 1 p 0\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 1,
                "not a kind of line");
    check_error(read_text(REFUSALS "wake 1 p 0\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 1,
                "not a kind of line");
    check_error(read_text(SLEEPS "sleep 1 p 0 paused\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 12,
                "should end here");
    check_error(read_text(SLEEPS "wake 1 p 0 pausedly\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 11,
                "should end here");
    new_path(path, "");
    rvl_trace_writer *writer = open_writer_of(path, 2);
    assert_int_equal(rvl_trace_writer_add_event(writer, &sleep, sizeof sleep), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    unlink(path);
}

/* Ranges came with 1.2. */
static void ranges_are_of_their_version(void **state)
{
    (void)state;
    static const rvl_trace_event enter = {RVL_EVENT_ENTER, .time_ns = 1, .process = "trainer",
                                          .id = 1, .name = "forward"};
    static const rvl_trace_event leave = {RVL_EVENT_LEAVE, .time_ns = 2, .process = "trainer"};
    char path[PATH_BYTES];
    check_error(read_text(PARTS "enter 1 p 0 1 forward\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 1,
                "not a kind of line");
    check_error(read_text(PARTS "leave 1 p 0 1\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 1,
                "not a kind of line");
#define RANGES "reveille-trace 1.2\n" CLOCK DEVICES "process p pid=1\n"
    check_error(read_text(RANGES "enter 1 p 0 0 forward\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 13,
                "1");
    check_error(read_text(RANGES "enter 1 p 0 1\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 14, "name");
    check_error(read_text(RANGES "leave 1 p 0\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 12, "id");
    check_error(read_text(RANGES "leave 1 p 0 1 x\nend 1\n"), RVL_ERR_CORRUPT_TRACE, 6, 14,
                "should end");
    new_path(path, "");
    rvl_trace_writer *writer = open_writer_of(path, 1);
    assert_int_equal(rvl_trace_writer_add_event(writer, &enter, sizeof enter), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_event(writer, &leave, sizeof leave), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    writer = open_writer_of(path, 2);
    rvl_trace_event nameless = enter, unnumbered = enter;
    nameless.name = NULL;
    unnumbered.id = 0;
    assert_int_equal(rvl_trace_writer_add_event(writer, &nameless, sizeof enter), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_event(writer, &unnumbered, sizeof enter),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_event(writer, &enter, sizeof enter), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_event(writer, &leave, sizeof leave), RVL_OK);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    unlink(path);
}

static void refuses_another_major(void **state)
{
    (void)state;
    check_error(
        read_text("reveille-trace 2.0\nanything\n"), RVL_ERR_VERSION, 1, 16,
        "major version 2, and this program reads 1: use the version of Reveille that wrote it");
    check_error(read_text("reveille-trace 0.9\n"), RVL_ERR_VERSION, 1, 16, "major version 0,");
}

/* ---- Comments, columns ---- */

static void passes_over_comments_and_empty_lines(void **state)
{
    (void)state;
    outcome got = read_text(MAGIC "# a\n\n" CLOCK "#\n" DEVICES "process p pid=1\n\n"
                                  "step 3 p 0\n# x\nend 1\n");
    assert_int_equal(got.count, 1);
    assert_int_equal(got.events[0].line, 10);
    rvl_trace_reader_close(got.reader);
}

static void calls_files_by_their_names(void **state)
{
    static char path[PATH_BYTES];
    const char *paths = path, *name = "run.pickle", *none = NULL;
    rvl_trace_reader_options options = {.struct_size = sizeof options, .names = &name};
    rvl_error error = {.struct_size = sizeof error};
    rvl_trace_reader *reader;
    rvl_trace_event event;
    (void)state;
    new_path(path, "");
    put_file(path, HEAD "stage x p 0 ab\nend 1\n", strlen(HEAD) + 21);
    assert_int_equal(rvl_trace_reader_open(&paths, 1, &options, &reader), RVL_ERR_CORRUPT_TRACE);
    rvl_last_error(&error);
    assert_string_equal(error.file, name);
    put_file(path, HEAD "end 0\n", strlen(HEAD) + 6);
    assert_int_equal(rvl_trace_reader_open(&paths, 1, &options, &reader), RVL_OK);
    rvl_last_error(&error);
    assert_ptr_equal(rvl_trace_reader_path(reader, 0), name);
    assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_ERR_NOT_FOUND);
    rvl_trace_reader_close(reader);
    options.names = &none;
    assert_int_equal(rvl_trace_reader_open(&paths, 1, &options, &reader), RVL_ERR_INVALID);
    unlink(path);
    options.names = &name;
    assert_int_equal(rvl_trace_reader_open(&paths, 1, &options, &reader), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_string_equal(error.file, name);
}

static void tells_the_columns_of_a_line(void **state)
{
    static char path[PATH_BYTES];
    const char *paths = path;
    rvl_trace_reader *reader;
    rvl_trace_event event;
    (void)state;
    new_path(path, "");
    put_file(path, HEAD "stage 12 p 0 ab\nend 1\n", strlen(HEAD) + 22);
    assert_int_equal(rvl_trace_reader_open(&paths, 1, NULL, &reader), RVL_OK);
    assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_OK);
    static const uint32_t columns[] = {0, 1, 7, 10, 12, 14, 0};
    for (uint32_t field = 0; field < 7; field++)
        assert_int_equal(rvl_trace_find_column(path, event.line, field), columns[field]);
    assert_ptr_equal(rvl_trace_reader_path(reader, 0), path);
    assert_null(rvl_trace_reader_path(reader, 1));
    assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_trace_find_column(path, event.line + 2, 1), 0); /* beyond the end */
    assert_int_equal(rvl_trace_find_column(path, 0, 1), 0);
    rvl_trace_reader_close(reader);
    unlink(path);
}

/* ---- Files that break off ---- */

static void partial_keeps_the_whole_lines(void **state)
{
    static const struct {
        const char *text;
        size_t events;
    } cuts[] = {{HEAD, 0}, {HEAD "step 1 p 0\n", 1}, {HEAD "step 1 p 0\nstep 2 p 0", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        outcome got = read_bytes(cuts[i].text, strlen(cuts[i].text), "", true);
        assert_int_equal(got.status, RVL_ERR_NOT_FOUND);
        assert_int_equal(got.count, cuts[i].events);
        assert_int_equal(got.progress.cut_files, 1);
        rvl_trace_reader_close(got.reader);
    }
    check_error(read_bytes("", 0, "", true), RVL_ERR_CORRUPT_TRACE, 1, 1, "the file is empty");
    check_error(read_bytes(MAGIC, 5, "", true), RVL_ERR_CORRUPT_TRACE, 1, 6,
                "breaks off in its first line");
    check_error(read_bytes(MAGIC, strlen(MAGIC), "", true), RVL_ERR_CORRUPT_TRACE, 2, 1,
                "no clock record");
    check_error(read_bytes(MAGIC CLOCK "dev", strlen(MAGIC CLOCK) + 3, "", true),
                RVL_ERR_CORRUPT_TRACE, 3, 1, "no device record");
    check_error(read_bytes(HEAD "nap\n", strlen(HEAD) + 4, "", true), RVL_ERR_CORRUPT_TRACE, 6, 1,
                "not a kind of line");
}

/* ---- zstd ---- */

/* HEAD, `count` steps, end; more than one buffer of text if there are enough. */
static char *many_steps(unsigned count, size_t *length_out)
{
    char *text = malloc(strlen(HEAD) + (size_t)count * 24 + 32);
    assert_non_null(text);
    size_t length = (size_t)sprintf(text, "%s", HEAD);
    for (unsigned i = 0; i < count; i++)
        length += (size_t)sprintf(text + length, "step %u p 0\n", i);
    length += (size_t)sprintf(text + length, "end %u\n", count);
    *length_out = length;
    return text;
}

static char *pack(const char *text, size_t length, size_t *packed_out)
{
    size_t room = ZSTD_compressBound(length);
    char *packed = malloc(room);
    assert_non_null(packed);
    *packed_out = ZSTD_compress(packed, room, text, length, 19);
    assert_false(ZSTD_isError(*packed_out));
    return packed;
}

static uint64_t count_events(const char *path, bool partial, rvl_status *status_out,
                             uint64_t *cut_out)
{
    rvl_trace_reader_options options = {.struct_size = sizeof options,
                                        .flags = partial ? RVL_TRACE_PARTIAL : 0};
    rvl_trace_progress progress = {.struct_size = sizeof progress};
    rvl_trace_reader *reader;
    rvl_trace_event event;
    assert_int_equal(rvl_trace_reader_open(&path, 1, &options, &reader), RVL_OK);
    do
        *status_out = rvl_trace_reader_next(reader, &event, sizeof event);
    while (*status_out == RVL_OK);
    rvl_trace_reader_get_progress(reader, &progress);
    *cut_out = progress.cut_files;
    rvl_trace_reader_close(reader);
    return progress.events;
}

static void reads_zstd(void **state)
{
    static const unsigned counts[] = {0, 1, 30000, 100000};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char path[PATH_BYTES];
        size_t length, packed_length;
        rvl_status status;
        uint64_t cut;
        char *text = many_steps(counts[i], &length);
        char *packed = pack(text, length, &packed_length);
        new_path(path, ".zst");
        put_file(path, packed, packed_length);
        assert_int_equal(count_events(path, false, &status, &cut), counts[i]);
        assert_int_equal(status, RVL_ERR_NOT_FOUND);
        assert_int_equal(cut, 0);
        unlink(path);
        free(text);
        free(packed);
    }
}

/* HEAD, comments, end: `length` bytes in all. */
static char *comments(size_t length)
{
    size_t head = strlen(HEAD), end = length - 6;
    char *text = malloc(length);
    assert_non_null(text);
    memcpy(text, HEAD, head);
    memset(text + head, '#', end - head);
    for (size_t at = head + 59; at < end; at += 60)
        text[at] = '\n';
    text[end - 1] = '\n';
    memcpy(text + end, "end 0\n", 6);
    return text;
}

/* Lengths around that of the buffer, where zstd may hold back text that had no room in it. */
static void reads_zstd_that_unpacks_to_much(void **state)
{
    (void)state;
    for (size_t length = 4 * 131072 - 60; length <= 4 * 131072 + 4; length += 4) {
        char path[PATH_BYTES];
        size_t packed_length;
        rvl_status status;
        uint64_t cut;
        char *text = comments(length);
        char *packed = pack(text, length, &packed_length);
        new_path(path, ".zst");
        put_file(path, packed, packed_length);
        assert_int_equal(count_events(path, false, &status, &cut), 0);
        assert_int_equal(status, RVL_ERR_NOT_FOUND);
        unlink(path);
        free(text);
        free(packed);
    }
}

static void refuses_broken_zstd(void **state)
{
    char path[PATH_BYTES];
    size_t length, packed_length;
    rvl_status status;
    uint64_t cut;
    (void)state;
    char *text = many_steps(100000, &length);
    char *packed = pack(text, length, &packed_length);
    new_path(path, ".zst");
    put_file(path, packed, packed_length - packed_length / 4);
    uint64_t events = count_events(path, false, &status, &cut);
    assert_int_equal(status, RVL_ERR_CORRUPT_TRACE);
    assert_in_range(events, 1, 99999);
    assert_int_equal(count_events(path, true, &status, &cut), events);
    assert_int_equal(status, RVL_ERR_NOT_FOUND);
    assert_int_equal(cut, 1);
    unlink(path);
    check_error(read_bytes(packed, 10, ".zst", false), RVL_ERR_CORRUPT_TRACE, 1, 1,
                "ends early: the file was cut off (--partial replays it");
    check_error(read_bytes("garbage", 7, ".zst", true), RVL_ERR_CORRUPT_TRACE, 1, 1,
                "not a valid zstd stream");
    check_error(read_bytes("", 0, ".zst", false), RVL_ERR_CORRUPT_TRACE, 1, 1, "empty");
    free(text);
    free(packed);
}

/* A whole frame of `begin`, and behind it the first `length` of the bytes `rest`. */
static outcome read_frame_and(const char *begin, const void *rest, size_t length)
{
    size_t packed_length;
    char *packed = pack(begin, strlen(begin), &packed_length);
    char *bytes = realloc(packed, packed_length + length);
    assert_non_null(bytes);
    memcpy(bytes + packed_length, rest, length);
    outcome got = read_bytes(bytes, packed_length + length, ".zst", false);
    free(bytes);
    return got;
}

static void tells_where_zstd_breaks(void **state)
{
    size_t length;
    (void)state;
    char *frame = pack("more", 4, &length);
    check_error(read_frame_and(HEAD "step 0 p 0\nste", frame, 3), RVL_ERR_CORRUPT_TRACE, 7, 4,
                "ends early");
    check_error(read_frame_and(HEAD "step 0 p 0\n", frame, 3), RVL_ERR_CORRUPT_TRACE, 7, 1,
                "ends early");
    check_error(read_frame_and(HEAD "step 0 p 0\nste", frame, length), RVL_ERR_CORRUPT_TRACE, 7, 8,
                "no newline");
    check_error(read_frame_and(HEAD "step 0 p 0\nste", "garbage", 7), RVL_ERR_CORRUPT_TRACE, 7, 4,
                "not a valid zstd stream");
    free(frame);
}

/* ---- Several files ---- */

static outcome read_texts(const char *const *texts, size_t count, char paths[FILES][PATH_BYTES])
{
    const char *list[FILES] = {NULL};
    for (size_t i = 0; i < count; i++) {
        new_path(paths[i], "");
        put_file(paths[i], texts[i], strlen(texts[i]));
        list[i] = paths[i];
    }
    outcome got = read_paths(list, count, false);
    for (size_t i = 0; i < count; i++)
        unlink(paths[i]);
    return got;
}

#define FILE_OF(boot, mono, wall, process, rest)                                                   \
    MAGIC "clock boot=" boot " mono_ns=" mono " wall_ns=" wall "\n" DEVICES "process " process     \
          " pid=1\n" rest

static void assert_order(const outcome *got, const char *order, const uint64_t *times)
{
    assert_int_equal(got->status, RVL_ERR_NOT_FOUND);
    assert_int_equal(got->count, strlen(order));
    for (size_t i = 0; i < got->count; i++) {
        assert_int_equal(got->events[i].file, order[i] - '0');
        assert_int_equal(got->events[i].time_ns, times[i]);
    }
}

static void merges_on_the_clock_they_share(void **state)
{
    static const char *const same[] = {
        FILE_OF("b", "100", "9", "engine", "step 0 engine 0\nstep 50 engine 0\nend 2\n"),
        FILE_OF("b", "110", "5", "engine%232x", "") "end 0\n",
        FILE_OF("b", "120", "0", "engine", "step 0 engine 0\nstep 30 engine 0\nend 2\n")};
    static const char *const different[] = {
        FILE_OF("b", "0", "1000", "a", "stage 5 a 0 s\nend 1\n"),
        FILE_OF("c", "500", "990", "b", "stage 0 b 0 s\nstage 15 b 0 t\nend 2\n")};
    static const char *const unknown[] = {FILE_OF("-", "9", "1", "a", "step 0 a 0\nend 1\n"),
                                          FILE_OF("-", "0", "2", "b", "step 0 b 0\nend 1\n")};
    char paths[FILES][PATH_BYTES];
    (void)state;
    const char *first_and_third[] = {same[0], same[2]};
    outcome got = read_texts(first_and_third, 2, paths);
    assert_order(&got, "0101", (const uint64_t[]){0, 20, 50, 50});
    assert_string_equal(got.events[0].process, "engine");
    assert_string_equal(got.events[1].process, "engine#2");
    assert_int_equal(got.events[1].process_index, 1);
    rvl_trace_reader_close(got.reader);
    check_error(read_texts(same, 3, paths), RVL_ERR_CORRUPT_TRACE, 5, 15, "must not be written");
    got = read_texts(different, 2, paths);
    assert_order(&got, "101", (const uint64_t[]){0, 15, 15});
    assert_ptr_equal(got.events[0].name, got.events[1].name);
    rvl_trace_reader_close(got.reader);
    got = read_texts(unknown, 2, paths);
    assert_order(&got, "01", (const uint64_t[]){0, 1});
    rvl_trace_reader_close(got.reader);
}

static void names_of_processes_stay_unique(void **state)
{
    static const char *const texts[] = {
        FILE_OF("-", "0", "0", "engine#2", "step 0 engine#2 0\nend 1\n"),
        FILE_OF("-", "0", "0", "engine", "step 0 engine 0\nend 1\n"),
        FILE_OF("-", "0", "0", "engine", "step 0 engine 0\nend 1\n")};
    char paths[FILES][PATH_BYTES];
    (void)state;
    outcome got = read_texts(texts, 3, paths);
    assert_order(&got, "012", (const uint64_t[]){0, 0, 0});
    assert_string_equal(got.events[0].process, "engine#2");
    assert_string_equal(got.events[1].process, "engine");
    assert_string_equal(got.events[2].process, "engine#3");
    rvl_trace_reader_close(got.reader);
}

static void refuses_files_that_do_not_fit_together(void **state)
{
    static const char *const devices[] = {HEAD "end 0\n", MAGIC CLOCK
                                          "device 1 profile=h200 capacity_bytes=1048576 "
                                          "granularity_bytes=4096\nend 0\n"};
    static const char *const early[] = {
        FILE_OF("-", "0", "0", "a", "end 0\n"),
        FILE_OF("-", "0", "9", "b", "step 18446744073709551615 b 0\nend 1\n")};
    static const char *const late[] = {
        FILE_OF("-", "0", "0", "a", "end 0\n"),
        FILE_OF("-", "0", "9", "b", "step 0 b 0\nstep 18446744073709551615 b 0\nend 2\n")};
    char paths[FILES][PATH_BYTES];
    (void)state;
    outcome got = read_texts(devices, 2, paths);
    assert_string_equal(got.error.file, paths[1]);
    char *other = strstr(got.error.message, paths[0]);
    assert_non_null(other);
    assert_string_equal(other + strlen(paths[0]), ":4");
    check_error(got, RVL_ERR_CORRUPT_TRACE, 3, 8, "device 1 is not declared as in");
    check_error(read_texts(early, 2, paths), RVL_ERR_CORRUPT_TRACE, 6, 6, "common clock");
    check_error(read_texts(late, 2, paths), RVL_ERR_CORRUPT_TRACE, 7, 6, "common clock");
}

/* ---- What cannot be opened or read ---- */

static void refuses_what_cannot_be_opened(void **state)
{
    const char *missing = "/nonexistent/x.rvt", *folder = "/tmp", *none = NULL;
    const char *through_a_file = "/proc/self/status/x.rvt";
    rvl_error error = {.struct_size = sizeof error};
    rvl_trace_reader_options options = {.struct_size = 1};
    rvl_trace_reader *reader = NULL;
    rvl_trace_event event;
    (void)state;
    check_error(read_paths(&missing, 1, false), RVL_ERR_IO, 0, 0, "no such file");
    check_error(read_paths(&folder, 1, false), RVL_ERR_IO, 0, 0, "folder");
    check_error(read_paths(&none, 1, false), RVL_ERR_INVALID, 0, 0, "is NULL");
    check_error(read_paths(&missing, 0, false), RVL_ERR_INVALID, 0, 0, "must be named");
    check_error(read_paths(&through_a_file, 1, false), RVL_ERR_IO, 0, 0,
                "the file cannot be opened");
    assert_int_equal(rvl_trace_reader_open(&missing, 1, &options, &reader), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_trace_reader_next(NULL, &event, sizeof event), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_trace_find_column(NULL, 1, 1), 0);
    assert_int_equal(rvl_trace_find_column(missing, 1, 1), 0);
    assert_null(rvl_trace_reader_path(NULL, 0));
    rvl_trace_reader_close(NULL);
}

/* Root may read everything, so it becomes somebody else for a moment. */
static void refuses_what_may_not_be_read(void **state)
{
    char path[PATH_BYTES];
    const char *paths = path;
    bool root = geteuid() == 0;
    (void)state;
    new_path(path, "");
    put_file(path, HEAD, strlen(HEAD));
    assert_int_equal(chmod(path, 0), 0);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    outcome got = read_paths(&paths, 1, false);
    if (root)
        assert_int_equal(seteuid(0), 0);
    unlink(path);
    check_error(got, RVL_ERR_IO, 0, 0, "you may not read this file");
}

/* Its first page is never mapped. */
static void tells_where_reading_fails(void **state)
{
    const char *path = "/proc/self/mem";
    (void)state;
    check_error(read_paths(&path, 1, false), RVL_ERR_IO, 1, 1, "the file cannot be read");
}

/* Each request is refused once, those of the open and those of later lines. */
static void tells_where_memory_runs_out(void **state)
{
    char path[PATH_BYTES];
    const char *paths = path;
    const char *text = HEAD "process q pid=2\nstage 0 q 0 first\nstage 1 p 0 second\nend 2\n";
    unsigned in_lines = 0;
    rvl_status status;
    (void)state;
    new_path(path, "");
    put_file(path, text, strlen(text));
    uint64_t refused = 0;
    do {
        short_memory_requests = 0;
        short_memory_refused_request = ++refused;
        outcome got = read_paths(&paths, 1, false);
        short_memory_refused_request = 0;
        status = got.status;
        if (status != RVL_ERR_NOT_FOUND) {
            assert_int_equal(status, RVL_ERR_HOST_OOM);
            assert_non_null(strstr(got.error.message, "host memory"));
            assert_int_equal(got.error.line > 0, got.error.column > 0);
            in_lines += got.error.line > 0;
        }
        rvl_trace_reader_close(got.reader);
    } while (status != RVL_ERR_NOT_FOUND);
    assert_true(in_lines >= 5); /* two processes, three names and more */
    unlink(path);
}

static void knows_no_size_of_a_pipe(void **state)
{
    char path[32];
    const char *paths = path;
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(write(ends[1], HEAD "end 0\n", strlen(HEAD) + 6), strlen(HEAD) + 6);
    close(ends[1]);
    outcome got = read_paths(&paths, 1, false);
    assert_int_equal(got.status, RVL_ERR_NOT_FOUND);
    assert_int_equal(got.progress.bytes_total, 0);
    assert_int_equal(got.progress.bytes_read, strlen(HEAD) + 6);
    rvl_trace_reader_close(got.reader);
    close(ends[0]);
}

/* ---- The writer's own refusals ---- */

static void writer_refuses_headers(void **state)
{
    rvl_trace_device twice[] = {DECLARED(0, NULL, 1, 4096), DECLARED(0, NULL, 1, 4096)};
    rvl_trace_device bad[] = {DECLARED(64, NULL, 1, 4096),         DECLARED(0, NULL, 0, 4096),
                              DECLARED(0, NULL, 1, 2048),          DECLARED(0, "", 1, 4096),
                              DECLARED(0, NULL, UINT64_MAX, 4096), DECLARED(0, NULL, 1, 12288)};
    rvl_trace_header header = {.struct_size = sizeof header,
                               .devices = bad,
                               .device_count = 1,
                               .device_size = sizeof *bad};
    rvl_trace_writer *writer = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        header.devices = &bad[i];
        assert_int_equal(rvl_trace_writer_open("/dev/null", &header, &writer), RVL_ERR_INVALID);
    }
    header.devices = twice;
    header.device_count = 2;
    assert_int_equal(rvl_trace_writer_open("/dev/null", &header, &writer), RVL_ERR_INVALID);
    header.device_count = 0;
    assert_int_equal(rvl_trace_writer_open("/dev/null", &header, &writer), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_open("/dev/null", NULL, &writer), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_open(NULL, &golden_header, &writer), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_open("/tmp", &golden_header, &writer), RVL_ERR_IO);
    assert_null(writer);
}

static void writer_refuses_events(void **state)
{
    static const rvl_trace_event bad[] = {
        {RVL_EVENT_KIND_COUNT, TRAINER, .time_ns = 5},
        {RVL_EVENT_STEP, .process = "nobody", .time_ns = 5},
        {RVL_EVENT_STEP, .time_ns = 5},
        {RVL_EVENT_STEP, TRAINER, .time_ns = 4},
        {RVL_EVENT_PAUSE, TRAINER, .time_ns = 5, .tag = ""},
        {RVL_EVENT_STAGE, TRAINER, .time_ns = 5},
        {RVL_EVENT_FREE, TRAINER, .time_ns = 5},
        {RVL_EVENT_SAMPLE, TRAINER, .time_ns = 5, .device = 2},
        {RVL_EVENT_SAMPLE, TRAINER, .time_ns = 5, .device = 64},
        {RVL_EVENT_SAMPLE, TRAINER, .time_ns = 5, .bytes = UINT64_C(1) << 63},
        {RVL_EVENT_ALLOC, TRAINER, .time_ns = 5, .id = 3, .bytes = 1},
        {RVL_EVENT_ALLOC, TRAINER, .time_ns = 5, .id = 4},
        {RVL_EVENT_ALLOC, TRAINER, .time_ns = 5, .id = 4, .bytes = 1, .access_mask = 1},
        {RVL_EVENT_ALLOC, TRAINER, .time_ns = 5, .id = 4, .bytes = 1, .access_mask = 4},
        {RVL_EVENT_ALLOC, TRAINER, .time_ns = 5, .id = 4, .bytes = 1, .flags = 8},
        {RVL_EVENT_ALLOC, TRAINER, .time_ns = 5, .id = 4, .bytes = 1, .backup = (rvl_backup)99},
    };
    const rvl_trace_event good = {RVL_EVENT_ALLOC, TRAINER, .time_ns = 5, .id = 3, .bytes = 1};
    char path[PATH_BYTES];
    size_t before, after;
    (void)state;
    new_path(path, "");
    rvl_trace_writer *writer = open_writer(path);
    assert_int_equal(rvl_trace_writer_add_event(writer, &good, sizeof good), RVL_OK);
    assert_int_equal(rvl_trace_writer_flush(writer), RVL_OK);
    free(get_file(path, &before));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(rvl_trace_writer_add_event(writer, &bad[i], sizeof bad[i]),
                         RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_event(NULL, &good, sizeof good), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_event(writer, NULL, sizeof good), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_process(writer, "trainer", 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_process(writer, "", 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_process(NULL, "x", 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_flush(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_flush(writer), RVL_OK);
    free(get_file(path, &after));
    assert_int_equal(before, after);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    assert_int_equal(rvl_trace_writer_close(NULL), RVL_OK);
    unlink(path);
}

static void writer_has_a_limit_of_processes(void **state)
{
    (void)state;
    rvl_trace_writer *writer = open_writer("/dev/null");
    for (int i = 2; i <= 4096; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        assert_int_equal(rvl_trace_writer_add_process(writer, name, 0),
                         i < 4096 ? RVL_OK : RVL_ERR_INVALID);
    }
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
}

/* The first cause, at every later call too, and what to do. */
static void check_full_disk(rvl_status status)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(status, RVL_ERR_IO);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.status, RVL_ERR_IO);
    assert_string_equal(error.message,
                        "no space for the trace: free some, or name a file on another disk");
    assert_string_equal(error.native_name, "ENOSPC");
}

static void writer_remembers_a_full_disk(void **state)
{
    const rvl_trace_event step = {RVL_EVENT_STEP, TRAINER};
    (void)state;
    rvl_trace_writer *writer = open_writer("/dev/full");
    assert_int_equal(rvl_trace_writer_add_event(writer, &step, sizeof step), RVL_OK);
    check_full_disk(rvl_trace_writer_flush(writer));
    errno = 0; /* the first cause is told, and not what came later */
    check_full_disk(rvl_trace_writer_add_event(writer, &step, sizeof step));
    check_full_disk(rvl_trace_writer_add_process(writer, "late", 0));
    check_full_disk(rvl_trace_writer_flush(writer));
    check_full_disk(rvl_trace_writer_close(writer));
    writer = open_writer("/dev/full");
    assert_int_equal(rvl_trace_writer_close(writer), RVL_ERR_IO);
    writer = open_writer("/dev/full");
    rvl_status status = RVL_OK;
    for (int i = 0; i < 10000 && status == RVL_OK; i++)
        status = rvl_trace_writer_add_event(writer, &step, sizeof step);
    assert_int_equal(status, RVL_ERR_IO);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_each_kind_as_golden),
        cmocka_unit_test(reads_each_kind_from_golden),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(refuses_nul_bytes),
        cmocka_unit_test(limits_the_length_of_lines),
        cmocka_unit_test(limits_names_and_processes),
        cmocka_unit_test(parts_are_of_their_version),
        cmocka_unit_test(ranges_are_of_their_version),
        cmocka_unit_test(sleep_is_of_its_version),
        cmocka_unit_test(failure_is_of_its_version),
        cmocka_unit_test(refusals_and_ends),
        cmocka_unit_test(refusals_that_cannot_be_written),
        cmocka_unit_test(passes_over_what_a_newer_minor_added),
        cmocka_unit_test(refuses_another_major),
        cmocka_unit_test(passes_over_comments_and_empty_lines),
        cmocka_unit_test(calls_files_by_their_names),
        cmocka_unit_test(tells_the_columns_of_a_line),
        cmocka_unit_test(partial_keeps_the_whole_lines),
        cmocka_unit_test(reads_zstd),
        cmocka_unit_test(reads_zstd_that_unpacks_to_much),
        cmocka_unit_test(refuses_broken_zstd),
        cmocka_unit_test(tells_where_zstd_breaks),
        cmocka_unit_test(merges_on_the_clock_they_share),
        cmocka_unit_test(names_of_processes_stay_unique),
        cmocka_unit_test(refuses_files_that_do_not_fit_together),
        cmocka_unit_test(refuses_what_cannot_be_opened),
        cmocka_unit_test(refuses_what_may_not_be_read),
        cmocka_unit_test(tells_where_reading_fails),
        cmocka_unit_test(tells_where_memory_runs_out),
        cmocka_unit_test(knows_no_size_of_a_pipe),
        cmocka_unit_test(writer_refuses_headers),
        cmocka_unit_test(writer_refuses_events),
        cmocka_unit_test(writer_has_a_limit_of_processes),
        cmocka_unit_test(writer_remembers_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
