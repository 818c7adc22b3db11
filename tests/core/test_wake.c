/* SPDX-License-Identifier: MIT */
/*
 * A wake in order: what arrives when, who may use it meanwhile and who waits, and what stays when a
 * later piece fails. Every op fails once and for good, as do threads, host memory and the disk.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/short_memory.h"
#include "wake_scene.h"

/* A wake that has handed over its first piece and stands still. */
static rvl_resuming *start_gated(scene *s, const rvl_addr *order, size_t order_count)
{
    rvl_resume_options options = scene_told(s);
    options.order = order;
    options.order_count = order_count;
    s->gated = true;
    rvl_resuming *wake = scene_start(s, &options);
    sem_wait(&s->first);
    return wake;
}

/* ---- Order ---- */

static void arrivals_follow_the_order(void **state)
{
    (void)state;
    for (size_t k = 0; k < LAYOUTS; k++) {
        if (layouts[k].coalesce_bytes > 0)
            continue;
        scene s;
        scene_open_asleep(&s, layouts[k]);
        /* An inner address, one of nobody's, and one twice; the first layer is left to the end. */
        const rvl_addr order[] = {s.layers[3], s.layers[2] + GRANULE + 5, 4096, s.layers[3],
                                  s.layers[1]};
        const int expected[] = {3, 2, 1, 0};
        rvl_resume_options options = scene_told(&s);
        options.order = order;
        options.order_count = sizeof order / sizeof *order;
        uint64_t begin_ns = rvl_clock_ns(s.context), before_ns = begin_ns;
        assert_int_equal(rvl_resume_finish(scene_start(&s, &options)), RVL_OK);
        assert_int_equal(s.arrived, COUNT);
        for (int i = 0; i < COUNT; i++) {
            const rvl_arrival *arrival = &s.arrivals[i];
            assert_int_equal(arrival->addr, s.layers[expected[i]]);
            assert_int_equal(arrival->size_bytes, BYTES);
            assert_int_equal(arrival->device, expected[i] % 2);
            assert_int_equal(arrival->tag, s.tag);
            assert_true(arrival->time_ns >= before_ns);
            before_ns = arrival->time_ns;
        }
        assert_true(s.arrivals[0].time_ns > begin_ns);
        scene_check_awake(&s);
        assert_int_equal(s.maps, 1);
        assert_int_equal(support_stats(s.context, 0).resumes, 2);
        scene_close(&s);
    }
}

static void without_an_order_the_oldest_comes_first(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resume_options options = scene_told(&s);
    assert_int_equal(rvl_resume_finish(scene_start(&s, &options)), RVL_OK);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(s.arrivals[i].addr, s.layers[i]);
    scene_close(&s);
}

/* Riders arrive with the memory that they share, wherever the order names them. */
static void riders_arrive_with_their_carrier(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[2]);
    const rvl_addr order[] = {s.layers[3]};
    rvl_resume_options options = scene_told(&s);
    options.order = order;
    options.order_count = 1;
    assert_int_equal(rvl_resume_finish(scene_start(&s, &options)), RVL_OK);
    assert_int_equal(s.arrived, 2);
    assert_int_equal(s.arrivals[0].device, 1);
    assert_int_equal(s.arrivals[0].size_bytes, 8 * GRANULE);
    assert_in_range(s.layers[3], s.arrivals[0].addr, s.arrivals[0].addr + 8 * GRANULE - BYTES);
    scene_check_awake(&s);
    scene_close(&s);
}

