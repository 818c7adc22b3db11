/* SPDX-License-Identifier: MIT */
/*
 * PyTorch snapshots: each rule of the allocator model on a few entries, with values worked out by
 * hand; each way in which a file can be bad; and host memory that runs out anywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <libdeflate.h>

#include "reveille/replay.h"
#include "reveille/snapshot.h"
#include "tests/support/short_memory.h"
#include "predict/snapshot/allocator.h"
#include "tests/support/snapshot_writer.h"

#define MIB (UINT64_C(1) << 20)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Addresses of entries: any will do, as long as they differ. */
#define AT(i) (UINT64_C(0x7f0000000000) + (i)*UINT64_C(0x100000000))

#define ALLOC(i, bytes)                                                                            \
    {                                                                                              \
        .action = "alloc", .addr = AT(i), .size = (bytes)                                          \
    }
#define REQUESTED(i, bytes)                                                                        \
    {                                                                                              \
        .action = "free_requested", .addr = AT(i), .size = (bytes)                                 \
    }
#define COMPLETED(i, bytes)                                                                        \
    {                                                                                              \
        .action = "free_completed", .addr = AT(i), .size = (bytes)                                 \
    }
#define FREE(i, bytes) REQUESTED(i, bytes), COMPLETED(i, bytes)
#define SEGMENT(what, at, bytes)                                                                   \
    {                                                                                              \
        .action = "segment_" what, .addr = (at), .size = (bytes)                                   \
    }

/* ---- Host memory on demand ---- */

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC
SHORT_STRNDUP

/* ---- Running ---- */

static rvl_snapshot_options defaults(void)
{
    return (rvl_snapshot_options){.struct_size = sizeof(rvl_snapshot_options)};
}

static rvl_error last_error;

static rvl_status run_bytes(const void *data, size_t size, const rvl_snapshot_options *options,
                            rvl_snapshot **snapshot_out)
{
    char path[] = "/tmp/reveille-snapshot-XXXXXX";
    save_bytes(path, data, size);
    last_error = (rvl_error){.struct_size = sizeof last_error};
    rvl_status status = rvl_snapshot_run(path, options, snapshot_out);
    rvl_last_error(&last_error);
    unlink(path);
    return status;
}

static rvl_snapshot *run(const test_snapshot *what, const rvl_snapshot_options *options)
{
    rvl_snapshot *snapshot = NULL;
    written bytes = write_snapshot(what);
    rvl_status status = run_bytes(bytes.data, bytes.size, options, &snapshot);
    if (status != RVL_OK)
        print_error("%s\n", last_error.message);
    assert_int_equal(status, RVL_OK);
    free(bytes.data);
    return snapshot;
}

static rvl_snapshot_stage stage_of(const rvl_snapshot *snapshot, uint32_t index)
{
    rvl_snapshot_stage stage = {.struct_size = sizeof stage};
    assert_int_equal(rvl_snapshot_get_stage(snapshot, index, &stage), RVL_OK);
    return stage;
}

static rvl_snapshot_facts facts_of(const rvl_snapshot *snapshot)
{
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    assert_int_equal(rvl_snapshot_get_facts(snapshot, &facts), RVL_OK);
    return facts;
}

static bool has_note(const rvl_snapshot *snapshot, const char *part)
{
    for (uint32_t i = 0; rvl_snapshot_note(snapshot, i) != NULL; i++) {
        if (strstr(rvl_snapshot_note(snapshot, i), part) != NULL)
            return true;
    }
    return false;
}

/* Peaks and end of the only stage of some entries. */
static void check_peaks(const test_snapshot *what, const rvl_snapshot_options *options,
                        uint64_t allocated, uint64_t reserved, uint64_t end, uint64_t retries)
{
    rvl_snapshot *snapshot = run(what, options);
    rvl_snapshot_stage stage = stage_of(snapshot, 0);
    assert_int_equal(stage.peak_allocated_bytes, allocated);
    assert_int_equal(stage.peak_reserved_bytes, reserved);
    assert_int_equal(stage.end_reserved_bytes, end);
    assert_int_equal(stage.num_alloc_retries, retries);
    rvl_snapshot_close(snapshot);
}

#define ENTRIES(list) .events = (list), .event_count = COUNT(list)

/* ---- Sizes ---- */

static void sizes_are_rounded(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 1), ALLOC(1, 513)};
    test_snapshot what = {ENTRIES(events)};
    rvl_snapshot *snapshot = run(&what, NULL);
    rvl_snapshot_stage stage = stage_of(snapshot, 0);
    assert_string_equal(stage.name, "all");
    assert_int_equal(stage.peak_allocated_bytes, 512 + 1024);
    assert_int_equal(stage.peak_reserved_bytes, 2 * MIB);
    assert_int_equal(stage.end_reserved_bytes, 2 * MIB);
    /* The peak is reached by the first entry. */
    assert_int_equal(stage.rounding_bytes, 511);
    assert_int_equal(stage.split_bytes, 2 * MIB - 512);
    assert_int_equal(stage.cached_bytes, 0);
    assert_int_equal(stage.pending_bytes, 0);
    assert_int_equal(stage.pinned_bytes, 2 * MIB - 512);
    assert_int_equal(stage.pinning_event, 0);
    assert_int_equal(stage.pinning_addr, AT(0));
    assert_int_equal(stage.pinning_size_bytes, 1);
    rvl_snapshot_close(snapshot);
}

static void power_of_two_divisions_round_up(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 3000000), ALLOC(1, 1200), ALLOC(2, 2100),
                                 ALLOC(3, 4 * MIB)};
    test_snapshot what = {ENTRIES(events), .divisions = 4};
    check_peaks(&what, NULL, 3145728 + 1536 + 2560 + 4 * MIB, 22 * MIB, 22 * MIB, 0);

    rvli_settings settings;
    rvli_settings_default(&settings);
    settings.divisions[1] = 8;
    assert_int_equal(rvli_allocator_round(&settings, 3000000), 3145728);
    assert_int_equal(rvli_allocator_round(&settings, 2500000), 2621440);
    assert_int_equal(rvli_allocator_round(&settings, 5000000), 5000192);
    assert_int_equal(rvli_allocator_round(&settings, 512), 512);
}

static void segments_are_rounded(void **state)
{
    (void)state;
    const test_event events[] = {
        {.action = "alloc", .addr = AT(0), .size = MIB, .stream = 1},
        {.action = "alloc", .addr = AT(1), .size = MIB + 1, .stream = 2},
        {.action = "alloc", .addr = AT(2), .size = 10 * MIB, .stream = 3},
        {.action = "alloc", .addr = AT(3), .size = 10 * MIB + 1, .stream = 4},
    };
    test_snapshot what = {ENTRIES(events)};
    check_peaks(&what, NULL, 22 * MIB + 1024, 44 * MIB, 44 * MIB, 0);
}

static void little_is_not_split_off(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 11 * MIB), ALLOC(1, 11 * MIB - 512)};
    test_snapshot what = {ENTRIES(events)};
    check_peaks(&what, NULL, 12 * MIB + 11 * MIB - 512, 24 * MIB, 24 * MIB, 0);
}

static void freed_neighbours_merge(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 4 * MIB), ALLOC(1, 4 * MIB), ALLOC(2, 4 * MIB),
                                 FREE(0, 4 * MIB),  FREE(2, 4 * MIB),  FREE(1, 4 * MIB),
                                 ALLOC(3, 18 * MIB)};
    test_snapshot what = {ENTRIES(events)};
    check_peaks(&what, NULL, 20 * MIB - 2 * MIB, 20 * MIB, 20 * MIB, 0);
}

/* ---- Settings ---- */

static void oversize_blocks_are_kept_apart(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 100 * MIB), FREE(0, 100 * MIB), ALLOC(1, 50 * MIB),
                                 ALLOC(2, 90 * MIB),  FREE(2, 90 * MIB),  ALLOC(3, 79 * MIB)};
    test_snapshot what = {ENTRIES(events), .max_split_bytes = 64 << 20};
    check_peaks(&what, NULL, 150 * MIB, 230 * MIB, 230 * MIB, 0);
    what.max_split_bytes = 0;
    what.conf = "max_split_size_mb:64,max_non_split_rounding_mb:22";
    rvl_snapshot_options options = defaults();
    const char *setting = "max_split_size_mb=64";
    options.settings = &setting;
    options.setting_count = 1;
    check_peaks(&what, &options, 150 * MIB, 150 * MIB, 150 * MIB, 0);
}

