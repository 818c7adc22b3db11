/* SPDX-License-Identifier: MIT */
/*
 * Replays count nothing themselves: what they report is what reached the backend.
 *
 * Linked with --wrap for rvl_context_open and the end of a segment, so that the replay runs over an
 * ops table that counts its calls and bytes on its way to the simulator. The counts must be those
 * that the trace's events explain, and every figure of the result must follow from them.
 */
#include <inttypes.h>
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

#include "backends/sim/sim.h"
#include "core/context/context.h"
#include "reveille/replay.h"
#include "reveille/stats.h"

#define STAGES_MAX 16

/* What has reached device 0 of the backend. */
typedef struct tally {
    uint64_t calls[RVLI_OP_COUNT];
    uint64_t block_bytes;
    uint64_t external_bytes;
    uint64_t peak_bytes; /* since the last stage mark */
    uint64_t stage_peaks[STAGES_MAX];
    uint64_t stage_ends[STAGES_MAX];
    uint32_t stage_count;
} tally;

static tally seen;

static uint64_t bytes_in_use(void)
{
    return seen.block_bytes + seen.external_bytes;
}

static void note_peak(void)
{
    if (bytes_in_use() > seen.peak_bytes)
        seen.peak_bytes = bytes_in_use();
}

/* ---- The counting table ---- */

#define FORWARD(op, parameters, arguments)                                                         \
    static rvl_status counted_##op parameters                                                      \
    {                                                                                              \
        seen.calls[RVLI_OP_##op]++;                                                                \
        return rvli_sim_ops.op arguments;                                                          \
    }
RVLI_BACKEND_ALL_OPS_MAP(FORWARD)
#undef FORWARD

static rvl_status summed_create(void *self, int device, uint64_t size, uint32_t properties,
                                rvli_handle *block_out)
{
    rvl_status status = counted_create(self, device, size, properties, block_out);
    if (status == RVL_OK && device == 0)
        seen.block_bytes += size;
    note_peak();
    return status;
}

static rvl_status summed_release(void *self, int device, rvli_handle block, uint64_t size)
{
    rvl_status status = counted_release(self, device, block, size);
    if (status == RVL_OK && device == 0)
        seen.block_bytes -= size;
    return status;
}

static rvl_status summed_external_set(void *self, int device, uint64_t bytes)
{
    rvl_status status = counted_external_set(self, device, bytes);
    if (status == RVL_OK && device == 0)
        seen.external_bytes = bytes;
    note_peak();
    return status;
}

rvl_status __wrap_rvl_context_open(const char *backend, const rvl_context_options *options,
                                   rvl_context **context_out);
rvl_status __real_rvl_private_segment_next(rvl_context *context, bool forget);
rvl_status __wrap_rvl_private_segment_next(rvl_context *context, bool forget);

rvl_status __wrap_rvl_context_open(const char *backend, const rvl_context_options *options,
                                   rvl_context **context_out)
{
    rvli_backend_ops ops = rvli_sim_ops;
#define FORWARD(op, parameters, arguments)                                                         \
    if (ops.op != NULL)                                                                            \
        ops.op = counted_##op;
    RVLI_BACKEND_ALL_OPS_MAP(FORWARD)
#undef FORWARD
    ops.create = summed_create;
    ops.release = summed_release;
    ops.external_set = summed_external_set;
    assert_string_equal(backend, "sim");
    return rvli_context_open_ops(&ops, options, context_out);
}

rvl_status __wrap_rvl_private_segment_next(rvl_context *context, bool forget)
{
    assert_true(seen.stage_count < STAGES_MAX);
    seen.stage_peaks[seen.stage_count] = seen.peak_bytes;
    seen.stage_ends[seen.stage_count++] = bytes_in_use();
    seen.peak_bytes = bytes_in_use();
    return __real_rvl_private_segment_next(context, forget);
}

/* ---- Replaying ---- */

static rvl_replay *replay_of(const char *path, rvl_wake wake)
{
    rvl_replay_options options = {.struct_size = sizeof options, .wake = wake};
    rvl_error error = {.struct_size = sizeof error};
    rvl_replay *replay = NULL;
    seen = (tally){0};
    rvl_status status = rvl_replay_run(&path, 1, &options, &replay);
    rvl_last_error(&error);
    if (status != RVL_OK)
        fail_msg("%s:%" PRIu32 ": %s", path, error.line, error.message);
    seen.stage_peaks[seen.stage_count] = seen.peak_bytes; /* the last stage has no mark behind it */
    seen.stage_ends[seen.stage_count++] = bytes_in_use();
    return replay;
}

/* Every stage that the replay reports, against what the backend saw between the marks. */
static void check_stages(const rvl_replay *replay, uint32_t *stage_count_out)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_OK);
    uint32_t hidden =
        seen.stage_count - device.stage_count; /* "start", if nothing happened there */
    assert_in_range(hidden, 0, 1);
    uint64_t peak = 0;
    for (uint32_t i = 0; i < device.stage_count; i++) {
        rvl_stage_stats stage = {.struct_size = sizeof stage};
        assert_int_equal(rvl_replay_get_stage(replay, 0, i, &stage, NULL), RVL_OK);
        assert_int_equal(stage.peak_bytes, seen.stage_peaks[i + hidden]);
        assert_int_equal(stage.end_bytes, seen.stage_ends[i + hidden]);
        if (seen.stage_peaks[i + hidden] > peak)
            peak = seen.stage_peaks[i + hidden];
    }
    assert_int_equal(device.peak_bytes, peak);
    *stage_count_out = device.stage_count;
}

