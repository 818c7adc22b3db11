/* SPDX-License-Identifier: MIT */
/*
 * Paths of traces and of PyTorch snapshots, as paths that the trace reader opens. Each snapshot
 * becomes a trace in an unnamed file. The reader merges it with the other traces by the wall clock.
 */
#ifndef RVL_PREDICT_REPLAY_SNAPSHOT_INPUT_H
#define RVL_PREDICT_REPLAY_SNAPSHOT_INPUT_H

#include "reveille/replay.h"

typedef struct rvli_joined {
    const char *const *paths; /* the caller's */
    size_t path_count;
    const char **reader_paths; /* that of a snapshot is the path of its trace */
    int *snapshot_traces;      /* unnamed files; -1: not a snapshot. NULL: no snapshots */
    bool device_assumed;       /* neither traces nor options name their device */
} rvli_joined;

/*
 * Makes traces from the snapshots among the paths, which must outlive *joined_out. Uses the options
 * for snapshots, device and partial. The caller destroys *joined_out even after a failure.
 */
rvl_status rvli_joined_open(const char *const *paths, size_t path_count,
                            const rvl_replay_options *options, rvli_joined *joined_out);

/* Opens a reader on the files. In messages, it uses the caller's paths. */
rvl_status rvli_joined_reader(const rvli_joined *joined, bool partial,
                              rvl_trace_reader **reader_out);

bool rvli_joined_is_snapshot(const rvli_joined *joined, uint32_t file);

/*
 * Destroys *joined, which an open reader no longer needs. device_assumed stays. A zeroed struct is
 * allowed.
 */
void rvli_joined_destroy(rvli_joined *joined);

#endif
