/* SPDX-License-Identifier: MIT */
/*
 * Sleep and wake of a simulated process: what is free meanwhile, what is refused, that each step
 * that fails leaves it awake or asleep as it was, and that a forecast says what it then takes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "reveille/record.h"
#include "reveille/sleep.h"
#include "tests/support/support.h"
#include "core/tables.h"

#define OP(name) (UINT64_C(1) << RVLI_OP_##name)
#define ALL_OPS ((UINT64_C(1) << RVLI_OP_COUNT) - 1)
#define CAPACITY (64 * MIB)

typedef struct scene {
    rvl_context *context;
    fault_injector *fault;
    rvl_addr weights, cache, early;
} scene;

static void open_scene(scene *s)
{
    memset(s, 0, sizeof *s);
    s->context = support_open((support_options){.keep_bytes = 4 * MIB}, &s->fault);
    s->weights = support_alloc(s->context, "weights", 0, 4 * GRANULE, RVL_BACKUP_HOST);
    s->cache = support_alloc(s->context, "cache", 0, 2 * GRANULE, RVL_BACKUP_NONE);
    s->early = support_alloc(s->context, "early", 0, GRANULE, RVL_BACKUP_HOST);
    support_fill(s->weights, 4 * GRANULE, 1);
    support_fill(s->early, GRANULE, 2);
    rvl_tag early = support_tag(s->context, "early");
    assert_int_equal(rvl_pause(s->context, &early, 1, NULL), RVL_OK);
}

static void close_scene(scene *s)
{
    fault_set(s->fault, &(fault_plan){0});
    assert_int_equal(rvl_context_close(s->context, NULL), RVL_OK);
}

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

static uint64_t room(scene *s)
{
    uint64_t free_bytes = 0;
    assert_int_equal(s->context->ops.process_room(s->context->self, 0, &free_bytes), RVL_OK);
    return free_bytes;
}

static rvli_process_state process_state(scene *s)
{
    rvli_process_state state = RVLI_PROCESS_LOST;
    assert_int_equal(s->context->ops.process_state(s->context->self, &state), RVL_OK);
    return state;
}

/* As after open_scene(). */
static void check_awake(scene *s)
{
    assert_false(rvl_context_is_asleep(s->context));
    assert_int_equal(process_state(s), RVLI_PROCESS_RUNNING);
    assert_int_equal(support_state(s->context, s->weights), RVL_STATE_ACTIVE);
    assert_int_equal(support_state(s->context, s->cache), RVL_STATE_ACTIVE);
    assert_int_equal(support_state(s->context, s->early), RVL_STATE_PAUSED);
    assert_true(support_holds(s->weights, 4 * GRANULE, 1));
}

static void a_process_sleeps_with_nothing(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
        assert_true(rvl_context_is_asleep(s.context));
        assert_int_equal(process_state(&s), RVLI_PROCESS_AWAY);
        assert_int_equal(room(&s), CAPACITY);
        assert_int_equal(rvl_sleep(s.context, NULL), RVL_ERR_STATE);
        assert_int_equal(rvl_wake_up(s.context, NULL), RVL_OK);
        assert_int_equal(rvl_wake_up(s.context, NULL), RVL_ERR_STATE);
        check_awake(&s);
    }
    close_scene(&s);
}

static void *allocate(void *user)
{
    scene *s = user;
    rvl_addr addr;
    assert_int_equal(rvl_alloc(s->context, GRANULE, NULL, &addr), RVL_ERR_STATE);
    return NULL;
}

