/* SPDX-License-Identifier: MIT */
/* What a context records is what it did: read back with the trace reader. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reveille/trace.h"
#include "tests/support/support.h"

#define TEMPLATE "/tmp/reveille-record-XXXXXX"

static char path[] = TEMPLATE;

static int make_path(void **state)
{
    (void)state;
    memcpy(path, TEMPLATE, sizeof path);
    int file = mkstemp(path);
    if (file < 0)
        return -1;
    close(file);
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

/* One line a kind, so that what was recorded can be compared as text. */
static void describe(const rvl_trace_event *event, char *line, size_t size)
{
    static const char *const kinds[] = {
#define KIND_TEXT(name, keyword) keyword,
        RVL_EVENT_MAP(KIND_TEXT)
#undef KIND_TEXT
    };
    snprintf(line, size, "%s %s id=%llu dev=%u bytes=%llu tag=%s name=%s b=%d f=%u a=%llu s=%d",
             kinds[event->kind], event->process, (unsigned long long)event->id, event->device,
             (unsigned long long)event->bytes, event->tag ? event->tag : "-",
             event->name ? event->name : "-", (int)event->backup, event->flags,
             (unsigned long long)event->access_mask, event->skip_content);
}

static void check_recorded(const char *const *expected, size_t count)
{
    const char *paths[] = {path};
    rvl_trace_reader *reader = NULL;
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_trace_reader_open(paths, 1, NULL, &reader), RVL_OK);
    rvl_last_error(&error);
    rvl_trace_device devices[2];
    size_t device_count = 0;
    assert_int_equal(
        rvl_trace_reader_get_devices(reader, devices, sizeof *devices, 2, &device_count), RVL_OK);
    assert_int_equal(device_count, 2);
    assert_int_equal(devices[0].capacity_bytes, 64 * MIB);
    assert_int_equal(devices[1].granularity_bytes, GRANULE);
    rvl_trace_event event;
    char line[512];
    uint64_t last_ns = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_OK);
        rvl_last_error(&error);
        describe(&event, line, sizeof line);
        assert_string_equal(line, expected[i]);
        assert_true(event.time_ns >= last_ns);
        assert_true(event.thread != 0);
        last_ns = event.time_ns;
    }
    assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_ERR_NOT_FOUND);
    rvl_last_error(&error);
    rvl_trace_reader_close(reader);
}

static void everything_is_recorded(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.devices = 2}, NULL);
    rvl_addr early = support_alloc(context, "early", 0, GRANULE, RVL_BACKUP_HOST);
    rvl_tag early_tag = support_tag(context, "early");
    assert_int_equal(rvl_pause(context, &early_tag, 1, NULL), RVL_OK);

    assert_int_equal(rvl_record_stop(context), RVL_ERR_STATE);
    assert_int_equal(rvl_record_start(context, path), RVL_OK);
    assert_int_equal(rvl_record_start(context, path), RVL_ERR_STATE);
    assert_int_equal(rvl_step(context), RVL_OK);
    assert_int_equal(rvl_stage(context, "rollout"), RVL_OK);
    const int access[] = {0};
    rvl_alloc_options options = {
        .struct_size = sizeof options, .device = 1, .access = access, .access_count = 1};
    rvl_addr addr;
    assert_int_equal(rvl_alloc(context, 3 * GRANULE, &options, &addr), RVL_OK);
    assert_int_equal(rvl_resume(context, &early_tag, 1,
                                &(rvl_resume_options){.struct_size = sizeof(rvl_resume_options),
                                                      .flags = RVL_RESUME_NO_RESTORE}),
                     RVL_OK);
    assert_int_equal(rvl_resume(context, &early_tag, 1, NULL), RVL_OK); /* nothing moves */
    assert_int_equal(rvl_pause(context, &early_tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_external_set(context, 1, "nccl", 123), RVL_OK);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    assert_int_equal(rvl_free(context, addr), RVL_ERR_INVALID); /* and nothing is recorded */
    assert_int_equal(rvl_record_stop(context), RVL_OK);
    assert_int_equal(rvl_free(context, early), RVL_OK); /* after the end */
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);

    static const char *const expected[] = {
        "alloc test id=1 dev=0 bytes=2097152 tag=early name=- b=1 f=4 a=0 s=0",
        "step test id=0 dev=0 bytes=0 tag=- name=- b=0 f=0 a=0 s=0",
        "stage test id=0 dev=0 bytes=0 tag=- name=rollout b=0 f=0 a=0 s=0",
        "sample test id=0 dev=0 bytes=0 tag=- name=- b=0 f=0 a=0 s=0",
        "sample test id=0 dev=1 bytes=0 tag=- name=- b=0 f=0 a=0 s=0",
        "alloc test id=2 dev=1 bytes=6291456 tag=- name=- b=0 f=0 a=1 s=0",
        "resume test id=0 dev=0 bytes=0 tag=early name=- b=0 f=0 a=0 s=1",
        "pause test id=0 dev=0 bytes=0 tag=early name=- b=0 f=0 a=0 s=0",
        "external test id=0 dev=1 bytes=123 tag=- name=nccl b=0 f=0 a=0 s=0",
        "free test id=2 dev=0 bytes=0 tag=- name=- b=0 f=0 a=0 s=0",
    };
    check_recorded(expected, sizeof expected / sizeof *expected);
}

