/* SPDX-License-Identifier: MIT */
/*
 * Replay on small traces written by hand, every number of which can be checked on paper: a device
 * of 1000 MiB with a granularity of 2 MiB.
 */
#include "tests/support/support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cost.h"
#include "base/process_cost.h"
#include "reveille/replay.h"

#define HEAD                                                                                       \
    "reveille-trace 1.0\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
#define M2 "2097152"
#define M100 "104857600"
#define M400 "419430400"
#define M600 "629145600"

/* ---- Running a trace that is given as text ---- */

static void write_file(char *path, const char *text)
{
    strcpy(path, "/tmp/reveille-test-XXXXXX");
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
}

#define PATH_BYTES 32

typedef struct outcome {
    rvl_status status;
    rvl_error error;
    rvl_replay *replay;
    char path[PATH_BYTES]; /* of the trace, which is gone by now */
    bool names_file;       /* error.file is the path that was passed */
} outcome;

static outcome run_with(const char *text, rvl_replay_options options)
{
    outcome result = {.error = {.struct_size = sizeof result.error}};
    write_file(result.path, text);
    const char *path = result.path;
    options.struct_size = sizeof options;
    result.status = rvl_replay_run(&path, 1, &options, &result.replay);
    rvl_last_error(&result.error);
    result.names_file = strcmp(result.error.file, path) == 0;
    unlink(result.path);
    return result;
}

static rvl_replay *run_well(const char *text, rvl_replay_options options)
{
    outcome result = run_with(text, options);
    if (result.status != RVL_OK)
        print_error("%" PRIu32 ":%" PRIu32 ": %s\n", result.error.line, result.error.column,
                    result.error.message);
    assert_int_equal(result.status, RVL_OK);
    assert_non_null(result.replay);
    return result.replay;
}

static rvl_replay_device device_of(const rvl_replay *replay, size_t index)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_replay_get_device(replay, index, &device), RVL_OK);
    return device;
}

static rvl_stage_stats stage_of(const rvl_replay *replay, size_t device, uint32_t stage)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_replay_get_stage(replay, device, stage, &stats, NULL), RVL_OK);
    return stats;
}

static void check_stage(const rvl_replay *replay, uint32_t stage, const char *name, uint64_t peak,
                        uint64_t end)
{
    rvl_stage_stats stats = stage_of(replay, 0, stage);
    assert_string_equal(stats.name, name);
    assert_int_equal(stats.peak_bytes, peak);
    assert_int_equal(stats.end_bytes, end);
}

static void check_refused(const char *text, rvl_status status, uint32_t line, uint32_t column,
                          const char *part)
{
    outcome result = run_with(text, (rvl_replay_options){0});
    if (strstr(result.error.message, part) == NULL)
        print_error("message: %s\n", result.error.message);
    assert_int_equal(result.status, status);
    assert_null(result.replay);
    assert_true(result.names_file);
    assert_int_equal(result.error.line, line);
    assert_int_equal(result.error.column, column);
    assert_non_null(strstr(result.error.message, part));
}

/* ---- The result ---- */

static const char two_stages[] = HEAD "process engine pid=1\nprocess trainer pid=2\n"
                                      "stage 1 engine 1 rollout\n"
                                      "alloc 2 engine 1 1 0 " M400 " weights backup=host\n"
                                      "alloc 3 engine 1 2 0 1 -\n"
                                      "external 4 engine 1 0 " M100 " nccl\n"
                                      "stage 5 engine 1 train\n"
                                      "pause 6 engine 1 weights\n"
                                      "alloc 7 trainer 1 1 0 " M600 " model\n"
                                      "free 8 trainer 1 1\n"
                                      "resume 9 engine 1 weights\n"
                                      "stage 10 engine 1 rollout\n"
                                      "end 10\n";

static void test_bytes(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(two_stages, (rvl_replay_options){0});
    assert_int_equal(rvl_replay_device_count(replay), 1);
    uint64_t skipped = 1;
    assert_int_equal(rvl_replay_event_count(replay, &skipped), 10);
    assert_int_equal(skipped, 0);

    rvl_replay_device device = device_of(replay, 0);
    assert_int_equal(device.device, 0);
    assert_null(device.profile);
    assert_int_equal(device.capacity_bytes, 1000 * MIB);
    assert_int_equal(device.peak_bytes, 702 * MIB);
    assert_int_equal(device.peak_stage, 1);
    assert_int_equal(device.stage_count, 3);
    assert_true(device.fits);
    assert_true(device.within_budgets);
    assert_null(device.oom_file);

    check_stage(replay, 0, "rollout", 502 * MIB, 502 * MIB);
    check_stage(replay, 1, "train", 702 * MIB, 502 * MIB);
    check_stage(replay, 2, "rollout#2", 502 * MIB, 502 * MIB);
    assert_int_equal(stage_of(replay, 0, 1).free_at_peak_bytes, 298 * MIB);
    assert_int_equal(stage_of(replay, 0, 1).host_bytes, 400 * MIB);
    assert_true(stage_of(replay, 0, 1).transition_ns > 0);
    assert_int_equal(stage_of(replay, 0, 0).transition_ns, 0);
    rvl_replay_close(replay);
}

/* 400 MiB to a disk and back from it, as the profile's disk is fast; nothing lies in host memory.
 */
static void test_disk_backups(void **state)
{
    (void)state;
    static const char text[] = HEAD "process e pid=1\nstage 1 e 1 a\n"
                                    "alloc 2 e 1 1 0 " M400 " weights backup=disk\n"
                                    "stage 3 e 1 b\npause 4 e 1 weights\n"
                                    "stage 5 e 1 c\nresume 6 e 1 weights\nend 6\n";
    rvl_replay *replay = run_well(text, (rvl_replay_options){0});
    check_stage(replay, 1, "b", 400 * MIB, 0);
    check_stage(replay, 2, "c", 400 * MIB, 400 * MIB);
    assert_int_equal(stage_of(replay, 0, 1).host_bytes, 0);
    rvl_profile h200 = {.struct_size = sizeof h200};
    assert_int_equal(rvl_profile_find("h200", &h200), RVL_OK);
    double written_ns = (double)(400 * MIB) * h200.cost.disk_write.fs_per_byte / 1e6;
    double read_ns = (double)(400 * MIB) * h200.cost.disk_read.fs_per_byte / 1e6;
    assert_in_range(stage_of(replay, 0, 1).transition_ns, written_ns, 1.1 * written_ns);
    assert_in_range(stage_of(replay, 0, 2).transition_ns, read_ns, 1.1 * read_ns);
    rvl_replay_close(replay);
}