/* Of one tag: what was paused before a sleep stays so, whether the sleep and the wake end well. */
static void what_was_paused_of_a_tag_stays_paused(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    rvl_addr later = 0;
    const rvl_alloc_options options = {.struct_size = sizeof options,
                                       .tag_id = support_tag(s.context, "weights"),
                                       .backup = RVL_BACKUP_HOST,
                                       .flags = RVL_ALLOC_PAUSED};
    assert_int_equal(rvl_alloc(s.context, 8 * GRANULE, &options, &later), RVL_OK);
    fault_set(s.fault, &(fault_plan){.op_mask = OP(process_checkpoint), .countdown = 1});
    assert_int_not_equal(rvl_sleep(s.context, NULL), RVL_OK);
    assert_int_equal(support_state(s.context, later), RVL_STATE_PAUSED);
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(rvl_wake_up_forecast(s.context, NULL, &forecast), RVL_OK);
    assert_int_equal(forecast.allocation_count, 2);
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_OK);
    assert_int_equal(support_state(s.context, later), RVL_STATE_PAUSED);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_ACTIVE);
    const rvl_tag weights = support_tag(s.context, "weights");
    assert_int_equal(rvl_resume(s.context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(support_state(s.context, later), RVL_STATE_ACTIVE);
    check_awake(&s);
    close_scene(&s);
}

static void calls_are_refused_meanwhile(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    rvl_addr addr;
    rvl_tag tag;
    uint64_t free_bytes, total_bytes;
    rvl_device_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    assert_int_equal(rvl_alloc(s.context, GRANULE, NULL, &addr), RVL_ERR_STATE);
    assert_string_equal(last_error().message, "the process is asleep: rvl_wake_up() first");
    assert_int_equal(rvl_free(s.context, s.cache), RVL_ERR_STATE);
    assert_int_equal(rvl_pause(s.context, NULL, 0, NULL), RVL_ERR_STATE);
    assert_int_equal(rvl_resume(s.context, NULL, 0, NULL), RVL_ERR_STATE);
    assert_int_equal(rvl_tag_find(s.context, 0, "cache", &tag), RVL_ERR_STATE);
    assert_int_equal(rvl_device_get_stats(s.context, 0, &stats), RVL_ERR_STATE);
    assert_int_equal(rvl_device_get_memory(s.context, 0, &free_bytes, &total_bytes), RVL_ERR_STATE);
    assert_int_equal(rvl_device_synchronize(s.context, 0), RVL_ERR_STATE);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_ERR_STATE);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, allocate, &s), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_OK);
    check_awake(&s);
    close_scene(&s);
}

static void tags_may_stay_paused(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    const rvl_wake_up_options paused = {.struct_size = sizeof paused, .flags = RVL_WAKE_UP_PAUSED};
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    assert_int_equal(rvl_wake_up(s.context, &paused), RVL_OK);
    assert_false(rvl_context_is_asleep(s.context));
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_PAUSED);
    assert_int_equal(rvl_resume(s.context, NULL, 0, NULL), RVL_OK);
    assert_true(support_holds(s.weights, 4 * GRANULE, 1));
    assert_true(support_holds(s.early, GRANULE, 2));
    close_scene(&s);
}

static void contents_may_be_discarded(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    const rvl_sleep_options discard = {.struct_size = sizeof discard, .flags = RVL_SLEEP_DISCARD};
    assert_int_equal(rvl_sleep(s.context, &discard), RVL_OK);
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_OK);
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_ACTIVE);
    assert_false(support_holds(s.weights, 4 * GRANULE, 1));
    close_scene(&s);
}

/* Each call of the backend fails once. */
static void a_sleep_that_fails_leaves_it_awake(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    uint64_t failed = 0;
    for (uint64_t n = 1;; n++) {
        fault_set(s.fault, &(fault_plan){.op_mask = ALL_OPS, .countdown = n});
        rvl_status status = rvl_sleep(s.context, NULL);
        if (fault_failures(s.fault) == 0) {
            assert_int_equal(status, RVL_OK);
            break;
        }
        fault_set(s.fault, &(fault_plan){0});
        if (status == RVL_OK) { /* a kept block is given up later, a room is not known */
            assert_int_equal(rvl_wake_up(s.context, NULL), RVL_OK);
        } else {
            failed++;
            assert_true(strlen(last_error().message) > 0);
        }
        check_awake(&s);
    }
    assert_true(failed > 10);
    fault_set(s.fault, &(fault_plan){0});
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_OK);
    check_awake(&s);
    close_scene(&s);
}