static void garbage_is_collected_by_age(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 40 * MIB), FREE(0, 40 * MIB),  ALLOC(1, 60 * MIB),
                                 FREE(1, 60 * MIB),  ALLOC(2, 70 * MIB), FREE(2, 70 * MIB),
                                 ALLOC(3, 80 * MIB)};
    test_snapshot what = {ENTRIES(events), .gc_threshold = 0.5,
                          .conf = "per_process_memory_fraction:0.5"};
    rvl_snapshot_options options = defaults();
    options.capacity_bytes = 400 * MIB;
    check_peaks(&what, &options, 80 * MIB, 170 * MIB, 150 * MIB, 0);
    what.gc_threshold = 0;
    check_peaks(&what, &options, 80 * MIB, 170 * MIB, 80 * MIB, 1);
    what.gc_threshold = 0.5; /* without a fraction there is no collection */
    what.conf = NULL;
    check_peaks(&what, &options, 80 * MIB, 250 * MIB, 250 * MIB, 0);
}

static void collections_are_taken_from_the_recording(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 40 * MIB),
                                 FREE(0, 40 * MIB),
                                 ALLOC(1, 60 * MIB),
                                 FREE(1, 60 * MIB),
                                 ALLOC(2, 70 * MIB),
                                 FREE(2, 70 * MIB),
                                 SEGMENT("free", AT(0), 40 * MIB),
                                 SEGMENT("free", AT(1), 60 * MIB),
                                 ALLOC(3, 80 * MIB)};
    test_snapshot what = {ENTRIES(events), .gc_threshold = 0.5};
    rvl_snapshot *snapshot = run(&what, NULL);
    assert_int_equal(stage_of(snapshot, 0).end_reserved_bytes, 150 * MIB);
    assert_true(has_note(snapshot, "--capacity"));
    rvl_snapshot_close(snapshot);
    /* Asked what there would be without collection, none of them is taken for empty_cache. */
    static const char *const none[] = {"garbage_collection_threshold=0"};
    rvl_snapshot_options options = defaults();
    options.settings = none;
    options.setting_count = 1;
    check_peaks(&what, &options, 80 * MIB, 250 * MIB, 250 * MIB, 0);
}

static void a_collection_may_free_nearly_all(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 94 * MIB),
                                 ALLOC(1, 1000),
                                 FREE(1, 1000),
                                 FREE(0, 94 * MIB),
                                 SEGMENT("free", AT(0), 94 * MIB),
                                 ALLOC(2, 100 * MIB)};
    test_snapshot what = {ENTRIES(events), .gc_threshold = 0.5};
    check_peaks(&what, NULL, 100 * MIB, 102 * MIB, 102 * MIB, 0);
}

static void oversize_releases_are_taken_from_the_recording(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 100 * MIB),
                                 ALLOC(1, 5 * MIB),
                                 ALLOC(2, 30 * MIB),
                                 FREE(2, 30 * MIB),
                                 REQUESTED(1, 5 * MIB),
                                 FREE(0, 100 * MIB),
                                 SEGMENT("free", AT(0), 100 * MIB),
                                 ALLOC(3, 120 * MIB),
                                 COMPLETED(1, 5 * MIB)};
    test_snapshot what = {ENTRIES(events), .max_split_bytes = 64 << 20};
    check_peaks(&what, NULL, 135 * MIB, 170 * MIB, 170 * MIB, 0);
    rvl_snapshot *snapshot = run(&what, NULL);
    assert_false(has_note(snapshot, "lacks its beginning"));
    rvl_snapshot_close(snapshot);
    /* Without max_split the request fails, has all given back, and waits for the second block. */
    static const char *const none[] = {"max_split_size_mb=none"};
    rvl_snapshot_options options = defaults();
    options.settings = none;
    options.setting_count = 1;
    check_peaks(&what, &options, 135 * MIB, 150 * MIB, 120 * MIB, 1);
    snapshot = run(&what, &options);
    assert_false(has_note(snapshot, "lacks its beginning"));
    rvl_snapshot_close(snapshot);
}

static void retries_show_where_a_fraction_is_set(void **state)
{
    (void)state;
    test_event events[] = {SEGMENT("alloc", AT(0), 100 * MIB),
                           ALLOC(0, 100 * MIB),
                           FREE(0, 100 * MIB),
                           SEGMENT("free", AT(0), 100 * MIB),
                           SEGMENT("alloc", AT(1), 120 * MIB),
                           ALLOC(1, 120 * MIB),
                           SEGMENT("alloc", AT(2), 100 * MIB),
                           ALLOC(2, 100 * MIB)};
    rvl_snapshot_options options = defaults();
    test_snapshot what = {.events = events, .event_count = COUNT(events) - 2};
    check_peaks(&what, NULL, 120 * MIB, 120 * MIB, 120 * MIB, 0);
    what.conf = "per_process_memory_fraction:0.5";
    check_peaks(&what, NULL, 120 * MIB, 120 * MIB, 120 * MIB, 1);
    options.flags |= RVL_SNAPSHOT_VERIFY;
    check_peaks(&what, &options, 120 * MIB, 120 * MIB, 120 * MIB, 1);
    /* As much as the request needed was reserved later: there was room, and it was empty_cache. */
    what.event_count = COUNT(events);
    check_peaks(&what, &options, 220 * MIB, 220 * MIB, 220 * MIB, 0);
    /* The block that was given back would have done. */
    events[6].size = events[5].size = 90 * MIB;
    what.event_count = COUNT(events) - 2;
    check_peaks(&what, &options, 100 * MIB, 100 * MIB, 90 * MIB, 0);
}

static void a_fraction_bounds_what_is_reserved(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 60 * MIB), FREE(0, 60 * MIB), ALLOC(1, 80 * MIB)};
    test_snapshot what = {ENTRIES(events), .conf = "per_process_memory_fraction:0.5"};
    rvl_snapshot_options options = defaults();
    options.capacity_bytes = 200 * MIB;
    check_peaks(&what, &options, 80 * MIB, 80 * MIB, 80 * MIB, 1);
    options.capacity_bytes = 280 * MIB;
    check_peaks(&what, &options, 80 * MIB, 140 * MIB, 140 * MIB, 0);
}

static void oversize_blocks_go_first(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 100 * MIB), FREE(0, 100 * MIB), ALLOC(1, 79 * MIB)};
    test_snapshot what = {ENTRIES(events), .max_split_bytes = 64 << 20};
    rvl_snapshot_options options = defaults();
    options.capacity_bytes = 150 * MIB;
    check_peaks(&what, &options, 100 * MIB, 100 * MIB, 80 * MIB, 0);

    const test_event more[] = {ALLOC(0, 100 * MIB), FREE(0, 100 * MIB), ALLOC(1, 50 * MIB),
                               FREE(1, 50 * MIB), ALLOC(2, 120 * MIB)};
    test_snapshot other = {ENTRIES(more), .max_split_bytes = 64 << 20};
    options.capacity_bytes = 200 * MIB;
    check_peaks(&other, &options, 120 * MIB, 150 * MIB, 120 * MIB, 1);
}

static void requests_that_do_not_fit_are_told(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 30 * MIB), ALLOC(1, 40 * MIB), ALLOC(2, 50 * MIB)};
    test_snapshot what = {ENTRIES(events)};
    rvl_snapshot_options options = defaults();
    options.capacity_bytes = 50 * MIB;
    rvl_snapshot *snapshot = run(&what, &options);
    rvl_snapshot_facts facts = facts_of(snapshot);
    assert_int_equal(facts.oom_count, 2);
    assert_int_equal(facts.oom_event, 1);
    assert_int_equal(facts.oom_requested_bytes, 40 * MIB);
    assert_int_equal(stage_of(snapshot, 0).peak_reserved_bytes, 120 * MIB);
    assert_false(facts.exact);
    rvl_snapshot_close(snapshot);
}

/* ---- Expandable segments ---- */

static void pages_are_mapped_and_unmapped(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 3 * MIB), ALLOC(1, 30 * MIB), FREE(1, 30 * MIB),
                                 ALLOC(2, 512)};
    const test_stage stages[] = {{"stage:one", 0, 1025}, {"stage:two", 1026, 2000}};
    test_snapshot what = {ENTRIES(events), .stages = stages, .stage_count = 2, .expandable = true};
    rvl_snapshot_options options = defaults();
    options.flags |= RVL_SNAPSHOT_EMPTY_CACHE;
    rvl_snapshot *snapshot = run(&what, &options);
    rvl_snapshot_stage one = stage_of(snapshot, 0), two = stage_of(snapshot, 1);
    assert_string_equal(one.name, "one");
    assert_int_equal(one.peak_allocated_bytes, 33 * MIB);
    assert_int_equal(one.peak_reserved_bytes, 40 * MIB);
    assert_int_equal(one.split_bytes, 7 * MIB);
    assert_int_equal(one.end_reserved_bytes, 40 * MIB);
    assert_int_equal(two.peak_reserved_bytes, 22 * MIB); /* and 2 MiB for the small one */
    assert_int_equal(two.split_bytes, 19 * MIB - 512);
    assert_int_equal(two.cached_bytes, 0);
    rvl_snapshot_close(snapshot);
}