#define HOLDERS_MAX 8

static void test_holders(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(two_stages, (rvl_replay_options){0});
    rvl_holder holders[HOLDERS_MAX];
    size_t count;
    assert_int_equal(
        rvl_replay_get_holders(replay, 0, 1, holders, sizeof *holders, HOLDERS_MAX, &count),
        RVL_OK);
    assert_int_equal(count, 3);
    assert_string_equal(holders[0].process, "trainer");
    assert_string_equal(holders[0].tag, "model");
    assert_int_equal(holders[0].bytes, 600 * MIB);
    assert_string_equal(holders[1].process, "external");
    assert_string_equal(holders[1].tag, "nccl");
    assert_int_equal(holders[1].bytes, 100 * MIB);
    assert_string_equal(holders[2].process, "engine");
    assert_null(holders[2].tag);
    assert_int_equal(holders[2].bytes, 2 * MIB);
    rvl_holder largest[3] = {{0}};
    assert_int_equal(rvl_replay_get_holders(replay, 0, 1, largest, sizeof *largest, 2, &count),
                     RVL_OK);
    assert_int_equal(count, 3);
    assert_int_equal(largest[0].bytes, 600 * MIB);
    assert_string_equal(largest[1].process, "external");
    assert_null(largest[2].process); /* there was no room for it */
    rvl_replay_close(replay);
}

static void test_json(void **state)
{
    (void)state;
    static const char text[] =
        HEAD "process e pid=0\nstage 1 e 1 only\nalloc 2 e 1 1 0 1 -\nend 2\n";
    rvl_replay *replay = run_well(text, (rvl_replay_options){0});
    char *json;
    assert_int_equal(rvl_replay_to_json(replay, &json), RVL_OK);
    assert_string_equal(
        json, "{\"schema\":1,\"devices\":[{\"device\":0,\"profile\":null,"
              "\"capacity_bytes\":1048576000,\"peak_bytes\":2097152,\"peak_stage\":\"only\","
              "\"fits\":true,\"oom\":null,\"stages\":[{\"name\":\"only\",\"peak_bytes\":2097152,"
              "\"end_bytes\":2097152,\"free_at_peak_bytes\":1046478848,\"host_bytes\":0,"
              "\"seconds\":0.0,\"at_peak\":[{\"process\":\"e\",\"tag\":null,"
              "\"bytes\":2097152}]}]}],\"events\":2,\"verdict\":{\"kind\":\"fits\","
              "\"text\":\"fits, with 998.0 MiB to spare\",\"spare_bytes\":1046478848,"
              "\"headroom_bytes\":31457280},\"refused\":{\"count\":0,\"cured\":0,"
              "\"first\":null}}");
    rvl_string_free(json);
    rvl_replay_close(replay);
}

/* Takes so many pieces, and no more. */
static bool take_pieces(void *user, const char *text, size_t size)
{
    int *left = user;
    assert_true(text != NULL && size > 0);
    return (*left)-- > 0;
}

static void test_json_that_is_not_taken(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(two_stages, (rvl_replay_options){0});
    int left = 1000, pieces;
    assert_int_equal(rvl_replay_write_json(replay, take_pieces, &left), RVL_OK);
    pieces = 1000 - left;
    assert_true(pieces > 5); /* a stage at a time */
    for (int i = 0; i < pieces; i++) {
        left = i;
        assert_int_equal(rvl_replay_write_json(replay, take_pieces, &left), RVL_ERR_IO);
        assert_int_equal(left, -1); /* it is not asked again */
    }
    assert_int_equal(rvl_replay_write_json(replay, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_replay_write_json(NULL, take_pieces, &left), RVL_ERR_INVALID);
    rvl_replay_close(replay);
}

static void test_json_is_the_same_twice(void **state)
{
    (void)state;
    char *json[2];
    for (int i = 0; i < 2; i++) {
        rvl_replay *replay = run_well(two_stages, (rvl_replay_options){0});
        assert_int_equal(rvl_replay_to_json(replay, &json[i]), RVL_OK);
        rvl_replay_close(replay);
    }
    assert_string_equal(json[0], json[1]);
    rvl_string_free(json[0]);
    rvl_string_free(json[1]);
}

static void test_json_of_names_that_are_not_utf8(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD "process e pid=0\nstage 1 e 1 a\xFF"
                                       "b\nalloc 2 e 1 1 0 1 \xC3\xA9\nend 2\n",
                                  (rvl_replay_options){0});
    char *json;
    assert_int_equal(rvl_replay_to_json(replay, &json), RVL_OK);
    assert_non_null(strstr(json, "\"name\":\"a%FFb\""));
    assert_non_null(strstr(json, "\"tag\":\"\xC3\xA9\""));
    json_t *parsed = json_loads(json, 0, NULL);
    assert_non_null(parsed);
    json_decref(parsed);
    rvl_string_free(json);
    rvl_replay_close(replay);
}

static void test_start_is_listed_if_used(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD "process e pid=0\nalloc 1 e 1 1 0 " M100 " w\n"
                                       "stage 2 e 1 late\nend 2\n",
                                  (rvl_replay_options){0});
    assert_int_equal(device_of(replay, 0).stage_count, 2);
    check_stage(replay, 0, "start", 100 * MIB, 100 * MIB);
    check_stage(replay, 1, "late", 100 * MIB, 100 * MIB);
    rvl_replay_close(replay);
}

