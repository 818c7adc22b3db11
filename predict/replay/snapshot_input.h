/* SPDX-License-Identifier: MIT */
/*
 * Paths of traces and of PyTorch snapshots, as paths that the trace reader opens: each snapshot
 * becomes a trace in a file without a name, which the reader then merges as it merges any other, by
 * the wall clock.
 */
#ifndef RVL_PREDICT_REPLAY_SNAPSHOT_INPUT_H
#define RVL_PREDICT_REPLAY_SNAPSHOT_INPUT_H

#include "reveille/replay.h"

typedef struct rvli_joined {
    const char *const *paths; /* the caller's */
    size_t path_count;
    const char **reader_paths; /* a snapshot's is that of its trace */
    int *snapshot_traces;      /* files without a name, -1: no snapshot. NULL: there is none */
    bool device_assumed;       /* nobody has named the device that they are on */
} rvli_joined;

/*
 * Makes traces of the snapshots among the paths, which must outlive *joined_out. Of the options
 * those of snapshots count, device and partial. Where it fails *joined_out is to be destroyed, too.
 */
rvl_status rvli_joined_open(const char *const *paths, size_t path_count,
                            const rvl_replay_options *options, rvli_joined *joined_out);

/* Opens a reader on the files, which calls them by the caller's paths. */
rvl_status rvli_joined_reader(const rvli_joined *joined, bool partial,
                              rvl_trace_reader **reader_out);

bool rvli_joined_is_snapshot(const rvli_joined *joined, uint32_t file);

/* A reader that is open does not need it any more. device_assumed stays. Zeroes are fine. */
void rvli_joined_destroy(rvli_joined *joined);

#endif
