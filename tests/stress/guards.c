/* SPDX-License-Identifier: MIT */
/*
 * The guard of a round's context. It is asked on the thread that moves memory, so it knows which
 * pause or resume it is. It compares what it is shown with the model, and sometimes refuses. Each
 * `before` that let one pass has its `after`, which hears how it ended.
 */
#include "actions.h"
#include "random.h"
#include "round.h"

static _Thread_local owner *mover; /* NULL: nobody of the model, who is let pass */

void guard_enter(owner *o)
{
    mover = o;
}

/* ---- What it is shown ---- */

static void compare_tags(const owner *o, caller *by, const rvl_transition *transition)
{
    size_t count = 0;
    for (int i = 0; i < OWNER_TAGS; i++)
        if (in_set(o->guarded.touched, i))
            EXPECT(by, CALL(by, rvl_transition_get_tag, transition, count++), o->tags[i].number);
    EXPECT(by, CALL(by, rvl_transition_get_tag, transition, count), 0);
}

/* An allocation in a shared block is not found, since the block moves. */
static void compare_allocations(const owner *o, caller *by, const rvl_transition *transition,
                                bool may_renew)
{
    const guarded *g = &o->guarded;
    for (int i = 0; i < OWNER_SLOTS; i++) {
        const slot *s = &o->slots[i];
        if (s->addr == 0 || o->tags[s->tag].shares)
            continue;
        bool moves = in_set(g->touched, s->tag) && (s->state == RVL_STATE_ACTIVE) == g->pause;
        uint32_t found = CALL(by, rvl_transition_find, transition, s->id);
        EXPECT(by, found & RVL_TRANSITION_MOVES, moves ? RVL_TRANSITION_MOVES : 0);
        EXPECT_WITHIN(by, found & ~RVL_TRANSITION_MOVES, 0,
                      moves && may_renew ? RVL_TRANSITION_RENEWED : 0);
    }
    EXPECT(by, CALL(by, rvl_transition_find, transition, UINT64_MAX), 0);
}

static void compare_transition(const owner *o, caller *by, const rvl_transition *transition,
                               bool may_renew)
{
    const guarded *g = &o->guarded;
    EXPECT(by, g->expected, true);
    EXPECT(by, CALL(by, rvl_transition_get_context, transition) == o->in->context, true);
    EXPECT(by, CALL(by, rvl_transition_get_kind, transition),
           g->pause ? RVL_TRANSITION_PAUSE : RVL_TRANSITION_RESUME);
    if (!g->known)
        return;
    compare_tags(o, by, transition);
    compare_allocations(o, by, transition, may_renew);
}

/* It may read, and may change nothing. */
static void compare_rules(const owner *o, caller *by)
{
    rvl_context *context = o->in->context;
    rvl_addr addr = 0;
    rvl_device_stats stats = {.struct_size = sizeof stats};
    ANSWER(by, MAY_OK, rvl_device_get_stats, context, 0, &stats);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_alloc, context, 1, NULL, &addr);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_pause, context, &o->tags[1].number, 1, NULL);
}

static rvl_status before(void *user, const rvl_transition *transition)
{
    owner *o = mover;
    if (o == NULL)
        return RVL_OK;
    caller within = o->by;
    EXPECT(&within, user == o->round, true);
    compare_transition(o, &within, transition, false);
    compare_rules(o, &within);
    o->guarded.befores++;
    return o->guarded.refusal;
}

static void after(void *user, const rvl_transition *transition, bool done)
{
    owner *o = mover;
    if (o == NULL)
        return;
    caller within = o->by;
    EXPECT(&within, user == o->round, true);
    compare_transition(o, &within, transition, o->in->faulty && o->guarded.pause && !done);
    compare_rules(o, &within);
    o->guarded.afters++;
    o->guarded.done = done;
}

void guard_set(stress_round *r, caller *by, bool on)
{
    const rvl_guard guard = {
        .struct_size = sizeof guard, .before = before, .after = after, .user = r};
    ANSWER(by, MAY_OK, rvl_context_set_guard, r->in.context, on ? &guard : NULL);
    r->has_guard = on;
}

/* ---- What comes of it ---- */

/* Any status but RVL_OK refuses: also one that the call itself answers to others. */
static rvl_status any_refusal(owner *o)
{
    static const rvl_status refusals[] = {RVL_ERR_BUSY, RVL_ERR_VETOED, RVL_ERR_TIMEOUT,
                                          RVL_ERR_DEVICE_OOM};
    if (!o->round->has_guard || !random_one_in(&o->by.random, 6))
        return RVL_OK;
    return refusals[random_below(&o->by.random, sizeof refusals / sizeof *refusals)];
}

uint32_t guard_begin(owner *o, bool pause, unsigned touched, uint32_t otherwise)
{
    o->guarded = (guarded){.expected = true,
                           .known = true,
                           .pause = pause,
                           .touched = touched,
                           .refusal = any_refusal(o)};
    bool refuses = o->guarded.refusal != RVL_OK && touched != 0;
    return refuses ? MAY(o->guarded.refusal) : otherwise;
}

uint32_t guard_begin_shared(owner *o, bool pause, uint32_t otherwise)
{
    o->guarded = (guarded){.expected = true, .pause = pause, .refusal = any_refusal(o)};
    return otherwise | MAY(o->guarded.refusal);
}

void guard_end(owner *o, rvl_status status)
{
    caller *by = &o->by;
    const guarded g = o->guarded;
    bool passes = g.befores > 0 && g.refusal == RVL_OK;
    o->guarded = (guarded){0};
    EXPECT_WITHIN(by, g.befores, 0, o->round->has_guard);
    EXPECT(by, g.afters, passes);
    if (g.befores > 0 && !passes)
        EXPECT(by, status, g.refusal);
    if (passes)
        EXPECT(by, g.done, status == RVL_OK);
    if (g.known && status == RVL_OK)
        EXPECT(by, g.befores, o->round->has_guard && g.touched != 0);
}

/* With several threads the same guard is set again while others are asked. */
void action_guard(owner *o)
{
    caller *by = &o->by;
    struct {
        rvl_guard known;
        uint64_t newer;
    } newer = {.known = {.struct_size = sizeof newer}, .newer = 1};
    const rvl_guard sizeless = {0};
    ANSWER(by, MAY(RVL_ERR_VERSION), rvl_context_set_guard, o->in->context, &newer.known);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_context_set_guard, o->in->context, &sizeless);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_context_set_guard, NULL, NULL);
    if (o->in->threads == 1)
        guard_set(o->round, by, !o->round->has_guard);
    else if (o->round->has_guard) {
        const rvl_guard guard = {
            .struct_size = sizeof guard, .before = before, .after = after, .user = o->round};
        ANSWER(by, MAY_OK, rvl_context_set_guard, o->in->context, &guard);
    }
}