static void test_empty_trace(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD "end 0\n", (rvl_replay_options){0});
    rvl_replay_device device = device_of(replay, 0);
    assert_int_equal(device.stage_count, 0);
    assert_int_equal(device.peak_bytes, 0);
    assert_true(device.fits);
    char *json;
    assert_int_equal(rvl_replay_to_json(replay, &json), RVL_OK);
    assert_non_null(strstr(json, "\"peak_stage\":null,\"fits\":true,\"oom\":null,\"stages\":[]"));
    rvl_string_free(json);
    rvl_replay_close(replay);
}

/* ---- What does not fit ---- */

static const char too_much[] = HEAD "process e pid=0\n"
                                    "stage 1 e 1 first\n"
                                    "alloc 2 e 1 1 0 " M600 " weights\n"
                                    "stage 3 e 1 second\n"
                                    "alloc 4 e 1 2 0 " M600 " kv\n"
                                    "alloc 5 e 1 3 0 " M600 " kv\n"
                                    "end 5\n";

static void test_oom(void **state)
{
    (void)state;
    outcome result = run_with(too_much, (rvl_replay_options){0});
    assert_int_equal(result.status, RVL_OK);
    rvl_replay_device device = device_of(result.replay, 0);
    assert_false(device.fits);
    assert_string_equal(device.oom_file, result.path);
    assert_int_equal(device.oom_line, 8);
    assert_int_equal(device.oom_stage, 1);
    assert_string_equal(device.oom_process, "e");
    assert_string_equal(device.oom_tag, "kv");
    assert_int_equal(device.oom_requested_bytes, 600 * MIB);
    assert_int_equal(device.oom_free_bytes, 400 * MIB);
    assert_int_equal(device.peak_bytes, 1800 * MIB);
    assert_int_equal(stage_of(result.replay, 0, 1).free_at_peak_bytes, 0);

    char *json, expected[256];
    snprintf(expected, sizeof expected,
             "\"oom\":{\"file\":\"%s\",\"line\":8,\"stage\":\"second\",\"process\":\"e\","
             "\"tag\":\"kv\",\"requested_bytes\":629145600,\"free_bytes\":419430400}",
             result.path);
    assert_int_equal(rvl_replay_to_json(result.replay, &json), RVL_OK);
    assert_non_null(strstr(json, expected));
    rvl_string_free(json);
    rvl_replay_close(result.replay);
}

static void test_oom_of_external_bytes(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD "process e pid=0\nexternal 1 e 1 0 1048576001 nccl\nend 1\n",
                                  (rvl_replay_options){0});
    rvl_replay_device device = device_of(replay, 0);
    assert_false(device.fits);
    assert_int_equal(device.oom_line, 5);
    assert_string_equal(device.oom_process, "external");
    assert_string_equal(device.oom_tag, "nccl");
    assert_int_equal(device.oom_free_bytes, 1000 * MIB);
    rvl_replay_close(replay);
}

static void test_exactly_full_fits(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD "process e pid=0\nalloc 1 e 1 1 0 1048576000 w\nend 1\n",
                                  (rvl_replay_options){0});
    assert_true(device_of(replay, 0).fits);
    assert_int_equal(stage_of(replay, 0, 0).free_at_peak_bytes, 0);
    rvl_replay_close(replay);
}

static void test_device_option(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(too_much, (rvl_replay_options){.device = "h200"});
    rvl_replay_device device = device_of(replay, 0);
    assert_string_equal(device.profile, "h200");
    assert_int_equal(device.capacity_bytes, UINT64_C(150109880320));
    assert_true(device.fits);
    rvl_replay_close(replay);

    replay = run_well(too_much, (rvl_replay_options){.device = "500MiB"});
    device = device_of(replay, 0);
    assert_null(device.profile);
    assert_int_equal(device.capacity_bytes, 500 * MIB);
    assert_int_equal(device.oom_line, 6);
    rvl_replay_close(replay);

    outcome result = run_with(too_much, (rvl_replay_options){.device = "h999"});
    assert_int_equal(result.status, RVL_ERR_INVALID);
    assert_non_null(strstr(result.error.message, "unknown device \"h999\""));
}

/* ---- Wake together ---- */

static const char staged[] = HEAD "process e pid=0\nprocess t pid=0\n"
                                  "step 1 e 1\n"
                                  "alloc 2 e 1 1 0 " M100 " weights\n"
                                  "alloc 3 e 1 2 0 " M400 " kv\n"
                                  "pause 4 e 1 weights\n"
                                  "pause 5 e 1 kv\n"
                                  "stage 6 e 1 wake\n"
                                  "resume 7 e 1 weights\n"
                                  "alloc 8 t 1 1 0 " M600 " copy\n"
                                  "free 9 t 1 1\n"
                                  "stage 10 e 1 roll\n"
                                  "resume 11 e 1 kv\n"
                                  "pause 12 e 1 kv\n"
                                  "step 13 e 1\n"
                                  "stage 14 e 1 next\n"
                                  "resume 15 e 1 kv no_restore\n"
                                  "end 15\n";

static void test_together(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(staged, (rvl_replay_options){.wake = RVL_WAKE_STAGED});
    assert_true(device_of(replay, 0).fits);
    check_stage(replay, 0, "start", 500 * MIB, 0);
    check_stage(replay, 1, "wake", 700 * MIB, 100 * MIB);
    check_stage(replay, 2, "roll", 500 * MIB, 100 * MIB);
    check_stage(replay, 3, "next", 500 * MIB, 500 * MIB);
    rvl_replay_close(replay);

    replay = run_well(staged, (rvl_replay_options){.wake = RVL_WAKE_TOGETHER});
    rvl_replay_device device = device_of(replay, 0);
    assert_false(device.fits);
    assert_int_equal(device.oom_line, 13);
    assert_string_equal(device.oom_tag, "copy");
    assert_int_equal(device.oom_free_bytes, 500 * MIB);
    check_stage(replay, 1, "wake", 1100 * MIB, 500 * MIB);
    check_stage(replay, 2, "roll", 500 * MIB, 100 * MIB);
    check_stage(replay, 3, "next", 500 * MIB, 500 * MIB);
    rvl_replay_close(replay);
}

