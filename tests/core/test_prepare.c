/* SPDX-License-Identifier: MIT */
/*
 * Transitions in two phases: what is seen in between, who is refused meanwhile, who is told, and
 * that committing cannot fail. tests/core/test_faults.c fails every operation of both.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reveille/trace.h"
#include "tests/support/support.h"

#define OP(name) (UINT64_C(1) << RVLI_OP_##name)
#define ALL_OPS ((UINT64_C(1) << RVLI_OP_COUNT) - 1)

typedef struct scene {
    rvl_context *context;
    fault_injector *fault;
    rvl_addr weights, cache;
    rvl_tag weights_tag, cache_tag;
    int unmaps, maps;
} scene;

static rvl_status count_unmap(void *user, rvl_tag tag)
{
    scene *s = user;
    s->unmaps += tag == s->weights_tag;
    return RVL_OK;
}

static void count_map(void *user, rvl_tag tag)
{
    scene *s = user;
    s->maps += tag == s->weights_tag;
}

static void open_scene(scene *s)
{
    memset(s, 0, sizeof *s);
    s->context = support_open((support_options){0}, &s->fault);
    const rvl_tag_options options = {.struct_size = sizeof options,
                                     .before_unmap = count_unmap,
                                     .after_map = count_map,
                                     .callback_user = s};
    assert_int_equal(rvl_tag_define(s->context, "weights", &options, &s->weights_tag), RVL_OK);
    s->weights = support_alloc(s->context, "weights", 0, 2 * GRANULE, RVL_BACKUP_HOST);
    s->cache = support_alloc(s->context, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    s->cache_tag = support_tag(s->context, "cache");
    support_fill(s->weights, 2 * GRANULE, 1);
}

static void close_scene(scene *s)
{
    assert_int_equal(rvl_context_close(s->context, NULL), RVL_OK);
}

static rvl_transition *prepare_pause(scene *s)
{
    rvl_transition *transition = NULL;
    assert_int_equal(rvl_pause_prepare(s->context, &s->weights_tag, 1, NULL, &transition), RVL_OK);
    return transition;
}

static rvl_transition *prepare_resume(scene *s)
{
    rvl_transition *transition = NULL;
    assert_int_equal(rvl_resume_prepare(s->context, &s->weights_tag, 1, NULL, &transition), RVL_OK);
    return transition;
}

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

/* What the device itself says. */
static uint64_t taken_bytes(rvl_context *context)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(rvl_device_get_memory(context, 0, &free_bytes, &total_bytes), RVL_OK);
    return total_bytes - free_bytes;
}

/* ---- What is seen ---- */

static void nothing_is_flipped_before_the_commit(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    rvl_transition *transition = prepare_pause(&s);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_PAUSING);
    assert_int_equal(support_stats(s.context, 0).used_bytes, 3 * GRANULE);
    assert_int_equal(support_stats(s.context, 0).prepared_bytes, 0);
    assert_int_equal(support_stats(s.context, 0).pauses, 0);
    assert_int_equal(s.unmaps, 1);
    assert_int_equal(rvl_transition_commit(transition), RVL_OK);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_PAUSED);
    assert_int_equal(support_stats(s.context, 0).used_bytes, GRANULE);
    assert_int_equal(support_stats(s.context, 0).pauses, 1);

    transition = prepare_resume(&s);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_RESUMING);
    assert_true(support_holds(s.weights, 2 * GRANULE, 1)); /* it is back already */
    assert_int_equal(support_stats(s.context, 0).resumes, 0);
    assert_int_equal(support_stats(s.context, 0).used_bytes, GRANULE);
    assert_int_equal(support_stats(s.context, 0).prepared_bytes, 2 * GRANULE);
    assert_int_equal(taken_bytes(s.context), 3 * GRANULE);
    assert_int_equal(s.maps, 0);
    assert_int_equal(rvl_transition_commit(transition), RVL_OK);
    assert_int_equal(s.maps, 1);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_ACTIVE);
    assert_int_equal(support_stats(s.context, 0).used_bytes, 3 * GRANULE);
    assert_int_equal(support_stats(s.context, 0).prepared_bytes, 0);
    assert_true(support_holds(s.weights, 2 * GRANULE, 1));
    close_scene(&s);
}

