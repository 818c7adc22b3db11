/* SPDX-License-Identifier: MIT */
/*
 * How content gets into the store of the node: from the device into a few buffers in turn, and from
 * each buffer by a thread of its own.
 *
 * If the store has equal content, the backup maps that; if not, a file with the content is sealed
 * and becomes the store's. The calling thread copies and asks for room, in the order of the
 * segments. Threads compare and write while the next buffers are filled.
 */
#ifndef RVL_CORE_BACKUP_SHARED_TRANSFER_H
#define RVL_CORE_BACKUP_SHARED_TRANSFER_H

#include "core/transition.h"

/* What a transition needs to fill the store: made by its first save, ended with it. */
typedef struct rvli_shared_transfer rvli_shared_transfer;

/*
 * Puts segments [first, end) of a backup on their way, each once in a transition. What has no room
 * may go to a disk instead (rvl_context.store_overflow): then they are waited for.
 * RVL_ERR_HOST_OOM, RVL_ERR_IO, what copying answers; also of segments that were on their way
 * before.
 */
rvl_status rvli_shared_save(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup *backup, uint64_t first, uint64_t end);

/*
 * Waits for all that was saved. `status` is that of the saves so far; the answer is the first
 * failure, of which *failed_out is the item. Nothing is on its way afterwards.
 */
rvl_status rvli_shared_settle(rvli_transition *transition, rvl_status status, size_t *failed_out);

/* Gives back the buffers. Nothing copies to them any more. */
void rvli_shared_end(rvli_transition *transition);

/* Whether the last failure of a save was that there is no room: budget or memory. */
bool rvli_shared_was_full(const rvli_transition *transition);

#endif
