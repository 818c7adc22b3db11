/* SPDX-License-Identifier: MIT */
/*
 * What one call has to cope with: a fault of the backend that waits for it, or a request of this
 * thread for host memory that will be refused. Then it may fail, and must have changed nothing: the
 * states, contents and sums stay those of the model. Only an injected fault may make LOST.
 */
#ifndef RVL_STRESS_TROUBLE_H
#define RVL_STRESS_TROUBLE_H

#include "owner.h"

typedef struct trouble {
    bool fault;
    bool short_memory;
} trouble;

/* Sometimes. Answers what the call may answer because of it. */
uint32_t trouble_begin(owner *o, trouble *t);
void trouble_end(owner *o, const trouble *t);

/* What a fault has made LOST is LOST in the model too. Other states do not follow the library. */
void owner_note_lost(owner *o);

#endif
