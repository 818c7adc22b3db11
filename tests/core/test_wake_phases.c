/* SPDX-License-Identifier: MIT */
/*
 * A wake in order that starts in two phases: what is seen in between, who is refused meanwhile,
 * what an abort takes back, and that committing cannot fail. Every op of both phases fails once and
 * for good, as do threads and host memory.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/prefetch.h"
#include "tests/support/short_memory.h"
#include "wake_scene.h"

static rvl_resuming *prepare(scene *s, const rvl_resume_options *options)
{
    rvl_resuming *wake = NULL;
    assert_int_equal(rvl_resume_start_prepare(s->context, &s->tag, 1, options, &wake), RVL_OK);
    assert_non_null(wake);
    return wake;
}

static rvl_status commit_and_finish(rvl_resuming *wake)
{
    assert_int_equal(rvl_resume_start_commit(wake), RVL_OK);
    return rvl_resume_finish(wake);
}

/* What a device itself says. */
static uint64_t taken_bytes(const scene *s, int device)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(rvl_device_get_memory(s->context, device, &free_bytes, &total_bytes), RVL_OK);
    return total_bytes - free_bytes;
}

/* ---- What is seen ---- */

static void check_prepared(scene *s)
{
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(scene_state(s, i), RVL_STATE_RESUMING);
    for (int device = 0; device < 2; device++) {
        rvl_device_stats stats = support_stats(s->context, device);
        assert_int_equal(stats.used_bytes, stats.kept_bytes);
        assert_int_equal(stats.used_bytes + stats.prepared_bytes, taken_bytes(s, device));
        assert_true(taken_bytes(s, device) >= 2 * BYTES);
        assert_int_equal(stats.resumes, 0);
    }
    assert_int_equal(s->arrived, 0);
    assert_int_equal(s->maps, 0);
}

static void nothing_arrives_before_the_commit(void **state)
{
    (void)state;
    for (size_t k = 0; k < LAYOUTS; k++) {
        scene s;
        scene_open_asleep(&s, layouts[k]);
        const rvl_addr order[] = {s.layers[3], s.layers[2], s.layers[1]};
        rvl_resume_options options = scene_told(&s);
        options.order = order;
        options.order_count = 3;
        rvl_resuming *wake = prepare(&s, &options);
        check_prepared(&s);
        usleep(2000);
        check_prepared(&s);
        assert_int_equal(commit_and_finish(wake), RVL_OK);
        if (layouts[k].coalesce_bytes == 0) {
            assert_int_equal(s.arrived, COUNT);
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(s.arrivals[i].addr, s.layers[COUNT - 1 - i]);
        }
        scene_check_awake(&s);
        assert_int_equal(s.maps, 1);
        for (int device = 0; device < 2; device++) {
            rvl_device_stats stats = support_stats(s.context, device);
            assert_int_equal(stats.prepared_bytes, 0);
            assert_int_equal(stats.used_bytes, taken_bytes(&s, device));
            assert_int_equal(stats.resumes, 2);
        }
        scene_close(&s);
    }
}

static void an_abort_takes_all_back(void **state)
{
    (void)state;
    for (size_t k = 0; k < LAYOUTS; k++) {
        scene s;
        rvl_device_stats before[2];
        uint64_t taken[2];
        scene_open_asleep(&s, layouts[k]);
        rvl_resume_options options = scene_told(&s);
        for (int device = 0; device < 2; device++) {
            before[device] = support_stats(s.context, device);
            taken[device] = taken_bytes(&s, device);
        }
        for (int round = 0; round < 3; round++) {
            assert_int_equal(rvl_resume_start_abort(prepare(&s, &options)), RVL_OK);
            for (int device = 0; device < 2; device++) {
                rvl_device_stats after = support_stats(s.context, device);
                assert_memory_equal(&after, &before[device], sizeof after);
                assert_int_equal(taken_bytes(&s, device), taken[device]);
            }
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(scene_state(&s, i), RVL_STATE_PAUSED);
            assert_int_equal(s.arrived, 0);
            assert_int_equal(s.maps, 0);
        }
        assert_int_equal(commit_and_finish(prepare(&s, &options)), RVL_OK);
        scene_check_awake(&s);
        scene_close(&s);
    }
}

