/* SPDX-License-Identifier: MIT */
/*
 * What a real device reports while a trace is replayed on it.
 *
 * After every event, the device is asked for its free memory. Used bytes are counted from what was
 * used before the first event, so they include neither the CUDA context nor other processes.
 * Predictions are compared with these figures. A simulated device is not asked, since it would
 * return the prediction itself.
 */
#include <errno.h>
#include <time.h>

#include "base/error.h"
#include "core/prefetch.h"
#include "predict/replay/replay_internal.h"

/*
 * The time that passes before a resume on a simulated device. In a run a stage lies between a pause
 * and a resume, in which released memory is cleared. The time of the stage is not part of the
 * transition's time.
 */
#define SIMULATED_SETTLE_NS UINT64_C(60000000000)

static uint64_t free_bytes_of(const rvl_replay *replay, int device)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    if (rvl_device_get_memory(replay->context, device, &free_bytes, &total_bytes) != RVL_OK)
        return UINT64_MAX;
    return free_bytes;
}

void rvli_replay_measure_begin(rvl_replay *replay)
{
    for (int device = 0; device < replay->device_count; device++) {
        rvl_device_info info = {.struct_size = sizeof info};
        if (rvl_device_get_info(replay->context, device, &info) == RVL_OK && !info.simulated)
            replay->measured[device].free_before = free_bytes_of(replay, device);
    }
}

void rvli_replay_measure_settle(const rvl_replay *replay)
{
    if (replay->measured[0].free_before == 0) {
        (void)rvl_private_let_pass(replay->context, SIMULATED_SETTLE_NS);
        return;
    }
    struct timespec left = {.tv_sec = replay->options.settle_ms / 1000,
                            .tv_nsec = replay->options.settle_ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void rvli_replay_measure(rvl_replay *replay)
{
    for (int device = 0; device < replay->device_count; device++) {
        rvli_replay_measured *measured = &replay->measured[device];
        if (measured->free_before == 0)
            continue;
        uint64_t free_now = free_bytes_of(replay, device);
        measured->used_bytes =
            free_now < measured->free_before ? measured->free_before - free_now : 0;
        if (measured->peak_bytes < measured->used_bytes)
            measured->peak_bytes = measured->used_bytes;
    }
}

rvl_status rvl_replay_get_measured(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                   uint64_t *peak_bytes_out, uint64_t *end_bytes_out)
{
    uint32_t index = 0;
    if (replay == NULL || peak_bytes_out == NULL || end_bytes_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay or a result is NULL");
    rvl_status status = rvli_replay_find_stage(replay, device_index, stage, &index);
    if (status != RVL_OK)
        return status;
    const rvli_stage_part *part = rvli_stage_on(replay, index, (int)device_index);
    if (!part->measured)
        return rvli_error(RVL_ERR_NOT_FOUND, "nothing was measured in a stage of this index");
    *peak_bytes_out = part->measured_peak_bytes;
    *end_bytes_out = part->measured_end_bytes;
    return RVL_OK;
}