static void expandable_blocks_fit_by_what_they_can_become(void **state)
{
    (void)state;
    /* [0: 15 free][1: 4 live][21 free, then unmapped]: 15 can take 12 without another page. */
    const test_event events[] = {ALLOC(0, 15 * MIB), ALLOC(1, 4 * MIB), ALLOC(2, 21 * MIB),
                                 FREE(2, 21 * MIB),  FREE(0, 15 * MIB), ALLOC(3, 12 * MIB),
                                 ALLOC(4, 21 * MIB)};
    test_snapshot what = {ENTRIES(events), .expandable = true};
    check_peaks(&what, NULL, 40 * MIB, 40 * MIB, 40 * MIB, 0);
}

static void an_empty_range_is_given_back(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 30 * MIB), FREE(0, 30 * MIB),
                                 SEGMENT("unmap", AT(0), 40 * MIB), ALLOC(1, 2 * MIB)};
    test_snapshot what = {ENTRIES(events), .expandable = true};
    check_peaks(&what, NULL, 30 * MIB, 40 * MIB, 20 * MIB, 0);
    rvl_snapshot_options options = defaults();
    options.capacity_bytes = 39 * MIB; /* one page can be mapped, the second cannot */
    rvl_snapshot *snapshot = run(&what, &options);
    assert_int_equal(facts_of(snapshot).oom_count, 1);
    rvl_snapshot_close(snapshot);
}

/* ---- Streams and pools ---- */

static void pending_blocks_are_not_reused(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 10 * MIB), REQUESTED(0, 10 * MIB), ALLOC(1, 10 * MIB),
                                 COMPLETED(0, 10 * MIB), ALLOC(2, 10 * MIB)};
    test_snapshot what = {ENTRIES(events)};
    rvl_snapshot *snapshot = run(&what, NULL);
    rvl_snapshot_stage stage = stage_of(snapshot, 0);
    assert_int_equal(stage.peak_allocated_bytes, 20 * MIB);
    assert_int_equal(stage.peak_reserved_bytes, 20 * MIB);
    assert_int_equal(stage.pending_bytes, 10 * MIB);
    assert_int_equal(stage.end_reserved_bytes, 20 * MIB);
    rvl_snapshot_close(snapshot);

    rvl_snapshot_options options = defaults(); /* a retry waits for them */
    options.capacity_bytes = 15 * MIB;
    const test_event few[] = {ALLOC(0, 10 * MIB), REQUESTED(0, 10 * MIB), ALLOC(1, 10 * MIB),
                              COMPLETED(0, 10 * MIB)};
    test_snapshot other = {ENTRIES(few)};
    check_peaks(&other, &options, 10 * MIB, 10 * MIB, 10 * MIB, 1);
}

static void streams_share_nothing(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 10 * MIB),
                                 FREE(0, 10 * MIB),
                                 {.action = "alloc", .addr = AT(1), .size = 10 * MIB, .stream = 7}};
    test_snapshot what = {ENTRIES(events)};
    check_peaks(&what, NULL, 10 * MIB, 20 * MIB, 20 * MIB, 0);
}

static void private_pools_share_nothing(void **state)
{
    (void)state;
    const test_event events[] = {
        {.action = "alloc", .addr = AT(0), .size = 10 * MIB, .pool = 1},
        FREE(0, 10 * MIB),
        ALLOC(1, 12 * MIB),
        FREE(1, 12 * MIB),
        SEGMENT("free", AT(1), 12 * MIB), /* of the default pool alone: the other is in use */
        {.action = "alloc", .addr = AT(2), .size = 10 * MIB, .pool = 1},
        {.action = "free_requested", .addr = AT(2), .size = 10 * MIB, .pool = 1},
        {.action = "free_completed", .addr = AT(2), .size = 10 * MIB, .pool = 1},
    };
    test_snapshot what = {ENTRIES(events)};
    check_peaks(&what, NULL, 12 * MIB, 22 * MIB, 10 * MIB, 0);

    const test_event freed[] = {
        {.action = "alloc", .addr = AT(0), .size = 10 * MIB, .pool = 1},
        FREE(0, 10 * MIB),
        {.action = "segment_free", .addr = AT(0), .size = 10 * MIB, .pool = 1},
    };
    test_snapshot other = {ENTRIES(freed)};
    check_peaks(&other, NULL, 10 * MIB, 10 * MIB, 0, 0);
}

/* ---- Stages and cues ---- */

static void a_burst_means_empty_cache(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 30 * MIB), FREE(0, 30 * MIB),
                                 SEGMENT("free", AT(0), 30 * MIB), ALLOC(1, 40 * MIB)};
    test_snapshot what = {ENTRIES(events)};
    check_peaks(&what, NULL, 40 * MIB, 40 * MIB, 40 * MIB, 0);
}

static void stages_may_overlap_and_repeat(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 10 * MIB), ALLOC(1, 20 * MIB), FREE(1, 20 * MIB),
                                 ALLOC(2, 2 * MIB), ALLOC(3, 40 * MIB)};
    /* Entries are at 1000, 1010, ... 1050. */
    const test_stage stages[] = {{"stage:a", 1000, 1010},  {"stage:b", 1005, 1045},
                                 {"other", 1000, 1050},    {"stage:a", 1046, 1100},
                                 {"stage:open", 1047, -1}, {"stage:never", -1, 1048}};
    test_snapshot what = {ENTRIES(events), .stages = stages, .stage_count = COUNT(stages)};
    rvl_snapshot *snapshot = run(&what, NULL);
    assert_int_equal(facts_of(snapshot).stage_count, 4);
    assert_string_equal(stage_of(snapshot, 0).name, "a");
    assert_int_equal(stage_of(snapshot, 0).peak_allocated_bytes, 30 * MIB);
    assert_int_equal(stage_of(snapshot, 0).end_reserved_bytes, 30 * MIB);
    assert_string_equal(stage_of(snapshot, 1).name, "b");
    assert_int_equal(stage_of(snapshot, 1).peak_allocated_bytes, 30 * MIB);
    assert_int_equal(stage_of(snapshot, 1).end_reserved_bytes, 30 * MIB);
    assert_string_equal(stage_of(snapshot, 2).name, "a#2");
    assert_int_equal(stage_of(snapshot, 2).peak_allocated_bytes, 52 * MIB);
    assert_int_equal(stage_of(snapshot, 2).peak_reserved_bytes, 70 * MIB);
    assert_string_equal(stage_of(snapshot, 3).name, "open");
    assert_true(has_note(snapshot, "no START or no END"));
    rvl_snapshot_close(snapshot);

    rvl_snapshot_options options = defaults();
    options.stage_prefix = "oth";
    snapshot = run(&what, &options);
    assert_int_equal(facts_of(snapshot).stage_count, 1);
    assert_string_equal(stage_of(snapshot, 0).name, "er");
    assert_true(facts_of(snapshot).exact);
    rvl_snapshot_close(snapshot);
}

/* ---- What lowers the confidence ---- */

static void unknown_actions_are_counted(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 10 * MIB),
                                 {.action = "mystery", .addr = 1, .size = 1},
                                 {.action = "annotate"},
                                 {.action = "snapshot"},
                                 {.action = "alloc", .addr = AT(1), .size = UINT64_C(1) << 60}};
    const test_stage stages[] = {{"stage:s", 0, 2000}};
    test_snapshot what = {ENTRIES(events), .stages = stages, .stage_count = 1};
    rvl_snapshot *snapshot = run(&what, NULL);
    assert_int_equal(facts_of(snapshot).skipped_count, 2);
    assert_false(facts_of(snapshot).exact);
    assert_int_equal(facts_of(snapshot).note_count, 1);
    assert_int_equal(stage_of(snapshot, 0).peak_allocated_bytes, 10 * MIB);
    rvl_snapshot_close(snapshot);
}

