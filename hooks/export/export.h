/* SPDX-License-Identifier: MIT */
/*
 * Memory of this process that other processes import, and how a pause treats it.
 *
 * Physical memory stays allocated while any process has it mapped or holds a handle of it, and an
 * importer that read it after a pause would read stale content. So a pause asks first: every
 * importer waits for its device, unmaps, and replies. When all have replied, the memory is paused,
 * and the importers release their handles. If an importer does not reply, or cannot unmap, or the
 * pause itself fails, the importers that did unmap map the memory again at the same address, and
 * nothing has changed.
 *
 * A handle is valid until the next pause of its allocation, or until the allocation is freed.
 */
#ifndef RVL_HOOKS_EXPORT_EXPORT_H
#define RVL_HOOKS_EXPORT_EXPORT_H

#include "hooks/export/wire.h"
#include "reveille/reveille.h"

/*
 * The handle of the allocation that begins at addr. RVL_ERR_STATE: it is paused;
 * RVL_ERR_NOT_SUPPORTED: its memory cannot be exported; RVL_ERR_NOT_FOUND, RVL_ERR_FORKED,
 * RVL_ERR_HOST_OOM, RVL_ERR_IO.
 */
rvl_status rvli_ipc_export(rvl_context *context, rvl_addr addr, rvli_ipc_handle *handle_out);

/* Whether a handle with this nonce is one of this process. */
bool rvli_ipc_is_own(uint64_t nonce);

/*
 * A pause of one or more contexts begins on this thread. From here on, its waits for importers are
 * limited to RVL_IPC_TIMEOUT_MS in total.
 */
void rvli_ipc_begin_waiting(void);

/*
 * Has importers unmap the memory that a pause moves. That memory is already marked, so it can no
 * longer be exported or imported. RVL_ERR_TIMEOUT: an importer does not reply; RVL_ERR_BUSY: an
 * importer cannot unmap. On failure, the error record names it, and all importers map the memory
 * again.
 */
rvl_status rvli_ipc_suspend(const rvl_transition *pause);

/*
 * Call this after a successful suspension, on the same thread. Importers release memory that is
 * paused or was replaced, and map the rest again.
 */
void rvli_ipc_settle(const rvl_transition *pause, bool paused);

/* An allocation was freed: its handles become invalid. Imports stay mapped. */
void rvli_ipc_forget(const rvl_context *context, uint64_t allocation_id);

#endif
