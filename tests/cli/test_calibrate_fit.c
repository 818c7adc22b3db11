/* SPDX-License-Identifier: MIT */
/* What is made of measurements: spreads, and lines through medians. */
#include "tests/support/support.h"

#include "calibrate/samples.h"

#define GIB (UINT64_C(1) << 30)

static void test_spread(void **state)
{
    samples all = {0}, part = {0};
    (void)state;
    assert_int_equal(samples_spread(samples_find(&all, "create", 1)).count, 0);
    for (uint64_t value = 9; value > 0; value--)
        samples_add(&part, "create", 1, "ns", value);
    samples_add(&part, "create", 2, "ns", 70);
    samples_add(&all, "create", 1, "ns", 1000);
    samples_move(&all, &part);
    assert_int_equal(part.count, 0);
    rvl_measurement found = samples_spread(samples_find(&all, "create", 1));
    assert_int_equal(found.count, 10);
    assert_int_equal(found.least_value, 1);
    assert_int_equal(found.median_value, 6);
    assert_int_equal(found.most_value, 1000);
    assert_int_equal(samples_spread(samples_find(&all, "create", 2)).median_value, 70);
    assert_null(samples_find(&all, "release", 2));
    assert_false(all.failed);
    samples_free(&all);
}

/* A batch of calls is one value of each act and size: the mean, which slow calls move. */
static void test_means(void **state)
{
    samples all = {0};
    means batch = {0};
    (void)state;
    for (int i = 0; i < 9; i++)
        means_note(&batch, "map", 2, 10);
    means_note(&batch, "map", 2, 110);
    means_note(&batch, "map", 3, 7);
    means_note(&batch, "unmap", 2, 5);
    means_keep(&batch, &all);
    assert_int_equal(batch.count, 0);
    means_note(&batch, "map", 2, 40);
    means_keep(&batch, &all);
    means_keep(&batch, &all);
    rvl_measurement found = samples_spread(samples_find(&all, "map", 2));
    assert_int_equal(found.count, 2);
    assert_int_equal(found.least_value, 20);
    assert_int_equal(found.most_value, 40);
    assert_int_equal(samples_spread(samples_find(&all, "map", 3)).median_value, 7);
    assert_int_equal(samples_spread(samples_find(&all, "unmap", 2)).median_value, 5);
    for (uint64_t size = 0; size < MEANS_MAX + 3; size++)
        means_note(&batch, "create", size, 1);
    assert_int_equal(batch.count, MEANS_MAX);
    samples_free(&all);
}

static uint64_t fit_profile(const samples *all, rvl_profile *profile)
{
    uint64_t known = 0;
    assert_true(samples_fit(all, profile, &known));
    return known;
}

/* call_ns + bytes * fs_per_byte / 10^6 for an act, at four sizes, with an outlier at each. */
static void add_line(samples *all, const char *act, uint64_t call_ns, uint64_t fs_per_byte)
{
    static const uint64_t sizes[] = {2 * MIB, 160 * MIB, 2 * GIB, 20 * GIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t value = call_ns + sizes[i] / 1000000 * fs_per_byte;
        samples_add(all, act, sizes[i], "ns", value);
        samples_add(all, act, sizes[i], "ns", value);
        samples_add(all, act, sizes[i], "ns", 50 * value);
    }
}

static void assert_near(uint64_t value, uint64_t expected)
{
    if (value * 100 < expected * 98 || value * 100 > expected * 102)
        fail_msg("%llu is not about %llu", (unsigned long long)value, (unsigned long long)expected);
}

static void test_lines(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    (void)state;
    assert_int_equal(fit_profile(&all, &profile), 0);
    add_line(&all, "create", 10000, 6);
    add_line(&all, "unmap", 18000, 9);
    add_line(&all, "release", 12000, 300);
    add_line(&all, "reserve", 2000, 0);
    profile.cost.disk_read = (rvl_cost){7, 8};
    assert_true(fit_profile(&all, &profile) != 0);
    assert_near(profile.cost.create.call_ns, 10000);
    assert_near(profile.cost.create.fs_per_byte, 6);
    assert_near(profile.cost.release.call_ns, 12000);
    assert_near(profile.cost.release.fs_per_byte, 300);
    assert_near(profile.cost.reserve.call_ns, 2000);
    assert_int_equal(profile.cost.reserve.fs_per_byte, 0);
    /* What nothing was measured of stays. */
    assert_int_equal(profile.cost.disk_read.call_ns, 7);
    assert_int_equal(profile.cost.disk_read.fs_per_byte, 8);
    samples_free(&all);
}

