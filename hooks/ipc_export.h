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
#ifndef RVL_HOOKS_IPC_EXPORT_H
#define RVL_HOOKS_IPC_EXPORT_H

#include "hooks/ipc_wire.h"
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
 * Before a pause of a tag (NULL: of everything) in a context: takes the memory from its importers.
 * RVL_ERR_TIMEOUT: one of them does not answer; RVL_ERR_BUSY: one of them cannot let go. The record
 * says who. *begun_out: rvli_ipc_settle() must be called, by the same thread.
 */
rvl_status rvli_ipc_suspend(rvl_context *context, const rvl_tag *tag, bool *begun_out);

/* After it: gives the memory up for good if it is paused, or back to its importers. */
void rvli_ipc_settle(rvl_context *context, bool paused);

/* An allocation was freed: its handles are no good any more. Imports stay as they are. */
void rvli_ipc_forget(const rvl_context *context, uint64_t allocation_id);

#endif