static void nothing_may_move(void **state)
{
    (void)state;
    scene s;
    scene_open_awake(&s, layouts[0]);
    rvl_resume_options options = scene_told(&s);
    assert_int_equal(commit_and_finish(prepare(&s, &options)), RVL_OK);
    assert_int_equal(rvl_resume_start_abort(prepare(&s, &options)), RVL_OK);
    assert_int_equal(s.arrived, 0);
    assert_int_equal(s.maps, 0);
    scene_check_awake(&s);
    scene_close(&s);
}

/* An abort keeps the backup that the commit would have dropped. */
static void content_may_come_from_elsewhere(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resume_options options = scene_told(&s);
    options.flags = RVL_RESUME_NO_RESTORE;
    assert_int_equal(rvl_resume_start_abort(prepare(&s, &options)), RVL_OK);
    scene_check_asleep(&s);
    assert_int_equal(scene_resume(&s), RVL_OK);
    scene_check_awake(&s);
    assert_int_equal(scene_pause(&s), RVL_OK);
    assert_int_equal(commit_and_finish(prepare(&s, &options)), RVL_OK);
    assert_int_equal(s.arrived, COUNT);
    assert_int_equal(support_stats(s.context, 0).host_backup_bytes, 0);
    assert_false(scene_holds(&s, 0));
    scene_close(&s);
}

/* ---- Who is refused ---- */

static void expect_busy(rvl_status status)
{
    assert_int_equal(status, RVL_ERR_BUSY);
    assert_non_null(strstr(scene_error().message, "commit or abort"));
}

