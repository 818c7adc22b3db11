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

#include "core/transition.h"

/* Backs up every item that has a policy, and waits. *failed_out: the item it failed at. */
rvl_status rvli_content_save(rvli_transition *transition, size_t *failed_out);

/* Queues bringing an allocation's content back. */
rvl_status rvli_content_load(rvli_transition *transition, const rvli_allocation *allocation,
                             const rvli_backup *backup);

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

/* After a failure: nothing is under way any more, as far as the device answers. */
void rvli_content_quiesce(rvli_transition *transition);

/* A pause has succeeded: the item's backup knows what it holds. */
void rvli_content_saved(rvli_move_item *item);
/* A pause has failed: what the retained backup holds may be half of each. */
void rvli_content_unsaved(rvli_move_item *item);

#endif
