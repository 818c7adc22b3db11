/* SPDX-License-Identifier: MIT */
/*
 * Memory that was sampled on the devices while the trace was recorded, beside what the replay
 * predicts.
 *
 * A stage keeps its last sample. A sample right after a mark, before anything has changed, is also
 * the end of the stage before the mark.
 */
#include "base/error.h"
#include "predict/replay/replay_internal.h"

rvl_status rvl_replay_get_reading(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  uint64_t *read_bytes_out, uint64_t *predicted_bytes_out)
{
    uint32_t index = 0;
    if (replay == NULL || read_bytes_out == NULL || predicted_bytes_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay or a result is NULL");
    rvl_status status = rvli_replay_find_stage(replay, device_index, stage, &index);
    if (status != RVL_OK)
        return status;
    const rvli_stage_part *part = rvli_stage_on(replay, index, (int)device_index);
    if (!part->read)
        return rvli_error(RVL_ERR_NOT_FOUND, "no sample was read in a stage of this index");
    *read_bytes_out = part->read_bytes;
    *predicted_bytes_out = part->predicted_bytes;
    return RVL_OK;
}
