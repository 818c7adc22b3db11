/* SPDX-License-Identifier: MIT */
/*
 * Profiles in files: what a good one becomes, what each mistake is refused with, and what a replay
 * makes of it.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reveille/replay.h"
#include "tests/support/folder.h"

#define COST(name) "\"" name "\":{\"call_ns\":7,\"fs_per_byte\":9,\"from\":\"measured\"}"
#define COSTS_BUT_LAST                                                                                                                                      \
    COST("reserve")                                                                                                                                         \
    "," COST("release_range") "," COST("create") "," COST("release") "," COST("reclaim") "," COST("map") "," COST("set_access") "," COST("unmap") "," COST( \
        "fill") "," COST("host_alloc") "," COST("host_free") "," COST("copy_to_host") "," COST("c"                                                          \
                                                                                               "o"                                                          \
                                                                                               "p"                                                          \
                                                                                               "y"                                                          \
                                                                                               "_"                                                          \
                                                                                               "t"                                                          \
                                                                                               "o"                                                          \
                                                                                               "_"                                                          \
                                                                                               "d"                                                          \
                                                                                               "e"                                                          \
                                                                                               "v"                                                          \
                                                                                               "i"                                                          \
                                                                                               "c"                                                          \
                                                                                               "e") "," COST("digest") "," COST("disk_write")
#define HEAD "\"format\":\"reveille device profile\",\"version\":2,"
#define NAMES "\"name\":\"card\",\"description\":\"a card\",\"source\":\"measured\","
#define MEMORY "\"capacity_bytes\":1073741824,\"granularity_bytes\":2097152,\"rdma\":true,"
#define LISTS "\"costs\":{" COSTS_BUT_LAST "," COST("disk_read") "},"
#define WAITS                                                                                      \
    "\"waits\":{" COST("host_first") "," COST("host_start") "," COST("clear") "," COST(            \
        "idle_clearing") "," COST("unmap_clearing") "," COST("release_clearing") "},"
#define DRIVER                                                                                     \
    "\"driver\":{\"context_bytes\":1,\"first_kernel_bytes\":2,\"streams_bytes\":3,"                \
    "\"graph_bytes\":4,\"first_backup_bytes\":4194304,\"per_pinned_gib_bytes\":8388608}"
#define GOOD "{" HEAD NAMES MEMORY LISTS WAITS DRIVER ",\"measured\":[]}"

static const char *in_folder(const char *name)
{
    static char paths[2][512]; /* of two calls, both are good */
    static unsigned next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static rvl_status load(const char *text, rvl_profile *profile)
{
    folder_write("card.json", text);
    *profile = (rvl_profile){.struct_size = sizeof *profile};
    return rvl_profile_load(in_folder("card.json"), profile);
}

static void test_a_good_file(void **state)
{
    rvl_profile profile, again;
    (void)state;
    assert_int_equal(load(GOOD, &profile), RVL_OK);
    assert_string_equal(profile.name, "card");
    assert_string_equal(profile.description, "a card");
    assert_string_equal(profile.source, "measured");
    assert_int_equal(profile.capacity_bytes, 1073741824);
    assert_int_equal(profile.granularity_bytes, 2097152);
    assert_int_equal(profile.flags, RVL_PROFILE_MEASURED);
    assert_int_equal(profile.cost.disk_read.call_ns, 7);
    assert_int_equal(profile.cost.create.fs_per_byte, 9);
    assert_int_equal(profile.waits.host_first.call_ns, 7);
    assert_int_equal(profile.waits.release_clearing.fs_per_byte, 9);
    assert_int_equal(profile.driver.context_bytes, 1);
    assert_int_equal(profile.driver.per_pinned_gib_bytes, 8388608);
    assert_int_equal(profile.capacity_doubt_bytes, 0);
    /* Its strings stay, once for each text. */
    assert_int_equal(load(GOOD, &again), RVL_OK);
    assert_ptr_equal(again.name, profile.name);
}

static void test_names_and_sizes(void **state)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    (void)state;
    assert_int_equal(rvl_profile_load("H200", &profile), RVL_OK);
    assert_string_equal(profile.name, "h200");
    assert_int_equal(rvl_profile_load("80GiB", &profile), RVL_OK);
    assert_int_equal(profile.capacity_bytes, 80 * (UINT64_C(1) << 30));
    assert_int_equal(rvl_profile_load("h300", &profile), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_profile_load(NULL, &profile), RVL_ERR_INVALID);
}

