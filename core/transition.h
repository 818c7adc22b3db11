/* SPDX-License-Identifier: MIT */
/*
 * What pause and resume have in common: the set of tags, the claim on them, the list of what moves.
 *
 * A transition claims its tags one by one in order of number, waiting for whoever has them, so that
 * overlapping sets cannot deadlock. It then marks the allocations that are to move, under the lock,
 * and works on them without it. Whatever ends the transition flips them under the lock again.
 */
#ifndef RVL_CORE_TRANSITION_H
#define RVL_CORE_TRANSITION_H

#include "core/model.h"
#include "reveille/transition.h"

/* One allocation on its way. */
typedef struct rvli_move_item {
    rvli_allocation *allocation;
    uint64_t id;         /* the allocation's, good when it is not any more */
    rvl_state before;    /* its state when the transition began */
    rvli_block *blocks;  /* resume: what is being put behind the address */
    rvli_backup *backup; /* pause: what is being filled */
    rvli_backup
        *discarded;        /* to be dropped once all is done: the allocation may be freed by then */
    rvli_digest *digests;  /* of its content, as it is being learned */
    uint64_t copied_bytes; /* pause: to the backup */
    bool had_blocks;       /* resume of a lost one: its blocks never went away */
    bool renewed;          /* undone pause: it has other memory than before, or is lost */
} rvli_move_item;

typedef struct rvli_transition {
    rvl_context *context;
    rvli_tag **tags; /* claimed, by number, without repetition */
    size_t tag_count;
    rvli_tag **touched; /* those with at least one item */
    size_t touched_count;
    rvli_move_item *items; /* by id */
    size_t item_count;
    uint64_t device_mask;            /* owners of the items */
    uint64_t access_mask;            /* devices that can reach them */
    struct rvli_disk_transfer *disk; /* files and buffers of disk backups; NULL: none needed yet */
    uint64_t start_ns;               /* context clock */
    const rvli_guard *asked;         /* is to be told how it ends; NULL: nobody is */
} rvli_transition;

/*
 * What a transition has to do with others than the context: set once, before the context is used.
 * Both are called by the transition's thread, without the lock; before() once all that moves is
 * marked, so that nobody else can begin to use it, and before any callback. If it fails, so does
 * the transition. after() follows each before() that did not, with the tags still claimed.
 */
struct rvli_guard {
    rvl_status (*before)(const rvli_transition *transition, rvl_event_kind kind);
    void (*after)(const rvli_transition *transition, rvl_event_kind kind, bool done);
};

/*
 * Claims the tags (count 0: all of the process) and waits for whoever moves them.
 * RVL_ERR_INVALID, RVL_ERR_HOST_OOM.
 */
rvl_status rvli_transition_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                 rvl_process process, rvli_transition *transition);

/*
 * Lists the tags' allocations for which the move is legal and, with `mark`, makes it. Others stay
 * as they are. With the lock held; without `mark` the list is good only while it is.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_transition_collect(rvli_transition *transition, rvli_move move, bool mark);

/* Asks the context's guard and, if it has let the transition go on, tells it how that ended. */
rvl_status rvli_transition_ask_guard(rvli_transition *transition, rvl_event_kind kind);
void rvli_transition_tell_guard(const rvli_transition *transition, rvl_event_kind kind, bool done);

/* Gives the claims back, wakes who waits, frees the lists. */
void rvli_transition_end(rvli_transition *transition);

/* RVL_ERR_BUSY if one of the caller's streams is being captured. */
rvl_status rvli_streams_check(rvl_context *context, void *const *streams, size_t stream_count);

/* Charges the time since start_ns to the devices that moved something. With the lock held. */
void rvli_transition_spend(rvli_transition *transition);

/* As rvli_options_read(), and their flags are checked. */
rvl_status rvli_pause_options_read(rvl_pause_options *options, const rvl_pause_options *user);
rvl_status rvli_resume_options_read(rvl_resume_options *options, const rvl_resume_options *user);

#endif