static void test_together_before_any_step(void **state)
{
    (void)state;
    static const char text[] = HEAD "process e pid=0\n"
                                    "alloc 1 e 1 1 0 " M100 " a flags=paused\n"
                                    "alloc 2 e 1 2 0 " M400 " b flags=paused\n"
                                    "stage 3 e 1 one\n"
                                    "resume 4 e 1 a\n"
                                    "stage 5 e 1 two\n"
                                    "resume 6 e 1 b\n"
                                    "alloc 7 e 1 3 0 " M100 " c flags=paused\n"
                                    "resume 8 e 1 c\n"
                                    "end 8\n";
    rvl_replay *replay = run_well(text, (rvl_replay_options){.wake = RVL_WAKE_STAGED});
    check_stage(replay, 0, "one", 100 * MIB, 100 * MIB);
    rvl_replay_close(replay);
    replay = run_well(text, (rvl_replay_options){.wake = RVL_WAKE_TOGETHER});
    check_stage(replay, 0, "one", 500 * MIB, 500 * MIB);
    /* c was not there at the first resume: it wakes where the trace has it. */
    check_stage(replay, 1, "two", 600 * MIB, 600 * MIB);
    rvl_replay_close(replay);
}

/* A fault is told the same way whichever way the trace is read. */
static void test_together_of_a_bad_trace(void **state)
{
    (void)state;
    static const char text[] = HEAD "process e pid=0\nfree 1 e 1 1\nrubbish\n";
    for (int wake = RVL_WAKE_STAGED; wake <= RVL_WAKE_TOGETHER; wake++) {
        outcome result = run_with(text, (rvl_replay_options){.wake = (rvl_wake)wake});
        assert_int_equal(result.status, RVL_ERR_CORRUPT_TRACE);
        assert_int_equal(result.error.line, 5);
    }
}

/* ---- What lies in allocations ---- */

#define HEAD_PARTS                                                                                 \
    "reveille-trace 1.1\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process t pid=0\n"

static uint64_t held_by(const rvl_replay *replay, uint32_t stage, const char *tag)
{
    rvl_holder holders[16];
    size_t count = 0;
    assert_int_equal(rvl_replay_get_holders(replay, 0, stage, holders, sizeof *holders, 16, &count),
                     RVL_OK);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(holders[i].tag, tag) == 0)
            return holders[i].bytes;
    }
    return 0;
}

/*
 * Of instants with the same use, the peak is the one at which most of it is for something: not the
 * first, at which the segments are empty, and not the last.
 */
static void test_parts(void **state)
{
    (void)state;
    static const char text[] = HEAD_PARTS "stage 0 t 0 train\n"
                                          "alloc 1 t 0 1 0 " M400 " cached\n"
                                          "alloc 1 t 0 2 0 " M100 " cached\n"
                                          "part 2 t 0 1 " M100 " logits\n"
                                          "part 3 t 0 2 1 logits\n"
                                          "part 3 t 0 1 314572800 activations\n"
                                          "part 4 t 0 1 0 activations\n"
                                          "part 5 t 0 2 " M100 " gradients\n"
                                          "end 8\n";
    /* The last exceeds its allocation by the byte that is there. */
    check_refused(text, RVL_ERR_CORRUPT_TRACE, 12, 14, "more than its 104857600 bytes");
    static const char good[] = HEAD_PARTS "stage 0 t 0 train\n"
                                          "alloc 1 t 0 1 0 " M400 " cached\n"
                                          "alloc 1 t 0 2 0 " M100 " cached\n"
                                          "part 2 t 0 1 " M100 " logits\n"
                                          "part 3 t 0 2 1 logits\n"
                                          "part 3 t 0 1 314572800 activations\n"
                                          "part 4 t 0 1 0 activations\n"
                                          "part 5 t 0 2 1024 gradients\n"
                                          "stage 6 t 0 after\n"
                                          "free 7 t 0 1\n"
                                          "stage 8 t 0 end\n"
                                          "end 11\n";
    rvl_timeline *timeline = NULL;
    assert_int_equal(rvl_timeline_open(NULL, &timeline), RVL_OK);
    rvl_replay *replay = run_well(good, (rvl_replay_options){.timeline = timeline});
    check_stage(replay, 0, "train", 500 * MIB, 500 * MIB);
    assert_int_equal(held_by(replay, 0, "logits"), 100 * MIB + 1);
    assert_int_equal(held_by(replay, 0, "activations"), 300 * MIB);
    assert_int_equal(held_by(replay, 0, "gradients"), 0);
    assert_int_equal(held_by(replay, 0, "cached"), 100 * MIB - 1);
    /* What is left is that of the second alone. */
    check_stage(replay, 1, "after", 500 * MIB, 100 * MIB);
    assert_int_equal(held_by(replay, 1, "logits"), 100 * MIB + 1);
    check_stage(replay, 2, "end", 100 * MIB, 100 * MIB);
    assert_int_equal(held_by(replay, 2, "logits"), 1);
    assert_int_equal(held_by(replay, 2, "gradients"), 1024);
    assert_int_equal(held_by(replay, 2, "cached"), 100 * MIB - 1025);
    rvl_replay_close(replay);
    rvl_timeline_close(timeline);
}

