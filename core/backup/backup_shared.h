/* SPDX-License-Identifier: MIT */
/*
 * Backups in the store of the node: what several processes hold alike is kept once.
 *
 * A backup is a row of segments, each a sealed file of the store, mapped side by side to be read.
 * Content is copied into a few buffers in turn. If the store has equal content, the backup maps
 * that; if not, a file with the content is sealed and becomes the store's. Threads compare and
 * write while the next buffers are filled.
 */
#ifndef RVL_CORE_BACKUP_BACKUP_SHARED_H
#define RVL_CORE_BACKUP_BACKUP_SHARED_H

#include "core/transition.h"

/* What a transition needs to fill the store. */
typedef struct rvli_shared_transfer rvli_shared_transfer;

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
