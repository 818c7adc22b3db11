/* SPDX-License-Identifier: MIT */
/*
 * Names by which the node's store is searched for content, before any of it is copied.
 *
 * The device computes digests of its granules under the secret of the store (base/secret_digest.h).
 * The digests of a segment's granules, joined, are the digest of its bytes, which names it in the
 * store.
 */
#ifndef RVL_CORE_BACKUP_SHARED_LOOKUP_H
#define RVL_CORE_BACKUP_SHARED_LOOKUP_H

#include "core/moving.h"

/*
 * Queues computing an item's names. They are ready when the device has been waited for.
 * RVL_ERR_HOST_OOM, or the device's error.
 */
rvl_status rvli_shared_name(rvl_context *context, rvli_move_item *item, const rvli_secret *secret);

/* Returns the digest of a segment. The item must have names computed under this secret. */
rvli_digest rvli_shared_name_of(const rvl_context *context, const rvli_move_item *item,
                                uint64_t number, const rvli_secret *secret);

#endif
