/* SPDX-License-Identifier: MIT */
/*
 * Memory of this process that others import, and what a pause has to do with it.
 *
 * Physical memory lives while anybody has it mapped or holds a handle of it, and an importer that
 * went on reading after a pause would see what is no longer there. So a pause asks first: every
 * importer waits for its device, unmaps, and says so. Only when all have is the memory paused; then
 * they give back what they hold. If one does not answer, or cannot, or the pause itself fails,
 * those that did map it again, at the same address, and nothing has changed.
 *
 * A handle is good until the next pause of its allocation or until that is freed.
 */
#ifndef RVL_HOOKS_EXPORT_EXPORT_H
#define RVL_HOOKS_EXPORT_EXPORT_H

#include "hooks/export/wire.h"
#include "reveille/reveille.h"

/*
 * The handle of the allocation that begins at addr. RVL_ERR_STATE: it is paused now;
 * RVL_ERR_NOT_SUPPORTED: its memory cannot be exported; RVL_ERR_NOT_FOUND, RVL_ERR_FORKED,
 * RVL_ERR_HOST_OOM, RVL_ERR_IO.
 */
rvl_status rvli_ipc_export(rvl_context *context, rvl_addr addr, rvli_ipc_handle *handle_out);

/* Whether a handle with this random number is one of this process. */
bool rvli_ipc_is_own(uint64_t nonce);

/*
 * A pause begins on this thread, of one context or of several: from here on all that it waits for
 * importers is at most RVL_IPC_TIMEOUT_MS together.
 */
void rvli_ipc_begin_waiting(void);

/*
 * Takes what a pause moves from its importers. All of it is marked, so nobody can export or import
 * it any more. RVL_ERR_TIMEOUT: one of them does not answer; RVL_ERR_BUSY: one of them cannot let
 * go. The record says who, and all have it again.
 */
rvl_status rvli_ipc_suspend(const rvl_transition *pause);

/*
 * After a suspension that succeeded, by the same thread: importers give up for good what is paused,
 * or is other memory than before, and have the rest again.
 */
void rvli_ipc_settle(const rvl_transition *pause, bool paused);

/* An allocation was freed: its handles are no good any more. Imports stay as they are. */
void rvli_ipc_forget(const rvl_context *context, uint64_t allocation_id);

#endif