static void test_wrong_parts(void **state)
{
    (void)state;
#define SEGMENT HEAD_PARTS "alloc 1 t 0 1 0 " M100 " cached backup=host\n"
    check_refused(SEGMENT "part 2 t 0 2 1 logits\nend 2\n", RVL_ERR_CORRUPT_TRACE, 6, 12,
                  "not live");
    check_refused(SEGMENT "part 2 t 0 1 104857601 logits\nend 2\n", RVL_ERR_CORRUPT_TRACE, 6, 14,
                  "more than its");
    check_refused(SEGMENT "part 2 t 0 1 1 cached\nend 2\n", RVL_ERR_CORRUPT_TRACE, 6, 16,
                  "another tag");
    check_refused(SEGMENT "part 2 t 0 1 1 logits\npause 3 t 0 cached\nend 3\n",
                  RVL_ERR_CORRUPT_TRACE, 7, 13, "has parts");
    check_refused(SEGMENT "pause 2 t 0 cached\npart 3 t 0 1 1 logits\nend 3\n",
                  RVL_ERR_CORRUPT_TRACE, 7, 12, "is paused");
    check_refused(SEGMENT "free 2 t 0 1\npart 3 t 0 1 1 logits\nend 3\n", RVL_ERR_CORRUPT_TRACE, 7,
                  12, "not live");
    /* Once they have ended it can be paused, and has none while it is. */
    rvl_replay *replay = run_well(SEGMENT "part 2 t 0 1 5 logits\npart 3 t 0 1 0 logits\n"
                                          "pause 4 t 0 cached\nend 4\n",
                                  (rvl_replay_options){0});
    rvl_replay_close(replay);
    check_refused(SEGMENT "part 2 t 0 1 5 logits\npart 3 t 0 1 0 logits\npause 4 t 0 cached\n"
                          "part 5 t 0 1 5 logits\nend 5\n",
                  RVL_ERR_CORRUPT_TRACE, 9, 12, "is paused");
}

/* ---- Budgets ---- */

/* ---- Processes that sleep ---- */

#define HEAD_OF_SLEEP                                                                              \
    "reveille-trace 1.3\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process engine pid=1\nprocess trainer pid=2\n"                                                \
    "stage 0 engine 1 serve\n"                                                                     \
    "external 1 engine 1 0 " M100 " context\n"                                                     \
    "alloc 2 engine 1 1 0 " M400 " weights backup=host\n"                                          \
    "alloc 3 engine 1 2 0 " M100 " cache\n"

static const uint64_t mib = 1048576;

/* Nothing of it is left on the device; content and context are in host memory. */
static void test_sleep(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD_OF_SLEEP "stage 4 engine 1 train\n"
                                                "sleep 5 engine 1\n"
                                                "sleep 5 engine 2\n" /* of another recorder */
                                                "pause 5 engine 1 weights\n"
                                                "external 5 engine 1 0 0 context\n"
                                                "stage 6 engine 1 asleep\n"
                                                "alloc 7 trainer 1 1 0 1048576000 model\n"
                                                "free 8 trainer 1 1\n"
                                                "external 8 engine 1 0 " M100 " context\n"
                                                "resume 8 engine 1 weights\n"
                                                "wake 9 engine 1\n"
                                                "wake 9 engine 2\n"
                                                "stage 10 engine 1 again\n"
                                                "free 11 engine 1 1\nend 18\n",
                                  (rvl_replay_options){0});
    check_stage(replay, 0, "serve", 600 * mib, 600 * mib);
    check_stage(replay, 1, "train", 600 * mib, 0);
    check_stage(replay, 2, "asleep", 1000 * mib, 600 * mib);
    check_stage(replay, 3, "again", 600 * mib, 200 * mib);
    assert_true(device_of(replay, 0).fits);
    assert_int_equal(stage_of(replay, 0, 2).host_bytes, 500 * mib);
    assert_int_equal(stage_of(replay, 0, 3).host_bytes, 0);
    rvl_replay_close(replay);
}

/* Where a wake leaves tags paused, later lines resume them; discarded content takes no host memory.
 */
static void test_wake_with_tags_paused(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD_OF_SLEEP "sleep 4 engine 1 discard\n"
                                                "stage 5 engine 1 asleep\n"
                                                "wake 6 engine 1 paused\n"
                                                "stage 7 engine 1 context\n"
                                                "resume 8 engine 1 weights no_restore\n"
                                                "stage 9 engine 1 weights\n"
                                                "free 10 engine 1 2\nend 11\n",
                                  (rvl_replay_options){0});
    check_stage(replay, 1, "asleep", 100 * mib, 100 * mib);
    check_stage(replay, 2, "context", 500 * mib, 500 * mib);
    assert_int_equal(stage_of(replay, 0, 1).host_bytes, 100 * mib);
    check_stage(replay, 3, "weights", 500 * mib, 500 * mib);
    rvl_replay_close(replay);
}

static uint64_t duration_ns(const char *text, uint32_t stage)
{
    rvl_replay *replay = run_well(text, (rvl_replay_options){0});
    uint64_t duration = stage_of(replay, 0, stage).transition_ns;
    rvl_replay_close(replay);
    return duration;
}

/* What the driver takes for the process, as forecasts have it, beside the time of the pause. */
static void test_the_price_of_sleep(void **state)
{
    (void)state;
    uint64_t pause_ns = duration_ns(HEAD_OF_SLEEP "free 4 engine 1 2\nstage 4 engine 1 off\n"
                                                  "pause 5 engine 1 weights\nend 7\n",
                                    1);
    uint64_t sleep_ns = duration_ns(HEAD_OF_SLEEP "free 4 engine 1 2\nstage 4 engine 1 off\n"
                                                  "sleep 5 engine 1\nend 7\n",
                                    1);
    uint64_t wake_ns = duration_ns(HEAD_OF_SLEEP "sleep 4 engine 1\nstage 5 engine 1 on\n"
                                                 "wake 6 engine 1 paused\nend 7\n",
                                   1);
    assert_int_equal(sleep_ns - pause_ns, rvli_cost_ns(RVLI_PROCESS_LOCK, 0) +
                                              rvli_cost_ns(RVLI_PROCESS_CHECKPOINT, 100 * mib));
    assert_int_equal(wake_ns, rvli_cost_ns(RVLI_PROCESS_RESTORE, 100 * mib) +
                                  rvli_cost_ns(RVLI_PROCESS_UNLOCK, 0));
}

static void test_wrong_sleep(void **state)
{
    (void)state;
    check_refused(HEAD_OF_SLEEP "sleep 4 engine 1\nalloc 5 engine 1 3 0 " M2 " x\nend 6\n",
                  RVL_ERR_CORRUPT_TRACE, 11, 9, "process engine sleeps: it allocates nothing");
    rvl_replay *replay = run_well(HEAD_OF_SLEEP "wake 4 engine 1\nfree 5 engine 1 2\n"
                                                "sleep 6 engine 1\nfree 7 engine 1 1\nend 8\n",
                                  (rvl_replay_options){0}); /* it ends asleep */
    check_stage(replay, 0, "serve", 600 * mib, 0);
    rvl_replay_close(replay);
}

