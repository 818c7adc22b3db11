/* SPDX-License-Identifier: MIT */
/*
 * Stages of processes: which stages a device lists, what overlapping ones come to, and that very
 * many stay within bounds. Sizes are small, in MiB, on devices of 1000 MiB.
 */
#include "support/support.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "reveille/replay.h"
#include "reveille/timeline.h"

#define DEVICES_MAX 3

/* ---- A run as a list of events ---- */

typedef struct run {
    rvl_trace_event *events;
    size_t count;
    size_t capacity;
    uint64_t ids[8]; /* last of each process */
    size_t devices;
} run;

static rvl_trace_event *add(run *made, rvl_event_kind kind, const char *process)
{
    if (made->count == made->capacity) {
        made->capacity = made->capacity > 0 ? made->capacity * 2 : 64;
        made->events = realloc(made->events, made->capacity * sizeof *made->events);
        assert_non_null(made->events);
    }
    rvl_trace_event *event = &made->events[made->count++];
    *event = (rvl_trace_event){
        .kind = kind, .process = process, .time_ns = made->count, .tag_index = RVL_TRACE_NO_TAG};
    return event;
}

/* Processes are "p0", "p1" and so on; each counts its own ids. */
static uint64_t take(run *made, const char *process, uint32_t device, uint64_t mib)
{
    rvl_trace_event *event = add(made, RVL_EVENT_ALLOC, process);
    event->id = ++made->ids[process[1] - '0'];
    event->device = device;
    event->bytes = mib * MIB;
    event->tag = "t";
    return event->id;
}

static void give(run *made, const char *process, uint64_t id)
{
    add(made, RVL_EVENT_FREE, process)->id = id;
}

static void pulse(run *made, const char *process, uint32_t device, uint64_t mib)
{
    give(made, process, take(made, process, device, mib));
}

static void flat(run *made, const char *process, const char *name)
{
    add(made, RVL_EVENT_STAGE, process)->name = name;
}

static void enter(run *made, const char *process, uint64_t id, const char *name)
{
    rvl_trace_event *event = add(made, RVL_EVENT_ENTER, process);
    event->id = id;
    event->name = name;
}

static void leave(run *made, const char *process, uint64_t id)
{
    add(made, RVL_EVENT_LEAVE, process)->id = id;
}

static rvl_status run_with(const run *made, rvl_replay_options options, rvl_replay **replay_out)
{
    rvl_trace_device devices[DEVICES_MAX];
    for (uint32_t i = 0; i < DEVICES_MAX; i++)
        devices[i] = (rvl_trace_device){
            .index = i, .capacity_bytes = 1000 * MIB, .granularity_bytes = 2 * MIB};
    const rvl_replay_events events = {
        .struct_size = sizeof events,
        .devices = devices,
        .device_count = made->devices,
        .device_size = sizeof *devices,
        .events = made->events,
        .event_count = made->count,
        .event_size = sizeof *made->events,
    };
    options.struct_size = sizeof options;
    return rvl_replay_run_events(&events, &options, replay_out);
}

static void check_refused(run *made, const char *message)
{
    rvl_replay *replay = NULL;
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(run_with(made, (rvl_replay_options){0}, &replay), RVL_ERR_CORRUPT_TRACE);
    rvl_last_error(&error);
    assert_int_equal(error.line, made->count);
    if (strstr(error.message, message) == NULL)
        fail_msg("%s", error.message);
    free(made->events);
}

static rvl_replay *replay_with(const run *made, rvl_replay_options options)
{
    rvl_replay *replay = NULL;
    rvl_status status = run_with(made, options, &replay);
    if (status != RVL_OK) {
        rvl_error error = {.struct_size = sizeof error};
        rvl_last_error(&error);
        print_error("%" PRIu32 ": %s\n", error.line, error.message);
    }
    assert_int_equal(status, RVL_OK);
    return replay;
}

static rvl_replay *replay_of(const run *made)
{
    return replay_with(made, (rvl_replay_options){0});
}

static rvl_replay_device device_of(const rvl_replay *replay, size_t index)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_replay_get_device(replay, index, &device), RVL_OK);
    return device;
}