/* A line that would begin or fall below zero has no such part. */
static void test_no_part_is_negative(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    (void)state;
    samples_add(&all, "map", 2 * MIB, "ns", 9000);
    samples_add(&all, "map", 20 * GIB, "ns", 3000);
    samples_add(&all, "unmap", 1 * GIB, "ns", 10000);
    samples_add(&all, "unmap", 2 * GIB, "ns", 1000000);
    fit_profile(&all, &profile);
    assert_int_equal(profile.cost.map.fs_per_byte, 0);
    assert_true(profile.cost.map.call_ns >= 3000 && profile.cost.map.call_ns <= 9000);
    assert_int_equal(profile.cost.unmap.call_ns, 0);
    assert_true(profile.cost.unmap.fs_per_byte > 0);
    samples_free(&all);
}

/* A pause has its calls in it, and a cold one the making of memory as well. */
static void test_what_is_not_measured_alone(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    (void)state;
    add_line(&all, "unmap", 1000, 10);
    add_line(&all, "release", 1000, 300);
    add_line(&all, "create", 1000, 0);
    add_line(&all, "map", 1000, 0);
    add_line(&all, "set_access", 1000, 30);
    add_line(&all, "pause_warm", 0, 18000 + 310);
    add_line(&all, "resume_warm", 0, 20000 + 30);
    add_line(&all, "pause_cold", 0, 45000 + 310);
    add_line(&all, "pause_verified", 0, 18000 + 310 + 250);
    samples_add(&all, "pinned_takes", 2 * MIB, "bytes", 9 * MIB);
    samples_add(&all, "pinned_takes", 20 * GIB, "bytes", 17 * MIB);
    samples_add(&all, "context_takes", 0, "bytes", 500 * MIB);
    fit_profile(&all, &profile);
    assert_near(profile.cost.copy_to_host.fs_per_byte, 18000);
    assert_near(profile.cost.copy_to_device.fs_per_byte, 20000);
    assert_near(profile.cost.host_alloc.fs_per_byte, 45000);
    assert_near(profile.cost.digest.fs_per_byte, 250);
    assert_near(profile.driver.first_backup_bytes, 9 * MIB);
    assert_near(profile.driver.per_pinned_gib_bytes, 8 * MIB / 20);
    assert_int_equal(profile.driver.context_bytes, 500 * MIB);
    samples_free(&all);
}

/* Reading memory takes no less than half of the time of writing it: else it is noise. */
static void test_digests_within_the_noise(void **state)
{
    (void)state;
    for (uint32_t added = 140; added <= 160; added += 20) {
        samples all = {0};
        rvl_profile profile = {.struct_size = sizeof profile, .cost.digest = {8000, 179}};
        add_line(&all, "fill", 0, 300);
        add_line(&all, "pause_warm", 0, 18000);
        add_line(&all, "pause_verified", 0, 18000 + added);
        fit_profile(&all, &profile);
        assert_int_equal(profile.cost.digest.call_ns, 8000);
        assert_near(profile.cost.digest.fs_per_byte, added > 150 ? added : 179);
        samples_free(&all);
    }
}

/* The first create after a release pays for what was released, and a create does not. */
static void test_reclaim(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    (void)state;
    add_line(&all, "create", 10000, 0);
    samples_add(&all, "create_after_release", 8 * GIB, "ns", 10000 + 8 * GIB / 1000000 * 163);
    samples_add(&all, "create_after_release", 60 * GIB, "ns", 10000 + 60 * GIB / 1000000 * 163);
    fit_profile(&all, &profile);
    assert_int_equal(profile.cost.reclaim.call_ns, 0);
    assert_near(profile.cost.reclaim.fs_per_byte, 163);
    /* Behind small blocks a part is paid by releases: the largest pause counts, if there was one.
     */
    samples_add(&all, "small_create_after_pause", 1 * GIB, "ns", 10000);
    fit_profile(&all, &profile);
    assert_near(profile.cost.reclaim.fs_per_byte, 163);
    samples_add(&all, "small_create_after_pause", 16 * GIB, "ns", 10000 + 16 * GIB / 1000000 * 290);
    fit_profile(&all, &profile);
    assert_near(profile.cost.reclaim.fs_per_byte, 290);
    samples_free(&all);
}

