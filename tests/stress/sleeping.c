/* SPDX-License-Identifier: MIT */
/*
 * A context that sleeps. It is the thread's own: calls of other threads about it would be refused.
 */
#include "reveille/control.h"
#include "reveille/sleep.h"

#include "actions.h"
#include "random.h"
#include "tests/support/support.h"

#define CONTENT 7u

/* ---- What forbids a sleep ---- */

static void forbid(caller *by)
{
    uint64_t key = (uint64_t)(uintptr_t)by; /* no other thread's */
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_sleep_forbid, key, "");
    ANSWER(by, MAY_OK, rvl_sleep_forbid, key, "memory of nobody: close it");
    ANSWER(by, MAY_OK, rvl_sleep_allow, key);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_sleep_allow, key);
}

/* ---- What may be asked from outside: nothing listens here ---- */

static void listen_to_nobody(caller *by)
{
    ANSWER_NONE(by, MAY_OK, rvl_control_close);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_control_open, &(rvl_control_options){.struct_size = 1});
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_control_ask, 0, NULL, NULL);
}

/* ---- Sleep and wake ---- */

static rvl_state state_of(caller *by, rvl_context *context, rvl_addr addr)
{
    rvl_allocation found = {.struct_size = sizeof found};
    ANSWER(by, MAY_OK, rvl_allocation_find, context, addr, &found);
    return found.state;
}

static void sleep_once(caller *by, rvl_context *context, uint64_t flags)
{
    const rvl_sleep_options options = {.struct_size = sizeof options, .flags = flags};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_addr addr = 0;
    ANSWER(by, MAY_OK, rvl_sleep_forecast, context, &options, &forecast);
    EXPECT(by, CALL(by, rvl_context_is_asleep, context), false);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_wake_up, context, NULL);
    ANSWER(by, MAY_OK, rvl_sleep, context, &options);
    EXPECT(by, CALL(by, rvl_context_is_asleep, context), true);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_sleep, context, &options);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_alloc, context, GRANULE_BYTES, NULL, &addr);
}

static void wake_once(caller *by, rvl_context *context, rvl_addr addr)
{
    bool paused = random_one_in(&by->random, 2);
    const rvl_wake_up_options options = {.struct_size = sizeof options,
                                         .flags = paused ? RVL_WAKE_UP_PAUSED : 0};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    ANSWER(by, MAY_OK, rvl_wake_up_forecast, context, &options, &forecast);
    ANSWER(by, MAY_OK, rvl_wake_up, context, &options);
    EXPECT(by, CALL(by, rvl_context_is_asleep, context), false);
    EXPECT(by, state_of(by, context, addr), paused ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE);
    if (paused)
        ANSWER(by, MAY_OK, rvl_resume, context, NULL, 0, NULL);
}

void action_sleep(owner *o)
{
    caller *by = &o->by;
    rvl_profile profile = {.struct_size = sizeof profile};
    ANSWER(by, MAY_OK, rvl_profile_find, "h200", &profile);
    profile.name = NULL;
    profile.capacity_bytes = 8 * GRANULE_BYTES;
    profile.granularity_bytes = GRANULE_BYTES;
    const rvl_profile *profiles[] = {&profile};
    const rvl_sim_options sim = {.struct_size = sizeof sim,
                                 .memory = RVL_SIM_BACKED,
                                 .devices = profiles,
                                 .device_count = 1};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &sim};
    const rvl_alloc_options weights = {
        .struct_size = sizeof weights, .tag = "weights", .backup = RVL_BACKUP_HOST};
    rvl_context *context = NULL;
    rvl_addr addr = 0;
    forbid(by);
    listen_to_nobody(by);
    ANSWER(by, MAY_OK, rvl_context_open, "sim", &options, &context);
    ANSWER(by, MAY_OK, rvl_alloc, context, GRANULE_BYTES, &weights, &addr);
    support_fill(addr, GRANULE_BYTES, CONTENT);
    bool discards = random_one_in(&by->random, 3);
    sleep_once(by, context, discards ? RVL_SLEEP_DISCARD : 0);
    wake_once(by, context, addr);
    if (!discards)
        EXPECT(by, support_holds(addr, GRANULE_BYTES, CONTENT), true);
    ANSWER(by, MAY_OK, rvl_context_close, context, NULL);
}
