/* SPDX-License-Identifier: MIT */
#include "wake_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "core/backup/disk/queue.h"
#include "reveille/trace.h"
#include "tests/support/short_memory.h"

SHORT_MALLOC
SHORT_CALLOC

/* ---- What fails ---- */

bool scene_no_thread;
_Atomic int scene_fail_read;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
__attribute__((visibility("default"))) int __wrap_pthread_create(pthread_t *thread,
                                                                 const pthread_attr_t *attributes,
                                                                 void *(*run)(void *),
                                                                 void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    return scene_no_thread ? 11 /* EAGAIN */
                           : __real_pthread_create(thread, attributes, run, argument);
}

rvl_status __real_rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request);
rvl_status __wrap_rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request);
rvl_status __wrap_rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request)
{
    rvl_status status = __real_rvli_disk_queue_wait(queue, request);
    bool turn = !request->write && scene_fail_read > 0 && --scene_fail_read == 0;
    return turn ? rvli_error(RVL_ERR_IO, "the disk failed") : status;
}

/* ---- The scene ---- */

const layout layouts[LAYOUTS] = {
    {.backup = RVL_BACKUP_HOST},
    {.backup = RVL_BACKUP_HOST, .keep_bytes = CAPACITY},
    {.backup = RVL_BACKUP_HOST, .coalesce_bytes = 8 * GRANULE},
    {.backup = RVL_BACKUP_HOST, .retain = true},
    {.backup = RVL_BACKUP_DISK},
};

static void count_map(void *user, rvl_tag tag)
{
    scene *s = user;
    s->maps += tag == s->tag;
}

static void note(void *user, const rvl_arrival *arrival)
{
    scene *s = user;
    assert_int_equal(arrival->struct_size, sizeof *arrival);
    s->arrivals[s->arrived++] = *arrival;
    if (!s->gated || s->arrived > 1)
        return;
    sem_post(&s->first);
    sem_wait(&s->go_on);
}

void scene_open_awake(scene *s, layout how)
{
    memset(s, 0, sizeof *s);
    sem_init(&s->first, 0, 0);
    sem_init(&s->go_on, 0, 0);
    s->context = support_open((support_options){.devices = 2,
                                                .capacity_bytes = CAPACITY,
                                                .granularity_bytes = GRANULE,
                                                .keep_bytes = how.keep_bytes,
                                                .disk_directory = "/tmp"},
                              &s->fault);
    const rvl_tag_options options = {.struct_size = sizeof options,
                                     .flags = how.retain ? RVL_TAG_RETAIN_BACKUPS : 0,
                                     .coalesce_bytes = how.coalesce_bytes,
                                     .after_map = count_map,
                                     .callback_user = s};
    assert_int_equal(rvl_tag_define(s->context, "weights", &options, &s->tag), RVL_OK);
    for (int i = 0; i < COUNT; i++) {
        s->layers[i] = support_alloc(s->context, "weights", i % 2, BYTES, how.backup);
        support_fill(s->layers[i], BYTES, (uint64_t)i);
    }
}

void scene_open_asleep(scene *s, layout how)
{
    scene_open_awake(s, how);
    assert_int_equal(rvl_pause(s->context, &s->tag, 1, NULL), RVL_OK);
}

void scene_close(scene *s)
{
    assert_int_equal(rvl_context_close(s->context, NULL), RVL_OK);
    sem_destroy(&s->first);
    sem_destroy(&s->go_on);
}

rvl_resume_options scene_told(scene *s)
{
    return (rvl_resume_options){
        .struct_size = sizeof(rvl_resume_options), .arrived = note, .arrived_user = s};
}

rvl_resuming *scene_start(scene *s, const rvl_resume_options *options)
{
    rvl_resuming *wake = NULL;
    assert_int_equal(rvl_resume_start(s->context, &s->tag, 1, options, &wake), RVL_OK);
    assert_non_null(wake);
    return wake;
}

rvl_status scene_pause(scene *s)
{
    return rvl_pause(s->context, &s->tag, 1, NULL);
}