static void prepared_memory_is_nobody_elses(void **state)
{
    (void)state;
    scene s;
    rvl_resuming *wake = NULL, *other = NULL;
    rvl_transition *transition = NULL;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    scene_open_asleep(&s, layouts[0]);
    wake = prepare(&s, NULL);
    expect_busy(scene_pause(&s));
    assert_string_equal(scene_error().tag, "weights");
    expect_busy(scene_resume(&s));
    expect_busy(rvl_resume_prepare(s.context, NULL, 0, NULL, &transition));
    expect_busy(rvl_resume_start(s.context, &s.tag, 1, NULL, &other));
    expect_busy(rvl_resume_start_prepare(s.context, &s.tag, 1, NULL, &other));
    expect_busy(rvl_resume_forecast(s.context, &s.tag, 1, NULL, &forecast));
    expect_busy(rvl_allocation_wait(s.context, s.layers[0], RVL_WAIT_FOREVER));
    expect_busy(rvl_free(s.context, s.layers[0]));
    expect_busy(rvl_context_close(s.context, NULL));
    assert_null(transition);
    assert_null(other);

    /* The refused ones have claimed nothing, and all else goes on. */
    rvl_addr cache = support_alloc(s.context, "cache", 0, GRANULE, RVL_BACKUP_HOST);
    rvl_tag cache_tag = support_tag(s.context, "cache");
    support_fill(cache, GRANULE, 9);
    assert_int_equal(rvl_pause(s.context, &cache_tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume_start_prepare(s.context, &cache_tag, 1, NULL, &other), RVL_OK);
    assert_int_equal(commit_and_finish(other), RVL_OK);
    assert_true(support_holds(cache, GRANULE, 9));
    rvl_addr more = support_alloc(s.context, "weights", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rvl_free(s.context, more), RVL_OK);

    assert_int_equal(rvl_resume_start_commit(wake), RVL_OK);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_ERR_BUSY);
    assert_non_null(strstr(scene_error().message, "rvl_resume_finish"));
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

/* It waits while memory is made, and is told once that is prepared. */
static rvl_status begin_waiter(void *user, const rvl_transition *transition)
{
    (void)transition;
    waiter_begin(user);
    return RVL_OK;
}

static rvl_status resume_refused(scene *s)
{
    return scene_resume(s) == RVL_ERR_BUSY ? RVL_OK : RVL_ERR_STATE;
}

static void who_waits_is_refused_too(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    waiter w = {.s = &s, .call = resume_refused};
    const rvl_guard guard = {.struct_size = sizeof guard, .before = begin_waiter, .user = &w};
    assert_int_equal(rvl_context_set_guard(s.context, &guard), RVL_OK);
    rvl_resuming *wake = prepare(&s, NULL);
    waiter_end(&w);
    assert_int_equal(rvl_context_set_guard(s.context, NULL), RVL_OK);
    assert_int_equal(rvl_resume_start_abort(wake), RVL_OK);
    scene_check_asleep(&s);
    scene_close(&s);
}

/* From the commit on it is as any wake: others wait for it. */
static void others_wait_once_it_is_committed(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resume_options options = scene_told(&s);
    s.gated = true;
    rvl_resuming *wake = prepare(&s, &options);
    assert_int_equal(rvl_resume_start_commit(wake), RVL_OK);
    sem_wait(&s.first);
    assert_int_equal(rvl_allocation_wait(s.context, s.layers[0], 0), RVL_OK);
    assert_int_equal(rvl_allocation_wait(s.context, s.layers[1], 0), RVL_ERR_TIMEOUT);
    assert_int_equal(support_stats(s.context, 0).used_bytes, BYTES);
    assert_int_equal(support_stats(s.context, 0).prepared_bytes, 0);
    assert_true(scene_holds(&s, 0));
    waiter pausing = {.s = &s, .call = scene_pause};
    waiter_begin(&pausing);
    sem_post(&s.go_on);
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    waiter_end(&pausing);
    assert_int_equal(scene_state(&s, 0), RVL_STATE_PAUSED);
    s.arrived = 0;
    scene_check_asleep(&s);
    scene_check_recovers(&s);
}

static rvl_resuming *to_commit;

static rvl_status commit_elsewhere(scene *s)
{
    (void)s;
    return rvl_resume_start_commit(to_commit);
}

static void any_thread_may_commit(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    to_commit = prepare(&s, NULL);
    waiter w = {.s = &s, .call = commit_elsewhere};
    waiter_run(&w);
    waiter_end(&w);
    assert_int_equal(rvl_resume_finish(to_commit), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

/* ---- Bad input ---- */

static void wrong_calls_leave_the_handle(void **state)
{
    (void)state;
    scene s;
    rvl_resuming *wake = NULL;
    scene_open_asleep(&s, layouts[0]);
    const rvl_tag unknown = 99;
    const rvl_resume_options no_order = {.struct_size = sizeof no_order, .order_count = 1};
    const rvl_resume_options in_parts = {.struct_size = sizeof in_parts, .part_count = 2};
    assert_int_equal(rvl_resume_start_prepare(s.context, &s.tag, 1, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_start_prepare(NULL, &s.tag, 1, NULL, &wake), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_start_prepare(s.context, &unknown, 1, NULL, &wake),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_start_prepare(s.context, &s.tag, 1, &no_order, &wake),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_start_prepare(s.context, &s.tag, 1, &in_parts, &wake),
                     RVL_ERR_INVALID);
    assert_null(wake);
    assert_int_equal(rvl_resume_start_commit(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_start_abort(NULL), RVL_ERR_INVALID);

    wake = prepare(&s, NULL);
    assert_int_equal(rvl_resume_finish(wake), RVL_ERR_STATE);
    assert_non_null(strstr(scene_error().message, "rvl_resume_start_commit()"));
    check_prepared(&s);
    assert_int_equal(rvl_resume_start_commit(wake), RVL_OK);
    assert_int_equal(rvl_resume_start_commit(wake), RVL_ERR_STATE);
    assert_int_equal(rvl_resume_start_abort(wake), RVL_ERR_STATE);
    assert_non_null(strstr(scene_error().message, "rvl_resume_finish()"));
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    scene_check_awake(&s);

    assert_int_equal(scene_pause(&s), RVL_OK);
    wake = scene_start(&s, NULL);
    assert_int_equal(rvl_resume_start_commit(wake), RVL_ERR_STATE);
    assert_int_equal(rvl_resume_start_abort(wake), RVL_ERR_STATE);
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    scene_close(&s);
}

static void a_child_has_none(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = prepare(&s, NULL), *other = NULL;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(rvl_resume_start_commit(wake) != RVL_ERR_FORKED ||
              rvl_resume_start_abort(wake) != RVL_ERR_FORKED ||
              rvl_resume_finish(wake) != RVL_ERR_FORKED ||
              rvl_resume_start_prepare(s.context, &s.tag, 1, NULL, &other) != RVL_ERR_FORKED);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_prepared(&s);
    assert_int_equal(commit_and_finish(wake), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

typedef struct asked {
    rvl_resuming *other;
    rvl_context *context;
    rvl_status prepare, commit, abort;
} asked;

static void ask_from_callback(void *user, rvl_tag tag)
{
    asked *a = user;
    rvl_resuming *wake = NULL;
    a->prepare = rvl_resume_start_prepare(a->context, &tag, 1, NULL, &wake);
    a->commit = rvl_resume_start_commit(a->other);
    a->abort = rvl_resume_start_abort(a->other);
}

static void callbacks_may_not_end_it(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_tag cache = 0;
    asked a = {.context = s.context, .other = prepare(&s, NULL)};
    const rvl_tag_options options = {
        .struct_size = sizeof options, .after_map = ask_from_callback, .callback_user = &a};
    assert_int_equal(rvl_tag_define(s.context, "cache", &options, &cache), RVL_OK);
    (void)support_alloc(s.context, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rvl_pause(s.context, &cache, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(s.context, &cache, 1, NULL), RVL_OK);
    assert_int_equal(a.prepare, RVL_ERR_STATE);
    assert_int_equal(a.commit, RVL_ERR_STATE);
    assert_int_equal(a.abort, RVL_ERR_STATE);
    assert_int_equal(scene_state(&s, 0), RVL_STATE_RESUMING);
    assert_int_equal(commit_and_finish(a.other), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

/* ---- What fails ---- */

static void lack_of_memory_changes_nothing(void **state)
{
    (void)state;
    scene s;
    rvl_resuming *wake = NULL;
    scene_open_asleep(&s, layouts[0]);
    rvl_resume_options options = scene_told(&s);
    assert_int_equal(rvl_external_set(s.context, 1, "neighbour", CAPACITY - BYTES), RVL_OK);
    assert_int_equal(rvl_resume_start_prepare(s.context, &s.tag, 1, &options, &wake),
                     RVL_ERR_DEVICE_OOM);
    assert_int_equal(scene_error().requested_bytes, 2 * BYTES);
    assert_int_equal(scene_error().free_bytes, BYTES);
    options.timeout_ns = 1;
    assert_int_equal(rvl_resume_start_prepare(s.context, &s.tag, 1, &options, &wake),
                     RVL_ERR_TIMEOUT);
    scene_no_thread = true;
    assert_int_equal(rvl_external_set(s.context, 1, "neighbour", 0), RVL_OK);
    assert_int_equal(rvl_resume_start_prepare(s.context, &s.tag, 1, &options, &wake),
                     RVL_ERR_HOST_OOM);
    assert_non_null(strstr(scene_error().message, "no thread"));
    assert_null(wake);
    scene_check_asleep(&s);
    assert_int_equal(support_stats(s.context, 0).prepared_bytes, 0);

    /* The commit needs none. */
    scene_no_thread = false;
    wake = prepare(&s, &options);
    scene_no_thread = true;
    assert_int_equal(commit_and_finish(wake), RVL_OK);
    scene_no_thread = false;
    scene_check_awake(&s);
    scene_close(&s);
}

/* Refuses the n-th request of the prepare. false: it made fewer. */
static bool prepare_is_refused(uint64_t n)
{
    scene s;
    rvl_resuming *wake = NULL;
    scene_open_asleep(&s, layouts[0]);
    const rvl_addr order[] = {s.layers[2]};
    rvl_resume_options options = scene_told(&s);
    options.order = order;
    options.order_count = 1;
    short_memory_refuse_nth(n);
    rvl_status status = rvl_resume_start_prepare(s.context, &s.tag, 1, &options, &wake);
    short_memory_refuse_nth(0);
    bool refused = status != RVL_OK;
    assert_int_equal(status, refused ? RVL_ERR_HOST_OOM : RVL_OK);
    assert_int_equal(wake == NULL, refused);
    if (wake != NULL)
        assert_int_equal(rvl_resume_start_abort(wake), RVL_OK);
    scene_check_asleep(&s);
    scene_check_recovers(&s);
    return refused;
}

/* Refuses the n-th request of what follows. false: it made fewer. */
static bool rest_is_refused(uint64_t n, bool commits, uint64_t *failures)
{
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resume_options options = scene_told(&s);
    rvl_resuming *wake = prepare(&s, &options);
    rvl_status status = RVL_OK;
    short_memory_refuse_nth(n);
    if (commits)
        status = commit_and_finish(wake);
    else
        assert_int_equal(rvl_resume_start_abort(wake), RVL_OK);
    bool refused = short_memory_has_refused();
    short_memory_refuse_nth(0);
    assert_true(status == RVL_OK || (status == RVL_ERR_HOST_OOM && refused));
    assert_int_equal(s.arrived == COUNT, commits && status == RVL_OK);
    *failures += status != RVL_OK;
    scene_check_recovers(&s);
    return refused;
}

static void without_host_memory_nothing_is_lost(void **state)
{
    (void)state;
    uint64_t failures = 0, n = 1;
    while (prepare_is_refused(n))
        n++;
    assert_true(n > 6); /* handle, tags, items, order, batches, arrivals, thread */
    for (n = 1; rest_is_refused(n, true, &failures); n++)
        continue;
    assert_true(failures >= COUNT); /* digests of each layer */
    for (n = 1; rest_is_refused(n, false, &failures); n++)
        continue;
}

static void a_late_failure_takes_nothing_back(void **state)
{
    (void)state;
    for (int bad = 0; bad < COUNT; bad++) {
        scene s;
        scene_open_asleep(&s, layouts[0]);
        scene_damage(&s, bad);
        rvl_resume_options options = scene_told(&s);
        assert_int_equal(commit_and_finish(prepare(&s, &options)), RVL_ERR_DIGEST_MISMATCH);
        assert_string_equal(scene_error().tag, "weights");
        assert_int_equal(s.arrived, bad);
        assert_int_equal(s.maps, 0);
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(scene_state(&s, i), i < bad ? RVL_STATE_ACTIVE : RVL_STATE_PAUSED);
        scene_damage(&s, bad);
        assert_int_equal(commit_and_finish(prepare(&s, NULL)), RVL_OK);
        scene_check_awake(&s);
        scene_close(&s);
    }
}

typedef rvl_status (*end_fn)(rvl_resuming *wake);

/* false: the calls made fewer than n ops. */
static bool fails(layout how, const fault_plan *plan, end_fn end)
{
    scene s;
    rvl_resuming *wake = NULL;
    scene_open_asleep(&s, how);
    rvl_resume_options options = scene_told(&s);
    fault_set(s.fault, plan);
    rvl_status status = rvl_resume_start_prepare(s.context, &s.tag, 1, &options, &wake);
    bool prepared = status == RVL_OK;
    assert_int_equal(wake != NULL, prepared);
    if (prepared)
        status = end(wake);
    bool hit = fault_failures(s.fault) > 0;
    fault_set(s.fault, &(fault_plan){0});
    assert_true(hit || status == RVL_OK);
    if (status != RVL_OK)
        assert_int_equal(scene_error().status, status);
    int active = 0;
    for (int i = 0; i < COUNT; i++) {
        active += scene_state(&s, i) == RVL_STATE_ACTIVE;
        if (!plan->for_good)
            assert_int_not_equal(scene_state(&s, i), RVL_STATE_LOST);
    }
    assert_true(active == 0 || (prepared && end == commit_and_finish));
    assert_true(status != RVL_OK || active == (end == commit_and_finish ? COUNT : 0));
    for (int device = 0; device < 2; device++)
        assert_int_equal(support_stats(s.context, device).prepared_bytes, 0);
    scene_check_recovers(&s);
    return hit;
}

static const end_fn ends[] = {commit_and_finish, rvl_resume_start_abort};

static void every_op_fails_once(void **state)
{
    (void)state;
    const uint64_t ops = ALL_OPS & ~(UINT64_C(1) << RVLI_OP_memory_info);
    for (size_t k = 0; k < (size_t)2 * LAYOUTS; k++) {
        uint64_t n = 1;
        while (fails(layouts[k / 2], &(fault_plan){.op_mask = ops, .countdown = n}, ends[k % 2]))
            n++;
        assert_true(n > 10);
    }
}

static void every_op_fails_for_good(void **state)
{
    (void)state;
    for (size_t k = 0; k < (size_t)2 * LAYOUTS; k++)
        for (int op = 0; op < RVLI_OP_COUNT; op++) {
            fault_plan plan = {.op_mask = UINT64_C(1) << op, .countdown = 1, .for_good = true};
            while (fails(layouts[k / 2], &plan, ends[k % 2]))
                plan.countdown++;
        }
}

static void the_device_is_lost(void **state)
{
    (void)state;
    for (size_t k = 0; k < (size_t)2 * LAYOUTS; k++) {
        fault_plan plan = {
            .op_mask = ALL_OPS, .countdown = 1, .for_good = true, .status = RVL_ERR_DEVICE_LOST};
        while (fails(layouts[k / 2], &plan, ends[k % 2]))
            plan.countdown++;
    }
}

/* Nothing arrives then, and nothing is lost either. */
static void a_commit_succeeds_whatever_fails(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resume_options options = scene_told(&s);
    rvl_resuming *wake = prepare(&s, &options);
    fault_set(s.fault, &(fault_plan){.op_mask = ALL_OPS, .countdown = 1, .for_good = true});
    assert_int_equal(rvl_resume_start_commit(wake), RVL_OK);
    assert_int_not_equal(rvl_resume_finish(wake), RVL_OK);
    fault_set(s.fault, &(fault_plan){0});
    assert_int_equal(s.arrived, 0);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(scene_state(&s, i), RVL_STATE_LOST);
    scene_check_recovers(&s);
}

static void an_abort_that_fails_loses_no_content(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = prepare(&s, NULL);
    const uint64_t unmap = UINT64_C(1) << RVLI_OP_unmap;
    fault_set(s.fault, &(fault_plan){.op_mask = unmap, .countdown = 1, .for_good = true});
    rvl_status status = rvl_resume_start_abort(wake);
    fault_set(s.fault, &(fault_plan){0});
    assert_int_not_equal(status, RVL_OK);
    assert_int_equal(scene_error().status, status);
    assert_string_equal(scene_error().op, "unmap");
    assert_string_equal(scene_error().tag, "weights");
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(scene_state(&s, i), RVL_STATE_LOST);
    scene_check_recovers(&s);
}

/* ---- Who is told ---- */

static void the_guard_hears_how_it_ends(void **state)
{
    (void)state;
    scene s;
    watch w = {0};
    rvl_resuming *wake = NULL;
    scene_open_asleep(&s, layouts[0]);
    const rvl_guard no = watch_refusing_guard(), guard = watch_guard(&w);
    assert_int_equal(rvl_context_set_guard(s.context, &no), RVL_OK);
    assert_int_equal(rvl_resume_start_prepare(s.context, &s.tag, 1, NULL, &wake), RVL_ERR_VETOED);
    assert_null(wake);
    scene_check_asleep(&s);
    assert_int_equal(rvl_context_set_guard(s.context, &guard), RVL_OK);
    wake = prepare(&s, NULL);
    assert_int_equal(w.before, 1);
    assert_int_equal(w.done + w.undone, 0);
    assert_int_equal(rvl_resume_start_abort(wake), RVL_OK);
    assert_int_equal(w.undone, 1);
    assert_int_equal(commit_and_finish(prepare(&s, NULL)), RVL_OK);
    assert_int_equal(w.before, 2);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.undone, 1);
    scene_close(&s);
}

static void a_recording_has_what_was_committed(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    scene_record(&s);
    assert_int_equal(rvl_resume_start_abort(prepare(&s, NULL)), RVL_OK);
    assert_int_equal(commit_and_finish(prepare(&s, NULL)), RVL_OK);
    assert_int_equal(scene_close_recorded(&s), 1);
}

/* The time in which it is held is nobody's transition. */
static void waiting_for_the_commit_is_not_charged(void **state)
{
    (void)state;
    const uint64_t held_ns = 1000000000;
    uint64_t spent_ns[2] = {0};
    for (int held = 0; held < 2; held++) {
        rvl_context *context = support_open(
            (support_options){.memory = RVL_SIM_ACCOUNTED, .capacity_bytes = 8 * GIB}, NULL);
        (void)support_alloc(context, "weights", 0, GIB, RVL_BACKUP_HOST);
        rvl_tag tag = support_tag(context, "weights");
        assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
        uint64_t before_ns = support_stats(context, 0).transition_ns;
        rvl_resuming *wake = NULL;
        assert_int_equal(rvl_resume_start_prepare(context, &tag, 1, NULL, &wake), RVL_OK);
        assert_int_equal(rvl_private_let_pass(context, held ? held_ns : 0), RVL_OK);
        assert_int_equal(commit_and_finish(wake), RVL_OK);
        spent_ns[held] = support_stats(context, 0).transition_ns - before_ns;
        assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    }
    assert_true(spent_ns[0] > 0);
    assert_int_equal(spent_ns[1], spent_ns[0]);
}

/* ---- Many threads ---- */

#define ROUNDS 40

static void *prepare_and_end(void *argument)
{
    scene *s = argument;
    for (int round = 0; round < ROUNDS; round++) {
        rvl_resuming *wake = NULL;
        rvl_status status = rvl_resume_start_prepare(s->context, &s->tag, 1, NULL, &wake);
        if (status == RVL_ERR_BUSY)
            continue;
        assert_int_equal(status, RVL_OK);
        if (round % 3 == 0) {
            assert_int_equal(rvl_resume_start_abort(wake), RVL_OK);
            continue;
        }
        assert_int_equal(rvl_resume_start_commit(wake), RVL_OK);
        status = scene_pause(s); /* once the wake has ended */
        assert_true(status == RVL_OK || status == RVL_ERR_BUSY);
        assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    }
    return NULL;
}

static void *wait_for_layers(void *argument)
{
    scene *s = argument;
    for (int round = 0; round < ROUNDS * COUNT; round++) {
        rvl_status status = rvl_allocation_wait(s->context, s->layers[round % COUNT], 1000000);
        assert_true(status == RVL_OK || status == RVL_ERR_TIMEOUT || status == RVL_ERR_STATE ||
                    status == RVL_ERR_BUSY);
    }
    return NULL;
}

static void threads_prepare_commit_and_wait(void **state)
{
    (void)state;
    scene s;
    pthread_t threads[3];
    void *(*const runs[])(void *) = {prepare_and_end, prepare_and_end, wait_for_layers};
    scene_open_asleep(&s, layouts[0]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, runs[i], &s), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    scene_check_recovers(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_arrives_before_the_commit),
        cmocka_unit_test(an_abort_takes_all_back),
        cmocka_unit_test(nothing_may_move),
        cmocka_unit_test(content_may_come_from_elsewhere),
        cmocka_unit_test(prepared_memory_is_nobody_elses),
        cmocka_unit_test(who_waits_is_refused_too),
        cmocka_unit_test(others_wait_once_it_is_committed),
        cmocka_unit_test(any_thread_may_commit),
        cmocka_unit_test(wrong_calls_leave_the_handle),
        cmocka_unit_test(a_child_has_none),
        cmocka_unit_test(callbacks_may_not_end_it),
        cmocka_unit_test(lack_of_memory_changes_nothing),
        cmocka_unit_test(without_host_memory_nothing_is_lost),
        cmocka_unit_test(a_late_failure_takes_nothing_back),
        cmocka_unit_test(every_op_fails_once),
        cmocka_unit_test(every_op_fails_for_good),
        cmocka_unit_test(the_device_is_lost),
        cmocka_unit_test(a_commit_succeeds_whatever_fails),
        cmocka_unit_test(an_abort_that_fails_loses_no_content),
        cmocka_unit_test(the_guard_hears_how_it_ends),
        cmocka_unit_test(a_recording_has_what_was_committed),
        cmocka_unit_test(waiting_for_the_commit_is_not_charged),
        cmocka_unit_test(threads_prepare_commit_and_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
