/* SPDX-License-Identifier: MIT */
/*
 * Backups in the store of the node: what several processes hold alike is kept once.
 *
 * A backup is a row of segments, each a sealed file of the store, mapped side by side to be read.
 * Content is copied into a scratch segment. If the store has equal content, the backup maps that,
 * and the scratch is used again; if not, the scratch is sealed and becomes the store's. So what is
 * needed beside the content is one segment for each transition.
 */
#ifndef RVL_CORE_BACKUP_BACKUP_SHARED_H
#define RVL_CORE_BACKUP_BACKUP_SHARED_H

#include "core/transition.h"

/* What a transition needs to fill the store. */
typedef struct rvli_shared_transfer rvli_shared_transfer;

/* Gives back the scratch segment and its room. Nothing copies to it any more. */
void rvli_shared_end(rvli_transition *transition);

/* Whether the last failure of a save was that there is no room: budget or memory. */
bool rvli_shared_was_full(const rvli_transition *transition);

#endif
