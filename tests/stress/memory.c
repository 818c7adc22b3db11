/* SPDX-License-Identifier: MIT */
/* A thread's allocations: made, filled, looked at, freed. */
#include <sys/mman.h>
#include <unistd.h>

#include "actions.h"
#include "random.h"
#include "tests/support/support.h"
#include "trouble.h"

/* ---- Slots ---- */

rvl_allocation owner_find(owner *o, rvl_addr addr)
{
    rvl_allocation found = {.struct_size = sizeof found};
    ANSWER(&o->by, MAY_OK, rvl_allocation_find, o->in->context, addr, &found);
    return found;
}

static slot *any_slot(owner *o)
{
    return &o->slots[random_below(&o->by.random, OWNER_SLOTS)];
}

/* One that is allocated, or NULL. */
static slot *any_allocated(owner *o)
{
    slot *s = any_slot(o);
    return s->addr != 0 ? s : NULL;
}

static bool can_touch(const owner *o, const slot *s)
{
    return !o->in->accounted && s->addr != 0 && s->state == RVL_STATE_ACTIVE;
}

static void fill(owner *o, slot *s)
{
    s->content = o->next_content++;
    support_fill(s->addr, s->size, s->content);
}

static void check_content(owner *o, slot *s)
{
    if (can_touch(o, s) && s->content != CONTENT_UNKNOWN)
        EXPECT(&o->by, support_holds(s->addr, s->size, s->content), true);
}

void action_touch(owner *o)
{
    slot *s = any_slot(o);
    check_content(o, s);
    if (can_touch(o, s))
        fill(o, s);
}

/* ---- Finding ---- */

static void compare_slot(owner *o, const slot *s, const rvl_allocation *found)
{
    caller *by = &o->by;
    EXPECT(by, found->addr, s->addr);
    EXPECT(by, found->size_bytes, s->size);
    EXPECT(by, found->id, s->id);
    EXPECT(by, found->tag, o->tags[s->tag].number);
    EXPECT(by, found->process, o->process);
    EXPECT(by, found->device, s->device);
    EXPECT(by, found->backup, s->policy);
    EXPECT(by, found->access_mask, s->access_mask);
    EXPECT(by, found->state, s->state);
    uint64_t held = s->held && s->policy == RVL_BACKUP_HOST ? s->size : 0;
    bool retained = o->tags[s->tag].shares; /* by the block, before this one came to it */
    if (!o->in->faulty)
        EXPECT_WITHIN(by, found->backup_bytes, held, retained ? s->size : held);
}

static rvl_addr inside(owner *o, const slot *s)
{
    return s->addr + random_below(&o->by.random, s->size);
}

void action_find(owner *o)
{
    slot *s = any_allocated(o);
    if (s == NULL)
        return;
    rvl_allocation found = owner_find(o, inside(o, s));
    compare_slot(o, s, &found);
    ANSWER(&o->by, MAY_OK, rvl_allocation_next, o->in->context, s->addr, &found);
    compare_slot(o, s, &found);
}

/* Of a backup with known content: the bytes where the library says they are. */
static void compare_host_backup(owner *o, const slot *s, rvl_addr addr, uint32_t may)
{
    const void *host = NULL;
    uint64_t size = 0;
    bool found = ANSWER(&o->by, may, rvl_backup_find, o->in->context, addr, &host, &size) == RVL_OK;
    if (!found)
        return;
    uint64_t offset = addr - s->addr;
    EXPECT(&o->by, size, s->size - offset);
    if (s->backup != CONTENT_UNKNOWN)
        EXPECT(&o->by, support_holds((rvl_addr)(uintptr_t)host - offset, s->size, s->backup), true);
}

/* Reads it as a user would: the file may want aligned places. */
static bool file_holds(owner *o, int fd, uint64_t offset, const slot *s)
{
    void *room = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        calls_give_up("no memory to read a backup into");
    uint64_t done = 0;
    while (done < s->size) {
        ssize_t bytes = pread(fd, (char *)room + done, s->size - done, (off_t)(offset + done));
        if (bytes <= 0)
            calls_give_up("a backup's file cannot be read");
        done += (uint64_t)bytes;
    }
    bool holds = support_holds((rvl_addr)(uintptr_t)room, s->size, s->backup);
    munmap(room, s->size);
    (void)o;
    return holds;
}

static void compare_disk_backup(owner *o, const slot *s, rvl_addr addr, uint32_t may)
{
    int fd = -1;
    uint64_t offset = 0, size = 0;
    bool found = ANSWER(&o->by, may, rvl_backup_find_file, o->in->context, addr, &fd, &offset,
                        &size) == RVL_OK;
    if (!found)
        return;
    EXPECT(&o->by, size, s->size - (addr - s->addr));
    if (s->backup != CONTENT_UNKNOWN)
        EXPECT(&o->by, file_holds(o, fd, offset - (addr - s->addr), s), true);
}