static void a_wake_that_fails_leaves_it_asleep(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    uint64_t failed = 0;
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    for (uint64_t n = 1;; n++) {
        fault_set(s.fault,
                  &(fault_plan){.op_mask = ALL_OPS & ~OP(process_restore), .countdown = n});
        rvl_status status = rvl_wake_up(s.context, NULL);
        bool none = fault_failures(s.fault) == 0;
        fault_set(s.fault, &(fault_plan){0});
        if (none) {
            assert_int_equal(status, RVL_OK);
            break;
        }
        if (status == RVL_OK) {
            check_awake(&s);
            assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
            continue;
        }
        failed++;
        assert_true(rvl_context_is_asleep(s.context));
        assert_int_equal(rvl_sleep(s.context, NULL), RVL_ERR_STATE);
    }
    assert_true(failed > 5);
    check_awake(&s);
    close_scene(&s);
}

/* The tags cannot be resumed, and the process cannot go back to sleep either. */
static void a_wake_may_end_awake_and_paused(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    fault_set(
        s.fault,
        &(fault_plan){.op_mask = OP(create) | OP(process_lock), .countdown = 1, .for_good = true});
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_ERR_DEVICE_OOM);
    assert_non_null(strstr(last_error().message, "its tags stay paused"));
    fault_set(s.fault, &(fault_plan){0});
    assert_false(rvl_context_is_asleep(s.context));
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_PAUSED);
    rvl_tag tags[] = {support_tag(s.context, "weights"), support_tag(s.context, "cache")};
    assert_int_equal(rvl_resume(s.context, tags, 2, NULL), RVL_OK);
    check_awake(&s);
    close_scene(&s);
}

/* The words of a trace's lines, without those of the header, times and threads. */
static void read_words(const char *path, char *words, size_t size)
{
    char line[256], kind[16], process[16], rest[200];
    FILE *file = fopen(path, "r");
    rvli_text text = rvli_text_begin(words, size);
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        rest[0] = '\0';
        if (sscanf(line, "%15s %*u %15s %*u%199[^\n]", kind, process, rest) < 2 ||
            strcmp(kind, "alloc") == 0 || strcmp(kind, "device") == 0 || strchr(kind, '-') != NULL)
            continue;
        rvli_text_add(&text, kind);
        rvli_text_add(&text, rest);
        rvli_text_add(&text, "; ");
    }
    fclose(file);
}

/* The verb frames its pauses and resumes, also where they are taken back. */
static void a_recording_has_the_verb(void **state)
{
    (void)state;
    scene s;
    char path[] = "/tmp/reveille-test-XXXXXX", words[512];
    const rvl_sleep_options discard = {.struct_size = sizeof discard, .flags = RVL_SLEEP_DISCARD};
    const rvl_wake_up_options paused = {.struct_size = sizeof paused, .flags = RVL_WAKE_UP_PAUSED};
    open_scene(&s);
    rvl_tag weights = support_tag(s.context, "weights"), cache = support_tag(s.context, "cache");
    close(mkstemp(path));
    assert_int_equal(rvl_record_start(s.context, path), RVL_OK);
    assert_int_equal(rvl_pause(s.context, &cache, 1, NULL), RVL_OK);
    fault_set(s.fault, &(fault_plan){.op_mask = OP(process_checkpoint), .countdown = 1});
    assert_int_not_equal(rvl_sleep(s.context, NULL), RVL_OK);
    fault_set(s.fault, &(fault_plan){.op_mask = OP(copy_to_host), .countdown = 1});
    assert_int_not_equal(rvl_sleep(s.context, NULL), RVL_OK);
    assert_int_equal(rvl_sleep(s.context, &discard), RVL_OK);
    assert_int_equal(rvl_wake_up(s.context, &paused), RVL_OK);
    assert_int_equal(rvl_resume(s.context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(rvl_record_stop(s.context), RVL_OK);
    read_words(path, words, sizeof words);
    assert_string_equal(words, "pause cache; sleep; pause weights; resume weights; wake; "
                               "sleep; wake; sleep discard; pause weights discard; wake paused; "
                               "resume weights; ");
    unlink(path);
    close_scene(&s);
}

static void what_cannot_be_restored_is_lost_by_name(void **state)
{
    (void)state;
    scene s;
    rvl_addr addr;
    open_scene(&s);
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    fault_set(s.fault, &(fault_plan){.op_mask = OP(process_restore), .countdown = 1});
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_ERR_DEVICE_LOST);
    assert_non_null(strstr(last_error().message, "cannot come back: end it"));
    assert_string_equal(last_error().op, "process_restore");
    assert_int_equal(rvl_alloc(s.context, GRANULE, NULL, &addr), RVL_ERR_DEVICE_LOST);
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_ERR_DEVICE_LOST);
    rvli_sleeper_enter();
    close_scene(&s);
    rvli_sleeper_leave();
}