static void a_lost_beginning_is_made_up_for(void **state)
{
    (void)state;
    const test_event events[] = {FREE(0, 10 * MIB), ALLOC(2, 2 * MIB), COMPLETED(5, 10 * MIB)};
    const test_block blocks[] = {{AT(1), 20 * MIB, 4 * MIB, 4 * MIB, true},
                                 {AT(3), 20 * MIB, 20 * MIB, 0, false}};
    test_snapshot what = {ENTRIES(events), .blocks = blocks, .block_count = 2};
    rvl_snapshot *snapshot = run(&what, NULL);
    rvl_snapshot_stage stage = stage_of(snapshot, 0);
    assert_true(has_note(snapshot, "lacks its beginning"));
    assert_int_equal(stage.peak_allocated_bytes, 14 * MIB);
    assert_int_equal(stage.peak_reserved_bytes, 40 * MIB);
    assert_int_equal(stage.pending_bytes, 10 * MIB);
    assert_int_equal(stage.split_bytes, 16 * MIB);
    rvl_snapshot_close(snapshot);
}

static void what_was_reserved_before_is_taken_back(void **state)
{
    (void)state;
    /* At first there are A (10, live), B (20, cached) and C (30, freed later). */
    const test_event events[] = {FREE(0, 10 * MIB), SEGMENT("free", AT(2), 30 * MIB),
                                 SEGMENT("alloc", AT(3), 40 * MIB), ALLOC(3, 40 * MIB)};
    const test_block blocks[] = {{AT(0), 10 * MIB, 10 * MIB, 0, false},
                                 {AT(1), 20 * MIB, 20 * MIB, 0, false},
                                 {AT(3), 40 * MIB, 40 * MIB, 40 * MIB, true}};
    test_snapshot what = {ENTRIES(events), .blocks = blocks, .block_count = 3};
    rvl_snapshot *snapshot = run(&what, NULL);
    assert_int_equal(stage_of(snapshot, 0).peak_reserved_bytes, 70 * MIB);
    assert_int_equal(stage_of(snapshot, 0).cached_bytes, 30 * MIB);
    rvl_snapshot_close(snapshot);
}

static void what_shows_nothing_live_was_not_there(void **state)
{
    (void)state;
    /* No entry says where segments begin, and those that go later were made meanwhile. */
    const test_event events[] = {FREE(0, 10 * MIB),
                                 ALLOC(1, 30 * MIB),
                                 FREE(1, 30 * MIB),
                                 SEGMENT("free", AT(1), 30 * MIB),
                                 ALLOC(2, 50 * MIB),
                                 FREE(2, 50 * MIB),
                                 SEGMENT("free", AT(2), 50 * MIB)};
    test_snapshot what = {ENTRIES(events)};
    check_peaks(&what, NULL, 50 * MIB, 60 * MIB, 10 * MIB, 0);
}

static void ends_of_blocks_show_by_what_came_behind(void **state)
{
    (void)state;
    /* [3 live and 1 that was not split off][2 allocated then][14 free], and the same once more. */
    const uint64_t a = UINT64_C(0x7f0000000000), b = a + 32 * MIB;
    const test_event events[] = {
        {.action = "alloc", .addr = a + 4 * MIB, .size = 14 * MIB},
        {.action = "free_requested", .addr = a, .size = 3 * MIB},
        {.action = "free_completed", .addr = a, .size = 3 * MIB},
        {.action = "alloc", .addr = a, .size = 4 * MIB},
        {.action = "free_requested", .addr = b, .size = 2 * MIB},
        {.action = "free_completed", .addr = b, .size = 2 * MIB},
    };
    const test_block blocks[] = {{a, 20 * MIB, 4 * MIB, 4 * MIB, true},
                                 {b, 20 * MIB, 20 * MIB, 0, false}};
    test_snapshot what = {ENTRIES(events), .blocks = blocks, .block_count = 2};
    rvl_snapshot_options options = defaults();
    options.flags |= RVL_SNAPSHOT_VERIFY;
    rvl_snapshot *snapshot = run(&what, &options);
    assert_false(facts_of(snapshot).diverged);
    assert_int_equal(stage_of(snapshot, 0).peak_allocated_bytes, 20 * MIB);
    rvl_snapshot_close(snapshot);
}

static void guessed_sizes_are_no_divergence(void **state)
{
    (void)state;
    /* Behind the 3 that were live 16 were free, and not 17: a remainder of 1 was not split off. */
    test_event events[] = {SEGMENT("alloc", AT(1), 18 * MIB), ALLOC(1, 17 * MIB), FREE(0, 3 * MIB)};
    const test_block blocks[] = {{AT(0), 20 * MIB, 20 * MIB, 0, false},
                                 {AT(1), 18 * MIB, 18 * MIB, 17 * MIB, true}};
    test_snapshot what = {ENTRIES(events), .blocks = blocks, .block_count = 2};
    rvl_snapshot_options options = defaults();
    options.flags |= RVL_SNAPSHOT_VERIFY;
    rvl_snapshot *snapshot = run(&what, &options);
    assert_false(facts_of(snapshot).diverged);
    assert_true(has_note(snapshot, "follows the recording there"));
    assert_int_equal(stage_of(snapshot, 0).peak_reserved_bytes, 38 * MIB);
    rvl_snapshot_close(snapshot);
    /* Once the block is free, there is nothing left to guess. */
    const test_event later[] = {FREE(0, 3 * MIB), SEGMENT("alloc", AT(1), 18 * MIB),
                                ALLOC(1, 17 * MIB)};
    test_snapshot other = {ENTRIES(later), .blocks = blocks, .block_count = 2};
    snapshot = run(&other, &options);
    assert_true(facts_of(snapshot).diverged);
    assert_int_equal(facts_of(snapshot).diverged_at, 3);
    assert_non_null(strstr(facts_of(snapshot).diverged_why, "private pool"));
    rvl_snapshot_close(snapshot);
}

static void settings_are_read_as_pytorch_reads_them(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 5 * MIB + 1)};
    test_snapshot what = {ENTRIES(events), .conf = "large_segment_size_mb : 40, pinned_x:1"};
    rvl_snapshot *snapshot = run(&what, NULL);
    assert_int_equal(stage_of(snapshot, 0).peak_reserved_bytes, 40 * MIB);
    assert_false(has_note(snapshot, "does not know"));
    rvl_snapshot_close(snapshot);
    what.expandable = true;
    check_peaks(&what, NULL, 5 * MIB + 512, 40 * MIB, 40 * MIB, 0);
    what.conf = "backend:cudaMallocAsync";
    snapshot = run(&what, NULL);
    assert_true(has_note(snapshot, "does not know"));
    assert_false(facts_of(snapshot).exact);
    rvl_snapshot_close(snapshot);
}

static void contradictions_are_told(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 10 * MIB), ALLOC(0, 12 * MIB), FREE(0, 12 * MIB),
                                 FREE(0, 12 * MIB)};
    test_snapshot what = {ENTRIES(events)};
    rvl_snapshot *snapshot = run(&what, NULL);
    assert_true(has_note(snapshot, "contradict"));
    assert_int_equal(stage_of(snapshot, 0).end_reserved_bytes, 22 * MIB);
    rvl_snapshot_close(snapshot);
}

static void ties_are_told(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 10 * MIB), ALLOC(1, 10 * MIB), FREE(0, 10 * MIB),
                                 FREE(1, 10 * MIB), ALLOC(2, 10 * MIB)};
    const test_stage stages[] = {{"stage:s", 0, 2000}};
    test_snapshot what = {ENTRIES(events), .stages = stages, .stage_count = 1};
    rvl_snapshot *snapshot = run(&what, NULL);
    assert_true(has_note(snapshot, "several cached blocks of one size"));
    assert_int_equal(facts_of(snapshot).note_count, 1);
    rvl_snapshot_close(snapshot);
}

/* ---- Verification ---- */

#define BASE UINT64_C(0x7f0000000000)

static void check_verified(const test_event *events, size_t count, uint64_t diverged_at,
                           uint64_t reserved)
{
    test_snapshot what = {.events = events, .event_count = count};
    rvl_snapshot_options options = defaults();
    options.flags |= RVL_SNAPSHOT_VERIFY;
    rvl_snapshot *snapshot = run(&what, &options);
    rvl_snapshot_facts facts = facts_of(snapshot);
    assert_int_equal(facts.diverged, diverged_at != UINT64_MAX);
    if (facts.diverged)
        assert_int_equal(facts.diverged_at, diverged_at);
    assert_int_equal(stage_of(snapshot, 0).peak_reserved_bytes, reserved);
    rvl_snapshot_close(snapshot);
}