/* A device's stages as a text: "p0:forward 300>200", peak and end in MiB. */
static const char *listed(const rvl_replay *replay, size_t device)
{
    static char text[1024];
    size_t length = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < device_of(replay, device).stage_count; i++) {
        rvl_stage_stats stats = {.struct_size = sizeof stats};
        rvl_replay_mark mark = {.struct_size = sizeof mark};
        assert_int_equal(rvl_replay_get_stage(replay, device, i, &stats, NULL), RVL_OK);
        assert_int_equal(rvl_replay_get_mark(replay, device, i, &mark), RVL_OK);
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "%s%s:%s %" PRIu64 ">%" PRIu64,
                             i > 0 ? ", " : "", mark.process != NULL ? mark.process : "-",
                             stats.name, stats.peak_bytes / MIB, stats.end_bytes / MIB);
        assert_true(length < sizeof text);
    }
    return text;
}

static void forget(run *made, rvl_replay *replay)
{
    rvl_replay_close(replay);
    free(made->events);
}

/* ---- Which stages a device lists ---- */

/* Each rank uses a device of its own: what another marks does not end its stage. */
static void test_ranks_on_devices_of_their_own(void **state)
{
    (void)state;
    run made = {.devices = 2};
    flat(&made, "p0", "forward");
    flat(&made, "p1", "forward");
    uint64_t kept = take(&made, "p0", 0, 100);
    flat(&made, "p1", "backward");
    pulse(&made, "p0", 0, 300); /* in its own forward still */
    pulse(&made, "p1", 1, 50);
    flat(&made, "p0", "backward");
    give(&made, "p0", kept);
    rvl_replay *replay = replay_of(&made);
    assert_string_equal(listed(replay, 0), "p0:forward 400>100, p0:backward 100>0");
    assert_string_equal(listed(replay, 1), "p1:forward 0>0, p1:backward 50>0");
    forget(&made, replay);
}

/* 100 GiB of a rank's own forward count for it, though another rank is in backward. */
static void test_a_budget_is_held_against_the_own_stage(void **state)
{
    (void)state;
    run made = {.devices = 2};
    const rvl_budget budget = {"forward", 200 * MIB};
    flat(&made, "p0", "forward");
    flat(&made, "p1", "forward");
    pulse(&made, "p1", 1, 100);
    flat(&made, "p1", "backward");
    pulse(&made, "p0", 0, 300);
    flat(&made, "p0", "backward");
    rvl_replay *replay = replay_with(
        &made,
        (rvl_replay_options){.budgets = &budget, .budget_count = 1, .budget_size = sizeof budget});
    assert_false(device_of(replay, 0).within_budgets);
    assert_true(device_of(replay, 1).within_budgets);
    forget(&made, replay);
}

/* Both mark, on one device: each has its own stages, with all that is on the device. */
static void test_two_processes_on_a_device(void **state)
{
    (void)state;
    run made = {.devices = 1};
    flat(&made, "p0", "rollout");
    uint64_t engine = take(&made, "p0", 0, 400);
    flat(&made, "p1", "load");
    take(&made, "p1", 0, 200);
    flat(&made, "p0", "asleep");
    give(&made, "p0", engine);
    flat(&made, "p1", "train");
    rvl_replay *replay = replay_of(&made);
    assert_string_equal(listed(replay, 0), "p1:start 400>400, p0:rollout 600>600, p1:load 600>200, "
                                           "p0:asleep 600>200, p1:train 200>200");
    rvl_replay_close(replay);
    replay = replay_with(&made, (rvl_replay_options){.conductor = "p1"});
    assert_string_equal(listed(replay, 0), "p1:start 400>400, p1:load 600>200, p1:train 200>200");
    forget(&made, replay);
}

/* A process that marks and uses no device marks for those that do not mark. */
static void test_controller(void **state)
{
    (void)state;
    run made = {.devices = 3};
    flat(&made, "p0", "run"); /* of the machine: one for all */
    flat(&made, "p1", "rollout");
    take(&made, "p2", 0, 100);
    take(&made, "p3", 1, 200);
    flat(&made, "p3", "own");
    flat(&made, "p1", "train");
    take(&made, "p2", 0, 300);
    rvl_replay *replay = replay_of(&made);
    assert_string_equal(listed(replay, 0), "p1:rollout 100>100, p1:train 400>400");
    assert_string_equal(listed(replay, 1), "p3:start 200>200, p3:own 200>200");
    assert_string_equal(listed(replay, 2), "p1:rollout 0>0, p1:train 0>0");
    forget(&made, replay);
}

/* The first that marks conducts where the users of a device do not mark, and use another. */
static void test_a_device_of_one_that_does_not_mark(void **state)
{
    (void)state;
    run made = {.devices = 2};
    take(&made, "p1", 1, 50);
    flat(&made, "p0", "a");
    take(&made, "p0", 0, 100);
    flat(&made, "p0", "b");
    rvl_replay *replay = replay_of(&made);
    assert_string_equal(listed(replay, 0), "p0:a 100>100, p0:b 100>100");
    assert_string_equal(listed(replay, 1), "p0:start 50>50, p0:a 50>50, p0:b 50>50");
    forget(&made, replay);
}