static void aborting_tells_no_map(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    assert_int_equal(rvl_transition_abort(prepare_pause(&s)), RVL_OK);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_ACTIVE);
    assert_true(support_holds(s.weights, 2 * GRANULE, 1));
    assert_int_equal(rvl_pause(s.context, &s.weights_tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_transition_abort(prepare_resume(&s)), RVL_OK);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_PAUSED);
    assert_int_equal(support_stats(s.context, 0).used_bytes, GRANULE);
    assert_int_equal(support_stats(s.context, 0).prepared_bytes, 0);
    assert_int_equal(taken_bytes(s.context), GRANULE);
    assert_int_equal(s.maps, 0);
    close_scene(&s);
}

static void nothing_may_move(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    assert_int_equal(rvl_transition_commit(prepare_resume(&s)), RVL_OK); /* all is active */
    assert_int_equal(rvl_transition_abort(prepare_resume(&s)), RVL_OK);
    assert_int_equal(s.maps, 0);
    close_scene(&s);
}

static void a_discarded_content_needs_no_backup(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    rvl_transition *transition = NULL;
    const rvl_pause_options discard = {.struct_size = sizeof discard, .flags = RVL_PAUSE_DISCARD};
    assert_int_equal(rvl_pause_prepare(s.context, &s.weights_tag, 1, &discard, &transition),
                     RVL_OK);
    assert_int_equal(rvl_transition_abort(transition), RVL_OK);
    assert_true(support_holds(s.weights, 2 * GRANULE, 1));
    assert_int_equal(rvl_pause_prepare(s.context, &s.weights_tag, 1, &discard, &transition),
                     RVL_OK);
    assert_int_equal(rvl_transition_commit(transition), RVL_OK);
    assert_int_equal(support_stats(s.context, 0).host_backup_bytes, 0);
    close_scene(&s);
}

/* ---- Who is refused ---- */

static void expect_busy(scene *s, rvl_status status)
{
    (void)s;
    assert_int_equal(status, RVL_ERR_BUSY);
    assert_non_null(strstr(last_error().message, "commit or abort"));
}

static void prepared_memory_is_nobody_elses(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    const rvl_tag both[] = {s.cache_tag, s.weights_tag};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_transition *transition = prepare_pause(&s), *other = NULL;
    expect_busy(&s, rvl_pause(s.context, both, 2, NULL));
    assert_string_equal(last_error().tag, "weights");
    expect_busy(&s, rvl_resume(s.context, &s.weights_tag, 1, NULL));
    expect_busy(&s, rvl_pause_forecast(s.context, both, 2, NULL, &forecast));
    expect_busy(&s, rvl_resume_prepare(s.context, NULL, 0, NULL, &other));
    assert_null(other);
    expect_busy(&s, rvl_free(s.context, s.weights));
    expect_busy(&s, rvl_context_close(s.context, NULL));

    /* The refused ones have claimed nothing, and all else goes on. */
    assert_int_equal(rvl_pause(s.context, &s.cache_tag, 1, NULL), RVL_OK);
    rvl_addr more = support_alloc(s.context, "weights", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rvl_free(s.context, more), RVL_OK);
    assert_int_equal(rvl_transition_commit(transition), RVL_OK);
    assert_int_equal(rvl_free(s.context, s.weights), RVL_OK);
    close_scene(&s);
}

typedef struct waiter {
    scene *s;
    _Atomic pid_t thread;
    _Atomic rvl_status answer;
} waiter;

static void *resume_elsewhere(void *argument)
{
    waiter *w = argument;
    w->thread = gettid();
    w->answer = rvl_resume(w->s->context, &w->s->weights_tag, 1, NULL);
    return NULL;
}

