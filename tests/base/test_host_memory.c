/* SPDX-License-Identifier: MIT */
/*
 * Host memory runs out: at the first request, at the second, and so on until a whole replay passes.
 *
 * Linked with --wrap for every function of the C library that gives memory. Whatever is refused,
 * the replay must answer RVL_ERR_HOST_OOM and leave nothing behind (the address sanitizer's leak
 * check sees to that), and the same replay must then succeed with the same result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "reveille/record.h"
#include "reveille/replay.h"
#include "tests/support/short_memory.h"

#define MIB ((size_t)1 << 20)
#define TRACE RVL_SOURCE_DIR "/traces/qwen2.5-32b-tp2-h200.rvt"

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC
SHORT_STRDUP
SHORT_MEMORY(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), NULL)
SHORT_MEMORY(void *, mmap,
             (void *at, size_t size, int protection, int flags, int file, off_t offset),
             (at, size, protection, flags, file, offset), MAP_FAILED)

/* The highest peak of the trace's first device; 0 if the replay failed. */
static uint64_t replayed_peak(rvl_wake wake, rvl_status *status_out)
{
    const char *path = TRACE;
    rvl_replay_options options = {.struct_size = sizeof options, .wake = wake};
    rvl_error error = {.struct_size = sizeof error};
    rvl_replay_device device = {.struct_size = sizeof device};
    rvl_replay *replay = NULL;
    *status_out = rvl_replay_run(&path, 1, &options, &replay);
    rvl_last_error(&error);
    if (*status_out != RVL_OK) {
        assert_null(replay);
        assert_int_not_equal(error.message[0], '\0');
        return 0;
    }
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_OK);
    rvl_replay_close(replay);
    return device.peak_bytes;
}

static void sweep(rvl_wake wake)
{
    rvl_status status;
    short_memory_refused_request = 0;
    const uint64_t peak = replayed_peak(wake, &status);
    assert_int_equal(status, RVL_OK);
    assert_true(peak > 0);
    uint64_t refusals = 0;
    for (uint64_t n = 1;; n++) {
        short_memory_requests = 0;
        short_memory_refused_request = n;
        uint64_t answered = replayed_peak(wake, &status);
        if (short_memory_requests < n)
            break; /* it needs no more than that */
        refusals++;
        if (status == RVL_OK) /* what was refused could be done without */
            assert_int_equal(answered, peak);
        else
            assert_int_equal(status, RVL_ERR_HOST_OOM);
        short_memory_refused_request = 0;
        assert_int_equal(replayed_peak(wake, &status), peak);
    }
    short_memory_refused_request = 0;
    assert_true(refusals > 20);
}

static void a_replay_answers_that_memory_is_out(void **state)
{
    (void)state;
    sweep(RVL_WAKE_STAGED);
    sweep(RVL_WAKE_TOGETHER);
}

static void check_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(bytes[i], 0);
}

static void large_tables_lie_on_huge_pages(void **state)
{
    (void)state;
    unsigned char *memory = rvli_memory_alloc(3 * MIB);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % (2 * MIB), 0);
    check_zero(memory, 3 * MIB);
    memory[0] = 1;
    memory[3 * MIB - 1] = 2;
    unsigned char *larger = rvli_memory_grow(memory, 3 * MIB, 5 * MIB);
    assert_non_null(larger);
    assert_int_equal(larger[0], 1);
    assert_int_equal(larger[3 * MIB - 1], 2);
    check_zero(larger + 3 * MIB, 2 * MIB);
    rvli_memory_free(larger, 5 * MIB);
}

static void small_tables_grow_into_large_ones(void **state)
{
    (void)state;
    unsigned char *memory = rvli_memory_grow(NULL, 0, 100);
    assert_non_null(memory);
    check_zero(memory, 100);
    memory[99] = 7;
    short_memory_requests = 0;
    short_memory_refused_request = 1;
    assert_null(rvli_memory_grow(memory, 100, 2 * MIB));
    short_memory_refused_request = 0;
    assert_int_equal(memory[99], 7); /* as it was */
    memory = rvli_memory_grow(memory, 100, 2 * MIB);
    assert_non_null(memory);
    assert_int_equal(memory[99], 7);
    rvli_memory_free(memory, 2 * MIB);
    assert_null(rvli_memory_alloc(SIZE_MAX));
    rvli_memory_free(NULL, 8 * MIB);
}

/* Events of a process that is defined while recording; those that were written. */
static uint64_t record_late_process(uint64_t refused, rvl_status *stopped_out)
{
    char path[] = "/tmp/reveille-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    rvl_context *context = NULL;
    rvl_process process = 0;
    rvl_addr addr = 0;
    assert_int_equal(rvl_context_open("sim", NULL, &context), RVL_OK);
    assert_int_equal(rvl_record_start(context, path), RVL_OK);
    assert_int_equal(rvl_process_define(context, "late", &process), RVL_OK);
    short_memory_refuse_nth(refused);
    const rvl_alloc_options options = {.struct_size = sizeof options, .process = process};
    rvl_status status = rvl_alloc(context, MIB, &options, &addr);
    bool enough = !short_memory_has_refused();
    short_memory_refuse_nth(0);
    *stopped_out = rvl_record_stop(context);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);

    const char *const paths[] = {path};
    const rvl_trace_reader_options partial = {.struct_size = sizeof partial,
                                              .flags = RVL_TRACE_PARTIAL};
    rvl_trace_reader *reader = NULL;
    rvl_trace_event event;
    uint64_t events = 0;
    assert_int_equal(rvl_trace_reader_open(paths, 1, &partial, &reader), RVL_OK);
    while (rvl_trace_reader_next(reader, &event, sizeof event) == RVL_OK)
        events++;
    rvl_trace_reader_close(reader);
    unlink(path);
    if (*stopped_out == RVL_OK)
        assert_int_equal(events, status == RVL_OK);
    else
        assert_int_equal(*stopped_out, RVL_ERR_IO);
    return enough ? UINT64_MAX : events;
}

/* A recording that lacks a line says so when it ends. */
static void a_recording_says_that_lines_are_missing(void **state)
{
    (void)state;
    rvl_status stopped;
    int missing = 0;
    for (uint64_t n = 1; record_late_process(n, &stopped) != UINT64_MAX; n++)
        missing += stopped != RVL_OK;
    assert_int_equal(stopped, RVL_OK);
    assert_true(missing > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_answers_that_memory_is_out),
        cmocka_unit_test(large_tables_lie_on_huge_pages),
        cmocka_unit_test(small_tables_grow_into_large_ones),
        cmocka_unit_test(a_recording_says_that_lines_are_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
