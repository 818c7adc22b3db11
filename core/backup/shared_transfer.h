/* SPDX-License-Identifier: MIT */
/*
 * Moves content into the node's store: from the device into a few buffers in turn, and from each
 * buffer by a separate thread.
 *
 * If the store has equal content, the backup maps that. If not, a file with the content is sealed
 * and handed over to the store. The calling thread copies and reserves room, in the order of the
 * segments. Threads compare and write while the next buffers are filled.
 *
 * If the device computes digests (core/backup/shared_lookup.h), the store is searched before
 * anything is copied. Content that the store has is not copied: a thread computes the digest of its
 * bytes, if no user has done so before. Content that it lacks is claimed, so that nobody else
 * copies the same. Content that another user has claimed comes last. It may be in the store by
 * then; otherwise the transfer waits for it, but not for long.
 */
#ifndef RVL_CORE_BACKUP_SHARED_TRANSFER_H
#define RVL_CORE_BACKUP_SHARED_TRANSFER_H

#include "base/secret_digest.h"
#include "core/moving.h"

/* A transition's state for filling the store: made when needed, ended with the transition. */
typedef struct rvli_shared_transfer rvli_shared_transfer;

/*
 * Makes it, if there is none yet. *secret_out: the store's secret, valid until the transfer ends.
 * RVL_ERR_IO.
 */
rvl_status rvli_shared_begin(rvli_transition *transition, const rvli_secret **secret_out);

/*
 * Starts moving segments [first, end) of a backup to the store, each once in a transition. Segments
 * without room may go to a disk instead (rvl_context.store_overflow); then this waits for them.
 * RVL_ERR_HOST_OOM, RVL_ERR_IO, or the error of copying, also of segments that were started before.
 */
rvl_status rvli_shared_save(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup *backup, uint64_t first, uint64_t end);

/*
 * Waits for everything saved. `status` is the status of the saves so far. Returns the first
 * failure, with its item in *failed_out. Nothing is in flight afterwards.
 */
rvl_status rvli_shared_settle(rvli_transition *transition, rvl_status status, size_t *failed_out);

/* Frees the buffers. No copy to them may be in flight. */
void rvli_shared_end(rvli_transition *transition);

/* Returns whether the last failure of a save was lack of room: budget or memory. */
bool rvli_shared_was_full(const rvli_transition *transition);

#endif