static rvl_status begin_waiter(void *user, const rvl_transition *transition)
{
    waiter *w = user;
    pthread_t thread;
    (void)transition;
    assert_int_equal(pthread_create(&thread, NULL, resume_elsewhere, w), 0);
    assert_true(support_await_sleep(&w->thread));
    assert_int_equal(pthread_detach(thread), 0);
    return RVL_OK;
}

/* It waits for what is on its way, and is told once that is prepared. */
static void who_waits_is_refused_too(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    static waiter w;
    w = (waiter){.s = &s, .answer = 1};
    const rvl_guard guard = {.struct_size = sizeof guard, .before = begin_waiter, .user = &w};
    assert_int_equal(rvl_context_set_guard(s.context, &guard), RVL_OK);
    rvl_transition *transition = prepare_pause(&s);
    for (int i = 0; i < 10000 && w.answer == 1; i++)
        usleep(1000);
    assert_int_equal(w.answer, RVL_ERR_BUSY);
    assert_int_equal(rvl_context_set_guard(s.context, NULL), RVL_OK);
    assert_int_equal(rvl_transition_abort(transition), RVL_OK);
    close_scene(&s);
}

static void *commit_elsewhere(void *transition)
{
    static rvl_status answer;
    answer = rvl_transition_commit(transition);
    return &answer;
}

static void any_thread_may_commit(void **state)
{
    (void)state;
    scene s;
    pthread_t thread;
    void *answer = NULL;
    open_scene(&s);
    assert_int_equal(pthread_create(&thread, NULL, commit_elsewhere, prepare_pause(&s)), 0);
    assert_int_equal(pthread_join(thread, &answer), 0);
    assert_int_equal(*(rvl_status *)answer, RVL_OK);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_PAUSED);
    close_scene(&s);
}

static void wrong_calls_leave_the_handle(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    assert_int_equal(rvl_transition_commit(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_abort(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_pause_prepare(s.context, &s.weights_tag, 1, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_prepare(s.context, &s.weights_tag, 1, NULL, NULL), RVL_ERR_INVALID);
    const rvl_tag unknown = 99;
    rvl_transition *transition = NULL;
    assert_int_equal(rvl_pause_prepare(s.context, &unknown, 1, NULL, &transition), RVL_ERR_INVALID);
    assert_null(transition);

    transition = prepare_pause(&s);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(rvl_transition_commit(transition) != RVL_ERR_FORKED ||
              rvl_transition_abort(transition) != RVL_ERR_FORKED);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rvl_transition_commit(transition), RVL_OK);
    close_scene(&s);
}

/* ---- What cannot fail ---- */

static void a_commit_succeeds_whatever_fails(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    const fault_plan all = {.op_mask = ALL_OPS, .countdown = 1, .for_good = true};
    rvl_transition *transition = prepare_pause(&s);
    fault_set(s.fault, &all);
    assert_int_equal(rvl_transition_commit(transition), RVL_OK);
    fault_set(s.fault, &(fault_plan){0});
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_PAUSED);
    assert_int_equal(support_stats(s.context, 0).stranded_bytes, 2 * GRANULE);

    transition = prepare_resume(&s);
    fault_set(s.fault, &all);
    assert_int_equal(rvl_transition_commit(transition), RVL_OK);
    fault_set(s.fault, &(fault_plan){0});
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_ACTIVE);
    assert_true(support_holds(s.weights, 2 * GRANULE, 1));
    close_scene(&s);
}

static void check_lost(scene *s, rvl_status status, const char *op)
{
    fault_set(s->fault, &(fault_plan){0});
    assert_int_equal(status, last_error().status);
    assert_int_not_equal(status, RVL_OK);
    assert_string_equal(last_error().op, op);
    assert_string_equal(last_error().tag, "weights");
    assert_int_equal(support_state(s->context, s->weights), RVL_STATE_LOST);
    assert_int_equal(rvl_resume(s->context, &s->weights_tag, 1, NULL), RVL_OK);
    assert_true(support_holds(s->weights, 2 * GRANULE, 1));
}