#define CHUNK RVL_HOST_CHUNK_BYTES

/* Making begins from rest once in a pause, whatever its buffers are. */
static void test_host_memory_that_begins(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    const uint64_t chunk_ns = CHUNK / 1000000 * 36000;
    (void)state;
    samples_add(&all, "pause_cold", 2 * MIB, "ns", 2000000 + chunk_ns);
    samples_add(&all, "pause_cold", 8 * GIB, "ns", 8 * GIB / 1000000 * 36000);
    samples_add(&all, "pause_first", 2 * MIB, "ns", 17000000 + 2000000 + chunk_ns);
    fit_profile(&all, &profile);
    assert_near(profile.cost.host_alloc.fs_per_byte, 36000);
    assert_near(profile.waits.host_start.call_ns, 2000000);
    assert_near(profile.waits.host_first.call_ns, 17000000);
    /* Calls of 9 ms, and 46 ps a byte: the rate lies in the middle. */
    samples_add(&all, "pause_cold_in_buffers", 18 * CHUNK, "ns",
                9000000 + 2000000 + 18 * CHUNK / 1000000 * 46000);
    fit_profile(&all, &profile);
    assert_near(profile.cost.host_alloc.fs_per_byte, 36000); /* without a warm one */
    samples_add(&all, "pause_warm_in_buffers", 18 * CHUNK, "ns", 9000000);
    fit_profile(&all, &profile);
    assert_near(profile.waits.host_start.call_ns, 2000000);
    assert_near(profile.cost.host_alloc.fs_per_byte, 41000);
    samples_free(&all);
}

/* Buffers that took less than one piece did so by chance. */
static void test_host_memory_in_buffers_is_no_cheaper(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    (void)state;
    samples_add(&all, "pause_cold", 8 * GIB, "ns", 8 * GIB / 1000000 * 36000);
    samples_add(&all, "pause_cold_in_buffers", 18 * CHUNK, "ns", 18 * CHUNK / 1000000 * 20000);
    samples_add(&all, "pause_warm_in_buffers", 18 * CHUNK, "ns", 18 * CHUNK / 1000000 * 1000);
    fit_profile(&all, &profile);
    assert_near(profile.cost.host_alloc.fs_per_byte, 36000);
    samples_free(&all);
}

/* How fast the driver clears. Nothing takes longer meanwhile, whatever an old profile says. */
static void test_clearing(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile, .waits.unmap_clearing = {9000, 16}};
    (void)state;
    uint64_t known = fit_profile(&all, &profile);
    assert_int_equal(known, 0);
    assert_int_equal(profile.waits.unmap_clearing.call_ns, 9000);
    samples_add(&all, "create_needing_cleared", 30 * GIB, "ns", 30 * GIB / 1000000 * 2328);
    known = fit_profile(&all, &profile);
    assert_int_equal(__builtin_popcountll(known), 4);
    assert_near(profile.waits.clear.fs_per_byte, 2328);
    assert_int_equal(profile.waits.unmap_clearing.call_ns, 0);
    assert_int_equal(profile.waits.unmap_clearing.fs_per_byte, 0);
    samples_free(&all);
}

/*
 * Blocks of a transition take longer than calls in a row: by a half for each call, by a quarter for
 * each byte. In pauses a part of that is paid for what the driver clears beside, if blocks are
 * small.
 */