static void test_nobody_marks(void **state)
{
    (void)state;
    run made = {.devices = 2};
    pulse(&made, "p0", 0, 100);
    rvl_replay *replay = replay_of(&made);
    assert_string_equal(listed(replay, 0), "-:start 100>0");
    assert_string_equal(listed(replay, 1), "");
    forget(&made, replay);
}

/* What a rank's stages come to does not depend on where the others cut them. */
static void test_interleaving_changes_nothing(void **state)
{
    (void)state;
    char first[1024] = "";
    for (unsigned seed = 0; seed < 50; seed++) {
        static const char *const names[] = {"forward", "backward", "step"};
        run made = {.devices = 2};
        unsigned at[2] = {0, 0};
        uint64_t held[2] = {0, 0};
        srand(seed);
        while (at[0] < 12 || at[1] < 12) {
            unsigned rank = (unsigned)rand() % 2;
            const char *process = rank == 0 ? "p0" : "p1";
            if (at[rank] == 12)
                continue;
            unsigned stage = at[rank] / 2 % 3;
            if (at[rank]++ % 2 == 0) {
                flat(&made, process, names[stage]);
                continue;
            }
            if (held[rank] != 0)
                give(&made, process, held[rank]);
            held[rank] = take(&made, process, rank, 100 * (stage + 1) + 20 * rank);
            pulse(&made, process, rank, 60);
        }
        rvl_replay *replay = replay_of(&made);
        char both[1024];
        int length = snprintf(both, sizeof both, "%s | ", listed(replay, 0));
        snprintf(both + length, sizeof both - (size_t)length, "%s", listed(replay, 1));
        if (seed == 0)
            memcpy(first, both, sizeof first);
        assert_string_equal(both, first);
        forget(&made, replay);
    }
    assert_non_null(strstr(first, "p1:step 380>320"));
}

/* ---- Ranges ---- */

/* An inner range counts for the outer one; what is between ranges has a name. */
static void test_nested_ranges(void **state)
{
    (void)state;
    run made = {.devices = 1};
    take(&made, "p0", 0, 100);
    enter(&made, "p0", 1, "step");
    enter(&made, "p0", 2, "forward");
    pulse(&made, "p0", 0, 300);
    leave(&made, "p0", 2);
    enter(&made, "p0", 3, "backward");
    pulse(&made, "p0", 0, 200);
    leave(&made, "p0", 3);
    leave(&made, "p0", 1);
    pulse(&made, "p0", 0, 500);
    enter(&made, "p0", 4, "step");
    leave(&made, "p0", 4);
    rvl_replay *replay = replay_of(&made); /* the second outside changes nothing */
    assert_string_equal(listed(replay, 0),
                        "p0:start 100>100, p0:step 400>100, p0:forward 400>100, "
                        "p0:backward 300>100, p0:outside 600>100, p0:step#2 100>100");
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_replay_get_stage(replay, 0, device_of(replay, 0).peak_stage, &stats, NULL),
                     RVL_OK);
    assert_string_equal(stats.name, "outside");
    char *json = NULL;
    assert_int_equal(rvl_replay_to_json(replay, &json), RVL_OK);
    assert_non_null(strstr(json, "\"mark\":\"step\",\"instance\":2,\"process\":\"p0\","
                                 "\"rank\":null}"));
    rvl_string_free(json);
    forget(&made, replay);
}

/* Those of start and end may overlap without one being in the other. */
static void test_overlapping_ranges(void **state)
{
    (void)state;
    run made = {.devices = 1};
    enter(&made, "p0", 7, "a");
    uint64_t held = take(&made, "p0", 0, 100);
    enter(&made, "p0", 9, "b");
    pulse(&made, "p0", 0, 300);
    leave(&made, "p0", 7);
    pulse(&made, "p0", 0, 500);
    leave(&made, "p0", 9);
    enter(&made, "p0", 7, "a"); /* its id is free again */
    give(&made, "p0", held);
    rvl_replay *replay = replay_of(&made);
    assert_string_equal(listed(replay, 0), "p0:a 400>100, p0:b 600>100, p0:a#2 100>0");
    forget(&made, replay);
}