static void a_true_recording_is_verified(void **state)
{
    (void)state;
    const test_event events[] = {
        SEGMENT("alloc", BASE, 20 * MIB),
        {.action = "alloc", .addr = BASE, .size = 3 * MIB},
        {.action = "alloc", .addr = BASE + 3 * MIB, .size = 2 * MIB},
        {.action = "free_requested", .addr = BASE, .size = 3 * MIB},
        {.action = "free_completed", .addr = BASE, .size = 3 * MIB},
        {.action = "free_requested", .addr = BASE + 3 * MIB, .size = 2 * MIB},
        {.action = "free_completed", .addr = BASE + 3 * MIB, .size = 2 * MIB},
        SEGMENT("free", BASE, 20 * MIB),
    };
    check_verified(events, COUNT(events), UINT64_MAX, 20 * MIB);
}

static void the_first_divergence_is_told(void **state)
{
    (void)state;
    const test_event elsewhere[] = {SEGMENT("alloc", BASE, 20 * MIB),
                                    {.action = "alloc", .addr = BASE, .size = 3 * MIB},
                                    {.action = "alloc", .addr = BASE + 4 * MIB, .size = 2 * MIB}};
    check_verified(elsewhere, COUNT(elsewhere), 2, 22 * MIB);
    const test_event larger[] = {SEGMENT("alloc", BASE, 22 * MIB),
                                 {.action = "alloc", .addr = BASE, .size = 3 * MIB}};
    check_verified(larger, COUNT(larger), 0, 22 * MIB);
    const test_event kept[] = {SEGMENT("alloc", BASE, 20 * MIB),
                               {.action = "alloc", .addr = BASE, .size = 3 * MIB},
                               SEGMENT("free", BASE, 20 * MIB)};
    check_verified(kept, COUNT(kept), 2, 20 * MIB);
    const test_event needless[] = {SEGMENT("alloc", BASE, 20 * MIB),
                                   {.action = "alloc", .addr = BASE, .size = 3 * MIB},
                                   SEGMENT("alloc", AT(1), 30 * MIB),
                                   {.action = "alloc", .addr = AT(1), .size = 5 * MIB}};
    check_verified(needless, COUNT(needless), 3, 50 * MIB);
    const test_event missing[] = {{.action = "alloc", .addr = BASE, .size = 30 * MIB}};
    check_verified(missing, COUNT(missing), 0, 30 * MIB);
    const test_event trailing[] = {SEGMENT("alloc", BASE, 20 * MIB),
                                   {.action = "alloc", .addr = BASE, .size = 3 * MIB},
                                   SEGMENT("alloc", AT(1), 30 * MIB)};
    check_verified(trailing, COUNT(trailing), 2, 50 * MIB);
}

static void recorded_collections_are_verified(void **state)
{
    (void)state;
    const test_event events[] = {SEGMENT("alloc", AT(0), 40 * MIB),
                                 ALLOC(0, 40 * MIB),
                                 FREE(0, 40 * MIB),
                                 SEGMENT("alloc", AT(1), 60 * MIB),
                                 ALLOC(1, 60 * MIB),
                                 FREE(1, 60 * MIB),
                                 SEGMENT("alloc", AT(2), 70 * MIB),
                                 ALLOC(2, 70 * MIB),
                                 FREE(2, 70 * MIB),
                                 SEGMENT("free", AT(0), 40 * MIB),
                                 SEGMENT("free", AT(1), 60 * MIB),
                                 SEGMENT("alloc", AT(3), 80 * MIB),
                                 ALLOC(3, 80 * MIB)};
    test_snapshot what = {ENTRIES(events), .gc_threshold = 0.5};
    rvl_snapshot_options options = defaults();
    options.flags |= RVL_SNAPSHOT_VERIFY;
    check_peaks(&what, &options, 80 * MIB, 170 * MIB, 150 * MIB, 0);
    rvl_snapshot *snapshot = run(&what, &options);
    assert_false(facts_of(snapshot).diverged);
    rvl_snapshot_close(snapshot);
    options.capacity_bytes = 200 * MIB; /* the model collects by itself, and is compared */
    snapshot = run(&what, &options);
    assert_false(facts_of(snapshot).diverged);
    assert_int_equal(stage_of(snapshot, 0).end_reserved_bytes, 150 * MIB);
    rvl_snapshot_close(snapshot);
    what.gc_threshold = 0;
    options.capacity_bytes = 0;
    snapshot = run(&what, &options);
    assert_true(facts_of(snapshot).diverged);
    assert_int_equal(facts_of(snapshot).diverged_at, 13);
    assert_int_equal(stage_of(snapshot, 0).end_reserved_bytes, 150 * MIB);
    rvl_snapshot_close(snapshot);
}

static void recorded_retries_are_verified(void **state)
{
    (void)state;
    rvl_snapshot_options options = defaults();
    options.flags |= RVL_SNAPSHOT_VERIFY;
    /* Blocks above max_split were not enough: the small one went too. */
    const test_event events[] = {SEGMENT("alloc", AT(0), 100 * MIB),
                                 ALLOC(0, 100 * MIB),
                                 FREE(0, 100 * MIB),
                                 SEGMENT("alloc", AT(1), 50 * MIB),
                                 ALLOC(1, 50 * MIB),
                                 FREE(1, 50 * MIB),
                                 SEGMENT("free", AT(0), 100 * MIB),
                                 SEGMENT("free", AT(1), 50 * MIB),
                                 SEGMENT("alloc", AT(2), 120 * MIB),
                                 ALLOC(2, 120 * MIB)};
    test_snapshot what = {ENTRIES(events), .max_split_bytes = 64 << 20};
    check_peaks(&what, &options, 120 * MIB, 150 * MIB, 120 * MIB, 1);
    rvl_snapshot *snapshot = run(&what, &options);
    assert_false(facts_of(snapshot).diverged);
    rvl_snapshot_close(snapshot);
    /* And one that failed all the same. */
    const test_event failed[] = {SEGMENT("alloc", AT(0), 100 * MIB),
                                 ALLOC(0, 100 * MIB),
                                 FREE(0, 100 * MIB),
                                 SEGMENT("free", AT(0), 100 * MIB),
                                 {.action = "oom", .addr = 100 * MIB, .size = 500 * MIB}};
    test_snapshot other = {ENTRIES(failed)};
    check_peaks(&other, &options, 100 * MIB, 100 * MIB, 0, 1);
    options.flags &= ~(uint64_t)RVL_SNAPSHOT_VERIFY;
    check_peaks(&other, &options, 100 * MIB, 100 * MIB, 0, 1);
}

static void streams_of_segments_are_verified(void **state)
{
    (void)state;
    const test_event events[] = {
        {.action = "segment_alloc", .addr = BASE, .size = 20 * MIB, .stream = 3},
        {.action = "alloc", .addr = BASE, .size = 3 * MIB}};
    check_verified(events, COUNT(events), 0, 20 * MIB);
}

/* ---- Results ---- */

static void json_has_the_schema(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 1)};
    const test_stage stages[] = {{"stage:s", 0, 2000}};
    test_snapshot what = {ENTRIES(events), .stages = stages, .stage_count = 1};
    rvl_snapshot *snapshot = run(&what, NULL);
    char *json = NULL;
    assert_int_equal(rvl_snapshot_to_json(snapshot, &json), RVL_OK);
    assert_string_equal(
        json, "{\"schema\":1,\"mode\":\"predict\",\"diverged_at\":null,\"stages\":[{\"name\":\"s\","
              "\"peak_allocated_bytes\":512,\"peak_reserved_bytes\":2097152,"
              "\"end_reserved_bytes\":2097152,\"num_alloc_retries\":0,\"gap\":{"
              "\"rounding_bytes\":511,\"split_bytes\":2096640,\"cached_bytes\":0,"
              "\"pending_bytes\":0},\"pinned_by\":{\"bytes\":2096640,\"event\":0,"
              "\"addr\":139637976727552,\"size_bytes\":1}}],\"skipped_events\":0,"
              "\"confidence\":\"exact\",\"notes\":[],\"oom\":null,\"capacity\":null}");
    rvl_string_free(json);
    rvl_snapshot_close(snapshot);
}

/* ---- Tensors ---- */

static rvl_status list_bytes(const void *data, size_t size, char **json_out)
{
    char path[] = "/tmp/reveille-snapshot-XXXXXX";
    save_bytes(path, data, size);
    last_error = (rvl_error){.struct_size = sizeof last_error};
    rvl_status status = rvl_snapshot_get_tensors(path, NULL, json_out);
    rvl_last_error(&last_error);
    unlink(path);
    return status;
}

