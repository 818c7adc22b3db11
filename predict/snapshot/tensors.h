/* SPDX-License-Identifier: MIT */
/*
 * The tensors of a recording, the segments that contained them, and when each existed.
 *
 * This is what was recorded, entry by entry, and not what the model makes of it. An instant is a
 * number of entries: at instant i the first i entries have happened. Memory from before the first
 * entry is inferred from frees without an allocation, and from the final segments.
 */
#ifndef RVL_PREDICT_SNAPSHOT_TENSORS_H
#define RVL_PREDICT_SNAPSHOT_TENSORS_H

#include <stdio.h>

#include "predict/snapshot/recording.h"

#define RVLI_NEVER UINT32_MAX

/* Live from instant begin on, and no longer at instant end. */
typedef struct rvli_snapshot_tensor {
    uint64_t addr;
    uint64_t size;  /* requested bytes */
    uint32_t begin; /* 0: before the first entry */
    uint32_t end;   /* its free was requested; RVLI_NEVER: not freed */
    uint32_t done;  /* no stream uses it any more; RVLI_NEVER: it may still be used */
    uint32_t stack; /* as in the rows of the recording */
    uint32_t label;
} rvli_snapshot_tensor;

/* A segment, or a part of an expandable one. */
typedef struct rvli_mapped {
    uint64_t addr;
    uint64_t size;
    uint32_t begin;
    uint32_t end;
    bool expandable;
} rvli_mapped;

typedef struct rvli_tensors {
    rvli_snapshot_tensor *list; /* by begin */
    rvli_mapped *mapped;
    uint32_t count, capacity;
    uint32_t mapped_count, mapped_capacity;
} rvli_tensors;

/* RVL_OK or RVL_ERR_HOST_OOM. After RVL_OK the caller clears *tensors_out. */
rvl_status rvli_tensors_find(const rvli_recording *recording, rvli_tensors *tensors_out);
void rvli_tensors_clear(rvli_tensors *tensors);

/*
 * Writes the tensors and their stacks as JSON, in columns (docs/snapshot.md). origin_us: the wall
 * clock at time 0 of the run. RVL_OK or RVL_ERR_HOST_OOM. Check the stream for write errors.
 */
rvl_status rvli_tensors_write(const rvli_recording *recording, const rvli_tensors *tensors,
                              int64_t origin_us, FILE *out);

#endif