static void test_budgets(void **state)
{
    (void)state;
    rvl_budget budgets[] = {{"rollout", 502 * MIB}, {"train", 702 * MIB}};
    rvl_replay_options options = {
        .budgets = budgets, .budget_count = 2, .budget_size = sizeof *budgets};
    rvl_replay *replay = run_well(two_stages, options);
    assert_true(device_of(replay, 0).within_budgets);
    rvl_replay_close(replay);

    budgets[0].bytes--; /* holds for rollout and rollout#2 */
    replay = run_well(two_stages, options);
    rvl_replay_device device = device_of(replay, 0);
    assert_false(device.within_budgets);
    assert_true(device.fits);
    static const bool over[] = {true, false, true};
    for (uint32_t i = 0; i < 3; i++) {
        rvl_stage_stats stats = {.struct_size = sizeof stats};
        bool over_budget = !over[i];
        assert_int_equal(rvl_replay_get_stage(replay, 0, i, &stats, &over_budget), RVL_OK);
        assert_int_equal(over_budget, over[i]);
    }
    rvl_replay_close(replay);
}

static void test_budget_for_an_unknown_stage(void **state)
{
    (void)state;
    rvl_budget budget = {"rolout", GIB};
    rvl_replay_options options = {
        .budgets = &budget, .budget_count = 1, .budget_size = sizeof budget};
    outcome result = run_with(two_stages, options);
    assert_int_equal(result.status, RVL_ERR_INVALID);
    assert_string_equal(result.error.file, "");
    assert_string_equal(result.error.message, "budget for unknown stage \"rolout\"; the trace has: "
                                              "rollout, train");
}

/* ---- Samples ---- */

static void test_samples(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD "process e pid=0\n"
                                       "alloc 1 e 1 1 0 " M100 " w\n"
                                       "sample 2 e 1 0 " M400 "\n"
                                       "sample 3 e 1 0 " M600 "\n"
                                       "sample 4 e 1 0 " M100 "\n"
                                       "sample 5 e 1 0 " M400 "\n"
                                       "end 5\n",
                                  (rvl_replay_options){0});
    rvl_replay_device device = device_of(replay, 0);
    assert_int_equal(device.peak_bytes, 400 * MIB);
    assert_int_equal(device.sample_count, 3);
    assert_int_equal(device.worst_sample_difference_bytes, 300 * (int64_t)MIB);
    rvl_holder holders[HOLDERS_MAX];
    size_t count;
    assert_int_equal(
        rvl_replay_get_holders(replay, 0, 0, holders, sizeof *holders, HOLDERS_MAX, &count),
        RVL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(holders[0].process, "external");
    assert_string_equal(holders[0].tag, "first_sample");
    assert_int_equal(holders[0].bytes, 300 * MIB);
    rvl_replay_close(replay);
}

/* The record of the failure is there, and is of this one. */
static void assert_refused(rvl_status answer, rvl_status expected, const char *message)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_last_error(&error);
    assert_int_equal(answer, expected);
    assert_int_equal(error.status, expected);
    assert_string_equal(error.message, message);
}

static void assert_reading(const rvl_replay *replay, uint32_t stage, uint64_t read_mib,
                           uint64_t predicted_mib)
{
    uint64_t read = 0, predicted = 0;
    assert_int_equal(rvl_replay_get_reading(replay, 0, stage, &read, &predicted), RVL_OK);
    assert_int_equal(read, read_mib * MIB);
    assert_int_equal(predicted, predicted_mib * MIB);
}

/* Before a mark or right behind it; the first says nothing, nor does a stage without one. */
static void test_readings(void **state)
{
    (void)state;
    uint64_t read, predicted;
    rvl_replay *replay = run_well(HEAD "process e pid=0\n"
                                       "stage 1 e 1 a\n"
                                       "alloc 2 e 1 1 0 " M100 " w\n"
                                       "sample 3 e 1 0 " M400 "\n"
                                       "stage 4 e 1 b\n"
                                       "alloc 5 e 1 2 0 " M100 " w\n"
                                       "sample 6 e 1 0 " M100 "\n"
                                       "sample 7 e 1 0 " M600 "\n"
                                       "stage 8 e 1 c\n"
                                       "free 9 e 1 2\n"
                                       "stage 10 e 1 d\n"
                                       "sample 11 e 1 0 " M100 "\n"
                                       "free 12 e 1 1\n"
                                       "sample 13 e 1 0 " M400 "\n"
                                       "end 13\n",
                                  (rvl_replay_options){0});
    assert_refused(rvl_replay_get_reading(replay, 0, 0, &read, &predicted), RVL_ERR_NOT_FOUND,
                   "no sample was read in a stage of this index");
    assert_reading(replay, 1, 600, 500);
    assert_reading(replay, 2, 100, 400);
    assert_reading(replay, 3, 400, 300);
    assert_int_equal(rvl_replay_get_reading(replay, 0, 4, &read, &predicted), RVL_ERR_NOT_FOUND);
    assert_refused(rvl_replay_get_reading(replay, 1, 0, &read, &predicted), RVL_ERR_NOT_FOUND,
                   "no device of this index in the replay");
    assert_refused(rvl_replay_get_reading(NULL, 0, 0, &read, &predicted), RVL_ERR_INVALID,
                   "the replay or a result is NULL");
    assert_int_equal(rvl_replay_get_reading(replay, 0, 0, NULL, &predicted), RVL_ERR_INVALID);
    char *json = NULL;
    assert_int_equal(rvl_replay_to_json(replay, &json), RVL_OK);
    assert_non_null(strstr(json, "\"read_bytes\":629145600,\"predicted_bytes\":524288000}"));
    rvl_string_free(json);
    rvl_replay_close(replay);
}

