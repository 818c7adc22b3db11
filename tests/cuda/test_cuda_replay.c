/* SPDX-License-Identifier: MIT */
/*
 * A trace replayed on the CUDA backend: what the device says, stage by stage, is what the simulator
 * predicts, less the external bytes, which nobody holds there.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "reveille/replay.h"

static const char trace[] =
    "reveille-trace 1.0\n"
    "clock boot=- mono_ns=0 wall_ns=0\n"
    "device 0 profile=- capacity_bytes=536870912 granularity_bytes=2097152\n"
    "process engine pid=1\n"
    "process trainer pid=2\n"
    "external 0 engine 1 0 20971520 context\n"
    "stage 1 engine 1 rollout\n"
    "alloc 2 engine 1 1 0 104857600 weights backup=host\n"
    "alloc 3 engine 1 2 0 52428801 kv_cache\n"
    "stage 4 engine 1 train\n"
    "pause 5 engine 1 weights\n"
    "pause 6 engine 1 kv_cache\n"
    "alloc 7 trainer 1 1 0 209715200 training_copy\n"
    "stage 8 engine 1 wake\n"
    "resume 9 engine 1 weights\n"
    "free 10 trainer 1 1\n"
    "resume 11 engine 1 kv_cache\n"
    "end 12\n";

static rvl_replay *replay_on(const char *backend)
{
    char path[] = "/tmp/reveille-cuda-XXXXXX";
    const char *paths = path;
    rvl_replay_options options = {.struct_size = sizeof options, .backend = backend};
    rvl_error error = {.struct_size = sizeof error};
    rvl_replay *replay = NULL;
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, trace, sizeof trace - 1), sizeof trace - 1);
    close(file);
    rvl_status status = rvl_replay_run(&paths, 1, &options, &replay);
    rvl_last_error(&error);
    unlink(path);
    if (status != RVL_OK)
        fail_msg("%s: %" PRIu32 ": %s", backend, error.line, error.message);
    return replay;
}

#define HOLDERS_MAX 8

static uint64_t external_at_peak(const rvl_replay *replay, uint32_t stage)
{
    rvl_holder holders[HOLDERS_MAX];
    size_t count;
    uint64_t bytes = 0;
    assert_int_equal(
        rvl_replay_get_holders(replay, 0, stage, holders, sizeof *holders, HOLDERS_MAX, &count),
        RVL_OK);
    assert_in_range(count, 0, HOLDERS_MAX);
    for (size_t i = 0; i < count; i++)
        if (strcmp(holders[i].process, "external") == 0)
            bytes += holders[i].bytes;
    return bytes;
}

static void the_device_says_what_was_predicted(void **state)
{
    (void)state;
    rvl_replay *predicted = replay_on("sim");
    rvl_replay *real = replay_on("cuda");
    rvl_replay_device device = {.struct_size = sizeof device};
    uint64_t peak, end;
    assert_int_equal(rvl_replay_get_device(real, 0, &device), RVL_OK);
    assert_int_equal(device.stage_count, 4); /* "start" holds the external bytes */
    for (uint32_t i = 0; i < device.stage_count; i++) {
        rvl_stage_stats stage = {.struct_size = sizeof stage};
        assert_int_equal(rvl_replay_get_stage(predicted, 0, i, &stage, NULL), RVL_OK);
        assert_int_equal(rvl_replay_get_measured(real, 0, i, &peak, &end), RVL_OK);
        assert_int_equal(peak, stage.peak_bytes - external_at_peak(predicted, i));
        assert_int_equal(end, stage.end_bytes - 20971520);
        assert_int_equal(rvl_replay_get_measured(predicted, 0, i, &peak, &end), RVL_ERR_NOT_FOUND);
    }
    assert_int_equal(rvl_replay_get_measured(real, 0, 3, &peak, &end), RVL_OK);
    assert_int_equal(peak, 104857600 + 209715200);
    assert_int_equal(end, 104857600 + 54525952); /* rounded up to the granularity */
    assert_int_equal(rvl_replay_get_measured(real, 0, 4, &peak, &end), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_replay_get_measured(real, 1, 0, &peak, &end), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_replay_get_measured(NULL, 0, 0, &peak, &end), RVL_ERR_INVALID);
    char *json;
    assert_int_equal(rvl_replay_to_json(real, &json), RVL_OK);
    assert_non_null(
        strstr(json, "\"measured_peak_bytes\":314572800,\"measured_end_bytes\":159383552}"));
    rvl_string_free(json);
    assert_int_equal(rvl_replay_to_json(predicted, &json), RVL_OK);
    assert_null(strstr(json, "measured"));
    rvl_string_free(json);
    rvl_replay_close(predicted);
    rvl_replay_close(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_says_what_was_predicted),
    };
    if (!gpu_is_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
