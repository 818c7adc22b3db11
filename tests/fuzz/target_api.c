/* SPDX-License-Identifier: MIT */
/*
 * Sequences of API calls against a simple model.
 *
 * Each input byte pair is one call on accounted memory, with faults thrown in. The model knows
 * which slots are allocated, whether they are active, and so how many bytes must be in use. A call
 * that fails must leave the model true; an allocation may be LOST only when a fault was injected.
 */
#include <string.h>

#include "backends/sim/sim.h"
#include "tests/support/fault.h"
#include "fuzz.h"
#include "reveille/reveille.h"

#define SLOTS 16
#define TAGS 4
#define GRANULE (UINT64_C(2) << 20)
#define CAPACITY (64 * GRANULE)

typedef struct slot {
    rvl_addr addr; /* 0: free */
    uint64_t size;
    int tag;
    bool active;
    bool lost;
} slot;

typedef struct model {
    rvl_context *context;
    fault_injector *fault;
    rvl_tag tags[TAGS];
    slot slots[SLOTS];
} model;

static void open_model(model *m)
{
    memset(m, 0, sizeof *m);
    rvl_profile profile = {.struct_size = sizeof profile};
    require(rvl_profile_find("h200", &profile) == RVL_OK);
    profile.capacity_bytes = CAPACITY;
    const rvl_profile *devices[] = {&profile};
    rvl_sim_options sim = {.struct_size = sizeof sim,
                           .memory = RVL_SIM_ACCOUNTED,
                           .devices = devices,
                           .device_count = 1};
    rvl_context_options options = {
        .struct_size = sizeof options, .backend_options = &sim, .keep_bytes = 8 * GRANULE};
    require(fault_context_open(&rvli_sim_ops, &options, &m->fault, &m->context) == RVL_OK);
    static const char *const names[TAGS] = {"a", "b", "c", ""};
    for (int i = 0; i < TAGS; i++) {
        rvl_tag_options tag = {.struct_size = sizeof tag,
                               .block_bytes = i == 1 ? GRANULE : 0,
                               .coalesce_bytes = i == 2 ? 8 * GRANULE : 0};
        require(rvl_tag_define(m->context, names[i], &tag, &m->tags[i]) == RVL_OK);
    }
}

/* The model follows what the library says of each slot; sums are the library's to get right. */
static void check(model *m, bool faulty)
{
    uint64_t active = 0, paused = 0;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &m->slots[i];
        if (s->addr == 0)
            continue;
        rvl_allocation found = {.struct_size = sizeof found};
        require(rvl_allocation_find(m->context, s->addr + s->size - 1, &found) == RVL_OK);
        require(found.addr == s->addr && found.size_bytes == s->size);
        require(found.tag == m->tags[s->tag]);
        if (found.state == RVL_STATE_LOST) {
            require(faulty || s->lost);
            s->lost = true;
            s->active = false;
        } else {
            require(found.state == (s->active ? RVL_STATE_ACTIVE : RVL_STATE_PAUSED));
            s->lost = false;
        }
        active += s->active ? s->size : 0;
        paused += s->active ? 0 : s->size;
    }
    rvl_device_stats stats = {.struct_size = sizeof stats};
    require(rvl_device_get_stats(m->context, 0, &stats) == RVL_OK);
    require(stats.used_bytes >= active + stats.kept_bytes + stats.stranded_bytes);
    uint64_t tagged = 0, tagged_paused = 0;
    for (int i = 0; i < TAGS; i++) {
        rvl_tag_stats tag = {.struct_size = sizeof tag};
        require(rvl_tag_get_stats(m->context, m->tags[i], 0, &tag) == RVL_OK);
        tagged += tag.active_bytes;
        tagged_paused += tag.paused_bytes;
    }
    require(stats.used_bytes == tagged + stats.kept_bytes + stats.stranded_bytes);
    require(tagged_paused >= paused); /* shared blocks have room to spare */
    require(stats.peak_bytes >= stats.used_bytes);
}

static void call_alloc(model *m, slot *s, unsigned argument)
{
    if (s->addr != 0)
        return;
    s->tag = (int)(argument % TAGS);
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag_id = m->tags[s->tag],
                                 .backup = argument & 4 ? RVL_BACKUP_HOST : RVL_BACKUP_NONE,
                                 .flags = argument & 8 ? RVL_ALLOC_PAUSED : 0};
    s->size = (argument / 16 + 1) * GRANULE;
    s->active = !(argument & 8);
    s->lost = false;
    if (rvl_alloc(m->context, s->size, &options, &s->addr) != RVL_OK)
        s->addr = 0;
}

static void call_free(model *m, slot *s)
{
    rvl_status status = rvl_free(m->context, s->addr);
    require(s->addr != 0 || status == RVL_ERR_INVALID);
    if (status == RVL_OK)
        s->addr = 0;
}

static void set_active(model *m, int tag, bool active)
{
    for (int i = 0; i < SLOTS; i++)
        if (m->slots[i].addr != 0 && m->slots[i].tag == tag)
            m->slots[i].active = active;
}

static void call_pause(model *m, unsigned argument)
{
    int tag = (int)(argument % TAGS);
    rvl_pause_options options = {.struct_size = sizeof options,
                                 .flags = (argument & 4) ? RVL_PAUSE_DISCARD : 0};
    if (rvl_pause(m->context, &m->tags[tag], 1, &options) == RVL_OK)
        set_active(m, tag, false);
}

static void call_resume(model *m, unsigned argument)
{
    int tag = (int)(argument % TAGS);
    rvl_resume_options options = {.struct_size = sizeof options,
                                  .flags = (argument & 4) ? RVL_RESUME_NO_RESTORE : 0};
    if (rvl_resume(m->context, &m->tags[tag], 1, &options) == RVL_OK)
        set_active(m, tag, true);
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    model m;
    open_model(&m);
    for (size_t i = 0; i + 1 < size && i < 400; i += 2) {
        unsigned argument = data[i + 1];
        slot *s = &m.slots[data[i] / 16];
        bool faulty = data[i] % 16 >= 12;
        if (faulty)
            fault_set(m.fault, &(fault_plan){.op_mask = (UINT64_C(1) << RVLI_OP_COUNT) - 1,
                                             .countdown = argument % 12 + 1,
                                             .for_good = argument & 64});
        switch (data[i] % 4) {
        case 0:
            call_alloc(&m, s, argument);
            break;
        case 1:
            call_free(&m, s);
            break;
        case 2:
            call_pause(&m, argument);
            break;
        default:
            call_resume(&m, argument);
            break;
        }
        fault_set(m.fault, &(fault_plan){0});
        check(&m, faulty);
    }
    rvl_context_close(m.context, NULL);
    return size > 1;
}
