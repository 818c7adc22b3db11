/* SPDX-License-Identifier: MIT */
/*
 * What pause and resume have in common: the set of tags, the claim on them, the list of what moves.
 *
 * A transition claims its tags one by one in order of number, waiting for the one that has them, so
 * that overlapping sets cannot deadlock. It then marks the allocations that are to move, under the
 * lock, and works on them without it. Whatever ends the transition flips them under the lock again.
 */
#ifndef RVL_CORE_TRANSITION_H
#define RVL_CORE_TRANSITION_H

#include "core/tables.h"
#include "reveille/listen.h"
#include "reveille/transition.h"

/* A stretch of an allocation, in whole granules. */
typedef struct rvli_stretch {
    uint64_t offset;
    uint64_t size;
} rvli_stretch;

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
    rvli_digest *names;    /* pause: of its granules, by which the store of the node is asked */
    uint64_t copied_bytes; /* pause: to the backup */
    uint64_t filled_bytes; /* resume: by the caller, not from the backup */
    rvli_stretch load;     /* resume: what the prepare brings back; all, unless it is in parts */
    bool overwritten;      /* pause: the backup may hold some of the new content */
    bool had_blocks;       /* resume of a lost one: its blocks never went away */
    bool renewed;          /* undone pause: it has other memory than before, or is lost */
    bool ordered;          /* resume: it has its place in the order */
    bool handed_over;      /* resume: its allocation is its owner's again, and may be gone */
} rvli_move_item;

/* A prepared resume in parts: core/parts.h. */
typedef struct rvli_piece rvli_piece;
typedef struct rvli_parts {
    uint32_t index, count; /* the part that is restored here; count 0 or 1: all of it */
    bool by_pieces;        /* ... by core/part_load.c, after the prepare */
    rvli_piece *pieces;    /* by item, then by offset */
    size_t piece_count;
    size_t open_count;
    size_t due, queued; /* own pieces from `due` on are to be loaded; those up to `queued` are */
    size_t own_end;     /* on their way; the last own one is before this */
} rvli_parts;

struct rvl_transition {
    rvl_context *context;
    rvli_tag **tags; /* claimed, by number, without repetition */
    size_t tag_count;
    rvli_tag **touched; /* those with at least one item */
    size_t touched_count;
    rvli_move_item *items; /* by id */
    size_t item_count;
    rvli_move_item **order;          /* resume: in which they are restored; NULL: by id */
    uint64_t device_mask;            /* owners of the items */
    uint64_t access_mask;            /* devices that can reach them */
    struct rvli_disk_transfer *disk; /* files and buffers of disk backups; NULL: none needed yet */
    struct rvli_shared_transfer *shared; /* what fills the store of the node; NULL: likewise */
    uint64_t start_ns;                   /* context clock */
    uint64_t spent_ns;                   /* until it was prepared */
    rvl_event_kind kind;
    bool skip_content;            /* no backup, or no restore */
    rvli_parts parts;             /* resume: what is to be filled before the commit */
    rvl_guard guard;              /* the one that is asked */
    bool let_pass;                /* by it: both are to be told how it ends */
    const rvl_listener *listener; /* NULL: nobody hears */
};

typedef struct rvl_transition rvli_transition;

/*
 * Claims the tags (count 0: all of the process) and waits for the one that moves them.
 * RVL_ERR_INVALID, RVL_ERR_HOST_OOM; RVL_ERR_BUSY if that one is prepared: it may take forever.
 */
rvl_status rvli_transition_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                 rvl_process process, rvli_transition *transition);

/*
 * Lists the tags' allocations for which the move is legal and, with `mark`, makes it. Others stay
 * as they are. With the lock held; without `mark` the list is good only while it is.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_transition_collect(rvli_transition *transition, rvli_move move, bool mark);

/* The item of an allocation's number, NULL: it does not move. */
rvli_move_item *rvli_transition_item(const rvli_transition *transition, uint64_t allocation_id);

/*
 * Asks the context's guard and, if that lets it pass, tells the listener; and tells both how it
 * ended, if it was let pass. Without the lock, once what moves is marked and with its tags still
 * claimed (core/guard.c).
 */
rvl_status rvli_transition_ask(rvli_transition *transition, rvl_event_kind kind);
void rvli_transition_tell(const rvli_transition *transition, bool done);

/*
 * The second half of a prepared one, by core/pause.c and core/resume.c: it is done, and nothing of
 * that can fail; or undone, and the answer is why some could not be and are lost.
 */
void rvli_pause_commit(rvli_transition *transition);
rvl_status rvli_pause_abort(rvli_transition *transition);
void rvli_resume_commit(rvli_transition *transition);
rvl_status rvli_resume_abort(rvli_transition *transition);

/* Gives the claims back, wakes who waits, frees the lists. */
void rvli_transition_end(rvli_transition *transition);

/* RVL_ERR_BUSY if one of the caller's streams is being captured. */
rvl_status rvli_streams_check(rvl_context *context, void *const *streams, size_t stream_count);

/* Charges the time since start_ns to the devices that moved something. With the lock held. */
void rvli_transition_spend(rvli_transition *transition);

/*
 * Reads the options of a pause or resume, checks them, and claims the tags: what the call, its
 * prepare and its forecast begin with.
 */
rvl_status rvli_pause_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                            const rvl_pause_options *user_options, rvl_pause_options *options,
                            rvli_transition *transition);
rvl_status rvli_resume_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                             const rvl_resume_options *user_options, rvl_resume_options *options,
                             rvli_transition *transition);

#endif
