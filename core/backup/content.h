/* SPDX-License-Identifier: MIT */
/*
 * Content on its way: what a pause copies out, what a resume brings back and checks.
 *
 * Where the device computes digests, those of what goes out travel with the backup, and what has
 * come back must have the same. A backup that was retained from an earlier pause is compared first:
 * granules with digests that still match are not copied again.
 */
#ifndef RVL_CORE_BACKUP_CONTENT_H
#define RVL_CORE_BACKUP_CONTENT_H

#include "core/moving.h"

/* Backs up every item that has a policy, and waits. *failed_out: the item it failed at. */
rvl_status rvli_content_save(rvli_transition *transition, size_t *failed_out);

/* Queues bringing a stretch of an allocation's content back. */
rvl_status rvli_content_load(rvli_transition *transition, const rvli_allocation *allocation,
                             const rvli_backup *backup, rvli_stretch what);

/*
 * Waits for what was loaded and, if `check` and the context wants it, compares digests.
 * RVL_ERR_DIGEST_MISMATCH at *failed_out: the backup, or the memory it went through, is damaged.
 */
rvl_status rvli_content_settle(rvli_transition *transition, bool check, size_t *failed_out);

/*
 * The same for one item: queues learning the digests of what was queued for it, and, once an event
 * recorded afterwards has passed, compares them.
 */
rvl_status rvli_content_queue_check(rvli_transition *transition, rvli_move_item *item);
rvl_status rvli_content_check(const rvli_transition *transition, const rvli_move_item *item);

/* Whether digests of an item's backup are there, if nobody checks them too. */
bool rvli_content_is_known(const rvli_move_item *item);
/* What the backup has of a stretch, as one digest. It is known. */
rvli_digest rvli_content_digest(const rvli_transition *transition, const rvli_move_item *item,
                                rvli_stretch what);
/*
 * Queues learning the digests of what is in a stretch now; and whether, as was learned, that is
 * what the backup has. `arriving`: after what was queued for it.
 */
rvl_status rvli_content_learn(rvli_transition *transition, rvli_move_item *item, rvli_stretch what,
                              bool arriving);
bool rvli_content_is_right(const rvli_transition *transition, const rvli_move_item *item,
                           rvli_stretch what);
/* The error of a content that came back and is not right. */
rvl_status rvli_content_differs(void);

/* After a failure: nothing is under way any more, as far as the device answers. */
void rvli_content_quiesce(rvli_transition *transition);

/* A pause has succeeded: the item's backup knows what it holds. */
void rvli_content_saved(rvli_move_item *item);
/* A pause has failed: what the retained backup holds may be half of each. */
void rvli_content_unsaved(rvli_move_item *item);

#endif