void action_find_backup(owner *o)
{
    const slot *s = any_allocated(o);
    if (s == NULL || s->state == RVL_STATE_LOST)
        return;
    rvl_addr addr = inside(o, s);
    bool held = s->held && s->state != RVL_STATE_ACTIVE;
    uint32_t may = !held              ? MAY(RVL_ERR_NOT_FOUND)
                   : o->in->accounted ? MAY(RVL_ERR_NOT_SUPPORTED)
                                      : MAY_OK;
    const uint32_t none = MAY(RVL_ERR_NOT_FOUND);
    compare_host_backup(o, s, addr, s->policy == RVL_BACKUP_HOST ? may : none);
    compare_disk_backup(o, s, addr, s->policy == RVL_BACKUP_DISK ? may : none);
}

/* ---- Allocating and freeing ---- */

static rvl_backup any_policy(owner *o)
{
    static const rvl_backup policies[] = {RVL_BACKUP_NONE, RVL_BACKUP_HOST, RVL_BACKUP_HOST,
                                          RVL_BACKUP_DISK};
    return policies[random_below(&o->by.random, 4)];
}

static uint32_t any_flags(owner *o)
{
    uint64_t *random = &o->by.random;
    return (random_one_in(random, 5) ? RVL_ALLOC_PAUSED : 0) |
           (random_one_in(random, 10) ? RVL_ALLOC_EXPORTABLE : 0) |
           (random_one_in(random, 10) ? RVL_ALLOC_RDMA : 0);
}

static void enter(owner *o, slot *s, rvl_addr addr, uint64_t asked,
                  const rvl_alloc_options *options)
{
    s->addr = addr;
    s->size = (asked + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
    s->device = options->device;
    s->policy = options->backup;
    s->exportable = options->flags & RVL_ALLOC_EXPORTABLE;
    s->state = options->flags & RVL_ALLOC_PAUSED ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE;
    s->access_mask = UINT64_C(1) << options->device;
    if (options->access_count > 0)
        s->access_mask |= UINT64_C(1) << options->access[0];
    rvl_allocation found = owner_find(o, addr + s->size - 1);
    s->id = found.id;
    EXPECT_WITHIN(&o->by, s->id, o->last_id + 1, UINT64_MAX);
    o->last_id = s->id;
    EXPECT(&o->by, addr % GRANULE_BYTES, 0);
    compare_slot(o, s, &found);
    owner_note_peak(o, s->tag);
    if (can_touch(o, s) && random_one_in(&o->by.random, 2))
        fill(o, s);
}

void action_alloc(owner *o)
{
    uint64_t *random = &o->by.random;
    slot *s = any_slot(o);
    if (s->addr != 0)
        return;
    *s = (slot){.tag = (int)random_below(random, OWNER_TAGS)};
    int device = (int)random_below(random, (uint64_t)o->in->devices);
    int other = o->in->devices - 1 - device;
    bool by_number = random_one_in(random, 2);
    rvl_alloc_options options = {
        .struct_size = sizeof options,
        .tag = by_number ? NULL : o->tags[s->tag].name,
        .tag_id = by_number ? o->tags[s->tag].number : 0,
        .process = o->process,
        .device = device,
        .backup = any_policy(o),
        .flags = any_flags(o),
        .access = &other,
        .access_count = random_one_in(random, 3),
    };
    uint64_t asked = random_below(random, SLOT_GRANULES_MAX * GRANULE_BYTES) + 1;
    uint64_t needed[DEVICES_MAX] = {0};
    if (!(options.flags & RVL_ALLOC_PAUSED))
        needed[device] = (asked + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
    uint32_t may = owner_may_fit(o, needed);
    if (options.backup == RVL_BACKUP_DISK && !o->in->has_disk && !o->in->accounted)
        may = MAY(RVL_ERR_INVALID);
    trouble t;
    may |= trouble_begin(o, &t);
    rvl_addr addr = 0;
    rvl_status status = ANSWER(&o->by, may, rvl_alloc, o->in->context, asked, &options, &addr);
    o->upset = o->upset || status != RVL_OK;
    trouble_end(o, &t);
    if (status == RVL_OK)
        enter(o, s, addr, asked, &options);
    owner_note_lost(o);
}

void action_free(owner *o)
{
    slot *s = any_allocated(o);
    if (s == NULL)
        return;
    check_content(o, s);
    trouble t;
    uint32_t may = MAY_OK | trouble_begin(o, &t);
    rvl_status status = ANSWER(&o->by, may, rvl_free, o->in->context, s->addr);
    trouble_end(o, &t);
    if (status == RVL_OK)
        s->addr = 0;
    owner_note_lost(o);
}

/* ---- All of it ---- */

void owner_check_contents(owner *o)
{
    for (int i = 0; i < OWNER_SLOTS; i++)
        check_content(o, &o->slots[i]);
}

void owner_compare(owner *o)
{
    for (int i = 0; i < OWNER_SLOTS; i++) {
        slot *s = &o->slots[i];
        if (s->addr == 0)
            continue;
        rvl_allocation found = owner_find(o, s->addr);
        compare_slot(o, s, &found);
        check_content(o, s);
    }
    action_tag_stats(o);
}
