/* SPDX-License-Identifier: MIT */
/*
 * A wake in order: a resume that hands memory over piece by piece, in the order of its first use,
 * so that a program begins with its first layers while the last ones arrive.
 *
 * An allocation has arrived when its state is RVL_STATE_ACTIVE. What has arrived is usable as after
 * rvl_resume(): its content is there and has been checked, for every stream and for graphs.
 */
#ifndef REVEILLE_WAKE_H
#define REVEILLE_WAKE_H

#include "reveille/transition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A resume that goes on. Yours until rvl_resume_finish() frees it. */
typedef struct rvl_resuming rvl_resuming;

/* A timeout that never ends. */
#define RVL_WAIT_FOREVER UINT64_MAX

/*
 * Begins a resume and returns while contents are still on their way. When it returns RVL_OK, there
 * is physical memory for everything that moves: only restoring can still fail. A thread of the
 * library restores in options->order, hands over what has arrived, and calls after_map and the
 * guard at the end. Until then other calls that move the tags or free what has not arrived
 * wait. The arguments are those of rvl_resume().
 *
 * Returns the errors of rvl_resume() about memory, for which nothing has changed; RVL_ERR_HOST_OOM
 * also if no thread can be started; RVL_ERR_INVALID (resuming_out is NULL, order_count without
 * order). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                    const rvl_resume_options *options, rvl_resuming **resuming_out);

/*
 * The start of a resume in two phases, so that several processes start together or not at all.
 *
 * rvl_resume_start_prepare() takes the arguments of rvl_resume_start() and returns the same errors.
 * All that can fail before the first content is on its way has been done then: the guard has
 * agreed, and there is physical memory for everything, mapped at its addresses. The allocations are
 * RESUMING, and no content is there. Until you commit or abort, other calls that move the tags,
 * free their allocations or close the context return RVL_ERR_BUSY. After an error everything is as
 * before, and there is no handle.
 *
 * rvl_resume_start_commit() cannot fail. Contents are on their way then, and the handle is as one
 * of rvl_resume_start(): rvl_resume_finish() frees it. What it cannot promise is that all content
 * arrives. rvl_resume_finish() says what kept it.
 *
 * rvl_resume_start_abort() takes everything back and frees the handle. If the device refuses,
 * allocations are LOST with their backup, and its error is returned.
 *
 * Commit and abort may be called by any thread. Both return RVL_OK; or RVL_ERR_INVALID (NULL),
 * RVL_ERR_STATE (from a callback, or the handle is not or no longer prepared) or RVL_ERR_FORKED,
 * after which the handle is as before. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start_prepare(rvl_context *context, const rvl_tag *tags,
                                            size_t tag_count, const rvl_resume_options *options,
                                            rvl_resuming **resuming_out);
RVL_API rvl_status rvl_resume_start_commit(rvl_resuming *resuming);
RVL_API rvl_status rvl_resume_start_abort(rvl_resuming *resuming);

/*
 * Waits until a resume has ended, by any thread, and frees the handle. A context with a handle
 * cannot be closed (RVL_ERR_BUSY).
 *
 * Returns RVL_OK; RVL_ERR_DIGEST_MISMATCH, RVL_ERR_IO, RVL_ERR_DEVICE_LOST and what else a restore
 * can fail with. After such an error what had arrived stays active, since programs use it. All
 * else is paused again and keeps its backup, so that the next resume goes on with it; or it is LOST
 * if even that fails. RVL_ERR_INVALID (NULL), RVL_ERR_STATE (from a callback, or the resume is only
 * prepared) and RVL_ERR_FORKED leave the handle as it was. Since 0.1.
 */
RVL_API rvl_status rvl_resume_finish(rvl_resuming *resuming);

/*
 * Waits until the allocation that contains addr has arrived. timeout_ns: 0 asks and does not wait;
 * RVL_WAIT_FOREVER.
 *
 * Returns RVL_OK: it is active. RVL_ERR_TIMEOUT: it is still on its way. RVL_ERR_STATE: it is
 * paused or lost, and nothing is bringing it (or its resume has failed); or a wait from a callback.
 * RVL_ERR_BUSY: its move is prepared. RVL_ERR_NOT_FOUND: no allocation contains addr.
 * RVL_ERR_INVALID; RVL_ERR_HOST_OOM; RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_allocation_wait(rvl_context *context, rvl_addr addr, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