/* A flat stage lasts until the next one, whatever ranges are in it. */
static void test_ranges_in_a_flat_stage(void **state)
{
    (void)state;
    run made = {.devices = 1};
    flat(&made, "p0", "train");
    enter(&made, "p0", 1, "forward");
    pulse(&made, "p0", 0, 300);
    leave(&made, "p0", 1);
    pulse(&made, "p0", 0, 100);
    flat(&made, "p0", "save");
    rvl_replay *replay = replay_of(&made);
    assert_string_equal(listed(replay, 0), "p0:train 300>0, p0:forward 300>0, p0:save 0>0");
    forget(&made, replay);
}

/* A process that has ended has no stage any more: what others do then is not in its stages. */
static void test_a_process_that_ends(void **state)
{
    (void)state;
    run made = {.devices = 1};
    flat(&made, "p0", "load");
    enter(&made, "p0", 1, "copy");
    pulse(&made, "p0", 0, 100);
    leave(&made, "p0", 0);
    enter(&made, "p1", 1, "serve");
    pulse(&made, "p1", 0, 600);
    rvl_replay *replay = replay_of(&made);
    assert_string_equal(listed(replay, 0),
                        "p1:start 100>0, p0:load 100>0, p0:copy 100>0, p1:serve 600>0");
    forget(&made, replay);
}

static void test_ranges_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        uint64_t first_id;
        rvl_event_kind kind;
        uint64_t id;
        const char *message;
    } cases[] = {
        {1, RVL_EVENT_ENTER, 1, "range 1 of process p0 is open already"},
        {1, RVL_EVENT_LEAVE, 2, "no range 2 of process p0 is open"},
        {1, RVL_EVENT_ENTER, 0, "a range without an id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run made = {.devices = 1};
        enter(&made, "p0", cases[i].first_id, "a");
        rvl_trace_event *event = add(&made, cases[i].kind, "p0");
        event->id = cases[i].id;
        event->name = "b";
        check_refused(&made, cases[i].message);
    }
    run deep = {.devices = 1};
    for (uint64_t id = 1; id <= 257; id++)
        enter(&deep, "p0", id, "deep");
    check_refused(&deep, "more than 256 ranges of process p0 are open at a time");
}

/* ---- Very many ---- */

/* Of the processors, which other work on the machine does not lengthen. */
static uint64_t spent_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static long most_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

enum { MANY = 1000000, NAMED = 900000, KEPT = RVL_TIMELINE_POINTS_DEFAULT };

/* A source that never holds its events: MANY stages, and in each a pulse; #777777 is the largest.
 */
typedef struct endless {
    uint64_t at;
    bool named; /* nearly each stage has a name of its own: a trace may have a million names */
    char name[32];
} endless;

static rvl_status next_of_many(void *user, rvl_trace_event *event_out)
{
    endless *many = user;
    uint64_t stage = many->at / 3 + 1;
    if (stage > MANY)
        return RVL_ERR_NOT_FOUND;
    *event_out = (rvl_trace_event){.process = "p0", .time_ns = many->at};
    switch (many->at++ % 3) {
    case 0:
        event_out->kind = RVL_EVENT_STAGE;
        snprintf(many->name, sizeof many->name, "step-%" PRIu64, stage % NAMED);
        event_out->name = many->named ? many->name : stage % 2 == 1 ? "odd" : "even";
        break;
    case 1:
        event_out->kind = RVL_EVENT_ALLOC;
        event_out->id = stage;
        event_out->bytes = stage == 777777 ? 500 * MIB : (2 + stage % 7) * MIB;
        break;
    default:
        event_out->kind = RVL_EVENT_FREE;
        event_out->id = stage;
        break;
    }
    return RVL_OK;
}

/* Within bounds of time, of memory, and of what is written. */
static rvl_replay *replay_of_many(endless *many, const char *budget_name, long bound_kib)
{
    const rvl_trace_device device = {.capacity_bytes = 1000 * MIB, .granularity_bytes = 2 * MIB};
    const rvl_budget budget = {budget_name, 400 * MIB};
    const rvl_replay_source source = {
        .struct_size = sizeof source,
        .devices = &device,
        .device_count = 1,
        .device_size = sizeof device,
        .event_size = sizeof(rvl_trace_event),
        .next = next_of_many,
        .user = many,
    };
    const rvl_replay_options options = {.struct_size = sizeof options,
                                        .budgets = &budget,
                                        .budget_count = 1,
                                        .budget_size = sizeof budget};
    long before_kib = most_kib();
    uint64_t before_ms = spent_ms();
    rvl_replay *replay = NULL;
    assert_int_equal(rvl_replay_run_source(&source, &options, &replay), RVL_OK);
    assert_in_range(spent_ms() - before_ms, 0, 60000);
#ifdef __SANITIZE_ADDRESS__
    bound_kib *= 4; /* its realloc() copies, and keeps what was freed for a while */
#endif
    assert_in_range(most_kib() - before_kib, 0, bound_kib);
    char *json = NULL;
    assert_int_equal(rvl_replay_to_json(replay, &json), RVL_OK);
    assert_in_range(strlen(json), 1, 3 * MIB);
    free(json);
    return replay;
}

