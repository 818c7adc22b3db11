/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes. Simulated devices share none: what is asked is checked, and then
 * refused. hooks.c has the rest, on the fake driver.
 */
#include "actions.h"
#include "random.h"
#include "trouble.h"

/* ---- Exporting ---- */

static uint32_t may_export(const owner *o, const slot *s, size_t capacity)
{
    if (!s->exportable)
        return MAY(RVL_ERR_NOT_SUPPORTED);
    if (s->state != RVL_STATE_ACTIVE)
        return MAY(RVL_ERR_STATE);
    return capacity > 0 ? MAY(RVL_ERR_NOT_SUPPORTED) | may_by_fault(o) : MAY_OK;
}

static void export_slot(owner *o, const slot *s)
{
    caller *by = &o->by;
    rvl_context *context = o->in->context;
    int fds[2] = {-1, -1};
    uint64_t bytes[2] = {0};
    size_t capacity = random_below(&by->random, 3);
    rvl_export done = {.struct_size = sizeof done};
    rvl_export_options options = {.struct_size = sizeof options, .allocation_id = s->id};
    if (ANSWER(by, may_export(o, s, capacity), rvl_allocation_export, context, s->addr, &options,
               fds, bytes, capacity, &done) == RVL_OK) {
        EXPECT(by, done.allocation_id, s->id);
        EXPECT(by, done.size_bytes, s->size);
        EXPECT_WITHIN(by, done.block_count, 1, s->size / GRANULE_BYTES);
        EXPECT(by, done.file_count, 0);
    } else {
        EXPECT(by, done.size_bytes, 0);
    }
    options.allocation_id++;
    const uint32_t none = MAY(RVL_ERR_NOT_FOUND);
    ANSWER(by, none, rvl_allocation_export, context, s->addr, &options, NULL, NULL, 0, &done);
    ANSWER(by, none, rvl_allocation_export, context, s->addr + 1, NULL, NULL, NULL, 0, &done);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_allocation_export, context, s->addr, NULL, NULL, bytes, 1,
           &done);
}

/* ---- Importing ---- */

static void refuse_moves(owner *o, rvl_addr addr)
{
    caller *by = &o->by;
    const uint32_t none = MAY(RVL_ERR_NOT_FOUND);
    ANSWER(by, none, rvl_import_pause, o->in->context, addr);
    ANSWER(by, none, rvl_import_resume, o->in->context, addr);
    ANSWER(by, none, rvl_import_release, o->in->context, addr);
}

static void add_blocks(owner *o, rvl_import *import)
{
    caller *by = &o->by;
    const uint32_t invalid = MAY(RVL_ERR_INVALID);
    const int fd = -1;
    const uint64_t odd = 1, block = GRANULE_BYTES, large = 64 * GRANULE_BYTES;
    rvl_addr addr = 1;
    ANSWER(by, MAY_OK, rvl_import_add, import, NULL, NULL, 0);
    ANSWER(by, invalid, rvl_import_add, import, &fd, &odd, 1);
    ANSWER(by, invalid, rvl_import_add, import, &fd, &large, 1);
    ANSWER(by, MAY(RVL_ERR_NOT_SUPPORTED) | may_by_fault(o), rvl_import_add, import, &fd, &block,
           1);
    ANSWER(by, invalid, rvl_import_finish, import, &addr);
    EXPECT(by, addr, 1);
}

static void import(owner *o)
{
    caller *by = &o->by;
    rvl_context *context = o->in->context;
    rvl_import *new = NULL;
    uint64_t size = (1 + random_below(&by->random, SLOT_GRANULES_MAX)) * GRANULE_BYTES;
    const owned_tag *tag = &o->tags[random_below(&by->random, OWNER_TAGS)];
    rvl_import_options options = {.struct_size = sizeof options,
                                  .tag = tag->name,
                                  .process = o->process,
                                  .device =
                                      (int)random_below(&by->random, (uint64_t)o->in->devices)};
    trouble t;
    uint32_t may = MAY_OK | trouble_begin(o, &t);
    rvl_status status = ANSWER(by, may, rvl_import_begin, context, size, &options, &new);
    trouble_end(o, &t);
    if (status == RVL_OK)
        add_blocks(o, new);
    CALL(by, rvl_import_cancel, new);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_import_begin, context, size + 1, &options, &new);
    options.device = o->in->devices;
    ANSWER(by, MAY(RVL_ERR_NO_DEVICE), rvl_import_begin, context, size, &options, &new);
    refuse_moves(o, 1);
}

/* ---- The action ---- */

/* Nothing of it changes what the model has. */
void action_share(owner *o)
{
    const slot *s = &o->slots[random_below(&o->by.random, OWNER_SLOTS)];
    if (s->addr != 0) {
        export_slot(o, s);
        refuse_moves(o, s->addr);
    }
    import(o);
}
