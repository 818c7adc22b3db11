/* SPDX-License-Identifier: MIT */
/* The communicators that the program has named, and for each the call of NCCL that no move has seen
 * the end of. */
#ifndef RVL_HOOKS_NCCL_KNOWN_H
#define RVL_HOOKS_NCCL_KNOWN_H

#include "hooks/nccl/call.h"
#include "reveille/communicator.h"

/* A communicator as a caller holds it: a copy, with a share of the call. */
typedef struct rvli_known {
    void *comm;
    int device;
    rvli_nccl_call *call; /* NULL: there is none */
    uint64_t pauses, resumes;
} rvli_known;

/* All in their order, *known_out to be given back by rvli_known_free(). RVL_ERR_HOST_OOM. */
rvl_status rvli_known_list(rvli_known **known_out, size_t *count_out);
void rvli_known_free(rvli_known *known, size_t count);

bool rvli_known_any(void);

/*
 * The communicator has this call, NULL: none, until the move that has waited for it has ended. One
 * that is forgotten meanwhile keeps none.
 */
void rvli_known_set_call(void *comm, rvli_nccl_call *call);
void rvli_known_end_call(void *comm, const rvli_nccl_call *call);

/* One move of it has been committed. */
void rvli_known_count(void *comm, rvl_transition_kind kind);

/*
 * From claim to release no other move begins, and none is forgotten. RVL_ERR_BUSY: a move is
 * prepared. generation: of the process, as each fork begins another.
 */
rvl_status rvli_known_claim(unsigned *generation_out);
void rvli_known_release(void);
rvl_status rvli_known_check_process(unsigned generation);

#endif
