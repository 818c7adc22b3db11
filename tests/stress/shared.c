/* SPDX-License-Identifier: MIT */
/*
 * Tags that all threads move at once. What a call meets there is anybody's guess, so only what
 * holds in every order is compared; and content that was put there before the threads began is
 * still there when they have ended.
 */
#include "actions.h"
#include "random.h"
#include "round.h"

static rvl_tag any_tag(owner *o)
{
    return o->round->shared_tags[random_below(&o->by.random, SHARED_TAGS)];
}

/* A request that the room of all threads together may not have. */
static uint32_t may_run_out(const owner *o)
{
    bool room = o->in->roomy || o->in->overcommit;
    return MAY_OK | may_by_fault(o) | (room ? 0 : MAY(RVL_ERR_DEVICE_OOM));
}

static void alloc_or_free(owner *o)
{
    caller *by = &o->by;
    rvl_addr *addr = &o->shared[random_below(&by->random, SHARED_SLOTS)];
    if (*addr != 0) {
        if (ANSWER(by, MAY_OK | may_by_fault(o), rvl_free, o->in->context, *addr) == RVL_OK)
            *addr = 0;
        return;
    }
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag_id = any_tag(o),
                                 .backup = (rvl_backup)random_below(&by->random, 2),
                                 .flags = random_one_in(&by->random, 4) ? RVL_ALLOC_PAUSED : 0};
    rvl_addr new = 0;
    if (ANSWER(by, may_run_out(o), rvl_alloc, o->in->context, SHARED_BYTES, &options, &new) ==
        RVL_OK)
        *addr = new;
}

static void move(owner *o)
{
    caller *by = &o->by;
    rvl_tag pair[2] = {any_tag(o), any_tag(o)};
    size_t count = 1 + random_below(&by->random, 2);
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    switch (random_below(&by->random, 4)) {
    case 0: {
        uint32_t may = guard_begin_shared(o, true, MAY_OK | may_by_fault(o));
        guard_end(o, ANSWER(by, may, rvl_pause, o->in->context, pair, count, NULL));
        break;
    }
    case 1: {
        uint32_t may = guard_begin_shared(o, false, may_run_out(o));
        guard_end(o, ANSWER(by, may, rvl_resume, o->in->context, pair, count, NULL));
        break;
    }
    case 2:
        ANSWER(by, MAY_OK | may_by_fault(o), rvl_pause_forecast, o->in->context, pair, count, NULL,
               &forecast);
        break;
    default:
        ANSWER(by, MAY_OK | may_by_fault(o), rvl_resume_forecast, o->in->context, pair, count, NULL,
               &forecast);
        break;
    }
}

/* Its own allocation is there, in some state, also while another thread moves it. */
static void look(owner *o)
{
    caller *by = &o->by;
    rvl_addr addr = o->shared[random_below(&by->random, SHARED_SLOTS)];
    rvl_allocation found = {.struct_size = sizeof found};
    rvl_addr from = 0;
    if (addr != 0) {
        ANSWER(by, MAY_OK, rvl_allocation_find, o->in->context, addr, &found);
        EXPECT(by, found.addr, addr);
        EXPECT(by, found.size_bytes, SHARED_BYTES);
        EXPECT_WITHIN(by, found.state, RVL_STATE_ACTIVE, RVL_STATE_LOST);
    }
    while (ANSWER(by, MAY_OK | MAY(RVL_ERR_NOT_FOUND), rvl_allocation_next, o->in->context, from,
                  &found) == RVL_OK) {
        EXPECT_WITHIN(by, found.addr, from, UINT64_MAX);
        from = found.addr + 1;
    }
}

void action_shared(owner *o)
{
    void (*const acts[])(owner *) = {alloc_or_free, alloc_or_free, move, move, look};
    if (o->in->threads > 1)
        acts[random_below(&o->by.random, 5)](o);
}
