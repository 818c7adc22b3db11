/* SPDX-License-Identifier: MIT */
/*
 * Timelines: the holders of memory at every moment of a replay, in bounded memory
 * (libreveille-replay).
 *
 * A replay fills a timeline (rvl_replay_options.timeline). For each device it has series of bytes
 * held, one for each process and tag. Paused bytes (an address without physical memory) are
 * separate series. Points follow each other in time. A point stands for one change while there is
 * room for all of them, and for several changes otherwise. A point always has the exact instant at
 * which the device had most in use, what every series held at that instant, and the least, the most
 * and the last bytes of each series. So no peak is lost, however many changes there are. If there
 * are more stages than points, stages are merged in the same way.
 */
#ifndef REVEILLE_TIMELINE_H
#define REVEILLE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rvl_timeline rvl_timeline;

#define RVL_TIMELINE_POINTS_DEFAULT 4000u
#define RVL_TIMELINE_POINTS_MIN 16u
#define RVL_TIMELINE_POINTS_MAX 1000000u

typedef struct rvl_timeline_options {
    size_t struct_size;
    uint32_t points;   /* most points for each device; 0: RVL_TIMELINE_POINTS_DEFAULT */
    uint32_t reserved; /* 0 */
} rvl_timeline_options;

/*
 * Makes an empty timeline, for one replay. options may be NULL. Returns RVL_OK, RVL_ERR_INVALID
 * (`points` is below 16 or above 1,000,000), RVL_ERR_VERSION or RVL_ERR_HOST_OOM. The caller frees
 * *timeline_out with rvl_timeline_close(), after the replay; it may outlive the replay's result.
 * Since 0.1.
 */
RVL_API rvl_status rvl_timeline_open(const rvl_timeline_options *options,
                                     rvl_timeline **timeline_out);

typedef struct rvl_timeline_device {
    size_t struct_size;
    int device; /* index in the trace */
    uint32_t reserved;
    const char *profile; /* NULL: given by its size */
    uint64_t capacity_bytes;
    uint64_t peak_bytes; /* most in use at one instant: the peak of the replay */
    uint64_t peak_ns;    /* when that was first reached */
    uint64_t changes;    /* instants at which bytes changed */
    uint32_t series_count;
    uint32_t point_count;
} rvl_timeline_device;

/* Number of devices; 0 before a replay. One thread at a time may use a timeline. Since 0.1. */
RVL_API size_t rvl_timeline_device_count(const rvl_timeline *timeline);

/* Time of the last event. Since 0.1. */
RVL_API uint64_t rvl_timeline_end_ns(const rvl_timeline *timeline);

/*
 * One device. Strings live as long as the timeline. Returns RVL_OK, RVL_ERR_INVALID or
 * RVL_ERR_NOT_FOUND (there is no such device, series, point or stage). Since 0.1.
 */
RVL_API rvl_status rvl_timeline_get_device(const rvl_timeline *timeline, size_t index,
                                           rvl_timeline_device *device_out);

typedef struct rvl_timeline_series {
    size_t struct_size;
    const char *process; /* "external" for external bytes */
    const char *tag;     /* NULL: untagged; for external bytes, their cause */
    bool external;
    bool paused; /* bytes paused, not held: they take no room on the device */
    uint8_t reserved[6];
    uint64_t peak_bytes; /* the most that this series held */
} rvl_timeline_series;

/*
 * A series of a device by index, in the order in which series first had bytes. Returns as
 * rvl_timeline_get_device(). Since 0.1.
 */
RVL_API rvl_status rvl_timeline_get_series(const rvl_timeline *timeline, size_t device_index,
                                           uint32_t series, rvl_timeline_series *series_out);

/* The bytes of one series within a point. */
typedef struct rvl_timeline_value {
    uint32_t series;
    uint32_t reserved;
    uint64_t before_bytes; /* before the point began */
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint64_t last_bytes;    /* from the point's end on */
    uint64_t at_peak_bytes; /* at the instant when the device had most in use */
} rvl_timeline_value;

typedef struct rvl_timeline_point {
    size_t struct_size;
    uint64_t begin_ns; /* first change */
    uint64_t end_ns;   /* last change; nothing changes until the next point begins */
    uint64_t changes;
    uint64_t min_bytes; /* of the whole device: the least after a change */
    uint64_t max_bytes; /* of the whole device: the most */
    uint64_t last_bytes;
    uint64_t peak_ns;     /* when max_bytes was first in use */
    uint32_t value_count; /* series that changed: rvl_timeline_get_values() */
    uint32_t reserved;
} rvl_timeline_point;

/*
 * A point of a device by index, in order of time. Returns as rvl_timeline_get_device(). Since 0.1.
 */
RVL_API rvl_status rvl_timeline_get_point(const rvl_timeline *timeline, size_t device_index,
                                          uint32_t point, rvl_timeline_point *point_out);

/*
 * Writes up to capacity values of a point to values_out, one for each series that changed, by
 * number, and their full number to *count_out. value_size: sizeof(rvl_timeline_value). Returns as
 * rvl_timeline_get_device(); RVL_ERR_INVALID (value_size is not a size of rvl_timeline_value).
 * Since 0.1.
 */
RVL_API rvl_status rvl_timeline_get_values(const rvl_timeline *timeline, size_t device_index,
                                           uint32_t point, rvl_timeline_value *values_out,
                                           size_t value_size, size_t capacity, size_t *count_out);

typedef struct rvl_timeline_stage {
    size_t struct_size;
    const char *name; /* "rollout", "rollout#2" */
    uint32_t step;    /* number of the step it began in, 0: before the first */
    uint32_t reserved;
    uint64_t begin_ns;
    uint32_t first; /* its index among all stages; "start" is 0 */
    uint32_t count; /* number of stages that are merged into this one; name and step are those of
                       the first */
} rvl_timeline_stage;

/*
 * Number of stages, at most the number of points: if there are more, neighbours are merged. The
 * first is "start", the time before the first mark. Since 0.1.
 */
RVL_API uint32_t rvl_timeline_stage_count(const rvl_timeline *timeline);

/* One stage. Returns as rvl_timeline_get_device(). Since 0.1. */
RVL_API rvl_status rvl_timeline_get_stage(const rvl_timeline *timeline, uint32_t stage,
                                          rvl_timeline_stage *stage_out);

/* Frees a timeline and its strings. NULL is fine. Since 0.1. */
RVL_API void rvl_timeline_close(rvl_timeline *timeline);

#ifdef __cplusplus
}
#endif
#endif
