/* SPDX-License-Identifier: MIT */
/*
 * The data of a transition.
 *
 * It lies below the backup stores, which save and load content, and below core/transition/, which
 * determines the order.
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

/* One allocation in a transition. */
typedef struct rvli_move_item {
    rvli_allocation *allocation;
    uint64_t id;            /* the allocation's; valid even after the allocation is freed */
    rvl_state before;       /* its state when the transition began */
    rvli_block *blocks;     /* resume: the blocks to map at the address */
    rvli_backup *backup;    /* pause: the backup to fill */
    rvli_backup *discarded; /* to drop after everything else, when the allocation may already be
                               freed */
    rvli_digest *digests;   /* of its content, as they are computed */
    rvli_digest *names;     /* pause: digests of its granules, which name content in the node's
                               store */
    uint64_t copied_bytes;  /* pause: to the backup */
    uint64_t filled_bytes;  /* resume: by the caller, not from the backup */
    rvli_stretch load; /* resume: what the prepare restores; everything, unless the resume is in
                          parts */
    bool overwritten;  /* pause: the backup may hold part of the new content */
    bool had_blocks;   /* resume of a lost allocation: it never lost its blocks */
    bool renewed;      /* undone pause: it has different memory now, or is lost */
    bool ordered;      /* resume: it has a place in the order */
    bool handed_over;  /* resume: the allocation is usable by its owner again, and may be
                          freed */
} rvli_move_item;

/* A prepared resume in parts: core/transition/parts.h. */
typedef struct rvli_piece rvli_piece;
typedef struct rvli_parts {
    uint32_t index, count; /* the part to restore here; count 0 or 1: everything */
    bool by_pieces;        /* restore it in core/transition/part_load.c, after the prepare */
    rvli_piece *pieces;    /* by item, then by offset */
    size_t piece_count;
    size_t open_count;
    size_t due, queued; /* of the own pieces: the next to wait for, and the end of those already
                           queued */
    size_t own_end;     /* the end of the own pieces */
} rvli_parts;

struct rvl_transition {
    rvl_context *context;
    rvli_tag **tags; /* claimed, by number, without repetition */
    size_t tag_count;
    rvli_tag **touched; /* the tags with at least one item */
    size_t touched_count;
    rvli_move_item *items; /* by id */
    size_t item_count;
    rvli_move_item **order;          /* resume: the order of restoring; NULL: by id */
    uint64_t device_mask;            /* devices that own the items */
    uint64_t access_mask;            /* devices that can reach them */
    struct rvli_disk_transfer *disk; /* files and buffers of disk backups; NULL: none needed yet */
    struct rvli_shared_transfer *shared; /* the transfer to the node's store; NULL: none needed
                                            yet */
    uint64_t start_ns;                   /* context clock */
    uint64_t spent_ns;                   /* context clock spent until it was prepared */
    rvl_event_kind kind;
    bool skip_content;            /* no backup, or no restore */
    rvli_parts parts;             /* resume: pieces to be filled before the commit */
    rvl_guard guard;              /* the guard to call */
    bool let_pass;                /* by the guard: guard and listener have to be told how it ends */
    const rvl_listener *listener; /* NULL: none */
};

typedef struct rvl_transition rvli_transition;

/* Returns the item of an allocation's number, or NULL if it does not move. */
rvli_move_item *rvli_transition_item(const rvli_transition *transition, uint64_t allocation_id);

#endif