/* ---- What other threads do during a transition ---- */

typedef struct meanwhile {
    rvl_context *context;
    void *(*does)(void *meanwhile);
    rvl_addr addr;
    rvl_status failed; /* the first; cmocka's asserts belong to the main thread */
} meanwhile;

static void note(meanwhile *m, rvl_status status)
{
    if (m->failed == RVL_OK)
        m->failed = status;
}

/* Another thread calls, and need not wait for the transition. */
static rvl_status call_meanwhile(void *user, rvl_tag tag)
{
    meanwhile *m = user;
    pthread_t thread;
    (void)tag;
    if (m->does == NULL)
        return RVL_OK;
    assert_int_equal(pthread_create(&thread, NULL, m->does, m), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return RVL_OK;
}

static void alloc_meanwhile(meanwhile *m, uint64_t size, rvl_addr *addr_out)
{
    const rvl_alloc_options options = {.struct_size = sizeof options, .tag = "moves"};
    note(m, rvl_alloc(m->context, size, &options, addr_out));
}

static void *allocate_and_free(void *argument)
{
    meanwhile *m = argument;
    rvl_addr short_lived = 0;
    alloc_meanwhile(m, 2 * GRANULE, &m->addr);
    alloc_meanwhile(m, GRANULE, &short_lived);
    note(m, rvl_free(m->context, short_lived));
    note(m, rvl_stage(m->context, "meanwhile"));
    return NULL;
}

static void *allocate_and_record(void *argument)
{
    meanwhile *m = argument;
    alloc_meanwhile(m, 2 * GRANULE, &m->addr);
    note(m, rvl_record_start(m->context, path));
    return NULL;
}

static void *record_and_stop(void *argument)
{
    meanwhile *m = argument;
    note(m, rvl_record_start(m->context, path));
    alloc_meanwhile(m, 2 * GRANULE, &m->addr);
    note(m, rvl_record_stop(m->context));
    return NULL;
}

/* Pauses a tag of one granule, while another thread does something. */
static rvl_context *pause_meanwhile(meanwhile *m, bool record)
{
    rvl_context *context = support_open((support_options){.devices = 2}, NULL);
    const rvl_tag_options options = {
        .struct_size = sizeof options, .before_unmap = call_meanwhile, .callback_user = m};
    rvl_tag tag = 0;
    m->context = context;
    assert_int_equal(rvl_tag_define(context, "moves", &options, &tag), RVL_OK);
    support_alloc(context, "moves", 0, GRANULE, RVL_BACKUP_NONE);
    if (record)
        assert_int_equal(rvl_record_start(context, path), RVL_OK);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(m->failed, RVL_OK);
    return context;
}

/* The line of a transition moves all of its tag, so what does not move must come behind it. */
static void allocations_during_a_move_are_recorded_behind_it(void **state)
{
    (void)state;
    meanwhile m = {.does = allocate_and_free};
    rvl_context *context = pause_meanwhile(&m, true);
    assert_int_equal(rvl_stage(context, "after"), RVL_OK);
    assert_int_equal(rvl_free(context, m.addr), RVL_OK);
    assert_int_equal(rvl_record_stop(context), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    static const char *const expected[] = {
        "alloc test id=1 dev=0 bytes=2097152 tag=moves name=- b=0 f=0 a=0 s=0",
        "stage test id=0 dev=0 bytes=0 tag=- name=meanwhile b=0 f=0 a=0 s=0", /* no sample */
        "pause test id=0 dev=0 bytes=0 tag=moves name=- b=0 f=0 a=0 s=0",
        "alloc test id=4 dev=0 bytes=4194304 tag=moves name=- b=0 f=0 a=0 s=0",
        "stage test id=0 dev=0 bytes=0 tag=- name=after b=0 f=0 a=0 s=0",
        "sample test id=0 dev=0 bytes=4194304 tag=- name=- b=0 f=0 a=0 s=0",
        "sample test id=0 dev=1 bytes=0 tag=- name=- b=0 f=0 a=0 s=0",
        "free test id=4 dev=0 bytes=0 tag=- name=- b=0 f=0 a=0 s=0",
    };
    check_recorded(expected, sizeof expected / sizeof *expected);
}

/* What moves is recorded as it was, what does not behind the move. */
static void recordings_may_begin_during_a_move(void **state)
{
    (void)state;
    meanwhile m = {.does = allocate_and_record};
    rvl_context *context = pause_meanwhile(&m, false);
    assert_int_equal(rvl_record_stop(context), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    static const char *const expected[] = {
        "alloc test id=1 dev=0 bytes=2097152 tag=moves name=- b=0 f=0 a=0 s=0",
        "pause test id=0 dev=0 bytes=0 tag=moves name=- b=0 f=0 a=0 s=0",
        "alloc test id=3 dev=0 bytes=4194304 tag=moves name=- b=0 f=0 a=0 s=0",
    };
    check_recorded(expected, sizeof expected / sizeof *expected);
}

static void recordings_may_end_during_a_move(void **state)
{
    (void)state;
    meanwhile m = {.does = record_and_stop};
    rvl_context *context = pause_meanwhile(&m, false);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    static const char *const expected[] = {
        "alloc test id=1 dev=0 bytes=2097152 tag=moves name=- b=0 f=0 a=0 s=0",
        "alloc test id=3 dev=0 bytes=4194304 tag=moves name=- b=0 f=0 a=0 s=0",
    };
    check_recorded(expected, sizeof expected / sizeof *expected);
}

static void paths_that_cannot_be_written_are_named(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    assert_int_equal(rvl_record_start(context, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_record_start(context, "/tmp/trace.rvt.zst"), RVL_ERR_INVALID);
    assert_int_equal(rvl_record_start(context, "/nonexistent/trace.rvt"), RVL_ERR_IO);
    /* A full disk does not fail what is being recorded, and is told at the end. */
    assert_int_equal(rvl_record_start(context, "/dev/full"), RVL_OK);
    rvl_addr addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rvl_stage(context, "flush"), RVL_OK);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    assert_int_equal(rvl_record_stop(context), RVL_ERR_IO);
    assert_int_equal(rvl_record_start(context, "/dev/full"), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_is_recorded, make_path, remove_path),
        cmocka_unit_test_setup_teardown(allocations_during_a_move_are_recorded_behind_it, make_path,
                                        remove_path),
        cmocka_unit_test_setup_teardown(recordings_may_begin_during_a_move, make_path, remove_path),
        cmocka_unit_test_setup_teardown(recordings_may_end_during_a_move, make_path, remove_path),
        cmocka_unit_test(paths_that_cannot_be_written_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