/*
 * Worked out by hand. Addresses are 4 MiB apart, in units of 512 bytes: 8192 of them, which is
 * 16384 with the sign, as a varint 80 80 01. The second tensor outlives the trace, the first is
 * gone at instant 3, two after it came, and done one later.
 */
static void tensors_are_listed_in_columns(void **state)
{
    (void)state;
    enum { LOWEST = 512 }; /* one unit: 1, or 2 with the sign */
    const test_event events[] = {
        {.action = "alloc", .addr = LOWEST, .size = 300},
        {.action = "alloc", .addr = LOWEST + 4 * MIB, .size = 5},
        {.action = "free_requested", .addr = LOWEST, .size = 300},
        {.action = "free_completed", .addr = LOWEST, .size = 300},
    };
    test_snapshot what = {ENTRIES(events), .frames = true};
    written bytes = write_snapshot(&what);
    char *json = NULL;
    assert_int_equal(list_bytes(bytes.data, bytes.size, &json), RVL_OK);
    assert_string_equal(
        json, "{\"schema\":1,\"origin_us\":1000,\"device\":0,\"unit_bytes\":512,\"entries\":4,"
              "\"tensors\":2,\"segments\":0,\"frames\":1,\"calls\":1,\n"
              "\"time_us\":\"ABQUFA==\",\n" /* 0, 10, 10, 10 */
              "\"addr\":\"AoCAAQ==\",\n"
              "\"bytes\":\"rAIF\",\n" /* 300 is ac 02 */
              "\"begin\":\"AgI=\",\n"
              "\"end\":\"AwA=\",\n"
              "\"done\":\"AgA=\",\n"
              "\"call\":\"AQE=\",\n"
              "\"label\":\"AAA=\",\n"
              "\"segment_addr\":\"\",\n\"segment_bytes\":\"\",\n\"segment_begin\":\"\",\n"
              "\"segment_end\":\"\",\n\"segment_expandable\":\"\",\n"
              "\"call_caller\":\"AQ==\",\n\"call_frame\":\"AA==\",\n"
              "\"frame_file\":\"AQ==\",\n\"frame_name\":\"Ag==\",\n" /* as it is looked up */
              "\"frame_line\":\"rAI=\",\n"
              "\"texts\":[\"\",\"model.py\",\"forward\"]}");
    rvl_string_free(json);
    json = NULL;
    assert_int_equal(list_bytes(bytes.data, 40, &json), RVL_ERR_CORRUPT_TRACE);
    assert_non_null(strstr(last_error.message, "breaks off"));
    assert_int_equal(rvl_snapshot_get_tensors("/nonexistent", NULL, &json), RVL_ERR_IO);
    assert_int_equal(rvl_snapshot_get_tensors(NULL, NULL, &json), RVL_ERR_INVALID);
    assert_int_equal(rvl_snapshot_get_tensors("/nonexistent", NULL, NULL), RVL_ERR_INVALID);
    assert_null(json);
    free(bytes.data);
}

static char *json_of(const test_snapshot *what)
{
    char *json = NULL;
    rvl_snapshot *snapshot = run(what, NULL);
    assert_int_equal(rvl_snapshot_to_json(snapshot, &json), RVL_OK);
    rvl_snapshot_close(snapshot);
    return json;
}

