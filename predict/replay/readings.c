/* SPDX-License-Identifier: MIT */
/*
 * What was read of the devices while the trace was recorded, beside what the replay predicts.
 *
 * A stage keeps its last reading. One that is made right after a mark, before anything has moved,
 * also says how the stage before it has ended.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "predict/replay/replay_internal.h"

static bool reserve(rvli_replay_device *state, uint32_t stages)
{
    uint32_t capacity = state->reading_capacity > 0 ? state->reading_capacity : 16;
    while (capacity < stages)
        capacity *= 2;
    if (capacity == state->reading_capacity)
        return true;
    rvli_replay_reading *readings = realloc(state->readings, capacity * sizeof *readings);
    if (readings == NULL)
        return false;
    memset(readings + state->reading_capacity, 0,
           (capacity - state->reading_capacity) * sizeof *readings);
    state->readings = readings;
    state->reading_capacity = capacity;
    return true;
}

rvl_status rvli_replay_note_reading(rvl_replay *replay, int device, uint64_t read_bytes,
                                    uint64_t predicted_bytes)
{
    const rvli_replay_reading reading = {true, read_bytes, predicted_bytes};
    rvli_replay_device *state = &replay->devices[device];
    uint32_t stages = rvl_stage_count(replay->context);
    if (!reserve(state, stages))
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_HOST_OOM,
                                  "no host memory for what was read");
    state->readings[stages - 1] = reading;
    if (!replay->moved && stages > 1)
        state->readings[stages - 2] = reading;
    return RVL_OK;
}

void rvli_replay_readings_destroy(rvl_replay *replay)
{
    for (int device = 0; device < RVL_MAX_DEVICES; device++)
        free(replay->devices[device].readings);
}

rvl_status rvl_replay_get_reading(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  uint64_t *read_bytes_out, uint64_t *predicted_bytes_out)
{
    if (replay == NULL || read_bytes_out == NULL || predicted_bytes_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay or a result is NULL");
    if (device_index >= (size_t)replay->device_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no device of this index in the replay");
    const rvli_replay_device *state = &replay->devices[device_index];
    uint32_t index = state->first_stage + stage;
    if (stage >= state->stage_count || index >= state->reading_capacity ||
        !state->readings[index].made)
        return rvli_error(RVL_ERR_NOT_FOUND, "no sample was read in a stage of this index");
    *read_bytes_out = state->readings[index].read_bytes;
    *predicted_bytes_out = state->readings[index].predicted_bytes;
    return RVL_OK;
}