static void every_event_is_its_ops(void **state)
{
    (void)state;
    static const char text[] =
        "reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n"
        "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
        "process engine pid=1\n"
        "alloc 1 engine 1 1 0 4194304 weights backup=host\n"
        "alloc 2 engine 1 2 0 1 weights\n"
        "alloc 3 engine 1 3 0 2097152 kv flags=paused\n"
        "external 4 engine 1 0 104857600 nccl\n"
        "stage 5 engine 1 train\n"
        "pause 6 engine 1 weights\n"
        "stage 7 engine 1 update\n"
        "resume 8 engine 1 weights\n"
        "free 9 engine 1 1\n"
        "free 10 engine 1 3\n"
        "end 10\n";
    char path[] = "/tmp/reveille-ops-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    close(file);
    rvl_replay *replay = replay_of(path, RVL_WAKE_STAGED);
    unlink(path);

    assert_int_equal(seen.calls[RVLI_OP_reserve], 3);
    assert_int_equal(seen.calls[RVLI_OP_create], 2 + 2);     /* allocated, resumed */
    assert_int_equal(seen.calls[RVLI_OP_map], 2 + 2);        /* likewise */
    assert_int_equal(seen.calls[RVLI_OP_set_access], 2 + 2); /* likewise */
    assert_int_equal(seen.calls[RVLI_OP_unmap], 2 + 1);      /* paused, freed while it had memory */
    assert_int_equal(seen.calls[RVLI_OP_release], 2 + 1);    /* likewise */
    assert_int_equal(seen.calls[RVLI_OP_release_range], 2);
    assert_int_equal(seen.calls[RVLI_OP_copy_to_host], 1);
    assert_int_equal(seen.calls[RVLI_OP_copy_to_device], 1);
    assert_int_equal(seen.calls[RVLI_OP_host_alloc], 1);
    assert_int_equal(seen.calls[RVLI_OP_external_set], 1);
    assert_int_equal(bytes_in_use(), 2097152 + 104857600);
    uint32_t stages;
    check_stages(replay, &stages);
    assert_int_equal(stages, 3); /* start, train, update */
    rvl_replay_close(replay);
    assert_int_equal(seen.block_bytes, 0); /* closing gave the rest back */
}

static void shipped_traces_are_what_the_backend_saw(void **state)
{
    (void)state;
    static const char *const paths[] = {
        RVL_SOURCE_DIR "/traces/qwen2.5-32b-tp2-h200.rvt",
        RVL_SOURCE_DIR "/traces/llama-3.1-8b-tp2-h200.rvt",
        RVL_SOURCE_DIR "/traces/qwen2.5-7b-fsdp8-v3.rvt",
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        for (int wake = RVL_WAKE_STAGED; wake <= RVL_WAKE_TOGETHER; wake++) {
            uint32_t stages;
            rvl_replay *replay = replay_of(paths[i], (rvl_wake)wake);
            check_stages(replay, &stages);
            assert_in_range(stages, 5, STAGES_MAX);
            assert_true(seen.calls[RVLI_OP_create] > 10);
            assert_int_equal(seen.calls[RVLI_OP_create], seen.calls[RVLI_OP_map]);
            rvl_replay_close(replay);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_is_its_ops),
        cmocka_unit_test(shipped_traces_are_what_the_backend_saw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
