/* SPDX-License-Identifier: MIT */
/*
 * Names by which the store of the node is asked for content, before any of it is copied.
 *
 * The device computes digests of its granules by the secret of the store (base/secret_digest.h).
 * Those of a segment's granules, joined, are the digest of its bytes, which names it in the store.
 */
#ifndef RVL_CORE_BACKUP_SHARED_LOOKUP_H
#define RVL_CORE_BACKUP_SHARED_LOOKUP_H

#include "core/moving.h"

/*
 * Queues learning an item's names. They are there when the device has been waited for.
 * RVL_ERR_HOST_OOM; what the device answers.
 */
rvl_status rvli_shared_name(rvl_context *context, rvli_move_item *item, const rvli_secret *secret);

/* The digest of a segment of an item that has names by this secret. */
rvli_digest rvli_shared_name_of(const rvl_context *context, const rvli_move_item *item,
                                uint64_t number, const rvli_secret *secret);

#endif