/* One mistake each. place: the key, or NULL where there is none. */
static const struct {
    const char *from, *to; /* in the good file */
    rvl_status status;
    const char *key, *message;
} mistakes[] = {
    {"reveille device profile", "something", RVL_ERR_INVALID, "format", "reveille calibrate"},
    {"\"version\":2", "\"version\":1", RVL_ERR_VERSION, "version", "calibrate the card again"},
    {"\"version\":2", "\"version\":3", RVL_ERR_VERSION, "version", "or a newer one"},
    {"\"version\":2", "\"version\":\"2\"", RVL_ERR_INVALID, "version", "whole number"},
    {"\"name\":\"card\"", "\"name\":7", RVL_ERR_INVALID, "name", "must be a text"},
    {"\"name\":\"card\"", "\"name\":\"\"", RVL_ERR_INVALID, "name", "must be a text"},
    {"\"name\":\"card\"", "\"name\":\"a\\u0000b\"", RVL_ERR_INVALID, NULL, ""},
    {"\"name\":\"card\",", "", RVL_ERR_INVALID, "name", "is missing"},
    {"1073741824", "1.5", RVL_ERR_INVALID, "capacity_bytes", "whole number"},
    {"1073741824", "1", RVL_ERR_INVALID, "capacity_bytes", "must be from"},
    {"1073741824", "-1", RVL_ERR_INVALID, "capacity_bytes", "must be from"},
    {"1073741824", "99999999999999999999", RVL_ERR_INVALID, NULL, "not JSON"},
    {"2097152", "2097153", RVL_ERR_INVALID, "granularity_bytes", "power of two"},
    {"\"rdma\":true", "\"rdma\":1", RVL_ERR_INVALID, "rdma", "true or false"},
    {"\"create\":{\"call_ns\":7", "\"create\":{\"call_ns\":-7", RVL_ERR_INVALID,
     "costs.create.call_ns", "from 0 to 4294967295"},
    {"\"create\":{\"call_ns\":7", "\"create\":{\"call_ns\":4294967296", RVL_ERR_INVALID,
     "costs.create.call_ns", "from 0 to 4294967295"},
    {"\"create\":{", "\"create\":{\"cal_ns\":1,", RVL_ERR_INVALID, "costs.create.cal_ns",
     "correct its spelling"},
    {"\"create\":{", "\"creat\":{", RVL_ERR_INVALID, "costs.creat", "correct its spelling"},
    {COST("create") ",", "", RVL_ERR_INVALID, "costs.create", "is missing"},
    {COST("create"), "\"create\":9", RVL_ERR_INVALID, "costs.create", "must be an object"},
    {"\"clear\":{\"call_ns\":7", "\"clear\":{\"call_ns\":7.5", RVL_ERR_INVALID,
     "waits.clear.call_ns", "whole number"},
    {COST("host_start") ",", "", RVL_ERR_INVALID, "waits.host_start", "is missing"},
    {"\"waits\":{", "\"waits\":{\"wait\":1,", RVL_ERR_INVALID, "waits.wait",
     "correct its spelling"},
    {"\"driver\":{", "\"driver\":[],\"x\":{", RVL_ERR_INVALID, "x", "correct its spelling"},
    {"\"streams_bytes\":3,", "", RVL_ERR_INVALID, "driver.streams_bytes", "is missing"},
    {"\"measured\":[]", "\"measure\":[]", RVL_ERR_INVALID, "measure", "correct its spelling"},
    {"\"rdma\":true,", "\"rdma\":true,\"rdma\":true,", RVL_ERR_INVALID, NULL, "not JSON"},
    {"\"rdma\":true,", "\"rdma\":true,\"capacity_doubt_bytes\":2000000000,", RVL_ERR_INVALID,
     "capacity_doubt_bytes", "must be from"},
    {"\"rdma\":true,", "\"rdma\":true", RVL_ERR_INVALID, NULL, "not JSON"},
};

static void replaced(const char *from, const char *to, char *text, size_t size)
{
    const char *at = strstr(GOOD, from);
    assert_non_null(at);
    snprintf(text, size, "%.*s%s%s", (int)(at - GOOD), GOOD, to, at + strlen(from));
}

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        char text[4096];
        rvl_profile profile;
        rvl_error error = {.struct_size = sizeof error};
        replaced(mistakes[i].from, mistakes[i].to, text, sizeof text);
        rvl_status status = load(text, &profile);
        rvl_last_error(&error);
        if (status != mistakes[i].status || strstr(error.message, mistakes[i].message) == NULL ||
            (mistakes[i].key != NULL && strcmp(error.key, mistakes[i].key) != 0) ||
            strcmp(error.file, in_folder("card.json")) != 0)
            fail_msg("mistake %zu: status %d, key %s, file %s: %s", i, status, error.key,
                     error.file, error.message);
        assert_null(profile.name); /* nothing is written */
    }
}

