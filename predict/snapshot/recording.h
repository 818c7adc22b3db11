/* SPDX-License-Identifier: MIT */
/*
 * One device's part of a snapshot: its trace, its memory when the snapshot was taken, its
 * annotations, and its settings.
 */
#ifndef RVL_PREDICT_SNAPSHOT_RECORDING_H
#define RVL_PREDICT_SNAPSHOT_RECORDING_H

#include "predict/snapshot/file.h"
#include "predict/snapshot/pickle.h"
#include "predict/snapshot/settings.h"

typedef struct rvli_segment_row {
    uint64_t addr;
    uint64_t size;
    uint32_t stream; /* index, as in events */
    uint32_t pool;   /* index */
    uint32_t first;  /* index of its first block */
    uint32_t count;
    uint32_t since; /* the first entry that can belong to its pool */
    bool small;
    bool expandable;
} rvli_segment_row;

typedef struct rvli_recording {
    rvli_file file;
    rvli_pickle pickle;
    const rvli_event_row *events;
    rvli_event_row *own_events; /* NULL: events point into the pickle's table */
    rvli_segment_row *segments; /* by address */
    rvli_block_row *blocks;
    rvli_annotation_row *annotations; /* of all devices, by time */
    uint32_t event_count;
    uint32_t segment_count;
    uint32_t block_count;
    uint32_t annotation_count;
    int device;
    bool other_devices;    /* other devices have traces too, and the caller did not choose one */
    bool settings_missing; /* the file has no settings */
    bool settings_unknown; /* the model does not follow some of them, or cannot read their form */
    rvli_settings settings;
} rvli_recording;

/*
 * Reads a file. device: RVL_NO_DEVICE for the first that has a trace. Returns RVL_OK, or
 * RVL_ERR_IO, RVL_ERR_CORRUPT_TRACE, RVL_ERR_VERSION, RVL_ERR_NOT_FOUND (no such device) or
 * RVL_ERR_HOST_OOM with message filled. After RVL_OK the caller closes it.
 */
rvl_status rvli_recording_open(const char *path, int device, char *message, size_t message_size,
                               rvli_recording *recording_out);
void rvli_recording_close(rvli_recording *recording);

#endif