/* A neighbour's memory, while the process sleeps. */
static void neighbour_takes(scene *s, uint64_t bytes)
{
    assert_int_equal(s->context->ops.external_set(s->context->self, 0, bytes), RVL_OK);
}

static void a_wake_makes_sure_of_its_room(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    const rvl_wake_up_options soon = {.struct_size = sizeof soon, .timeout_ns = 20000000};
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    neighbour_takes(&s, CAPACITY - 6 * GRANULE + MIB);
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_ERR_DEVICE_OOM);
    rvl_error error = last_error();
    assert_string_equal(error.message,
                        "the wake needs 12.0 MiB, 11.0 MiB free on device 0: the process sleeps "
                        "on, until others have freed that");
    assert_int_equal(error.requested_bytes, 6 * GRANULE);
    assert_int_equal(error.free_bytes, 6 * GRANULE - MIB);
    assert_int_equal(rvl_wake_up(s.context, &soon), RVL_ERR_TIMEOUT);
    assert_true(rvl_context_is_asleep(s.context));
    assert_int_equal(process_state(&s), RVLI_PROCESS_AWAY);
    neighbour_takes(&s, CAPACITY - 6 * GRANULE);
    assert_int_equal(rvl_wake_up(s.context, NULL), RVL_OK);
    neighbour_takes(&s, 0);
    check_awake(&s);
    close_scene(&s);
}

static void *wake_with_time(void *user)
{
    scene *s = user;
    const rvl_wake_up_options some = {.struct_size = sizeof some, .timeout_ns = 20000000000};
    rvl_status status;
    while ((status = rvl_wake_up(s->context, &some)) == RVL_ERR_BUSY) /* the other looks */
        ;
    assert_int_equal(status, RVL_OK);
    return NULL;
}

/* 0: as it should be; otherwise which of the answers was wrong. */
static int in_forked_child(scene *s)
{
    if (rvl_wake_up(s->context, NULL) != RVL_ERR_FORKED)
        return 1;
    rvl_context *own = support_open((support_options){0}, NULL);
    if (rvl_sleep(own, NULL) != RVL_OK)
        return 2;
    return rvl_wake_up(own, NULL) == RVL_OK ? 0 : 3;
}

/* Simulated contexts move by themselves, and a fork meanwhile leaves nothing locked in the child.
 */
static void a_wake_that_waits_is_in_nobodys_way(void **state)
{
    (void)state;
    scene s, other;
    open_scene(&s);
    open_scene(&other);
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    neighbour_takes(&s, CAPACITY);
    pthread_t waiting;
    assert_int_equal(pthread_create(&waiting, NULL, wake_with_time, &s), 0);
    while (rvl_wake_up(s.context, NULL) != RVL_ERR_BUSY) /* until the thread is at it */
        ;
    assert_int_equal(rvl_sleep(other.context, NULL), RVL_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(in_forked_child(&s));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rvl_wake_up(other.context, NULL), RVL_OK);
    check_awake(&other);
    neighbour_takes(&s, 0);
    assert_int_equal(pthread_join(waiting, NULL), 0);
    check_awake(&s);
    close_scene(&other);
    close_scene(&s);
}

static void what_goes_on_forbids_it(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    rvl_transition *pause = NULL;
    rvl_tag cache = support_tag(s.context, "cache");
    assert_int_equal(rvl_pause_prepare(s.context, &cache, 1, NULL, &pause), RVL_OK);
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_ERR_BUSY);
    assert_int_equal(rvl_transition_abort(pause), RVL_OK);
    check_awake(&s);
    close_scene(&s);
}

static rvl_status sleep_within(void *user, rvl_tag tag)
{
    scene *s = user;
    (void)tag;
    assert_int_equal(rvl_sleep(s->context, NULL), RVL_ERR_STATE);
    assert_int_equal(rvl_wake_up(s->context, NULL), RVL_ERR_STATE);
    return RVL_OK;
}

