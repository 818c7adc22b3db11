/* SPDX-License-Identifier: MIT */
/*
 * States of an allocation.
 *
 *   ACTIVE --PAUSE_BEGIN--> PAUSING --PAUSE_COMMIT--> PAUSED
 *     ^  ^                   |    \                     |  ^
 *     |  `---PAUSE_UNDO------'     LOSE                 |  RESUME_UNDO
 *     |                              v      RESUME_BEGIN|  |
 *     |                             LOST --RESUME_BEGIN-v  |
 *     `------RESUME_COMMIT--------- RESUMING --------------'
 *                                      `--LOSE--> LOST
 *   ACTIVE --LOSE--> LOST: a free that failed half-way and could not be undone
 *
 * A moving allocation (PAUSING, RESUMING) belongs to the thread that moves it: no other thread may
 * free or move it. Every change of a state goes through this table.
 */
#include "core/state.h"

#include <stddef.h>

/* The move is illegal. */
#define ILLEGAL (-1)
/* The move is legal, and frees the allocation. */
#define GONE (-2)

static const signed char table[RVLI_STATE_COUNT][RVLI_MOVE_COUNT] = {
    [RVL_STATE_ACTIVE] = {[RVLI_MOVE_PAUSE_BEGIN] = RVL_STATE_PAUSING,
                          [RVLI_MOVE_PAUSE_COMMIT] = ILLEGAL,
                          [RVLI_MOVE_PAUSE_UNDO] = ILLEGAL,
                          [RVLI_MOVE_RESUME_BEGIN] = ILLEGAL,
                          [RVLI_MOVE_RESUME_COMMIT] = ILLEGAL,
                          [RVLI_MOVE_RESUME_UNDO] = ILLEGAL,
                          [RVLI_MOVE_LOSE] = RVL_STATE_LOST,
                          [RVLI_MOVE_FREE] = GONE},
    [RVL_STATE_PAUSING] = {[RVLI_MOVE_PAUSE_BEGIN] = ILLEGAL,
                           [RVLI_MOVE_PAUSE_COMMIT] = RVL_STATE_PAUSED,
                           [RVLI_MOVE_PAUSE_UNDO] = RVL_STATE_ACTIVE,
                           [RVLI_MOVE_RESUME_BEGIN] = ILLEGAL,
                           [RVLI_MOVE_RESUME_COMMIT] = ILLEGAL,
                           [RVLI_MOVE_RESUME_UNDO] = ILLEGAL,
                           [RVLI_MOVE_LOSE] = RVL_STATE_LOST,
                           [RVLI_MOVE_FREE] = ILLEGAL},
    [RVL_STATE_PAUSED] = {[RVLI_MOVE_PAUSE_BEGIN] = ILLEGAL,
                          [RVLI_MOVE_PAUSE_COMMIT] = ILLEGAL,
                          [RVLI_MOVE_PAUSE_UNDO] = ILLEGAL,
                          [RVLI_MOVE_RESUME_BEGIN] = RVL_STATE_RESUMING,
                          [RVLI_MOVE_RESUME_COMMIT] = ILLEGAL,
                          [RVLI_MOVE_RESUME_UNDO] = ILLEGAL,
                          [RVLI_MOVE_LOSE] = ILLEGAL,
                          [RVLI_MOVE_FREE] = GONE},
    [RVL_STATE_RESUMING] = {[RVLI_MOVE_PAUSE_BEGIN] = ILLEGAL,
                            [RVLI_MOVE_PAUSE_COMMIT] = ILLEGAL,
                            [RVLI_MOVE_PAUSE_UNDO] = ILLEGAL,
                            [RVLI_MOVE_RESUME_BEGIN] = ILLEGAL,
                            [RVLI_MOVE_RESUME_COMMIT] = RVL_STATE_ACTIVE,
                            [RVLI_MOVE_RESUME_UNDO] = RVL_STATE_PAUSED,
                            [RVLI_MOVE_LOSE] = RVL_STATE_LOST,
                            [RVLI_MOVE_FREE] = ILLEGAL},
    [RVL_STATE_LOST] = {[RVLI_MOVE_PAUSE_BEGIN] = ILLEGAL,
                        [RVLI_MOVE_PAUSE_COMMIT] = ILLEGAL,
                        [RVLI_MOVE_PAUSE_UNDO] = ILLEGAL,
                        [RVLI_MOVE_RESUME_BEGIN] = RVL_STATE_RESUMING,
                        [RVLI_MOVE_RESUME_COMMIT] = ILLEGAL,
                        [RVLI_MOVE_RESUME_UNDO] = ILLEGAL,
                        [RVLI_MOVE_LOSE] = ILLEGAL,
                        [RVLI_MOVE_FREE] = GONE},
};

bool rvli_state_move(rvl_state from, rvli_move move, rvl_state *to_out)
{
    if ((unsigned)from >= RVLI_STATE_COUNT || (unsigned)move >= RVLI_MOVE_COUNT)
        return false;
    signed char to = table[from][move];
    if (to == ILLEGAL)
        return false;
    if (to != GONE && to_out != NULL)
        *to_out = (rvl_state)to;
    return true;
}

const char *rvl_state_text(rvl_state state)
{
    static const char *const texts[] = {
#define RVL_STATE_TEXT(name, text) [RVL_STATE_##name] = text,
        RVL_STATE_MAP(RVL_STATE_TEXT)
#undef RVL_STATE_TEXT
    };
    return (unsigned)state < RVLI_STATE_COUNT ? texts[state] : "?";
}
