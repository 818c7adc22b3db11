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
 * Returns RVL_OK; RVL_ERR_INVALID (a tag is unknown, or order_count is given without `order`);
 * RVL_ERR_VERSION; RVL_ERR_BUSY; RVL_ERR_DEVICE_OOM; RVL_ERR_TIMEOUT (there was no room until the
 * timeout had passed); RVL_ERR_HOST_OOM (there is no host memory, or no thread can be started);
 * RVL_ERR_DEVICE_LOST; RVL_ERR_STATE; RVL_ERR_FORKED. After an error nothing has changed.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                    const rvl_resume_options *options, rvl_resuming **resuming_out);

/*
 * The start of a resume in two phases, so that several processes start together or not at all.
 *
 * The arguments are those of rvl_resume_start(). All that can fail before the first content is on
 * its way has been done when it returns: the guard has agreed, and there is physical memory for
 * everything, mapped at its addresses. The allocations are RESUMING, and no content is there. Until
 * you commit or abort, other calls that move the tags, free their allocations or close the context
 * return RVL_ERR_BUSY. After an error everything is as before, and there is no handle. Returns as
 * rvl_resume_start(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start_prepare(rvl_context *context, const rvl_tag *tags,
                                            size_t tag_count, const rvl_resume_options *options,
                                            rvl_resuming **resuming_out);

/*
 * Starts what is prepared, by any thread, and cannot fail. Contents are on their way then, and the
 * handle is as one of rvl_resume_start(): rvl_resume_finish() frees it. What it cannot promise is
 * that all content arrives. rvl_resume_finish() says what kept it. Returns RVL_OK, RVL_ERR_INVALID,
 * RVL_ERR_STATE (called from a callback, or the resume was committed already or never prepared) or
 * RVL_ERR_FORKED. After an error the handle is as before. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start_commit(rvl_resuming *resuming);

/*
 * Takes back what is prepared, by any thread, and frees the handle. If the device refuses,
 * allocations are LOST with their backup. Returns as rvl_resume_start_commit(); or the driver's
 * error. After the driver's error the handle is gone. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start_abort(rvl_resuming *resuming);

/*
 * Waits until a resume has ended, by any thread, and frees the handle. A context with a handle
 * cannot be closed (RVL_ERR_BUSY).
 *
 * Returns RVL_OK; RVL_ERR_DIGEST_MISMATCH; RVL_ERR_IO (the backup cannot be read, and is kept);
 * RVL_ERR_DEVICE_LOST; RVL_ERR_HOST_OOM; RVL_ERR_INVALID; RVL_ERR_STATE (called from a callback, or
 * the resume is only prepared); RVL_ERR_FORKED; or the driver's error. After an error of the
 * restore what had arrived stays active, since programs use it. All else is paused again and keeps
 * its backup, so that the next resume goes on with it; or it is LOST if even that fails.
 * RVL_ERR_INVALID, RVL_ERR_STATE and RVL_ERR_FORKED leave the handle as it was. Since 0.1.
 */
RVL_API rvl_status rvl_resume_finish(rvl_resuming *resuming);

/*
 * Waits until the allocation that contains addr has arrived, and is active. timeout_ns: 0 asks and
 * does not wait; RVL_WAIT_FOREVER.
 *
 * Returns RVL_OK; RVL_ERR_TIMEOUT (the allocation is still on its way); RVL_ERR_STATE (called from
 * a callback with a timeout, or the allocation is paused or lost, and nothing is bringing it or its
 * resume has failed); RVL_ERR_BUSY (the allocation is part of a prepared transition);
 * RVL_ERR_NOT_FOUND (no allocation contains `addr`); RVL_ERR_INVALID; RVL_ERR_HOST_OOM;
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_allocation_wait(rvl_context *context, rvl_addr addr, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