/* Keys from a memo or in full, with stack frames or without: the same is read. */
static void ways_of_writing_do_not_matter(void **state)
{
    (void)state;
    test_event events[60];
    for (size_t i = 0; i < COUNT(events); i++)
        events[i] = (test_event){.action = i % 3 == 0   ? "alloc"
                                           : i % 3 == 1 ? "free_requested"
                                                        : "free_completed",
                                 .addr = AT(i / 3),
                                 .size = 1000 * (i / 3 + 1),
                                 .stream = i / 30};
    test_snapshot what = {ENTRIES(events)};
    char *memo = json_of(&what);
    what.plain = true;
    char *plain = json_of(&what);
    assert_string_equal(memo, plain);
    free(plain);
    what.frames = true;
    plain = json_of(&what);
    assert_string_equal(memo, plain);
    free(plain);
    what.plain = false;
    plain = json_of(&what);
    assert_string_equal(memo, plain);
    free(plain);
    free(memo);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *part;
    } bad[] = {{"expandable_segments", "expected KEY=VALUE"},
               {"colour=red", "the model follows expandable_segments, max_split"},
               {"expandable_segments=maybe", "expected true or false"},
               {"max_split_size_mb=19", "20 or more"},
               {"garbage_collection_threshold=1", "a fraction below 1"},
               {"per_process_memory_fraction=0", "above 0"},
               {"roundup_power2_divisions=3", "a power of two"},
               {"roundup_power2_divisions=[256]", "a power of two"},
               {"roundup_power2_divisions=[256:2", "a power of two"}};
    rvl_snapshot *snapshot = NULL;
    rvl_snapshot_options options = defaults();
    options.setting_count = 1;
    for (size_t i = 0; i < COUNT(bad); i++) {
        options.settings = &bad[i].setting;
        assert_int_equal(run_bytes("", 0, &options, &snapshot), RVL_ERR_INVALID);
        assert_non_null(strstr(last_error.message, bad[i].part));
    }
    const char *good = "expandable_segments=true";
    options.settings = &good;
    options.flags |= RVL_SNAPSHOT_VERIFY;
    assert_int_equal(run_bytes("", 0, &options, &snapshot), RVL_ERR_INVALID);
    assert_int_equal(rvl_snapshot_run(NULL, NULL, &snapshot), RVL_ERR_INVALID);
    assert_int_equal(rvl_snapshot_run("/nonexistent", NULL, &snapshot), RVL_ERR_IO);
    rvl_last_error(&last_error);
    assert_string_equal(last_error.message, "No such file or directory");
    assert_int_equal(rvl_snapshot_run("/tmp", NULL, &snapshot), RVL_ERR_IO);
    rvl_last_error(&last_error);
    assert_int_equal(rvl_snapshot_get_facts(NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_snapshot_get_stage(NULL, 0, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_snapshot_to_json(NULL, NULL), RVL_ERR_INVALID);
    assert_null(rvl_snapshot_note(NULL, 0));
    rvl_snapshot_close(NULL);
    assert_null(snapshot);
}

static void divisions_are_read_as_lists(void **state)
{
    (void)state;
    static const char list[] = "[4:1,16:2,64:4,>:8]";
    const char *expected = NULL;
    rvli_settings settings;
    rvli_settings_default(&settings);
    assert_int_equal(
        rvli_settings_set(&settings, "roundup_power2_divisions", 24, list, strlen(list), &expected),
        RVL_OK);
    const uint64_t wanted[RVLI_ROUNDUP_BUCKETS] = {1, 1, 1, 0, 2, 0, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    assert_memory_equal(settings.divisions, wanted, sizeof wanted);
}

static void devices_are_chosen(void **state)
{
    (void)state;
    const test_event events[] = {ALLOC(0, 1)};
    test_snapshot what = {ENTRIES(events)};
    written bytes = write_snapshot(&what);
    rvl_snapshot *snapshot = NULL;
    rvl_snapshot_options options = defaults();
    options.device = 2;
    assert_int_equal(run_bytes(bytes.data, bytes.size, &options, &snapshot), RVL_ERR_NOT_FOUND);
    options.device = 1;
    assert_int_equal(run_bytes(bytes.data, bytes.size, &options, &snapshot), RVL_OK);
    rvl_snapshot_close(snapshot);
    free(bytes.data);
}

/* ---- Bad files ---- */

typedef struct bad_file {
    const char *bytes;
    size_t size;
    const char *part;
} bad_file;

#define BAD(text, part)                                                                            \
    {                                                                                              \
        text, sizeof(text) - 1, part                                                               \
    }

static const bad_file bad_files[] = {
    BAD("", "byte 0: the file is empty"),
    BAD("abc", "byte 0: not a pickle"),
    BAD("\x80\x01.", "byte 0: an older pickle protocol"),
    BAD("\x80\x04"
        "cos\nsystem\n",
        "byte 2: opcode GLOBAL names or calls code"),
    BAD("\x80\x04\x8c\x02os\x8c\x06system\x93", "byte 14: opcode STACK_GLOBAL"),
    BAD("\x80\x04NNR", "byte 4: opcode REDUCE"),
    BAD("\x80\x04}N"
        "b",
        "byte 4: opcode BUILD"),
    BAD("\x80\x04(ios\nx\n", "byte 3: opcode INST"),
    BAD("\x80\x04(o", "byte 3: opcode OBJ"),
    BAD("\x80\x04NN\x81", "byte 4: opcode NEWOBJ names"),
    BAD("\x80\x04NN\x92", "byte 4: opcode NEWOBJ_EX"),
    BAD("\x80\x04\x82\x01", "byte 2: opcode EXT1"),
    BAD("\x80\x04\x83\x01\x01", "byte 2: opcode EXT2"),
    BAD("\x80\x04\x84\x01\x01\x01\x01", "byte 2: opcode EXT4"),
    BAD("\x80\x04P1\n", "byte 2: opcode PERSID"),
    BAD("\x80\x04NQ", "byte 3: opcode BINPERSID"),
    BAD("\x80\x05\x97", "byte 2: opcode NEXT_BUFFER is none"),
    BAD("\x80\x04I1\n.", "byte 2: opcode INT is none"),
    BAD("\x80\x04\xff", "byte 2: opcode 255 is none"),
    BAD("\x80\x04u", "byte 2: the pickle takes a mark"),
    BAD("\x80\x04(u", "byte 3: the pickle takes a value"),
    BAD("\x80\x04N(NNu", "byte 6: keys are set in something that is not a dict"),
    BAD("\x80\x04}(Nu", "byte 5: a key of a dict has no value"),
    BAD("\x80\x04N(Ne", "byte 5: items are appended to something that is not a list"),
    BAD("\x80\x04]a", "byte 3: the pickle takes a value"),
    BAD("\x80\x04.", "byte 2: the pickle takes a value"),
    BAD("\x80\x04N(.", "byte 4: the pickle takes a value"),
    BAD("\x80\x04\x94", "byte 2: the pickle takes a value"),
    BAD("\x80\x04h\x05", "byte 2: a memo number is used"),
    BAD("\x80\x04Nr\xff\xff\xff\x7f", "byte 3: a memo number is far"),
    BAD("\x80\x04\x8b\xff\xff\xff\xff", "byte 2: an integer has a negative length"),
    BAD("\x80\x04}.", "no device_traces"),
    BAD("\x80\x04}\x8c\x0d"
        "device_traces]s.",
        "no trace in it"),
    BAD("\x80\x04}(\x8c\x06"
        "action\x8c\x05"
        "alloc\x8c\x04"
        "addrNu.",
        "byte 26: an address or a size"),
    BAD("\x80\x04}(\x8c\x06"
        "action\x8c\x05"
        "alloc\x8c\x07time_usNu.",
        "byte 29: time_us is not an integer"),
    BAD("\x80\x04}(\x8c\x06"
        "action\x8c\x05"
        "alloc\x8c\x06streamNu.",
        "byte 28: a stream is not an integer"),
    BAD("\x80\x04}(\x8c\x06"
        "action\x8c\x05"
        "alloc\x8c\x07pool_idK\x01u.",
        "byte 30: a pool's id"),
};

static void bad_files_are_refused(void **state)
{
    (void)state;
    rvl_snapshot *snapshot = NULL;
    for (size_t i = 0; i < COUNT(bad_files); i++) {
        rvl_status status = run_bytes(bad_files[i].bytes, bad_files[i].size, NULL, &snapshot);
        if (status != RVL_ERR_CORRUPT_TRACE ||
            strstr(last_error.message, bad_files[i].part) == NULL)
            print_error("file %zu: %d, \"%s\"\n", i, status, last_error.message);
        assert_int_equal(status, RVL_ERR_CORRUPT_TRACE);
        assert_non_null(strstr(last_error.message, bad_files[i].part));
    }
    assert_int_equal(run_bytes("\x80\x06.", 3, NULL, &snapshot), RVL_ERR_VERSION);
    assert_null(snapshot);
}

/* Every value that plain data can have, around a trace. */
static void plain_data_is_read(void **state)
{
    (void)state;
    static const char head[] =
        "\x80\x02}q\x00(X\x04\x00\x00\x00junk(N\x88\x89K\x01M\x01\x02J\xff\xff\xff\xff\x8a\x00"
        "\x8a\x01\xff\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00\x8a\x0a\x01\x01\x01\x01\x01\x01"
        "\x01\x01\x01\x01\x8b\x01\x00\x00\x00\x05G?\xf0\x00\x00\x00\x00\x00\x00"
        "U\x01xT\x01\x00\x00\x00x"
        "C\x01x"
        "B\x01\x00\x00\x00x\x8e\x01\x00\x00\x00\x00\x00\x00\x00x\x96\x01\x00\x00\x00\x00\x00\x00"
        "\x00x\x8d\x01\x00\x00\x00\x00\x00\x00\x00x2"
        "0)N\x85NN\x86NNN\x87(NNl(X\x01\x00\x00\x00kNd(N1tX\x04\x00\x00\x00self]q"
        "\x01h\x01"
        "a";
    written to = {0};
    rvl_snapshot *snapshot = NULL;
    for (size_t i = 0; i < sizeof head - 1; i++)
        write_byte(&to, (unsigned char)head[i]);
    static const char trace[] = "]](}(\x8c\x06"
                                "action\x8c\x05"
                                "alloc\x8c\x04"
                                "addrK\x09\x8c\x04sizeM\x00\x10u}\x8c\x06"
                                "action\x8c\x05"
                                "alloc"
                                "seau.";
    write_text(&to, "device_traces");
    for (size_t i = 0; i < sizeof trace - 1; i++)
        write_byte(&to, (unsigned char)trace[i]);
    rvl_status status = run_bytes(to.data, to.size, NULL, &snapshot);
    if (status != RVL_OK)
        print_error("%s\n", last_error.message);
    free(to.data);
    assert_int_equal(status, RVL_OK);
    assert_int_equal(stage_of(snapshot, 0).peak_allocated_bytes, 4096);
    assert_int_equal(facts_of(snapshot).skipped_count, 1); /* an entry without an address */
    rvl_snapshot_close(snapshot);
}

static written small_file(void)
{
    static const test_event events[] = {ALLOC(0, 10 * MIB), FREE(0, 10 * MIB), ALLOC(1, 4 * MIB),
                                        ALLOC(2, 12)};
    static const test_stage stages[] = {{"stage:a", 0, 1010}, {"stage:a", 1020, 3000}};
    static const test_block blocks[] = {{AT(1), 10 * MIB, 4 * MIB, 4 * MIB, true}};
    static const test_snapshot what = {ENTRIES(events),  .stages = stages, .stage_count = 2,
                                       .blocks = blocks, .block_count = 1, .frames = true};
    return write_snapshot(&what);
}

static void cut_files_are_refused(void **state)
{
    (void)state;
    written bytes = small_file();
    rvl_snapshot *snapshot = NULL;
    for (size_t size = 2; size < bytes.size; size++) {
        assert_int_equal(run_bytes(bytes.data, size, NULL, &snapshot), RVL_ERR_CORRUPT_TRACE);
        assert_non_null(strstr(last_error.message, "breaks off"));
    }
    free(bytes.data);
}

static void a_bomb_is_refused(void **state)
{
    (void)state;
    size_t size = 6 << 20;
    unsigned char *bytes = malloc(size);
    rvl_snapshot *snapshot = NULL;
    assert_non_null(bytes);
    memset(bytes, ']', size);
    memcpy(bytes, "\x80\x04", 2);
    assert_int_equal(run_bytes(bytes, size, NULL, &snapshot), RVL_ERR_CORRUPT_TRACE);
    assert_non_null(strstr(last_error.message, "far more than a snapshot"));
    free(bytes);
}

static size_t packed(const written *bytes, unsigned char *to, size_t room)
{
    struct libdeflate_compressor *packer = libdeflate_alloc_compressor(6);
    assert_non_null(packer);
    size_t size = libdeflate_gzip_compress(packer, bytes->data, bytes->size, to, room);
    assert_true(size > 0);
    libdeflate_free_compressor(packer);
    return size;
}

static void check_refused(const unsigned char *bytes, size_t size, const char *message)
{
    rvl_snapshot *snapshot = NULL;
    assert_int_equal(run_bytes(bytes, size, NULL, &snapshot), RVL_ERR_CORRUPT_TRACE);
    assert_string_equal(last_error.message, message);
    assert_null(snapshot);
}

#define NOT_WHOLE "not a whole gzip stream: cut short or damaged"
#define NO_PICKLE "what it unpacks to is not a pickle of protocol 2 to 5"

static void gzip_is_unpacked(void **state)
{
    (void)state;
    static unsigned char packed_bytes[1 << 16];
    written bytes = small_file();
    written halves[2] = {{.data = bytes.data, .size = 100},
                         {.data = bytes.data + 100, .size = bytes.size - 100}};
    rvl_snapshot *snapshot = NULL;
    size_t first = packed(&halves[0], packed_bytes, sizeof packed_bytes);
    size_t size = first + packed(&halves[1], packed_bytes + first, sizeof packed_bytes - first);
    assert_int_equal(run_bytes(packed_bytes, size, NULL, &snapshot), RVL_OK);
    assert_int_equal(stage_of(snapshot, 1).peak_allocated_bytes, 4 * MIB + 512);
    rvl_snapshot_close(snapshot);
    free(bytes.data);
}

static void broken_gzip_is_refused(void **state)
{
    (void)state;
    static unsigned char packed_bytes[1 << 16];
    written bytes = small_file();
    size_t size = packed(&bytes, packed_bytes, sizeof packed_bytes);
    for (size_t cut = 2; cut < size; cut++)
        check_refused(packed_bytes, cut, NOT_WHOLE);
    packed_bytes[size] = 'x'; /* behind the end */
    check_refused(packed_bytes, size + 1, NOT_WHOLE);
    const size_t damaged[] = {3, 20, size / 2, size - 8, size - 4, size - 1};
    for (size_t i = 0; i < COUNT(damaged); i++) { /* header, data, checksum, size */
        packed_bytes[damaged[i]] ^= 0xff;
        check_refused(packed_bytes, size, NOT_WHOLE);
        packed_bytes[damaged[i]] ^= 0xff;
    }
    free(bytes.data);
}

static void gzip_of_no_pickle_is_refused(void **state)
{
    (void)state;
    static unsigned char packed_bytes[1 << 14], zeros[1 << 20];
    written text = {.data = zeros, .size = 5};
    check_refused(packed_bytes, packed(&text, packed_bytes, sizeof packed_bytes), NO_PICKLE);
    text.size = sizeof zeros;
    size_t size = packed(&text, packed_bytes, sizeof packed_bytes);
    packed_bytes[size - 8] ^= 0xff; /* seen only by who unpacks it to its end */
    check_refused(packed_bytes, size, NO_PICKLE);
}

/* Members of other sizes than the last one's, which is where the size is guessed from. */
static void large_members_are_unpacked(void **state)
{
    (void)state;
    enum { EVENTS = 40000 };
    test_event *events = calloc(EVENTS, sizeof *events);
    assert_non_null(events);
    for (size_t i = 0; i < EVENTS; i++)
        events[i] = (test_event){.action = "alloc", .addr = AT(1) + i * 512, .size = 512};
    test_snapshot what = {.events = events, .event_count = EVENTS};
    written bytes = write_snapshot(&what), nothing = {.data = bytes.data, .size = 0};
    unsigned char *packed_bytes = malloc(bytes.size);
    rvl_snapshot *snapshot = NULL;
    assert_non_null(packed_bytes);
    size_t size = packed(&bytes, packed_bytes, bytes.size);
    size += packed(&nothing, packed_bytes + size, bytes.size - size);
    assert_true(size * 4 < bytes.size);
    assert_int_equal(run_bytes(packed_bytes, size, NULL, &snapshot), RVL_OK);
    assert_int_equal(stage_of(snapshot, 0).peak_allocated_bytes, EVENTS * UINT64_C(512));
    rvl_snapshot_close(snapshot);
    free(packed_bytes);
    free(bytes.data);
    free(events);
}

/* ---- Memory ---- */

/*
 * Refuses the first request for memory, the second, and so on, until a run makes no more. With
 * tensors, they are listed.
 */
static void check_refusals(const void *data, size_t size, const rvl_snapshot_options *options,
                           bool tensors)
{
    char path[] = "/tmp/reveille-snapshot-XXXXXX";
    uint64_t refused = 0;
    save_bytes(path, data, size);
    do {
        rvl_snapshot *snapshot = NULL;
        char *json = NULL;
        rvl_error error = {.struct_size = sizeof error};
        short_memory_requests = 0;
        short_memory_refused_request = ++refused;
        rvl_status status = tensors ? rvl_snapshot_get_tensors(path, options, &json)
                                    : rvl_snapshot_run(path, options, &snapshot);
        rvl_last_error(&error);
        short_memory_refused_request = 0;
        if (status != RVL_OK) /* shrinking a buffer may fail */
            assert_int_equal(status, RVL_ERR_HOST_OOM);
        assert_true((json != NULL) == (tensors && status == RVL_OK));
        rvl_string_free(json);
        rvl_snapshot_close(snapshot);
    } while (short_memory_requests >= refused);
    assert_true(refused > 10);
    unlink(path);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    rvl_snapshot_options options = defaults();
    written bytes = small_file();
    check_refusals(bytes.data, bytes.size, NULL, false);
    check_refusals(bytes.data, bytes.size, NULL, true);
    options.flags |= RVL_SNAPSHOT_VERIFY;
    check_refusals(bytes.data, bytes.size, &options, false);
    static unsigned char packed_bytes[1 << 16];
    check_refusals(packed_bytes, packed(&bytes, packed_bytes, sizeof packed_bytes), NULL, false);
    free(bytes.data);

    const test_event lost[] = {
        FREE(0, 10 * MIB), SEGMENT("unmap", AT(1), 40 * MIB), ALLOC(3, 40 * MIB),
        FREE(3, 40 * MIB), SEGMENT("unmap", AT(3), 40 * MIB), ALLOC(4, 3 * MIB)};
    test_snapshot what = {ENTRIES(lost), .expandable = true, .gc_threshold = 0.5};
    bytes = write_snapshot(&what);
    options = defaults();
    options.capacity_bytes = 60 * MIB;
    check_refusals(bytes.data, bytes.size, &options, false);
    check_refusals(bytes.data, bytes.size, &options, true);
    free(bytes.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_rounded),
        cmocka_unit_test(power_of_two_divisions_round_up),
        cmocka_unit_test(segments_are_rounded),
        cmocka_unit_test(little_is_not_split_off),
        cmocka_unit_test(freed_neighbours_merge),
        cmocka_unit_test(oversize_blocks_are_kept_apart),
        cmocka_unit_test(garbage_is_collected_by_age),
        cmocka_unit_test(collections_are_taken_from_the_recording),
        cmocka_unit_test(a_collection_may_free_nearly_all),
        cmocka_unit_test(oversize_releases_are_taken_from_the_recording),
        cmocka_unit_test(retries_show_where_a_fraction_is_set),
        cmocka_unit_test(a_fraction_bounds_what_is_reserved),
        cmocka_unit_test(oversize_blocks_go_first),
        cmocka_unit_test(requests_that_do_not_fit_are_told),
        cmocka_unit_test(pages_are_mapped_and_unmapped),
        cmocka_unit_test(expandable_blocks_fit_by_what_they_can_become),
        cmocka_unit_test(an_empty_range_is_given_back),
        cmocka_unit_test(pending_blocks_are_not_reused),
        cmocka_unit_test(streams_share_nothing),
        cmocka_unit_test(private_pools_share_nothing),
        cmocka_unit_test(a_burst_means_empty_cache),
        cmocka_unit_test(stages_may_overlap_and_repeat),
        cmocka_unit_test(unknown_actions_are_counted),
        cmocka_unit_test(a_lost_beginning_is_made_up_for),
        cmocka_unit_test(what_was_reserved_before_is_taken_back),
        cmocka_unit_test(what_shows_nothing_live_was_not_there),
        cmocka_unit_test(ends_of_blocks_show_by_what_came_behind),
        cmocka_unit_test(guessed_sizes_are_no_divergence),
        cmocka_unit_test(contradictions_are_told),
        cmocka_unit_test(ties_are_told),
        cmocka_unit_test(a_true_recording_is_verified),
        cmocka_unit_test(the_first_divergence_is_told),
        cmocka_unit_test(recorded_collections_are_verified),
        cmocka_unit_test(recorded_retries_are_verified),
        cmocka_unit_test(streams_of_segments_are_verified),
        cmocka_unit_test(json_has_the_schema),
        cmocka_unit_test(tensors_are_listed_in_columns),
        cmocka_unit_test(ways_of_writing_do_not_matter),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(divisions_are_read_as_lists),
        cmocka_unit_test(settings_are_read_as_pytorch_reads_them),
        cmocka_unit_test(devices_are_chosen),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(plain_data_is_read),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(a_bomb_is_refused),
        cmocka_unit_test(gzip_is_unpacked),
        cmocka_unit_test(broken_gzip_is_refused),
        cmocka_unit_test(gzip_of_no_pickle_is_refused),
        cmocka_unit_test(large_members_are_unpacked),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
