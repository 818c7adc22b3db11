/* SPDX-License-Identifier: MIT */
/* Stages, peaks, who held what at them, external bytes, overcommit. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static rvl_stage_stats stage_of(rvl_context *context, uint32_t index, int device)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_stage_get_stats(context, index, device, &stats), RVL_OK);
    return stats;
}

static rvl_context *open_accounted(uint64_t capacity, bool overcommit)
{
    return support_open((support_options){.devices = 2,
                                          .memory = RVL_SIM_ACCOUNTED,
                                          .capacity_bytes = capacity,
                                          .overcommit = overcommit},
                        NULL);
}

static void stages_have_peaks_ends_and_names(void **state)
{
    (void)state;
    rvl_context *context = open_accounted(1 * GIB, false);
    rvl_addr first = support_alloc(context, "weights", 0, 100 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(rvl_step(context), RVL_OK);
    assert_int_equal(rvl_stage(context, "rollout"), RVL_OK);
    rvl_addr second = support_alloc(context, "cache", 0, 300 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(rvl_free(context, second), RVL_OK);
    assert_int_equal(rvl_stage(context, "train"), RVL_OK);
    assert_int_equal(rvl_free(context, first), RVL_OK);
    assert_int_equal(rvl_step(context), RVL_OK);
    assert_int_equal(rvl_stage(context, "rollout"), RVL_OK);
    support_alloc(context, "cache", 1, 50 * MIB, RVL_BACKUP_NONE);

    assert_int_equal(rvl_stage_count(context), 4);
    const char *names[] = {"start", "rollout", "train", "rollout#2"};
    const char *marks[] = {"start", "rollout", "train", "rollout"};
    const uint64_t peaks[] = {100 * MIB, 400 * MIB, 100 * MIB, 0};
    const uint64_t ends[] = {100 * MIB, 100 * MIB, 0, 0};
    const uint32_t steps[] = {0, 1, 1, 2};
    for (uint32_t i = 0; i < 4; i++) {
        rvl_stage_stats stats = stage_of(context, i, 0);
        assert_string_equal(stats.name, names[i]);
        assert_string_equal(stats.mark, marks[i]);
        assert_int_equal(stats.peak_bytes, peaks[i]);
        assert_int_equal(stats.end_bytes, ends[i]);
        assert_int_equal(stats.free_at_peak_bytes, 1 * GIB - peaks[i]);
        assert_int_equal(stats.step, steps[i]);
    }
    assert_int_equal(stage_of(context, 3, 1).peak_bytes, 50 * MIB);
    assert_int_equal(support_stats(context, 0).peak_bytes, 400 * MIB);
    assert_int_equal(support_stats(context, 0).peak_stage, 1);
    rvl_stage_stats none = {.struct_size = sizeof none};
    assert_int_equal(rvl_stage_get_stats(context, 4, 0, &none), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_stage_get_stats(context, 0, 2, &none), RVL_ERR_NO_DEVICE);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void holders_at_the_peak_are_those_of_the_peak(void **state)
{
    (void)state;
    rvl_context *context = open_accounted(1 * GIB, false);
    rvl_process trainer;
    assert_int_equal(rvl_process_define(context, "trainer", &trainer), RVL_OK);
    assert_int_equal(rvl_stage(context, "one"), RVL_OK);
    support_alloc(context, "weights", 0, 30 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(rvl_external_set(context, 0, "nccl", 7 * MIB), RVL_OK);
    rvl_alloc_options untagged = {.struct_size = sizeof untagged, .process = trainer};
    rvl_addr big;
    assert_int_equal(rvl_alloc(context, 40 * MIB, &untagged, &big), RVL_OK);
    /* After the peak: everything changes, the breakdown must not. */
    assert_int_equal(rvl_free(context, big), RVL_OK);
    support_alloc(context, "weights", 0, 8 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(rvl_external_set(context, 0, "nccl", 1 * MIB), RVL_OK);

    for (int ended = 0; ended < 2; ended++) {
        rvl_holder holders[8];
        size_t count = 0;
        assert_int_equal(rvl_stage_get_holders(context, 1, 0, holders, sizeof *holders, 8, &count),
                         RVL_OK);
        assert_int_equal(count, 3);
        assert_string_equal(holders[0].process, "trainer");
        assert_null(holders[0].tag);
        assert_int_equal(holders[0].bytes, 40 * MIB);
        assert_string_equal(holders[1].process, "test");
        assert_string_equal(holders[1].tag, "weights");
        assert_int_equal(holders[1].bytes, 30 * MIB);
        assert_null(holders[2].process);
        assert_string_equal(holders[2].tag, "nccl");
        assert_int_equal(holders[2].bytes, 7 * MIB);
        assert_int_equal(stage_of(context, 1, 0).peak_bytes, 77 * MIB);
        holders[0].bytes = 0;
        assert_int_equal(rvl_stage_get_holders(context, 1, 0, holders, sizeof *holders, 1, &count),
                         RVL_OK);
        assert_int_equal(count, 3);
        assert_int_equal(holders[0].bytes, 40 * MIB);
        assert_int_equal(rvl_stage(context, "two"), RVL_OK);
    }
    assert_int_equal(rvl_stage_get_holders(context, 9, 0, NULL, 0, 0, &(size_t){0}),
                     RVL_ERR_NOT_FOUND);
    assert_int_equal(
        rvl_stage_get_holders(context, 0, 0, NULL, sizeof(rvl_holder), 1, &(size_t){0}),
        RVL_ERR_INVALID);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* The ledger against sums made the slow way, at every peak of a long random run. */
#define TAGS 5
#define LIVE 40

static void breakdowns_agree_with_a_plain_model(void **state)
{
    (void)state;
    rvl_context *context = open_accounted(64 * GIB, false);
    const char *names[TAGS] = {"a", "b", "c", "d", "e"};
    struct {
        rvl_addr addr;
        int tag;
        uint64_t size;
    } live[LIVE] = {{0}};
    uint64_t now[TAGS] = {0}, at_peak[TAGS] = {0}, used = 0, peak = 0;
    unsigned seed = 7;

    for (uint32_t stage = 1; stage <= 20; stage++) {
        assert_int_equal(rvl_stage(context, "s"), RVL_OK);
        peak = used;
        memcpy(at_peak, now, sizeof now);
        for (int i = 0; i < 200; i++) {
            int slot = rand_r(&seed) % LIVE;
            if (live[slot].addr != 0) {
                assert_int_equal(rvl_free(context, live[slot].addr), RVL_OK);
                live[slot].addr = 0;
                now[live[slot].tag] -= live[slot].size;
                used -= live[slot].size;
                continue;
            }
            live[slot].tag = rand_r(&seed) % TAGS;
            live[slot].size = (uint64_t)(rand_r(&seed) % 50 + 1) * GRANULE;
            live[slot].addr =
                support_alloc(context, names[live[slot].tag], 0, live[slot].size, RVL_BACKUP_NONE);
            now[live[slot].tag] += live[slot].size;
            used += live[slot].size;
            if (used > peak) {
                peak = used;
                memcpy(at_peak, now, sizeof now);
            }
        }
        assert_int_equal(stage_of(context, stage, 0).peak_bytes, peak);
        assert_int_equal(stage_of(context, stage, 0).end_bytes, used);
        rvl_holder holders[TAGS];
        size_t count = 0;
        uint64_t sum = 0;
        assert_int_equal(
            rvl_stage_get_holders(context, stage, 0, holders, sizeof *holders, TAGS, &count),
            RVL_OK);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(holders[i].bytes, at_peak[holders[i].tag[0] - 'a']);
            assert_true(i == 0 || holders[i].bytes <= holders[i - 1].bytes);
            sum += holders[i].bytes;
        }
        assert_int_equal(sum, peak);
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* A stage's breakdown as it was while the stage was the current one. */
#define STAGES 64
#define STAGE_TAGS 12

typedef struct remembered {
    rvl_holder holders[STAGE_TAGS];
    size_t count;
    rvl_stage_stats stats;
} remembered;

static void remember(rvl_context *context, uint32_t stage, remembered *now)
{
    assert_int_equal(rvl_stage_get_holders(context, stage, 1, now->holders, sizeof(rvl_holder),
                                           STAGE_TAGS, &now->count),
                     RVL_OK);
    now->stats = stage_of(context, stage, 1);
}

static void check_remembered(rvl_context *context, uint32_t stage, const remembered *then,
                             size_t capacity)
{
    rvl_holder holders[STAGE_TAGS];
    size_t count = 0;
    assert_int_equal(
        rvl_stage_get_holders(context, stage, 1, holders, sizeof *holders, capacity, &count),
        RVL_OK);
    assert_int_equal(count, then->count);
    for (size_t i = 0; i < count && i < capacity; i++) {
        assert_string_equal(holders[i].tag, then->holders[i].tag);
        assert_int_equal(holders[i].bytes, then->holders[i].bytes);
    }
    rvl_stage_stats stats = stage_of(context, stage, 1);
    assert_int_equal(stats.peak_bytes, then->stats.peak_bytes);
    assert_int_equal(stats.end_bytes, then->stats.end_bytes);
    assert_int_equal(stats.host_bytes, then->stats.host_bytes);
    assert_int_equal(stats.transition_ns, then->stats.transition_ns);
}

/* Every third stage has nothing to write down: it is known from the one before it. */
static void stages_are_answered_in_any_order(void **state)
{
    (void)state;
    static remembered stages[STAGES];
    rvl_context *context = open_accounted(64 * GIB, false);
    rvl_addr live[STAGE_TAGS] = {0};
    rvl_tag first;
    unsigned seed = 11;
    assert_int_equal(rvl_tag_define(context, "a", NULL, &first), RVL_OK);
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        for (int i = 0; stage % 3 != 2 && i < 5; i++) {
            int slot = rand_r(&seed) % STAGE_TAGS;
            char name[] = {(char)('a' + slot), '\0'};
            if (live[slot] != 0)
                assert_int_equal(rvl_free(context, live[slot]), RVL_OK);
            live[slot] =
                live[slot] != 0
                    ? 0
                    : support_alloc(context, name, 1, (uint64_t)(rand_r(&seed) % 4 + 1) * GRANULE,
                                    RVL_BACKUP_HOST);
        }
        if (stage % 6 == 4)
            assert_int_equal(rvl_pause(context, &first, 1, NULL), RVL_OK);
        if (stage % 6 == 0)
            assert_int_equal(rvl_resume(context, &first, 1, NULL), RVL_OK);
        remember(context, stage, &stages[stage]);
        if (stage + 1 < STAGES)
            assert_int_equal(rvl_stage(context, "s"), RVL_OK);
    }
    for (int i = 0; i < 2000; i++) {
        uint32_t stage = (uint32_t)rand_r(&seed) % STAGES;
        check_remembered(context, stage, &stages[stage], (size_t)rand_r(&seed) % (STAGE_TAGS + 1));
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void external_bytes_take_room(void **state)
{
    (void)state;
    rvl_context *context = open_accounted(100 * MIB, false);
    assert_int_equal(rvl_external_set(context, 0, "context", 60 * MIB), RVL_OK);
    assert_int_equal(rvl_external_set(context, 0, "nccl", 50 * MIB), RVL_ERR_DEVICE_OOM);
    assert_int_equal(support_stats(context, 0).external_bytes, 60 * MIB);
    rvl_addr addr = 0;
    assert_int_equal(rvl_alloc(context, 42 * MIB, NULL, &addr), RVL_ERR_DEVICE_OOM);
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.requested_bytes, 42 * MIB);
    assert_int_equal(error.free_bytes, 40 * MIB);
    assert_int_equal(rvl_external_set(context, 0, "context", 0), RVL_OK);
    assert_int_equal(rvl_alloc(context, 42 * MIB, NULL, &addr), RVL_OK);
    assert_int_equal(rvl_external_set(context, 2, "x", 1), RVL_ERR_NO_DEVICE);
    assert_int_equal(rvl_external_set(context, 0, NULL, 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_external_set(context, 0, "x", UINT64_MAX), RVL_ERR_INVALID);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void overcommit_remembers_the_first_instant(void **state)
{
    (void)state;
    rvl_context *context = open_accounted(100 * MIB, true);
    assert_int_equal(rvl_stage(context, "load"), RVL_OK);
    support_alloc(context, "weights", 0, 80 * MIB, RVL_BACKUP_NONE);
    assert_false(rvl_device_overcommitted(context, 0));
    rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "cache", .flags = RVL_ALLOC_PAUSED};
    rvl_addr cache;
    assert_int_equal(rvl_alloc(context, 20 * MIB, &options, &cache), RVL_OK);
    assert_int_equal(rvl_alloc(context, 10 * MIB, &options, &cache), RVL_OK);
    rvl_tag tag = support_tag(context, "cache");
    assert_int_equal(rvl_stage(context, "wake"), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    support_alloc(context, "more", 0, 500 * MIB, RVL_BACKUP_NONE);
    assert_true(rvl_device_overcommitted(context, 0));
    assert_false(rvl_device_overcommitted(context, 1));

    rvl_device_stats stats = support_stats(context, 0);
    assert_true(stats.oom.happened);
    assert_int_equal(stats.oom.stage, 2);
    assert_int_equal(stats.oom.tag, tag);
    assert_int_equal(stats.oom.requested_bytes, 30 * MIB);
    assert_int_equal(stats.oom.free_bytes, 20 * MIB);
    assert_int_equal(stats.peak_bytes, 610 * MIB);
    assert_int_equal(stage_of(context, 2, 0).free_at_peak_bytes, 0);

    assert_int_equal(rvl_external_set(context, 1, "nccl", 200 * MIB), RVL_OK);
    stats = support_stats(context, 1);
    assert_true(stats.oom.external);
    assert_string_equal(stats.oom.cause, "nccl");
    assert_int_equal(stats.oom.free_bytes, 100 * MIB);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void devices_do_not_share_addresses(void **state)
{
    (void)state;
    rvl_context *context = open_accounted(1 * GIB, false);
    rvl_addr first = support_alloc(context, "weights", 0, 10 * MIB, RVL_BACKUP_NONE);
    rvl_addr second = support_alloc(context, "weights", 1, 10 * MIB, RVL_BACKUP_NONE);
    assert_true(first != second);
    assert_int_equal(rvl_free(context, first), RVL_OK);
    assert_int_equal(support_stats(context, 0).used_bytes, 0);
    assert_int_equal(support_stats(context, 1).used_bytes, 10 * MIB);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void transitions_take_time_in_their_stage(void **state)
{
    (void)state;
    rvl_context *context = open_accounted(10 * GIB, false);
    support_alloc(context, "weights", 0, 1 * GIB, RVL_BACKUP_HOST);
    rvl_tag tag = support_tag(context, "weights");
    assert_int_equal(rvl_stage(context, "sleep"), RVL_OK);
    uint64_t start = rvl_clock_ns(context);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    uint64_t spent = rvl_clock_ns(context) - start;
    assert_int_equal(stage_of(context, 1, 0).transition_ns, spent);
    assert_int_equal(stage_of(context, 1, 1).transition_ns, 0);
    assert_int_equal(stage_of(context, 1, 0).host_bytes, 1 * GIB);
    /* 1 GiB over a link of 55.3 GB/s takes 19.4 ms; making the host memory comes on top. */
    assert_true(spent > 19000000 && spent < 80000000);
    assert_int_equal(rvl_stage(context, "wake"), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(stage_of(context, 2, 0).host_bytes, 1 * GIB); /* what it began with */
    assert_int_equal(support_stats(context, 0).host_backup_bytes, 0);
    assert_int_equal(support_stats(context, 0).transition_ns,
                     spent + stage_of(context, 2, 0).transition_ns);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_peaks_ends_and_names),
        cmocka_unit_test(holders_at_the_peak_are_those_of_the_peak),
        cmocka_unit_test(breakdowns_agree_with_a_plain_model),
        cmocka_unit_test(stages_are_answered_in_any_order),
        cmocka_unit_test(external_bytes_take_room),
        cmocka_unit_test(overcommit_remembers_the_first_instant),
        cmocka_unit_test(devices_do_not_share_addresses),
        cmocka_unit_test(transitions_take_time_in_their_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
