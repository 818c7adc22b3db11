/* SPDX-License-Identifier: MIT */
/*
 * Communicators of NCCL, without one: threads begin moves at once, and one of them has it. What is
 * moved is tested on simulated GPUs (tests/simcuda/test_communicator_ranks.c).
 */
#include "reveille/communicator.h"

#include "actions.h"
#include "random.h"

static void move(caller *by, rvl_transition_kind kind)
{
    rvl_communicator_move *prepared = NULL;
    if (ANSWER(by, MAY_OK | MAY(RVL_ERR_BUSY), rvl_communicator_prepare, kind, NULL, &prepared) !=
        RVL_OK)
        return;
    ANSWER(by, MAY_OK, rvl_communicator_wait, prepared);
    if (random_one_in(&by->random, 2))
        ANSWER(by, MAY_OK, rvl_communicator_commit, prepared);
    else
        ANSWER(by, MAY_OK, rvl_communicator_abort, prepared);
}

void action_communicators(caller *by)
{
    int comm = 0;
    rvl_communicator found = {.struct_size = sizeof found};
    rvl_tag_stats stats = {.struct_size = sizeof stats, .active_bytes = 1};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_communicator_add, &comm);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_communicator_remove, &comm);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_communicator_get, 0, &found);
    ANSWER(by, MAY_OK, rvl_communicator_get_stats, -1, &stats);
    EXPECT(by, stats.active_bytes, 0);
    ANSWER(by, MAY_OK, rvl_communicator_check_sleep, NULL, 0);
    found.rank_count = 2;
    ANSWER(by, MAY(RVL_ERR_NOT_SUPPORTED), rvl_communicator_check_sleep, &found, 1);
    ANSWER(by, MAY_OK, rvl_communicator_forecast, RVL_TRANSITION_RESUME, &forecast);
    EXPECT(by, forecast.allocation_count, 0);
    EXPECT(by, forecast.fits, true);
    move(by, RVL_TRANSITION_PAUSE);
    move(by, RVL_TRANSITION_RESUME);
}