static void a_callback_cannot_sleep(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    const rvl_tag_options options = {
        .struct_size = sizeof options, .before_unmap = sleep_within, .callback_user = &s};
    rvl_tag cache;
    assert_int_equal(rvl_tag_define(s.context, "cache", &options, &cache), RVL_OK);
    assert_int_equal(rvl_pause(s.context, &cache, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(s.context, &cache, 1, NULL), RVL_OK);
    check_awake(&s);
    close_scene(&s);
}

static void a_forecast_says_what_it_takes(void **state)
{
    (void)state;
    const rvl_sim_options sim = {.struct_size = sizeof sim, .memory = RVL_SIM_ACCOUNTED};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &sim};
    rvl_context *context = NULL;
    rvl_forecast sleep = {.struct_size = sizeof sleep}, wake = {.struct_size = sizeof wake};
    assert_int_equal(rvl_context_open("sim", &options, &context), RVL_OK);
    support_alloc(context, "weights", 0, 40 * GIB, RVL_BACKUP_HOST);
    support_alloc(context, "cache", 0, 16 * GIB, RVL_BACKUP_NONE);

    assert_int_equal(rvl_wake_up_forecast(context, NULL, &wake), RVL_ERR_STATE);
    assert_int_equal(rvl_sleep_forecast(context, NULL, &sleep), RVL_OK);
    uint64_t begin_ns = rvl_clock_ns(context);
    assert_int_equal(rvl_sleep(context, NULL), RVL_OK);
    assert_int_equal(sleep.needed_bytes, 56 * GIB);
    assert_int_equal(sleep.host_bytes, 40 * GIB);
    rvli_sleeper_enter();
    assert_int_equal(rvl_clock_ns(context) - begin_ns, sleep.time_ns);
    begin_ns = rvl_clock_ns(context);
    rvli_sleeper_leave();

    assert_int_equal(rvl_sleep_forecast(context, NULL, &sleep), RVL_ERR_STATE);
    assert_int_equal(rvl_wake_up_forecast(context, NULL, &wake), RVL_OK);
    assert_int_equal(wake.needed_bytes, 56 * GIB);
    assert_true(wake.fits);
    assert_int_equal(rvl_wake_up(context, NULL), RVL_OK);
    assert_int_equal(rvl_clock_ns(context) - begin_ns, wake.time_ns);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    const rvl_sleep_options sleep = {.struct_size = sizeof sleep, .flags = 64};
    const rvl_wake_up_options wake = {.struct_size = sizeof wake, .flags = 64};
    assert_int_equal(rvl_sleep(s.context, &sleep), RVL_ERR_VERSION);
    assert_int_equal(rvl_wake_up(s.context, &wake), RVL_ERR_VERSION);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_INVALID); /* no context on a device */
    assert_int_equal(rvl_sleep_forbid(1, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_sleep_forbid(1, ""), RVL_ERR_INVALID);
    assert_int_equal(rvl_sleep_allow(1), RVL_ERR_NOT_FOUND);
    assert_false(rvl_context_is_asleep(NULL));
    check_awake(&s);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_sleeps_with_nothing),
        cmocka_unit_test(what_was_paused_of_a_tag_stays_paused),
        cmocka_unit_test(calls_are_refused_meanwhile),
        cmocka_unit_test(tags_may_stay_paused),
        cmocka_unit_test(contents_may_be_discarded),
        cmocka_unit_test(a_sleep_that_fails_leaves_it_awake),
        cmocka_unit_test(a_wake_that_fails_leaves_it_asleep),
        cmocka_unit_test(a_wake_may_end_awake_and_paused),
        cmocka_unit_test(a_recording_has_the_verb),
        cmocka_unit_test(what_cannot_be_restored_is_lost_by_name),
        cmocka_unit_test(a_wake_makes_sure_of_its_room),
        cmocka_unit_test(a_wake_that_waits_is_in_nobodys_way),
        cmocka_unit_test(what_goes_on_forbids_it),
        cmocka_unit_test(a_callback_cannot_sleep),
        cmocka_unit_test(a_forecast_says_what_it_takes),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
