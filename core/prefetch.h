/* SPDX-License-Identifier: MIT */
/*
 * Private symbols of libreveille: for libreveille-replay, which reads events ahead, and for marks
 * of the machine of simulated GPUs.
 */
#ifndef RVL_CORE_PREFETCH_H
#define RVL_CORE_PREFETCH_H

#include "reveille/memory.h"

/*
 * A hint that addr is about to be freed: prefetches the memory that the free will touch into the
 * processor's caches. Useful with very many live allocations. depth: how many pointers away. Call
 * with 0 first, some other calls later with 1, and later again with 2. Changes nothing; addr may be
 * anything. RVL_OK, RVL_ERR_INVALID, RVL_ERR_FORKED. Any thread.
 */
RVL_API rvl_status rvl_private_prefetch(rvl_context *context, rvl_addr addr, int depth);

/*
 * Lets time pass on the clock of a context on simulated devices, while the program does something
 * else. On real devices it passes by itself. RVL_OK, RVL_ERR_INVALID, RVL_ERR_FORKED. Any thread.
 */
RVL_API rvl_status rvl_private_let_pass(rvl_context *context, uint64_t ns);

/*
 * Charges elapsed time as transition time of a device, when something other than a tag moved there.
 * RVL_OK; RVL_ERR_INVALID, RVL_ERR_NO_DEVICE, RVL_ERR_FORKED. Any thread.
 */
RVL_API rvl_status rvl_private_spend(rvl_context *context, int device, uint64_t ns);

/*
 * Changes the bytes of `own` on a device that are counted for `part`, from before_bytes to bytes.
 * Traces record this for segments of a caching allocator (docs/trace-format.md, `part`). The caller
 * returns all of them to `own` before that memory is freed or paused. Both tags must exist, and
 * `own` must have had memory on the device. RVL_OK; RVL_ERR_INVALID: no such tag or device, or
 * `own` has fewer bytes; RVL_ERR_HOST_OOM; RVL_ERR_FORKED. After a failure nothing has changed. Any
 * thread.
 */
RVL_API rvl_status rvl_private_set_part(rvl_context *context, int device, rvl_tag own, rvl_tag part,
                                        uint64_t before_bytes, uint64_t bytes);

/* A segment of a device's time, up to now. */
typedef struct rvl_private_segment {
    uint64_t peak_bytes;
    uint64_t part_bytes; /* part of the peak that was assigned to parts */
    uint64_t end_bytes;
    uint64_t host_bytes; /* highest within the segment */
    uint64_t transition_ns;
} rvl_private_segment;

/*
 * Stages that overlap are made of segments: replay ends a segment wherever a stage begins or ends,
 * on all devices. A segment is a stage of the context without a name, and has its index.
 * rvl_private_segment_now() reads the current segment. rvl_private_segment_next() ends it; with
 * forget it is discarded, and the next one has its index. RVL_OK; RVL_ERR_INVALID;
 * RVL_ERR_NO_DEVICE; RVL_ERR_HOST_OOM, which changes nothing; RVL_ERR_FORKED. Any thread.
 */
RVL_API rvl_status rvl_private_segment_now(rvl_context *context, int device,
                                           rvl_private_segment *segment_out);
RVL_API rvl_status rvl_private_segment_next(rvl_context *context, bool forget);
/* Tells the listeners of the context, such as a recording, that a stage begins. */
RVL_API void rvl_private_segment_tell(rvl_context *context, const char *name);

#endif
