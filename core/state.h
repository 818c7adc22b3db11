/* SPDX-License-Identifier: MIT */
/* The one table of legal moves between the states of an allocation. */
#ifndef RVL_CORE_STATE_H
#define RVL_CORE_STATE_H

#include <stdbool.h>

#include "reveille/memory.h"

/* What can happen to an allocation. X(name): one event. */
#define RVLI_MOVE_MAP(X)                                                                           \
    X(PAUSE_BEGIN)   /* its tag is being paused */                                                 \
    X(PAUSE_COMMIT)  /* its memory is gone, its content kept as its policy says */                 \
    X(PAUSE_UNDO)    /* the pause failed and was undone */                                         \
    X(RESUME_BEGIN)  /* its tag is being resumed */                                                \
    X(RESUME_COMMIT) /* memory and content are back */                                             \
    X(RESUME_UNDO)   /* the resume failed and was undone; it was paused */                         \
    X(LOSE)          /* undoing failed, or it was lost before a resume that failed */              \
    X(FREE)          /* it goes away */

typedef enum rvli_move {
#define RVLI_MOVE_ENUM(name) RVLI_MOVE_##name,
    RVLI_MOVE_MAP(RVLI_MOVE_ENUM)
#undef RVLI_MOVE_ENUM
        RVLI_MOVE_COUNT
} rvli_move;

#define RVLI_STATE_COUNT (RVL_STATE_LOST + 1)

/*
 * Whether a move is legal from a state, and where it leads (*to_out; FREE leads nowhere and leaves
 * *to_out as it is). to_out may be NULL.
 */
bool rvli_state_move(rvl_state from, rvli_move move, rvl_state *to_out);

#endif
