/* SPDX-License-Identifier: MIT */
#include "api_sleep.h"

#include "core/tables.h"
#include "fuzz.h"
#include "reveille/sleep.h"

/* ---- What the model expects ---- */

static bool has_imports(const api_model *m)
{
    for (int i = 0; i < API_IMPORTS; i++)
        if (m->imports[i].addr != 0)
            return true;
    return false;
}

static void pause_slot(api_slot *s, bool discard)
{
    s->state = RVL_STATE_PAUSED;
    s->known = s->known && !discard && s->backup != RVL_BACKUP_NONE;
}

/* Which allocations a sleep pauses. */
static void find_active(const api_model *m, bool active[API_SLOTS])
{
    for (int i = 0; i < API_SLOTS; i++)
        active[i] =
            m->slots[i].addr != 0 && !m->slots[i].moving && m->slots[i].state == RVL_STATE_ACTIVE;
}

/* A sleep or a wake has failed: each allocation is as before, or paused, and has its backup. */
static void learn_states(api_model *m, const bool active[API_SLOTS], bool discard)
{
    for (int i = 0; i < API_SLOTS; i++) {
        api_slot *s = &m->slots[i];
        rvl_allocation found = {.struct_size = sizeof found};
        if (!active[i])
            continue;
        require(rvl_allocation_find(m->context, s->addr, &found) == RVL_OK);
        if (found.state == RVL_STATE_ACTIVE && !m->faulty)
            continue;
        pause_slot(s, discard);
        if (found.state == RVL_STATE_ACTIVE)
            s->state = found.state;
    }
}

/* ---- A sleep ---- */

static rvl_status fall_asleep(api_model *m, const api_nap *nap, const bool active[API_SLOTS])
{
    const rvl_sleep_options options = {.struct_size = sizeof options,
                                       .flags = nap->discard ? RVL_SLEEP_DISCARD : 0};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_status foreseen = rvl_sleep_forecast(m->context, &options, &forecast);
    (void)api_done(m, foreseen);
    rvl_status status = rvl_sleep(m->context, &options);
    require(m->faulty || foreseen == RVL_OK || status == foreseen);
    require(status != RVL_OK || (!api_is_prepared(m) && !has_imports(m)));
    require(rvl_context_is_asleep(m->context) == (status == RVL_OK));
    if (!api_done(m, status)) {
        learn_states(m, active, nap->discard);
        return status;
    }
    for (int i = 0; i < API_SLOTS; i++)
        if (active[i])
            pause_slot(&m->slots[i], nap->discard);
    return status;
}

static void check_asleep(api_model *m)
{
    rvl_addr addr = 0;
    require(rvl_alloc(m->context, m->granule, NULL, &addr) == RVL_ERR_STATE && addr == 0);
    require(rvl_pause(m->context, m->tags, 1, NULL) == RVL_ERR_STATE);
    require(rvl_sleep(m->context, NULL) == RVL_ERR_STATE);
}

/* ---- A wake ---- */

/* Others have all of a device: nothing comes back that needs any of it. */
static void wake_without_room(api_model *m)
{
    const rvli_backend_ops *ops = &m->context->ops;
    void *self = m->context->self;
    uint64_t capacity_bytes = API_GRANULES * m->granule;
    if (ops->external_set(self, 0, capacity_bytes) != RVL_OK)
        return;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_status foreseen = rvl_wake_up_forecast(m->context, NULL, &forecast);
    if (foreseen == RVL_ERR_DEVICE_OOM) {
        require(!api_done(m, rvl_wake_up(m->context, NULL)));
        require(rvl_context_is_asleep(m->context));
    }
    require(ops->external_set(self, 0, m->external[0]) == RVL_OK);
}

static void wake_up(api_model *m, const api_nap *nap, const bool active[API_SLOTS])
{
    rvl_wake_up_options options = {.struct_size = sizeof options,
                                   .flags = nap->stays_paused ? RVL_WAKE_UP_PAUSED : 0};
    rvl_status status = rvl_wake_up(m->context, &options);
    if (!api_done(m, status)) {
        fault_set(m->fault, &(fault_plan){0});
        options.flags = RVL_WAKE_UP_PAUSED;
        require(!rvl_context_is_asleep(m->context) || rvl_wake_up(m->context, &options) == RVL_OK);
    }
    require(!rvl_context_is_asleep(m->context));
    require(rvl_wake_up(m->context, NULL) == RVL_ERR_STATE);
    for (int i = 0; i < API_SLOTS && options.flags == 0; i++)
        if (active[i])
            m->slots[i].state = RVL_STATE_ACTIVE;
}

static void forbid(const api_model *m)
{
    uint64_t key = m->granule;
    require(rvl_sleep_forbid(key, "") == RVL_ERR_INVALID);
    require(rvl_sleep_forbid(key, "close it") == RVL_OK);
    require(rvl_sleep_forbid(key + 1, "close that") == RVL_OK);
    require(rvl_sleep_allow(key) == RVL_OK && rvl_sleep_allow(key) == RVL_ERR_NOT_FOUND);
    require(rvl_sleep_allow(key + 1) == RVL_OK);
}

void api_sleep(api_model *m, const api_nap *nap)
{
    bool active[API_SLOTS];
    find_active(m, active);
    if (nap->is_forbidden)
        forbid(m);
    if (fall_asleep(m, nap, active) != RVL_OK)
        return;
    if (!nap->wakes_with_faults)
        fault_set(m->fault, &(fault_plan){0});
    check_asleep(m);
    if (nap->without_room && !nap->wakes_with_faults)
        wake_without_room(m);
    wake_up(m, nap, active);
}