static void test_first_sample_below_what_is_known(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(HEAD "process e pid=0\nalloc 1 e 1 1 0 " M400 " w\n"
                                       "sample 2 e 1 0 " M100 "\nsample 3 e 1 0 " M600 "\nend 3\n",
                                  (rvl_replay_options){0});
    rvl_replay_device device = device_of(replay, 0);
    assert_int_equal(device.peak_bytes, 400 * MIB);
    assert_int_equal(device.sample_count, 1);
    assert_int_equal(device.worst_sample_difference_bytes, -200 * (int64_t)MIB);
    rvl_replay_close(replay);
}

/* ---- Several processes and devices ---- */

static const char two_markers[] = HEAD "process a pid=0\nprocess b pid=0\n"
                                       "alloc 1 a 1 1 0 " M100 " same\n"
                                       "alloc 2 b 1 1 0 " M400 " same\n"
                                       "stage 3 b 1 of_b\n"
                                       "stage 4 a 1 of_a\n"
                                       "pause 5 a 1 same\n"
                                       "end 5\n";

static void test_conductor(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(two_markers, (rvl_replay_options){0});
    assert_int_equal(device_of(replay, 0).stage_count, 4); /* each has its own */
    check_stage(replay, 0, "start", 500 * MIB, 500 * MIB);
    check_stage(replay, 1, "start", 500 * MIB, 500 * MIB);
    check_stage(replay, 2, "of_b", 500 * MIB, 400 * MIB);
    check_stage(replay, 3, "of_a", 500 * MIB, 400 * MIB);
    rvl_replay_close(replay);

    replay = run_well(two_markers, (rvl_replay_options){.conductor = "b"});
    assert_int_equal(device_of(replay, 0).stage_count, 2);
    check_stage(replay, 1, "of_b", 500 * MIB, 400 * MIB);
    rvl_replay_close(replay);

    replay = run_well(two_markers, (rvl_replay_options){.conductor = "a"});
    assert_int_equal(device_of(replay, 0).stage_count, 2);
    check_stage(replay, 1, "of_a", 500 * MIB, 400 * MIB);
    rvl_replay_close(replay);

    outcome result = run_with(two_markers, (rvl_replay_options){.conductor = "c"});
    assert_int_equal(result.status, RVL_ERR_INVALID);
    assert_string_equal(result.error.message, "unknown conductor \"c\": no process has this name");
}

static void test_devices(void **state)
{
    (void)state;
    rvl_replay *replay =
        run_well("reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n"
                 "device 1 profile=h200 capacity_bytes=1048576000 granularity_bytes=2097152\n"
                 "device 5 profile=mystery capacity_bytes=4194304 granularity_bytes=2097152\n"
                 "process e pid=0\n"
                 "alloc 1 e 1 1 1 " M100 " w access=5\n"
                 "alloc 2 e 1 2 5 " M2 " w\n"
                 "end 2\n",
                 (rvl_replay_options){0});
    assert_int_equal(rvl_replay_device_count(replay), 2);
    rvl_replay_device device = device_of(replay, 0);
    assert_int_equal(device.device, 1);
    assert_string_equal(device.profile, "h200");
    assert_int_equal(device.capacity_bytes, 1000 * MIB);
    assert_int_equal(device.peak_bytes, 100 * MIB);
    device = device_of(replay, 1);
    assert_int_equal(device.device, 5);
    assert_string_equal(device.profile, "mystery");
    assert_int_equal(device.peak_bytes, 2 * MIB);
    rvl_replay_close(replay);
}

/* ---- Bad traces, as far as only a replay can tell ---- */

static void test_bad_events(void **state)
{
    (void)state;
    check_refused(HEAD "process e pid=0\nfree 1 e 1 7\nend 1\n", RVL_ERR_CORRUPT_TRACE, 5, 12,
                  "unknown id");
    check_refused(HEAD "process e pid=0\nalloc 1 e 1 7 0 1 -\nfree 2 e 1 7\nfree 3 e 1 7\nend 3\n",
                  RVL_ERR_CORRUPT_TRACE, 7, 12, "double free");
    check_refused(HEAD "process e pid=0\npause 1 e 1 weights\nend 1\n", RVL_ERR_CORRUPT_TRACE, 5,
                  13, "unknown tag weights");
    check_refused(HEAD "process e pid=0\nresume 1 e 1 weights\nend 1\n", RVL_ERR_CORRUPT_TRACE, 5,
                  14, "unknown tag weights");
    /* A tag is its process's own. */
    check_refused(HEAD "process e pid=0\nprocess f pid=0\nalloc 1 e 1 1 0 1 w\npause 2 f 1 w\n"
                       "end 2\n",
                  RVL_ERR_CORRUPT_TRACE, 7, 13, "process f has allocated nothing");
    check_refused(HEAD "process e pid=0\nalloc 1 e 1 1 0 9223372036854775807 w\nend 1\n",
                  RVL_ERR_CORRUPT_TRACE, 5, 17, "2^63");
    check_refused(HEAD "process e pid=0\nexternal 1 e 1 0 9223372036854775807 a\n"
                       "external 2 e 1 0 1 b\nend 2\n",
                  RVL_ERR_CORRUPT_TRACE, 6, 18, "2^63");
}

/* ---- Bad calls ---- */

static void test_bad_calls(void **state)
{
    (void)state;
    rvl_replay *replay = NULL;
    const char *path = "/nowhere/at/all.rvt";
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_replay_run(NULL, 1, NULL, &replay), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_replay_run(&path, 0, NULL, &replay), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_replay_run(&path, 1, NULL, NULL), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_replay_run(&path, 1, NULL, &replay), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_string_equal(error.file, path);
    assert_int_equal(rvl_replay_run(&path, 1, NULL, &replay), RVL_ERR_IO);
    const char *none = NULL;
    assert_int_equal(rvl_replay_run(&none, 1, NULL, &replay), RVL_ERR_INVALID);
    rvl_last_error(&error);

    rvl_replay_options options = {.struct_size = 1};
    assert_int_equal(rvl_replay_run(&path, 1, &options, &replay), RVL_ERR_INVALID);
    options = (rvl_replay_options){.struct_size = sizeof options, .budget_count = 1};
    assert_int_equal(rvl_replay_run(&path, 1, &options, &replay), RVL_ERR_INVALID);
    options = (rvl_replay_options){.struct_size = sizeof options, .wake = (rvl_wake)7};
    assert_int_equal(rvl_replay_run(&path, 1, &options, &replay), RVL_ERR_INVALID);
    struct {
        rvl_replay_options known;
        uint64_t unknown;
    } newer = {.known = {.struct_size = sizeof newer}, .unknown = 1};
    assert_int_equal(rvl_replay_run(&path, 1, &newer.known, &replay), RVL_ERR_VERSION);
    assert_null(replay);
}

