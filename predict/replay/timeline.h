/* SPDX-License-Identifier: MIT */
/*
 * Fills a timeline.
 *
 * The changes of one instant are set series by series and then committed, since the use of the
 * device between two of them never existed. A commit adds to the open point of its device. The
 * point is closed when it stands for enough changes or enough time. When a device has its maximum
 * of points, neighbours are merged until at most five eighths are left, and from then on points
 * stand for more. So points are dense where much happens and where much time passes, and a change
 * costs O(1) on average. Stages are merged in the same way when there are more of them than points.
 */
#ifndef RVL_PREDICT_REPLAY_TIMELINE_H
#define RVL_PREDICT_REPLAY_TIMELINE_H

#include "base/hash.h"
#include "reveille/timeline.h"

typedef struct rvli_timeline_series {
    const char *process;
    const char *tag;
    bool external;
    bool paused;
    uint64_t bytes;
    uint64_t peak_bytes;
    uint64_t epoch;  /* at_peak_bytes of its value was noted in this epoch of the device */
    uint64_t serial; /* serial of the point to which slot belongs */
    uint32_t slot;   /* index among the open point's values */
} rvli_timeline_series;

typedef struct rvli_timeline_bucket {
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t changes;
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint64_t last_bytes;
    uint64_t peak_ns;
    uint64_t peak_part_bytes; /* bytes in parts of allocations, at the peak */
    rvl_timeline_value *values;
    uint32_t value_count;
    bool begins_stage;
} rvli_timeline_bucket;

/* A series by its name: kind, process, zero byte, tag. */
typedef struct rvli_timeline_name {
    UT_hash_handle hh;
    uint32_t series;
    size_t tag_at; /* where the tag begins; SIZE_MAX: none */
    char text[];
} rvli_timeline_name;

typedef struct rvli_timeline_device {
    int index;
    char *profile;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t peak_bytes;
    uint64_t peak_ns;
    uint64_t part_bytes;
    uint64_t peak_part_bytes;
    uint64_t changes;

    rvli_timeline_series *series;
    uint32_t series_count;
    uint32_t series_capacity;
    rvli_timeline_name *names;

    rvli_timeline_bucket *buckets; /* room for the timeline's maximum */
    uint32_t bucket_count;

    rvli_timeline_bucket open; /* its values have room for open_capacity */
    uint32_t open_capacity;
    uint64_t serial; /* serial of the open point */
    uint64_t epoch;  /* rises at each new peak of the open point */
    bool pending;    /* a series was set since the last commit */
    bool stage_begins;
    uint64_t changes_max; /* a point stands for at most this many changes, */
    uint64_t span_max_ns; /* and this much time */
} rvli_timeline_device;

/* A stage, or neighbouring stages that were merged since there were more of them than points. */
typedef struct rvli_timeline_mark {
    char *name; /* of the first one */
    uint32_t step;
    uint32_t first; /* number of the first among all stages */
    uint32_t count;
    uint64_t begin_ns;
} rvli_timeline_mark;

struct rvl_timeline {
    uint32_t points_max;
    rvli_timeline_device *devices;
    size_t device_count;
    rvli_timeline_mark *stages;
    uint32_t stage_count;
    uint32_t stage_capacity;
    uint32_t stages_seen; /* including merged ones */
    uint64_t end_ns;
};

/*
 * Sets the number of devices, once, and describes them. RVL_OK; RVL_ERR_STATE: it was set before;
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_timeline_begin(rvl_timeline *timeline, size_t device_count);
rvl_status rvli_timeline_describe(rvl_timeline *timeline, size_t device, int index,
                                  const char *profile, uint64_t capacity_bytes);

/* Finds the series of a name, or makes it. tag NULL: untagged. RVL_OK or RVL_ERR_HOST_OOM. */
typedef enum rvli_timeline_kind {
    RVLI_TIMELINE_HELD = 'h',
    RVLI_TIMELINE_PAUSED = 'p',
    RVLI_TIMELINE_EXTERNAL = 'x',
} rvli_timeline_kind;
rvl_status rvli_timeline_series_of(rvl_timeline *timeline, size_t device, rvli_timeline_kind kind,
                                   const char *process, const char *tag, uint32_t *series_out);

/*
 * Sets the bytes of a series from time_ns on. They take effect with the next commit. RVL_OK or
 * RVL_ERR_HOST_OOM, which leaves the series unchanged.
 */
rvl_status rvli_timeline_set(rvl_timeline *timeline, uint64_t time_ns, size_t device,
                             uint32_t series, uint64_t bytes);

/* Sets the bytes in parts of allocations. Of equal peaks, the one with the most of them counts. */
void rvli_timeline_parts(rvl_timeline *timeline, size_t device, uint64_t bytes);

/* Commits what was set on any device, from time_ns on. */
void rvli_timeline_commit(rvl_timeline *timeline, uint64_t time_ns);

rvl_status rvli_timeline_stage(rvl_timeline *timeline, const char *name, uint32_t step,
                               uint64_t time_ns);

/* Ends the timeline, and closes the open points. */
rvl_status rvli_timeline_end(rvl_timeline *timeline);

/* ---- timeline_merge.c ---- */

/*
 * Merges neighbours that together stand for at most changes_max changes and span_max_ns. With
 * keep_stages, does not merge across the start of a stage. RVL_OK or RVL_ERR_HOST_OOM, which leaves
 * valid points, but more of them.
 */
rvl_status rvli_timeline_merge(rvli_timeline_bucket *buckets, uint32_t *count, uint64_t changes_max,
                               uint64_t span_max_ns, bool keep_stages);

/* Merges neighbouring stages until at most half of them are left. end_ns: end of the last stage. */
void rvli_timeline_merge_stages(rvli_timeline_mark *stages, uint32_t *count, uint64_t end_ns);

#endif