static void test_files_that_are_none(void **state)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    rvl_error error = {.struct_size = sizeof error};
    (void)state;
    assert_int_equal(rvl_profile_load(in_folder("none.json"), &profile), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_string_equal(error.message,
                        "the device profile cannot be read: No such file or directory: "
                        "name a file that `reveille calibrate` has written");
    assert_int_equal(rvl_profile_load(folder, &profile), RVL_ERR_IO);
    assert_int_equal(load("", &profile), RVL_ERR_INVALID);
    assert_int_equal(load("[]", &profile), RVL_ERR_INVALID);
    char *large = malloc((5u << 20) + 1);
    assert_non_null(large);
    memset(large, ' ', 5u << 20);
    large[5u << 20] = '\0';
    assert_int_equal(load(large, &profile), RVL_ERR_INVALID);
    free(large);
}

/* ---- Replays ---- */

#define TRACE                                                                                      \
    "reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n"                                       \
    "device 0 profile=%s capacity_bytes=%llu granularity_bytes=2097152\nprocess p pid=0\n"         \
    "stage 1 p 0 begin\nalloc 2 p 0 1 0 %llu weights backup=host\npause 3 p 0 weights\n"           \
    "stage 4 p 0 asleep\nend 4\n"

static rvl_replay *replay_of(const char *profile, uint64_t capacity, uint64_t bytes,
                             const char *device)
{
    char text[1024], path[512];
    rvl_replay *replay = NULL;
    snprintf(text, sizeof text, TRACE, profile, (unsigned long long)capacity,
             (unsigned long long)bytes);
    folder_write("run.rvt", text);
    snprintf(path, sizeof path, "%s", in_folder("run.rvt"));
    const char *paths[] = {path};
    const rvl_replay_options options = {.struct_size = sizeof options, .device = device};
    assert_int_equal(rvl_replay_run(paths, 1, &options, &replay), RVL_OK);
    return replay;
}

/* The driver's records of pinned memory: 4 MiB once, and 8 MiB a GiB, of which there is half. */
static void test_pinned_memory_takes_device_memory(void **state)
{
    rvl_profile profile;
    rvl_stage_stats stage = {.struct_size = sizeof stage};
    (void)state;
    assert_int_equal(load(GOOD, &profile), RVL_OK);
    rvl_replay *replay =
        replay_of("h200", UINT64_C(150109880320), 512 * MIB, in_folder("card.json"));
    assert_int_equal(rvl_replay_get_stage(replay, 0, 1, &stage, NULL), RVL_OK);
    assert_string_equal(stage.name, "asleep");
    assert_int_equal(stage.peak_bytes, 8 * MIB);
    rvl_holder holder;
    size_t count = 0;
    assert_int_equal(rvl_replay_get_holders(replay, 0, 1, &holder, sizeof holder, 1, &count),
                     RVL_OK);
    assert_int_equal(count, 1);
    assert_string_equal(holder.tag, RVL_REPLAY_PINNED_CAUSE);
    rvl_replay_close(replay);
}

/* A margin that is smaller than the doubt about the capacity is told. */
static void test_doubt(void **state)
{
    const uint64_t capacity = 46068 * MIB, sure = capacity - capacity / 100;
    rvl_replay_device device = {.struct_size = sizeof device};
    (void)state;
    rvl_replay *replay = replay_of("h200", UINT64_C(150109880320), sure - sure % GRANULE, "l40s");
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_OK);
    assert_true(device.fits);
    assert_int_equal(device.capacity_doubt_bytes, capacity / 100);
    assert_int_equal(device.flags, 0);
    rvl_replay_close(replay);
    replay = replay_of("h200", UINT64_C(150109880320), sure + 2 * MIB, "l40s");
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_OK);
    assert_true(device.fits);
    assert_int_equal(device.flags, RVL_REPLAY_DEVICE_DOUBTFUL);
    char *json = NULL;
    assert_int_equal(rvl_replay_to_json(replay, &json), RVL_OK);
    assert_non_null(strstr(json, "],\"capacity_doubt_bytes\":483057991,"
                                 "\"fits_surely\":false"));
    rvl_string_free(json);
    rvl_replay_close(replay);
    /* A card that said its own capacity is sure of it. */
    replay = replay_of("l40s", 45776 * MIB, 45774 * MIB, NULL);
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_OK);
    assert_int_equal(device.capacity_doubt_bytes, 0);
    assert_int_equal(device.flags, 0);
    rvl_replay_close(replay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_file),
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_files_that_are_none),
        cmocka_unit_test(test_pinned_memory_takes_device_memory),
        cmocka_unit_test(test_doubt),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