static bool take_nothing(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
    return false;
}

static void test_bad_questions(void **state)
{
    (void)state;
    rvl_replay *replay = run_well(two_stages, (rvl_replay_options){0});
    rvl_replay_device device = {.struct_size = sizeof device};
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    rvl_holder holders[HOLDERS_MAX];
    size_t count;
    char *json;
    assert_refused(rvl_replay_get_device(replay, 1, &device), RVL_ERR_NOT_FOUND,
                   "no device of this index in the replay");
    assert_refused(rvl_replay_get_device(NULL, 0, &device), RVL_ERR_INVALID,
                   "the replay or device_out is NULL");
    assert_int_equal(rvl_replay_get_device(replay, 0, NULL), RVL_ERR_INVALID);
    device.struct_size = 1;
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_ERR_INVALID);
    assert_refused(rvl_replay_get_stage(replay, 0, 3, &stats, NULL), RVL_ERR_NOT_FOUND,
                   "no stage of this index in the replay");
    assert_int_equal(rvl_replay_get_stage(replay, 1, 0, &stats, NULL), RVL_ERR_NOT_FOUND);
    assert_refused(rvl_replay_get_stage(NULL, 0, 0, &stats, NULL), RVL_ERR_INVALID,
                   "the replay is NULL");
    assert_refused(rvl_replay_get_stage(replay, 0, 0, NULL, NULL), RVL_ERR_INVALID,
                   "stage_out is NULL");
    assert_refused(
        rvl_replay_get_holders(replay, 0, 3, holders, sizeof *holders, HOLDERS_MAX, &count),
        RVL_ERR_NOT_FOUND, "no stage of this index in the replay");
    assert_refused(rvl_replay_get_holders(replay, 0, 0, holders, sizeof *holders, 1, NULL),
                   RVL_ERR_INVALID, "count_out is NULL: say where the number goes");
    assert_refused(
        rvl_replay_get_holders(replay, 0, 0, NULL, sizeof *holders, 1, &count), RVL_ERR_INVALID,
        "there is no array to write to: give one, or a capacity of 0 to ask for the number alone");
    uint64_t peak, end;
    assert_refused(rvl_replay_get_measured(replay, 0, 0, &peak, &end), RVL_ERR_NOT_FOUND,
                   "nothing was measured in a stage of this index");
    assert_refused(rvl_replay_get_measured(replay, 1, 0, &peak, &end), RVL_ERR_NOT_FOUND,
                   "no device of this index in the replay");
    assert_refused(rvl_replay_get_measured(NULL, 0, 0, &peak, &end), RVL_ERR_INVALID,
                   "the replay or a result is NULL");
    assert_refused(rvl_replay_write_json(replay, NULL, NULL), RVL_ERR_INVALID,
                   "the replay or write is NULL");
    assert_refused(rvl_replay_write_json(replay, take_nothing, NULL), RVL_ERR_IO,
                   "the function that takes the text of the replay has failed");
    assert_refused(rvl_replay_to_json(NULL, &json), RVL_ERR_INVALID,
                   "the replay or json_out is NULL");
    /* The stages of this have neither measures nor readings, which is no failure. */
    assert_int_equal(rvl_replay_to_json(replay, &json), RVL_OK);
    assert_refused(RVL_ERR_INVALID, RVL_ERR_INVALID, "the replay or json_out is NULL");
    rvl_string_free(json);
    assert_int_equal(rvl_replay_to_json(replay, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_replay_device_count(NULL), 0);
    assert_int_equal(rvl_replay_event_count(NULL, NULL), 0);
    rvl_string_free(NULL);
    rvl_replay_close(NULL);
    rvl_replay_close(replay);
}

static void test_backend_that_is_not_there(void **state)
{
    (void)state;
    outcome result = run_with(two_stages, (rvl_replay_options){.backend = "abacus"});
    assert_int_equal(result.status, RVL_ERR_NO_BACKEND);
    assert_non_null(strstr(result.error.message, "backend abacus: "));
}

static void count_calls(void *user, const rvl_trace_progress *progress)
{
    assert_int_equal(progress->events, 10);
    ++*(int *)user;
}

static void test_progress(void **state)
{
    (void)state;
    int calls = 0;
    rvl_replay *replay = run_well(
        two_stages, (rvl_replay_options){.progress = count_calls, .progress_user = &calls});
    assert_int_equal(calls, 1);
    rvl_replay_close(replay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_disk_backups),
        cmocka_unit_test(test_holders),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_that_is_not_taken),
        cmocka_unit_test(test_json_is_the_same_twice),
        cmocka_unit_test(test_json_of_names_that_are_not_utf8),
        cmocka_unit_test(test_start_is_listed_if_used),
        cmocka_unit_test(test_empty_trace),
        cmocka_unit_test(test_oom),
        cmocka_unit_test(test_oom_of_external_bytes),
        cmocka_unit_test(test_exactly_full_fits),
        cmocka_unit_test(test_device_option),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_together_before_any_step),
        cmocka_unit_test(test_together_of_a_bad_trace),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_wrong_parts),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_wake_with_tags_paused),
        cmocka_unit_test(test_the_price_of_sleep),
        cmocka_unit_test(test_wrong_sleep),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_budget_for_an_unknown_stage),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_readings),
        cmocka_unit_test(test_first_sample_below_what_is_known),
        cmocka_unit_test(test_conductor),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_bad_events),
        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_bad_questions),
        cmocka_unit_test(test_backend_that_is_not_there),
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
