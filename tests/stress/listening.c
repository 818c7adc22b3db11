/* SPDX-License-Identifier: MIT */
#include "listening.h"

#include <string.h>

#include "actions.h"
#include "random.h"

static _Thread_local heard ears;

static void on_opening(uint64_t *used_bytes)
{
    ears.opening++;
    used_bytes[0] = 77;
}

static void on_opened(uint64_t ordinals, const uint64_t *used_bytes)
{
    ears.opened += ordinals == 1 && used_bytes[0] == 77 && used_bytes[1] == RVL_LISTENED_UNKNOWN;
}

static void on_closed(uint64_t ordinals)
{
    ears.closed += ordinals == 1;
}

static void on_allocated(const rvl_listened *what)
{
    ears.allocated++;
    ears.allocated_addr = what->addr;
    ears.size_bytes = what->size_bytes;
}

static void on_freeing(const rvl_context *context, rvl_addr addr)
{
    (void)context;
    ears.freeing++;
    ears.freed_addr = addr;
}

static void on_before(const rvl_transition *transition)
{
    ears.before += rvl_transition_get_tag(transition, 0) != 0;
}

static void on_after(const rvl_transition *transition)
{
    ears.after += rvl_transition_get_tag(transition, 0) != 0;
}

static void on_stage(const rvl_context *context, const char *name)
{
    ears.stage += context != NULL && strcmp(name, "heard") == 0;
}

static void on_step(const rvl_context *context)
{
    ears.step += context != NULL;
}

#define LISTENER                                                                                   \
    {                                                                                              \
        .struct_size = sizeof(rvl_listener), .opening = on_opening, .opened = on_opened,           \
        .closed = on_closed, .allocated = on_allocated, .freeing = on_freeing,                     \
        .before = on_before, .after = on_after, .stage = on_stage, .step = on_step                 \
    }

/* Two of them, since a process has one. */
static const rvl_listener listener = LISTENER, another = LISTENER;

void listen_begin(caller *by)
{
    ANSWER(by, MAY_OK, rvl_listener_set, &listener);
    ears = (heard){0};
}

void listen_compare(caller *by, const heard *expected)
{
    EXPECT(by, ears.opening, expected->opening);
    EXPECT(by, ears.opened, expected->opened);
    EXPECT(by, ears.closed, expected->closed);
    EXPECT(by, ears.allocated, expected->allocated);
    EXPECT(by, ears.freeing, expected->freeing);
    EXPECT(by, ears.before, expected->before);
    EXPECT(by, ears.after, expected->after);
    EXPECT(by, ears.stage, expected->stage);
    EXPECT(by, ears.step, expected->step);
    EXPECT(by, ears.allocated_addr, expected->allocated_addr);
    EXPECT(by, ears.freed_addr, expected->freed_addr);
    EXPECT(by, ears.size_bytes, expected->size_bytes);
    ears = (heard){0};
}

/* Whatever the thread has done before this was simulated. */
void action_listen(owner *o)
{
    caller *by = &o->by;
    const heard nothing = {0};
    rvl_listener deaf = LISTENER;
    struct {
        rvl_listener known;
        uint64_t newer;
    } newer = {.known = LISTENER, .newer = 1};
    newer.known.struct_size = sizeof newer;
    deaf.stage = NULL;
    listen_compare(by, &nothing);
    ANSWER(by, MAY_OK, rvl_listener_set, &listener);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_listener_set, &another);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_listener_set, &deaf);
    ANSWER(by, MAY(RVL_ERR_VERSION), rvl_listener_set, &newer.known);
    for (int i = 0; i < OWNER_SLOTS; i++)
        if (o->slots[i].addr != 0)
            EXPECT(by, CALL(by, rvl_address_is_paused, o->slots[i].addr), false);
    if (o->in->threads > 1)
        return; /* others count on the one that is set */
    ANSWER(by, MAY_OK, rvl_listener_set, NULL);
    ANSWER(by, MAY_OK, rvl_listener_set, &another);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_listener_set, &listener);
    ANSWER(by, MAY_OK, rvl_listener_set, NULL);
}