static void an_abort_that_fails_loses_no_content(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    rvl_transition *transition = prepare_pause(&s);
    fault_set(s.fault, &(fault_plan){.op_mask = OP(map), .countdown = 1, .for_good = true});
    check_lost(&s, rvl_transition_abort(transition), "map");

    assert_int_equal(rvl_pause(s.context, &s.weights_tag, 1, NULL), RVL_OK);
    transition = prepare_resume(&s);
    fault_set(s.fault, &(fault_plan){.op_mask = OP(unmap), .countdown = 1, .for_good = true});
    check_lost(&s, rvl_transition_abort(transition), "unmap");
    close_scene(&s);
}

/* ---- Who is told ---- */

typedef struct watch {
    int before, done, undone;
} watch;

static rvl_status watch_begin(void *user, const rvl_transition *transition)
{
    watch *w = user;
    (void)transition;
    w->before++;
    return RVL_OK;
}

static void watch_end(void *user, const rvl_transition *transition, bool done)
{
    watch *w = user;
    assert_true(rvl_transition_get_tag(transition, 0) != 0);
    w->done += done;
    w->undone += !done;
}

static void the_guard_hears_how_it_ends(void **state)
{
    (void)state;
    scene s;
    watch w = {0};
    open_scene(&s);
    const rvl_guard guard = {
        .struct_size = sizeof guard, .before = watch_begin, .after = watch_end, .user = &w};
    assert_int_equal(rvl_context_set_guard(s.context, &guard), RVL_OK);
    rvl_transition *transition = prepare_pause(&s);
    assert_int_equal(w.before, 1);
    assert_int_equal(w.done + w.undone, 0);
    assert_int_equal(rvl_transition_abort(transition), RVL_OK);
    assert_int_equal(w.undone, 1);
    assert_int_equal(rvl_transition_commit(prepare_pause(&s)), RVL_OK);
    assert_int_equal(rvl_transition_commit(prepare_resume(&s)), RVL_OK);
    assert_int_equal(w.before, 3);
    assert_int_equal(w.done, 2);
    assert_int_equal(w.undone, 1);
    close_scene(&s);
}

static void a_recording_has_what_was_committed(void **state)
{
    (void)state;
    scene s;
    char path[] = "/tmp/reveille-prepare-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    open_scene(&s);
    assert_int_equal(rvl_record_start(s.context, path), RVL_OK);
    assert_int_equal(rvl_transition_abort(prepare_pause(&s)), RVL_OK);
    assert_int_equal(rvl_transition_commit(prepare_pause(&s)), RVL_OK);
    assert_int_equal(rvl_transition_abort(prepare_resume(&s)), RVL_OK);
    assert_int_equal(rvl_transition_commit(prepare_resume(&s)), RVL_OK);
    assert_int_equal(rvl_record_stop(s.context), RVL_OK);
    close_scene(&s);

    const char *paths[] = {path};
    rvl_trace_reader *reader = NULL;
    rvl_trace_event event;
    int pauses = 0, resumes = 0;
    assert_int_equal(rvl_trace_reader_open(paths, 1, NULL, &reader), RVL_OK);
    while (rvl_trace_reader_next(reader, &event, sizeof event) == RVL_OK) {
        pauses += event.kind == RVL_EVENT_PAUSE;
        resumes += event.kind == RVL_EVENT_RESUME;
    }
    rvl_trace_reader_close(reader);
    unlink(path);
    assert_int_equal(pauses, 1);
    assert_int_equal(resumes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_flipped_before_the_commit),
        cmocka_unit_test(aborting_tells_no_map),
        cmocka_unit_test(nothing_may_move),
        cmocka_unit_test(a_discarded_content_needs_no_backup),
        cmocka_unit_test(prepared_memory_is_nobody_elses),
        cmocka_unit_test(who_waits_is_refused_too),
        cmocka_unit_test(any_thread_may_commit),
        cmocka_unit_test(wrong_calls_leave_the_handle),
        cmocka_unit_test(a_commit_succeeds_whatever_fails),
        cmocka_unit_test(an_abort_that_fails_loses_no_content),
        cmocka_unit_test(the_guard_hears_how_it_ends),
        cmocka_unit_test(a_recording_has_what_was_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
