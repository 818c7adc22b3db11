/* SPDX-License-Identifier: MIT */
#include "trouble.h"

#include "actions.h"
#include "random.h"
#include "tests/support/short_memory.h"

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC
SHORT_STRDUP
SHORT_MEMORY(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), NULL)

uint32_t may_by_fault(const owner *o)
{
    const uint32_t failures = MAY(RVL_ERR_IO) | MAY(RVL_ERR_DEVICE_OOM) | MAY(RVL_ERR_HOST_OOM);
    return o->in->faulty ? failures : 0;
}

uint32_t trouble_begin(owner *o, trouble *t)
{
    uint64_t *random = &o->by.random;
    *t = (trouble){0};
    if (o->in->faulty && random_one_in(random, 4)) {
        t->fault = true;
        uint64_t ops = random_one_in(random, 2) ? UINT64_MAX : random_next(random);
        fault_set(o->in->fault, &(fault_plan){.op_mask = ops & ((UINT64_C(1) << RVLI_OP_COUNT) - 1),
                                              .countdown = random_below(random, 12) + 1,
                                              .for_good = random_one_in(random, 4)});
    } else if (random_one_in(random, 12)) {
        t->short_memory = true;
        short_memory_thread_countdown = (long)random_below(random, 8) + 1;
    }
    return may_by_fault(o) | (t->short_memory ? MAY(RVL_ERR_HOST_OOM) : 0);
}

void trouble_end(owner *o, const trouble *t)
{
    if (t->fault) {
        counts->faults += fault_failures(o->in->fault);
        fault_set(o->in->fault, &(fault_plan){0});
    }
    o->upset = o->upset || t->short_memory;
    if (t->short_memory)
        counts->refused_requests += short_memory_thread_countdown <= 0;
    short_memory_thread_countdown = 0;
}

void owner_note_lost(owner *o)
{
    if (!o->in->faulty)
        return;
    for (int i = 0; i < OWNER_SLOTS; i++) {
        slot *s = &o->slots[i];
        if (s->addr == 0)
            continue;
        rvl_allocation found = owner_find(o, s->addr);
        s->id = found.id; /* one that could not be freed has a new number in a recording */
        if (found.state != RVL_STATE_LOST || s->state == RVL_STATE_LOST)
            continue;
        counts->lost++;
        s->state = RVL_STATE_LOST;
        s->held = false;
        s->backup = CONTENT_UNKNOWN;
        s->content = CONTENT_UNKNOWN;
    }
    for (int i = 0; i < OWNER_TAGS; i++)
        o->tags[i].blurred = true;
}
