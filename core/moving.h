/* SPDX-License-Identifier: MIT */
/*
 * What is on its way: the data of a transition.
 *
 * It lies below the backup stores, which fill and read what moves, and below core/transition/,
 * which knows in which order.
 */
#ifndef RVL_CORE_MOVING_H
#define RVL_CORE_MOVING_H

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

/* A prepared resume in parts: core/transition/parts.h. */
typedef struct rvli_piece rvli_piece;
typedef struct rvli_parts {
    uint32_t index, count; /* the part that is restored here; count 0 or 1: all of it */
    bool by_pieces;        /* ... by core/transition/part_load.c, after the prepare */
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

/* The item of an allocation's number, NULL: it does not move. */
rvli_move_item *rvli_transition_item(const rvli_transition *transition, uint64_t allocation_id);

#endif
