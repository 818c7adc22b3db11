/* SPDX-License-Identifier: MIT */
/*
 * A wake in order: a resume that hands over memory piece by piece, in the order of its first use,
 * so that a program begins with its first layers while the last ones are still being restored.
 *
 * An allocation has arrived when its state is RVL_STATE_ACTIVE. It is then usable as after
 * rvl_resume(): its content is restored and checked, for every stream and for graphs.
 */
#ifndef REVEILLE_WAKE_H
#define REVEILLE_WAKE_H

#include "reveille/transition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A resume in progress. Yours until rvl_resume_finish() frees it. */
typedef struct rvl_resuming rvl_resuming;

/* A timeout that never expires. */
#define RVL_WAIT_FOREVER UINT64_MAX

/*
 * Begins a resume and returns while contents are still being restored. When it returns RVL_OK,
 * there is physical memory for every allocation that moves: only restoring can still fail. A thread
 * of the library restores in options->order, hands over what has arrived, and calls after_map and
 * the guard at the end. Until then, other calls that move the tags or free what has not arrived
 * wait. The arguments are those of rvl_resume().
 *
 * Returns RVL_OK; RVL_ERR_INVALID (a tag is unknown, or order_count is given without `order`);
 * RVL_ERR_VERSION; RVL_ERR_BUSY; RVL_ERR_DEVICE_OOM; RVL_ERR_TIMEOUT (there was no room before the
 * timeout passed); RVL_ERR_HOST_OOM (there is no host memory, or no thread can be started);
 * RVL_ERR_DEVICE_LOST; RVL_ERR_STATE; RVL_ERR_FORKED. After an error nothing has changed.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                    const rvl_resume_options *options, rvl_resuming **resuming_out);

/*
 * Begins a resume in two phases, so that several processes start together or not at all.
 *
 * The arguments are those of rvl_resume_start(). When it returns, everything that can fail before
 * restoring starts is done: the guard has agreed, and there is physical memory for everything,
 * mapped at its addresses. The allocations are RESUMING and without content. Until you commit or
 * abort, other calls that move the tags, free their allocations or close the context return
 * RVL_ERR_BUSY. After an error everything is unchanged, and there is no handle. Returns as
 * rvl_resume_start(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start_prepare(rvl_context *context, const rvl_tag *tags,
                                            size_t tag_count, const rvl_resume_options *options,
                                            rvl_resuming **resuming_out);

/*
 * Starts a prepared resume. May be called on any thread, and cannot fail. Restoring then proceeds,
 * and the handle is like one of rvl_resume_start(): rvl_resume_finish() frees it. It does not
 * promise that all content arrives; rvl_resume_finish() returns the reason if some does not.
 * Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_STATE (called from a callback, or the resume was
 * committed already or never prepared) or RVL_ERR_FORKED. After an error the handle is unchanged.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start_commit(rvl_resuming *resuming);

/*
 * Undoes a prepared resume and frees the handle. May be called on any thread. If the device
 * refuses, allocations are LOST and keep their backup. Returns as rvl_resume_start_commit(); or the
 * driver's error. After the driver's error the handle is freed. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_start_abort(rvl_resuming *resuming);

/*
 * Waits until a resume has ended, and frees the handle. May be called on any thread. A context with
 * a handle cannot be closed (RVL_ERR_BUSY).
 *
 * Returns RVL_OK; RVL_ERR_DIGEST_MISMATCH; RVL_ERR_IO (the backup cannot be read, and is kept);
 * RVL_ERR_DEVICE_LOST; RVL_ERR_HOST_OOM; RVL_ERR_INVALID; RVL_ERR_STATE (called from a callback, or
 * the resume is only prepared); RVL_ERR_FORKED; or the driver's error. After an error of the
 * restore, allocations that had arrived stay active, because programs use them. The others are
 * paused again and keep their backup, so that the next resume continues with them; or they are LOST
 * if even that fails. RVL_ERR_INVALID, RVL_ERR_STATE and RVL_ERR_FORKED leave the handle unchanged.
 * Since 0.1.
 */
RVL_API rvl_status rvl_resume_finish(rvl_resuming *resuming);

/*
 * Waits until the allocation that contains addr has arrived, and is active. timeout_ns: 0 checks
 * without waiting; RVL_WAIT_FOREVER.
 *
 * Returns RVL_OK; RVL_ERR_TIMEOUT (the allocation has not arrived yet); RVL_ERR_STATE (called from
 * a callback with a timeout, or the allocation is paused or lost and no resume is in progress, or
 * its resume has failed); RVL_ERR_BUSY (the allocation is part of a prepared transition);
 * RVL_ERR_NOT_FOUND (no allocation contains `addr`); RVL_ERR_INVALID; RVL_ERR_HOST_OOM;
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_allocation_wait(rvl_context *context, rvl_addr addr, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
