/* SPDX-License-Identifier: MIT */
/* The only table of legal moves between the states of an allocation. */
#ifndef RVL_CORE_STATE_H
#define RVL_CORE_STATE_H

#include <stdbool.h>

#include "reveille/memory.h"

/* X(name): the events that change the state of an allocation. */
#define RVLI_MOVE_MAP(X)                                                                           \
    X(PAUSE_BEGIN)   /* its tag is being paused */                                                 \
    X(PAUSE_COMMIT)  /* its memory is released, its content kept by its policy */                  \
    X(PAUSE_UNDO)    /* the pause failed and was undone */                                         \
    X(RESUME_BEGIN)  /* its tag is being resumed */                                                \
    X(RESUME_COMMIT) /* its memory and content are restored */                                     \
    X(RESUME_UNDO)   /* the resume failed and was undone; it was paused */                         \
    X(LOSE)          /* undoing failed, or it was lost before a resume that failed */              \
    X(FREE)          /* it is freed */

typedef enum rvli_move {
#define RVLI_MOVE_ENUM(name) RVLI_MOVE_##name,
    RVLI_MOVE_MAP(RVLI_MOVE_ENUM)
#undef RVLI_MOVE_ENUM
        RVLI_MOVE_COUNT
} rvli_move;

#define RVLI_STATE_COUNT (RVL_STATE_LOST + 1)

/*
 * Returns whether a move is legal from a state, and stores the new state in *to_out. FREE has no
 * new state and leaves *to_out unchanged. to_out may be NULL.
 */
bool rvli_state_move(rvl_state from, rvli_move move, rvl_state *to_out);

#endif