static void test_a_million_stages_stay_within_bounds(void **state)
{
    (void)state;
    endless many = {0};
    rvl_replay *replay = replay_of_many(&many, "odd", 64 * 1024);
    rvl_replay_device found = device_of(replay, 0);
    /* The last two stand for the rest; start is not listed. */
    assert_int_equal(found.stage_count, KEPT + 2);
    assert_false(found.within_budgets);
    uint64_t count = 0;
    bool odd_was_found = false;
    for (uint32_t i = 0; i < found.stage_count; i++) {
        rvl_stage_stats stats = {.struct_size = sizeof stats};
        rvl_replay_mark mark = {.struct_size = sizeof mark};
        bool over;
        assert_int_equal(rvl_replay_get_stage(replay, 0, i, &stats, &over), RVL_OK);
        assert_int_equal(rvl_replay_get_mark(replay, 0, i, &mark), RVL_OK);
        assert_true(mark.count == 1 || i >= KEPT);
        count += mark.count;
        assert_int_equal(over, stats.peak_bytes > 400 * MIB);
        odd_was_found |= over;
        if (!over)
            continue;
        assert_string_equal(stats.name, "odd#388889");
        assert_int_equal(stats.peak_bytes, 500 * MIB);
        rvl_holder holder;
        size_t holders;
        assert_int_equal(rvl_replay_get_holders(replay, 0, i, &holder, sizeof holder, 1, &holders),
                         RVL_OK);
        assert_int_equal(holders, 1);
        assert_int_equal(holder.bytes, 500 * MIB);
    }
    assert_true(odd_was_found);
    assert_int_equal(count, MANY);
    rvl_replay_close(replay);
}

static void test_a_million_names_stay_within_bounds(void **state)
{
    (void)state;
    enum { NAMES = 4096 };
    endless many = {.named = true};
    rvl_replay *replay = replay_of_many(&many, "step-1", 256 * 1024);
    rvl_replay_device found = device_of(replay, 0);
    /* Others, and what comes again and has a budget: that is never among others. */
    assert_int_equal(found.stage_count, KEPT + NAMES + 2);
    assert_true(found.within_budgets);
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    rvl_replay_mark mark = {.struct_size = sizeof mark};
    assert_int_equal(rvl_replay_get_stage(replay, 0, KEPT + NAMES, &stats, NULL), RVL_OK);
    assert_int_equal(rvl_replay_get_mark(replay, 0, KEPT + NAMES, &mark), RVL_OK);
    assert_string_equal(stats.mark, "other stages");
    assert_string_equal(stats.name, "other stages: step-777777");
    assert_int_equal(stats.peak_bytes, 500 * MIB);
    assert_int_equal(mark.count, MANY - KEPT - 2 * NAMES - 1); /* these come again */
    assert_int_equal(found.peak_stage, KEPT + NAMES);
    rvl_replay_close(replay);
    many = (endless){.named = true};
    replay = replay_of_many(&many, "step-777777", 256 * 1024);
    assert_false(device_of(replay, 0).within_budgets);
    rvl_replay_close(replay);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_on_devices_of_their_own),
        cmocka_unit_test(test_a_budget_is_held_against_the_own_stage),
        cmocka_unit_test(test_two_processes_on_a_device),
        cmocka_unit_test(test_controller),
        cmocka_unit_test(test_a_device_of_one_that_does_not_mark),
        cmocka_unit_test(test_nobody_marks),
        cmocka_unit_test(test_interleaving_changes_nothing),
        cmocka_unit_test(test_nested_ranges),
        cmocka_unit_test(test_overlapping_ranges),
        cmocka_unit_test(test_ranges_in_a_flat_stage),
        cmocka_unit_test(test_a_process_that_ends),
        cmocka_unit_test(test_ranges_that_cannot_be),
        cmocka_unit_test(test_a_million_stages_stay_within_bounds),
        cmocka_unit_test(test_a_million_names_stay_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
