/* SPDX-License-Identifier: MIT */
/*
 * Saving, restoring and checking content: a pause copies it out, a resume brings it back.
 *
 * If the device computes digests, the backup stores those of the saved content, and the restored
 * content must have the same digests. A backup that was retained from an earlier pause is compared
 * first: granules with matching digests are not copied again.
 */
#ifndef RVL_CORE_BACKUP_CONTENT_H
#define RVL_CORE_BACKUP_CONTENT_H

#include "core/moving.h"

/* Backs up every item that has a policy, and waits. *failed_out: the item that failed. */
rvl_status rvli_content_save(rvli_transition *transition, size_t *failed_out);

/* Queues restoring a stretch of an allocation's content. */
rvl_status rvli_content_load(rvli_transition *transition, const rvli_allocation *allocation,
                             const rvli_backup *backup, rvli_stretch what);

/*
 * Waits for loaded content and, if `check` is set and the context verifies, compares digests.
 * RVL_ERR_DIGEST_MISMATCH at *failed_out: the backup, or memory on its way, is damaged.
 */
rvl_status rvli_content_settle(rvli_transition *transition, bool check, size_t *failed_out);

/*
 * Check a single item. rvli_content_queue_check() queues computing the digests of its queued
 * content. rvli_content_check() compares them, once an event recorded afterwards has passed.
 */
rvl_status rvli_content_queue_check(rvli_transition *transition, rvli_move_item *item);
rvl_status rvli_content_check(const rvli_transition *transition, const rvli_move_item *item);

/* Returns whether an item's backup has digests, even if the context does not verify. */
bool rvli_content_is_known(const rvli_move_item *item);
/* Returns one digest for a stretch of the backup. Its digests must be known. */
rvli_digest rvli_content_digest(const rvli_transition *transition, const rvli_move_item *item,
                                rvli_stretch what);
/*
 * rvli_content_learn() queues computing the digests of a stretch's present content.
 * rvli_content_is_right() returns whether they match the backup. `arriving`: after the copies
 * queued for it.
 */
rvl_status rvli_content_learn(rvli_transition *transition, rvli_move_item *item, rvli_stretch what,
                              bool arriving);
bool rvli_content_is_right(const rvli_transition *transition, const rvli_move_item *item,
                           rvli_stretch what);
/* Returns the error of a restored content that does not match. */
rvl_status rvli_content_differs(void);

/* After a failure: ensures that nothing is in flight, as far as the device responds. */
void rvli_content_quiesce(rvli_transition *transition);

/* After a successful pause: the item's backup has the digests of its content. */
void rvli_content_saved(rvli_move_item *item);
/* After a failed pause: the retained backup may be a mix of old and new content. */
void rvli_content_unsaved(rvli_move_item *item);

#endif