/* Any resume takes an order; only what comes one by one has arrivals. */
static void every_resume_takes_an_order(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    const rvl_addr order[] = {s.layers[2]};
    const rvl_resume_options options = {
        .struct_size = sizeof options, .order = order, .order_count = 1};
    assert_int_equal(rvl_resume(s.context, &s.tag, 1, &options), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

/* On the simulated clock the first arrives when its own copy has, the last with the whole. */
static void simulated_times_are_those_of_the_copies(void **state)
{
    (void)state;
    const uint64_t bytes = 4 * GIB;
    scene s;
    memset(&s, 0, sizeof s);
    s.context = support_open(
        (support_options){.memory = RVL_SIM_ACCOUNTED, .capacity_bytes = bytes * 2 * COUNT}, NULL);
    for (int i = 0; i < COUNT; i++)
        s.layers[i] = support_alloc(s.context, "weights", 0, bytes, RVL_BACKUP_HOST);
    s.tag = support_tag(s.context, "weights");
    assert_int_equal(rvl_pause(s.context, &s.tag, 1, NULL), RVL_OK);
    rvl_forecast whole = {.struct_size = sizeof whole};
    assert_int_equal(rvl_resume_forecast(s.context, &s.tag, 1, NULL, &whole), RVL_OK);

    rvl_resume_options options = scene_told(&s);
    uint64_t begin_ns = rvl_clock_ns(s.context);
    assert_int_equal(rvl_resume_finish(scene_start(&s, &options)), RVL_OK);
    assert_in_range(rvl_clock_ns(s.context) - begin_ns, whole.time_ns,
                    whole.time_ns + whole.time_ns / 100); /* memory is made before the copies */
    for (int i = 0; i < COUNT; i++) {
        uint64_t part_ns = s.arrivals[i].time_ns - begin_ns;
        uint64_t share_ns = whole.time_ns * (uint64_t)(i + 1) / COUNT;
        assert_in_range(part_ns, share_ns - share_ns / 100, share_ns + whole.time_ns / 100);
    }
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
}

/* ---- While it goes on ---- */

static void what_has_arrived_is_usable(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = start_gated(&s, NULL, 0);
    assert_int_equal(scene_state(&s, 0), RVL_STATE_ACTIVE);
    assert_true(scene_holds(&s, 0));
    assert_int_equal(rvl_allocation_wait(s.context, s.layers[0] + BYTES - 1, 0), RVL_OK);
    for (int i = 1; i < COUNT; i++) {
        assert_int_equal(scene_state(&s, i), RVL_STATE_RESUMING);
        assert_int_equal(rvl_allocation_wait(s.context, s.layers[i], 0), RVL_ERR_TIMEOUT);
        assert_int_equal(rvl_allocation_wait(s.context, s.layers[i], 1000000), RVL_ERR_TIMEOUT);
    }
    assert_string_equal(scene_error().tag, "weights");
    assert_int_equal(support_stats(s.context, 0).resumes, 1);
    assert_int_equal(support_stats(s.context, 0).used_bytes, BYTES);
    assert_int_equal(s.maps, 0);

    /* Its owner may free it and allocate in the tag; the context stays. */
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_ERR_BUSY);
    assert_non_null(strstr(scene_error().message, "rvl_resume_finish"));
    assert_int_equal(rvl_free(s.context, s.layers[0]), RVL_OK);
    s.layers[0] = support_alloc(s.context, "weights", 0, BYTES, RVL_BACKUP_HOST);
    support_fill(s.layers[0], BYTES, 0);
    sem_post(&s.go_on);
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    scene_check_awake(&s);
    assert_int_equal(s.maps, 1);
    assert_int_equal(support_stats(s.context, 0).host_backup_bytes, 0);
    scene_close(&s);
}

static rvl_status wait_for_last(scene *s)
{
    return rvl_allocation_wait(s->context, s->layers[COUNT - 1], RVL_WAIT_FOREVER);
}

static rvl_status free_last(scene *s)
{
    return rvl_free(s->context, s->layers[COUNT - 1]);
}

static void others_wait_for_what_is_on_its_way(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = start_gated(&s, NULL, 0);
    waiter waiting = {.s = &s, .call = wait_for_last}, resuming = {.s = &s, .call = scene_resume};
    waiter_begin(&waiting);
    waiter_begin(&resuming);
    sem_post(&s.go_on);
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    waiter_end(&waiting);
    waiter_end(&resuming);
    scene_check_awake(&s);

    assert_int_equal(scene_pause(&s), RVL_OK);
    s.arrived = 0;
    wake = start_gated(&s, NULL, 0);
    waiter freeing = {.s = &s, .call = free_last}, pausing = {.s = &s, .call = scene_pause};
    waiter_begin(&freeing);
    waiter_begin(&pausing);
    sem_post(&s.go_on);
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    waiter_end(&freeing);
    waiter_end(&pausing);
    assert_int_equal(scene_state(&s, 0), RVL_STATE_PAUSED);
    rvl_allocation gone = {.struct_size = sizeof gone};
    assert_int_equal(rvl_allocation_find(s.context, s.layers[COUNT - 1], &gone), RVL_ERR_NOT_FOUND);
    scene_close(&s);
}

static void other_tags_go_on(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_addr cache = support_alloc(s.context, "cache", 0, GRANULE, RVL_BACKUP_HOST);
    support_fill(cache, GRANULE, 9);
    rvl_tag cache_tag = support_tag(s.context, "cache");
    rvl_resuming *wake = start_gated(&s, NULL, 0), *other = NULL;
    assert_int_equal(rvl_pause(s.context, &cache_tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume_start(s.context, &cache_tag, 1, NULL, &other), RVL_OK);
    assert_int_equal(rvl_resume_finish(other), RVL_OK);
    assert_true(support_holds(cache, GRANULE, 9));
    sem_post(&s.go_on);
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    scene_close(&s);
}

typedef struct asked {
    rvl_resuming **wake;
    scene *s;
    rvl_status finish, wait, ask;
} asked;

static void ask_from_callback(void *user, const rvl_arrival *arrival)
{
    asked *a = user;
    if (arrival->addr != a->s->layers[0])
        return;
    sem_wait(&a->s->go_on);
    a->finish = rvl_resume_finish(*a->wake);
    a->wait = rvl_allocation_wait(a->s->context, a->s->layers[1], 1);
    a->ask = rvl_allocation_wait(a->s->context, a->s->layers[0], 0);
}

static void callbacks_may_ask_and_not_wait(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = NULL;
    asked a = {.wake = &wake, .s = &s, .ask = 1};
    const rvl_resume_options options = {
        .struct_size = sizeof options, .arrived = ask_from_callback, .arrived_user = &a};
    wake = scene_start(&s, &options);
    sem_post(&s.go_on);
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    assert_int_equal(a.finish, RVL_ERR_STATE);
    assert_int_equal(a.wait, RVL_ERR_STATE);
    assert_int_equal(a.ask, RVL_OK);
    scene_close(&s);
}

/* ---- Bad input ---- */

static void wrong_calls_change_nothing(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = NULL;
    rvl_transition *transition = NULL;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    const rvl_resume_options listening = scene_told(&s);
    const rvl_resume_options no_order = {.struct_size = sizeof no_order, .order_count = 1};
    const rvl_tag unknown = 99;
    assert_int_equal(rvl_resume_start(s.context, &s.tag, 1, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_start(NULL, &s.tag, 1, NULL, &wake), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_start(s.context, &unknown, 1, NULL, &wake), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_start(s.context, &s.tag, 1, &no_order, &wake), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume(s.context, &s.tag, 1, &no_order), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume(s.context, &s.tag, 1, &listening), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_prepare(s.context, &s.tag, 1, &listening, &transition),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_forecast(s.context, &s.tag, 1, &listening, &forecast),
                     RVL_ERR_INVALID);
    assert_non_null(strstr(scene_error().message, "rvl_resume_start"));
    assert_null(wake);
    assert_int_equal(rvl_resume_finish(NULL), RVL_ERR_INVALID);

    assert_int_equal(rvl_allocation_wait(NULL, s.layers[0], 0), RVL_ERR_INVALID);
    assert_int_equal(rvl_allocation_wait(s.context, 4096, 0), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_allocation_wait(s.context, s.layers[0], RVL_WAIT_FOREVER), RVL_ERR_STATE);
    assert_int_equal(rvl_resume_prepare(s.context, &s.tag, 1, NULL, &transition), RVL_OK);
    assert_int_equal(rvl_allocation_wait(s.context, s.layers[0], RVL_WAIT_FOREVER), RVL_ERR_BUSY);
    assert_int_equal(rvl_transition_abort(transition), RVL_OK);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(scene_state(&s, i), RVL_STATE_PAUSED);
    scene_close(&s);
}

static void a_child_has_no_wake(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = start_gated(&s, NULL, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(rvl_resume_finish(wake) != RVL_ERR_FORKED ||
              rvl_allocation_wait(s.context, s.layers[1], RVL_WAIT_FOREVER) != RVL_ERR_FORKED);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    sem_post(&s.go_on);
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

static void nothing_may_move(void **state)
{
    (void)state;
    scene s;
    scene_open_awake(&s, layouts[0]);
    const rvl_addr order[] = {s.layers[0]};
    rvl_resume_options options = scene_told(&s);
    options.order = order;
    options.order_count = 1;
    assert_int_equal(rvl_resume_finish(scene_start(&s, &options)), RVL_OK);
    assert_int_equal(s.arrived, 0);
    assert_int_equal(s.maps, 0);
    scene_close(&s);
}

static void content_may_come_from_elsewhere(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resume_options options = scene_told(&s);
    options.flags = RVL_RESUME_NO_RESTORE;
    assert_int_equal(rvl_resume_finish(scene_start(&s, &options)), RVL_OK);
    assert_int_equal(s.arrived, COUNT);
    assert_int_equal(support_stats(s.context, 0).host_backup_bytes, 0);
    assert_int_equal(support_stats(s.context, 0).backup_in_bytes, 0);
    assert_false(scene_holds(&s, 0));
    scene_close(&s);
}

/* ---- What fails ---- */

/* Nothing is handed over before there is memory for all. */
static void lack_of_memory_changes_nothing(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = NULL;
    rvl_resume_options options = scene_told(&s);
    assert_int_equal(rvl_external_set(s.context, 1, "neighbour", CAPACITY - BYTES), RVL_OK);
    assert_int_equal(rvl_resume_start(s.context, &s.tag, 1, &options, &wake), RVL_ERR_DEVICE_OOM);
    assert_int_equal(scene_error().requested_bytes, 2 * BYTES);
    assert_int_equal(scene_error().free_bytes, BYTES);
    options.timeout_ns = 1;
    assert_int_equal(rvl_resume_start(s.context, &s.tag, 1, &options, &wake), RVL_ERR_TIMEOUT);
    assert_null(wake);
    assert_int_equal(rvl_external_set(s.context, 1, "neighbour", 0), RVL_OK);
    scene_check_asleep(&s);
    assert_int_equal(rvl_resume_finish(scene_start(&s, &options)), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

static void without_a_thread_nothing_changes(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    rvl_resuming *wake = NULL;
    scene_no_thread = true;
    assert_int_equal(rvl_resume_start(s.context, &s.tag, 1, NULL, &wake), RVL_ERR_HOST_OOM);
    scene_no_thread = false;
    assert_non_null(strstr(scene_error().message, "no thread"));
    scene_check_asleep(&s);
    assert_int_equal(rvl_resume_finish(scene_start(&s, NULL)), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

static void without_host_memory_nothing_is_lost(void **state)
{
    (void)state;
    bool refused = true;
    int refusals = 0;
    for (uint64_t n = 1; refused; n++) {
        scene s;
        scene_open_asleep(&s, layouts[0]);
        const rvl_addr order[] = {s.layers[2]};
        rvl_resume_options options = scene_told(&s);
        options.order = order;
        options.order_count = 1;
        rvl_resuming *wake = NULL;
        short_memory_refuse_nth(n);
        rvl_status status = rvl_resume_start(s.context, &s.tag, 1, &options, &wake);
        if (status != RVL_OK) {
            short_memory_refuse_nth(0);
            assert_null(wake);
            scene_check_asleep(&s);
        } else {
            status = rvl_resume_finish(wake);
        }
        refused = status != RVL_OK;
        short_memory_refuse_nth(0);
        assert_int_equal(status, refused ? RVL_ERR_HOST_OOM : RVL_OK);
        refusals += refused;
        scene_check_recovers(&s);
    }
    assert_true(refusals >= 8); /* handle, tags, items, order, batches, arrivals, digests, thread */
}

/* What had arrived stays, what had not is asleep with its backup, and a second resume goes on. */
static void a_late_failure_takes_nothing_back(void **state)
{
    (void)state;
    for (int bad = 0; bad < COUNT; bad++) {
        scene s;
        scene_open_asleep(&s, layouts[0]);
        scene_damage(&s, bad);
        rvl_resume_options options = scene_told(&s);
        rvl_resuming *wake = scene_start(&s, &options);
        assert_int_equal(rvl_resume_finish(wake), RVL_ERR_DIGEST_MISMATCH);
        assert_int_equal(scene_error().status, RVL_ERR_DIGEST_MISMATCH);
        assert_string_equal(scene_error().tag, "weights");
        assert_string_equal(scene_error().op, "digest");
        assert_int_equal(s.arrived, bad);
        assert_int_equal(s.maps, 0);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(scene_state(&s, i), i < bad ? RVL_STATE_ACTIVE : RVL_STATE_PAUSED);
            assert_true(i >= bad || scene_holds(&s, i));
            rvl_status waited = rvl_allocation_wait(s.context, s.layers[i], RVL_WAIT_FOREVER);
            assert_int_equal(waited, i < bad ? RVL_OK : RVL_ERR_STATE);
        }
        uint64_t used =
            support_stats(s.context, 0).used_bytes + support_stats(s.context, 1).used_bytes;
        assert_int_equal(used, (uint64_t)bad * BYTES);
        rvl_host_memory host = {.struct_size = sizeof host};
        assert_int_equal(rvl_host_get_memory(s.context, &host), RVL_OK);
        assert_int_equal(host.used_bytes, (uint64_t)(COUNT - bad) * BYTES);
        scene_damage(&s, bad);
        assert_int_equal(scene_resume(&s), RVL_OK);
        scene_check_awake(&s);
        assert_int_equal(s.maps, 1);
        scene_close(&s);
    }
}

/* A tag of which a part is awake can also be paused again. */
static void half_a_wake_can_be_paused(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    scene_damage(&s, 2);
    assert_int_equal(rvl_resume_finish(scene_start(&s, NULL)), RVL_ERR_DIGEST_MISMATCH);
    assert_int_equal(scene_pause(&s), RVL_OK);
    scene_damage(&s, 2);
    scene_check_asleep(&s);
    assert_int_equal(rvl_resume_finish(scene_start(&s, NULL)), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

static void every_read_fails_once(void **state)
{
    (void)state;
    int failures = 0;
    for (int n = 1; n <= COUNT + 1; n++) {
        scene s;
        scene_open_asleep(&s, layouts[4]);
        rvl_resume_options options = scene_told(&s);
        scene_fail_read = n;
        rvl_status status = rvl_resume_finish(scene_start(&s, &options));
        bool hit = scene_fail_read == 0;
        scene_fail_read = 0;
        assert_int_equal(status, hit ? RVL_ERR_IO : RVL_OK);
        assert_int_equal(s.arrived < COUNT, hit);
        failures += hit;
        scene_check_recovers(&s);
    }
    assert_int_equal(failures, COUNT);
}

/* false: the call made fewer than n ops. */
static bool fails(layout how, const fault_plan *plan)
{
    scene s;
    scene_open_asleep(&s, how);
    rvl_resume_options options = scene_told(&s);
    rvl_resuming *wake = NULL;
    fault_set(s.fault, plan);
    rvl_status status = rvl_resume_start(s.context, &s.tag, 1, &options, &wake);
    bool started = status == RVL_OK;
    if (started)
        status = rvl_resume_finish(wake);
    bool hit = fault_failures(s.fault) > 0;
    fault_set(s.fault, &(fault_plan){0});
    if (status != RVL_OK)
        assert_int_equal(scene_error().status, status);
    int active = 0;
    for (int i = 0; i < COUNT; i++) {
        active += scene_state(&s, i) == RVL_STATE_ACTIVE;
        if (!plan->for_good && status != RVL_OK)
            assert_int_not_equal(scene_state(&s, i), RVL_STATE_LOST);
    }
    assert_true(started || active == 0);
    assert_true(status != RVL_OK || active == COUNT);
    if (how.coalesce_bytes == 0)
        assert_int_equal(active, s.arrived);
    scene_check_recovers(&s);
    return hit;
}

static void every_op_fails_once(void **state)
{
    (void)state;
    const uint64_t ops = ALL_OPS & ~(UINT64_C(1) << RVLI_OP_memory_info);
    for (size_t k = 0; k < LAYOUTS; k++) {
        uint64_t n = 1;
        while (fails(layouts[k], &(fault_plan){.op_mask = ops, .countdown = n}))
            n++;
        assert_true(n > 10);
    }
}

static void every_op_fails_for_good(void **state)
{
    (void)state;
    for (size_t k = 0; k < LAYOUTS; k++)
        for (int op = 0; op < RVLI_OP_COUNT; op++) {
            fault_plan plan = {.op_mask = UINT64_C(1) << op, .countdown = 1, .for_good = true};
            while (fails(layouts[k], &plan))
                plan.countdown++;
        }
}

static void the_device_is_lost(void **state)
{
    (void)state;
    for (size_t k = 0; k < LAYOUTS; k++) {
        fault_plan plan = {
            .op_mask = ALL_OPS, .countdown = 1, .for_good = true, .status = RVL_ERR_DEVICE_LOST};
        while (fails(layouts[k], &plan))
            plan.countdown++;
    }
}

/* ---- Who is told ---- */

static void the_guard_hears_of_it_once(void **state)
{
    (void)state;
    scene s;
    watch w = {0};
    rvl_resuming *wake = NULL;
    scene_open_asleep(&s, layouts[0]);
    const rvl_guard no = watch_refusing_guard();
    assert_int_equal(rvl_context_set_guard(s.context, &no), RVL_OK);
    assert_int_equal(rvl_resume_start(s.context, &s.tag, 1, NULL, &wake), RVL_ERR_VETOED);
    scene_check_asleep(&s);
    const rvl_guard guard = watch_guard(&w);
    assert_int_equal(rvl_context_set_guard(s.context, &guard), RVL_OK);
    scene_damage(&s, 1);
    assert_int_equal(rvl_resume_finish(scene_start(&s, NULL)), RVL_ERR_DIGEST_MISMATCH);
    assert_int_equal(w.undone, 1);
    assert_int_equal(w.done, 0);
    scene_damage(&s, 1);
    assert_int_equal(rvl_resume_finish(scene_start(&s, NULL)), RVL_OK);
    assert_int_equal(w.before, 2);
    assert_int_equal(w.done, 1);
    scene_close(&s);
}

static void a_recording_has_one_resume(void **state)
{
    (void)state;
    scene s;
    scene_open_asleep(&s, layouts[0]);
    scene_record(&s);
    assert_int_equal(rvl_resume_finish(scene_start(&s, NULL)), RVL_OK);
    assert_int_equal(scene_close_recorded(&s), 1);
}

/* ---- Many threads ---- */

#define ROUNDS 40

static void *wait_for_layers(void *argument)
{
    scene *s = argument;
    for (int round = 0; round < ROUNDS * COUNT; round++) {
        int i = round % COUNT;
        rvl_status status = rvl_allocation_wait(s->context, s->layers[i], 5000000);
        assert_true(status == RVL_OK || status == RVL_ERR_TIMEOUT || status == RVL_ERR_STATE);
    }
    return NULL;
}

static void *wake_and_pause(void *argument)
{
    scene *s = argument;
    const rvl_addr order[] = {s->layers[2], s->layers[1]};
    const rvl_resume_options options = {
        .struct_size = sizeof options, .order = order, .order_count = 2};
    for (int round = 0; round < ROUNDS; round++) {
        rvl_resuming *wake = scene_start(s, &options);
        assert_int_equal(scene_pause(s), RVL_OK); /* once the wake has ended */
        assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    }
    return NULL;
}

static void threads_wake_wait_and_pause(void **state)
{
    (void)state;
    scene s;
    pthread_t threads[4];
    void *(*const runs[])(void *) = {wake_and_pause, wake_and_pause, wait_for_layers,
                                     wait_for_layers};
    scene_open_asleep(&s, layouts[0]);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, runs[i], &s), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(rvl_resume_finish(scene_start(&s, NULL)), RVL_OK);
    scene_check_awake(&s);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrivals_follow_the_order),
        cmocka_unit_test(without_an_order_the_oldest_comes_first),
        cmocka_unit_test(riders_arrive_with_their_carrier),
        cmocka_unit_test(every_resume_takes_an_order),
        cmocka_unit_test(simulated_times_are_those_of_the_copies),
        cmocka_unit_test(what_has_arrived_is_usable),
        cmocka_unit_test(others_wait_for_what_is_on_its_way),
        cmocka_unit_test(other_tags_go_on),
        cmocka_unit_test(callbacks_may_ask_and_not_wait),
        cmocka_unit_test(wrong_calls_change_nothing),
        cmocka_unit_test(a_child_has_no_wake),
        cmocka_unit_test(nothing_may_move),
        cmocka_unit_test(content_may_come_from_elsewhere),
        cmocka_unit_test(lack_of_memory_changes_nothing),
        cmocka_unit_test(without_a_thread_nothing_changes),
        cmocka_unit_test(without_host_memory_nothing_is_lost),
        cmocka_unit_test(a_late_failure_takes_nothing_back),
        cmocka_unit_test(half_a_wake_can_be_paused),
        cmocka_unit_test(every_read_fails_once),
        cmocka_unit_test(every_op_fails_once),
        cmocka_unit_test(every_op_fails_for_good),
        cmocka_unit_test(the_device_is_lost),
        cmocka_unit_test(the_guard_hears_of_it_once),
        cmocka_unit_test(a_recording_has_one_resume),
        cmocka_unit_test(threads_wake_wait_and_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
