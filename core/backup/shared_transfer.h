/* SPDX-License-Identifier: MIT */
/*
 * How content gets into the store of the node: from the device into a few buffers in turn, and from
 * each buffer by a thread of its own.
 *
 * If the store has equal content, the backup maps that; if not, a file with the content is sealed
 * and becomes the store's. The calling thread copies and asks for room, in the order of the
 * segments. Threads compare and write while the next buffers are filled.
 *
 * Where the device computes digests (core/backup/shared_lookup.h), the store is asked before
 * anything is copied. What it has is not copied: a thread computes the digest of its bytes, if no
 * user has done so before. What it has not is claimed, so that nobody else copies the same. What
 * another has claimed comes last: it is there by then, or is waited for, though not for long.
 */
#ifndef RVL_CORE_BACKUP_SHARED_TRANSFER_H
#define RVL_CORE_BACKUP_SHARED_TRANSFER_H

#include "base/secret_digest.h"
#include "core/moving.h"

/* What a transition needs to fill the store: made when one is needed, ended with it. */
typedef struct rvli_shared_transfer rvli_shared_transfer;

/* Makes it, if there is none yet. *secret_out: the store's, valid until it ends. RVL_ERR_IO. */
rvl_status rvli_shared_begin(rvli_transition *transition, const rvli_secret **secret_out);

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