static void test_blocks_in_transitions(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    (void)state;
    add_line(&all, "unmap", 20000, 0);
    add_line(&all, "release", 10000, 400);
    add_line(&all, "create", 10000, 0);
    add_line(&all, "map", 10000, 0);
    add_line(&all, "set_access", 30000, 40);
    add_line(&all, "resume_block", 75000, 50);
    add_line(&all, "pause_block", 45000, 500);
    fit_profile(&all, &profile);
    /* Three turns: one factor for both, that of 160 MiB. */
    assert_near(profile.cost.create.call_ns, 10000 * (75000 + 8389) / (50000 + 6711));
    assert_near(profile.cost.set_access.fs_per_byte, 40 * (75000 + 8389) / (50000 + 6711));
    add_line(&all, "resume_block", 75000, 50);
    add_line(&all, "pause_block", 45000, 500);
    fit_profile(&all, &profile);
    assert_near(profile.cost.create.call_ns, 15000);
    assert_near(profile.cost.set_access.fs_per_byte, 50);
    assert_near(profile.cost.unmap.call_ns, 30000);
    assert_near(profile.cost.release.call_ns, 15000);
    assert_near(profile.cost.release.fs_per_byte, 500);
    samples_free(&all);
}

/* 160 MiB take 129 us, while 49 MiB are cleared: 13 us of it are paid for those. */
static void test_blocks_that_are_cleared_meanwhile(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    const uint64_t small = 160 * MIB, large = 4 * GIB;
    const uint64_t small_ns = 45000 + small / 1000000 * 500,
                   large_ns = 45000 + large / 1000 / 1000 * 500;
    (void)state;
    add_line(&all, "unmap", 20000, 0);
    add_line(&all, "release", 10000, 400);
    add_line(&all, "create", 10000, 0);
    samples_add(&all, "create_after_release", 8 * GIB, "ns", 10000 + 8 * GIB / 1000000 * 250);
    samples_add(&all, "create_needing_cleared", 30 * GIB, "ns", 30 * GIB / 1000000 * 2750);
    for (int turn = 0; turn < 5; turn++) {
        samples_add(&all, "pause_block", small, "ns", small_ns * 10 / 9);
        samples_add(&all, "pause_block", large, "ns", large_ns);
    }
    fit_profile(&all, &profile);
    assert_near(profile.cost.reclaim.fs_per_byte, 250);
    assert_near(profile.waits.clear.fs_per_byte, 2500);
    assert_near(profile.cost.unmap.call_ns, 30000);
    assert_near(profile.cost.release.fs_per_byte, 500);
    samples_free(&all);
}

/* Noise may leave a block nothing after what is paid for cleared memory: then it says nothing. */
static void test_blocks_that_took_less_than_is_paid(void **state)
{
    samples all = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    const uint64_t small = 160 * MIB, large = 4 * GIB;
    (void)state;
    add_line(&all, "unmap", 20000, 0);
    add_line(&all, "release", 10000, 400);
    add_line(&all, "create", 10000, 0);
    samples_add(&all, "create_after_release", 8 * GIB, "ns", 10000 + 8 * GIB / 1000000 * 500);
    samples_add(&all, "create_needing_cleared", 30 * GIB, "ns", 30 * GIB / 1000000 * 510);
    for (int turn = 0; turn < 5; turn++) {
        samples_add(&all, "pause_block", small, "ns", small / 1000000 * 490);
        samples_add(&all, "pause_block", large, "ns", 2 * (30000 + large / 1000000 * 400));
    }
    fit_profile(&all, &profile);
    assert_near(profile.cost.reclaim.fs_per_byte, 500);
    assert_near(profile.cost.unmap.call_ns, 40000);
    assert_near(profile.cost.release.call_ns, 20000);
    assert_near(profile.cost.release.fs_per_byte, 800);
    samples_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_means),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_no_part_is_negative),
        cmocka_unit_test(test_what_is_not_measured_alone),
        cmocka_unit_test(test_digests_within_the_noise),
        cmocka_unit_test(test_reclaim),
        cmocka_unit_test(test_host_memory_that_begins),
        cmocka_unit_test(test_host_memory_in_buffers_is_no_cheaper),
        cmocka_unit_test(test_clearing),
        cmocka_unit_test(test_blocks_in_transitions),
        cmocka_unit_test(test_blocks_that_are_cleared_meanwhile),
        cmocka_unit_test(test_blocks_that_took_less_than_is_paid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