rvl_status scene_resume(scene *s)
{
    return rvl_resume(s->context, &s->tag, 1, NULL);
}

void scene_damage(const scene *s, int layer)
{
    const void *host = NULL;
    uint64_t size = 0;
    assert_int_equal(rvl_backup_find(s->context, s->layers[layer], &host, &size), RVL_OK);
    *(unsigned char *)(uintptr_t)host ^= 1; /* its own inverse */
}

/* ---- What is so ---- */

rvl_state scene_state(const scene *s, int layer)
{
    return support_state(s->context, s->layers[layer]);
}

bool scene_holds(const scene *s, int layer)
{
    return support_holds(s->layers[layer], BYTES, (uint64_t)layer);
}

void scene_check_awake(const scene *s)
{
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(scene_state(s, i), RVL_STATE_ACTIVE);
        assert_true(scene_holds(s, i));
    }
}

void scene_check_asleep(const scene *s)
{
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(scene_state(s, i), RVL_STATE_PAUSED);
    for (int device = 0; device < 2; device++) {
        assert_int_equal(support_stats(s->context, device).used_bytes, 0);
        assert_int_equal(support_stats(s->context, device).host_backup_bytes, 2 * BYTES);
    }
    assert_int_equal(s->arrived, 0);
}

void scene_check_recovers(scene *s)
{
    for (int i = 0; i < COUNT; i++)
        if (scene_state(s, i) == RVL_STATE_ACTIVE)
            assert_true(scene_holds(s, i));
    assert_int_equal(scene_resume(s), RVL_OK);
    scene_check_awake(s);
    scene_close(s);
}

rvl_error scene_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

/* ---- Calls on other threads ---- */

static void *call_elsewhere(void *argument)
{
    waiter *w = argument;
    w->thread = gettid();
    w->answer = w->call(w->s);
    return NULL;
}

void waiter_run(waiter *w)
{
    assert_int_equal(pthread_create(&w->self, NULL, call_elsewhere, w), 0);
}

void waiter_begin(waiter *w)
{
    waiter_run(w);
    assert_true(support_await_sleep(&w->thread));
}

void waiter_end(waiter *w)
{
    assert_int_equal(pthread_join(w->self, NULL), 0);
    assert_int_equal(w->answer, RVL_OK);
}

/* ---- Who is told ---- */

static rvl_status watch_begin(void *user, const rvl_transition *transition)
{
    watch *w = user;
    w->before += rvl_transition_get_kind(transition) == RVL_TRANSITION_RESUME;
    return RVL_OK;
}

static void watch_end(void *user, const rvl_transition *transition, bool done)
{
    watch *w = user;
    assert_true(rvl_transition_get_tag(transition, 0) != 0);
    w->done += done;
    w->undone += !done;
}

static rvl_status refuse(void *user, const rvl_transition *transition)
{
    (void)user;
    (void)transition;
    return RVL_ERR_VETOED;
}

rvl_guard watch_guard(watch *w)
{
    return (rvl_guard){
        .struct_size = sizeof(rvl_guard), .before = watch_begin, .after = watch_end, .user = w};
}

rvl_guard watch_refusing_guard(void)
{
    return (rvl_guard){.struct_size = sizeof(rvl_guard), .before = refuse};
}

void scene_record(scene *s)
{
    snprintf(s->recording, sizeof s->recording, "/tmp/reveille-wake-XXXXXX");
    int file = mkstemp(s->recording);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(rvl_record_start(s->context, s->recording), RVL_OK);
}

int scene_close_recorded(scene *s)
{
    const char *path = s->recording;
    rvl_trace_reader *reader = NULL;
    rvl_trace_event event;
    int resumes = 0;
    assert_int_equal(rvl_record_stop(s->context), RVL_OK);
    scene_close(s);
    assert_int_equal(rvl_trace_reader_open(&path, 1, NULL, &reader), RVL_OK);
    while (rvl_trace_reader_next(reader, &event, sizeof event) == RVL_OK)
        resumes += event.kind == RVL_EVENT_RESUME;
    rvl_trace_reader_close(reader);
    unlink(path);
    return resumes;
}
