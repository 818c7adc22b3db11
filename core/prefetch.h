/* SPDX-License-Identifier: MIT */
/*
 * Private symbols of libreveille: for libreveille-replay, which knows what comes, and for marks of
 * the machine of simulated GPUs.
 */
#ifndef RVL_CORE_PREFETCH_H
#define RVL_CORE_PREFETCH_H

#include "reveille/memory.h"

/*
 * A hint that addr is about to be freed: brings into the processor's caches what that will touch.
 * Worth it where very many allocations are live. depth says how many pointers away: 0 first, some
 * other calls later 1, again later 2. Changes nothing; addr may be anything. RVL_OK,
 * RVL_ERR_INVALID, RVL_ERR_FORKED. Any thread.
 */
RVL_API rvl_status rvl_private_prefetch(rvl_context *context, rvl_addr addr, int depth);

/*
 * Lets time pass on the clock of a context on simulated devices, in which the program does
 * something else. On real ones it passes by itself. RVL_OK, RVL_ERR_INVALID, RVL_ERR_FORKED. Any
 * thread.
 */
RVL_API rvl_status rvl_private_let_pass(rvl_context *context, uint64_t ns);

/*
 * Counts time that has passed as a transition's on a device: what moved there was no tag. RVL_OK;
 * RVL_ERR_INVALID, RVL_ERR_NO_DEVICE, RVL_ERR_FORKED. Any thread.
 */
RVL_API rvl_status rvl_private_spend(rvl_context *context, int device, uint64_t ns);

/*
 * From now on bytes instead of before_bytes of what own has on a device are counted for part: a
 * trace says so of the segments of a caching allocator (docs/trace-format.md, `part`). The caller
 * takes all back before that memory is freed or paused. Both tags must exist, and own must have had
 * memory on the device. RVL_OK; RVL_ERR_INVALID: no such tag or device, or own has less than that;
 * RVL_ERR_HOST_OOM; RVL_ERR_FORKED. After a failure nothing has changed. Any thread.
 */
RVL_API rvl_status rvl_private_set_part(rvl_context *context, int device, rvl_tag own, rvl_tag part,
                                        uint64_t before_bytes, uint64_t bytes);

/* A stretch of a device's time, as far as it has come. */
typedef struct rvl_private_segment {
    uint64_t peak_bytes;
    uint64_t part_bytes; /* of the peak: what of it lies in parts */
    uint64_t end_bytes;
    uint64_t host_bytes; /* most within it */
    uint64_t transition_ns;
} rvl_private_segment;

/*
 * Stages that overlap are made of segments: replay cuts time wherever one begins or ends, on all
 * devices. A segment is a stage of the context with no name of its own, and has its index.
 * rvl_private_segment_now() reads the current one. rvl_private_segment_next() ends it; with forget
 * it leaves no trace, and the next one has its index. RVL_OK; RVL_ERR_INVALID; RVL_ERR_NO_DEVICE;
 * RVL_ERR_HOST_OOM, which changes nothing; RVL_ERR_FORKED. Any thread.
 */
RVL_API rvl_status rvl_private_segment_now(rvl_context *context, int device,
                                           rvl_private_segment *segment_out);
RVL_API rvl_status rvl_private_segment_next(rvl_context *context, bool forget);
/* Tells those who listen to the context, such as a recording, that a stage begins. */
RVL_API void rvl_private_segment_tell(rvl_context *context, const char *name);

#endif
