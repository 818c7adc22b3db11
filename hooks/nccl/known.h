/* SPDX-License-Identifier: MIT */
/*
 * The communicators that the program has named, each with its call of NCCL until a move has seen
 * that call return.
 */
#ifndef RVL_HOOKS_NCCL_KNOWN_H
#define RVL_HOOKS_NCCL_KNOWN_H

#include "hooks/nccl/call.h"
#include "reveille/communicator.h"

/* A copy of a communicator's entry, with a share of its call. */
typedef struct rvli_known {
    void *comm;
    int device;
    rvli_nccl_call *call; /* NULL: none */
    uint64_t pauses, resumes;
} rvli_known;

/* Lists all in the order of adding. Free *known_out by rvli_known_free(). RVL_ERR_HOST_OOM. */
rvl_status rvli_known_list(rvli_known **known_out, size_t *count_out);
void rvli_known_free(rvli_known *known, size_t count);

bool rvli_known_any(void);

/*
 * Set stores the communicator's call (NULL: none). End removes it when the move that waited for it
 * has ended, unless another call replaced it. Both do nothing for a communicator that was removed.
 */
void rvli_known_set_call(void *comm, rvli_nccl_call *call);
void rvli_known_end_call(void *comm, const rvli_nccl_call *call);

/* Counts a committed move of the communicator. */
void rvli_known_count(void *comm, rvl_transition_kind kind);

/*
 * From claim to release, no other move begins and no communicator is removed. RVL_ERR_BUSY: a move
 * is prepared. generation: changes in each forked child.
 */
rvl_status rvli_known_claim(unsigned *generation_out);
void rvli_known_release(void);
rvl_status rvli_known_check_process(unsigned generation);

#endif
