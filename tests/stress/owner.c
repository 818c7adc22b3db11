/* SPDX-License-Identifier: MIT */
#include "owner.h"

#include <stdio.h>
#include <string.h>

#include "random.h"

static const slot *end_of(const owner *o)
{
    return o->slots + OWNER_SLOTS;
}

bool in_set(unsigned set, int tag)
{
    return set >> tag & 1;
}

/* ---- Beginning ---- */

void owner_begin(owner *o, const arena *in, uint64_t seed, uint64_t random, int thread)
{
    memset(o, 0, sizeof *o);
    o->in = in;
    o->by = (caller){.seed = seed, .thread = thread, .random = random};
    o->next_content = (uint64_t)thread << 32 | 1;
    snprintf(o->process_name, sizeof o->process_name, "process%d", thread);
    snprintf(o->cause, sizeof o->cause, "cause%d", thread);
    ANSWER(&o->by, MAY_OK, rvl_process_define, in->context, o->process_name, &o->process);
    for (int i = 0; i < OWNER_TAGS; i++) {
        owned_tag *tag = &o->tags[i];
        if (i > 0) /* the first is the group of what has no tag */
            snprintf(tag->name, sizeof tag->name, "tag%d", i);
        tag->owner = o;
        rvl_tag_options options = {.struct_size = sizeof options, .process = o->process};
        ANSWER(&o->by, MAY_OK, rvl_tag_define, in->context, tag->name, &options, &tag->number);
    }
}

/* ---- Sums ---- */

tag_sums owner_sums(const owner *o, int tag)
{
    tag_sums sums = {0};
    for (const slot *s = o->slots; s < end_of(o); s++) {
        if (s->addr == 0 || s->tag != tag)
            continue;
        bool active = s->state == RVL_STATE_ACTIVE;
        sums.count++;
        sums.active_bytes[s->device] += active ? s->size : 0;
        sums.paused_bytes[s->device] += active ? 0 : s->size;
        if (s->held)
            *(s->policy == RVL_BACKUP_DISK ? &sums.disk_bytes : &sums.host_bytes) += s->size;
    }
    return sums;
}

uint64_t owner_used_bytes(const owner *o, int device)
{
    uint64_t bytes = o->external_bytes[device];
    for (const slot *s = o->slots; s < end_of(o); s++)
        if (s->addr != 0 && s->device == device && s->state == RVL_STATE_ACTIVE)
            bytes += s->size;
    return bytes;
}

bool owner_is_exact(const owned_tag *tag)
{
    return !tag->shares && !tag->blurred;
}

void owner_note_peak(owner *o, int tag)
{
    tag_sums sums = owner_sums(o, tag);
    for (int device = 0; device < DEVICES_MAX; device++)
        if (sums.active_bytes[device] > o->tags[tag].peak_bytes[device])
            o->tags[tag].peak_bytes[device] = sums.active_bytes[device];
}

/* ---- What must be answered ---- */

static bool all_exact(const owner *o)
{
    for (int i = 0; i < OWNER_TAGS; i++)
        if (!owner_is_exact(&o->tags[i]))
            return false;
    return true;
}

/* The most that may be in use, blocks that are kept for the next request not counted. */
static uint64_t most_used(const owner *o, int device)
{
    uint64_t others = (uint64_t)(o->in->threads - 1) * OWNER_BYTES_MAX + o->in->shared_bytes_max;
    uint64_t own = owner_used_bytes(o, device);
    if (!all_exact(o))
        own += (uint64_t)OWNER_SLOTS * CARRIER_GRANULES * GRANULE_BYTES;
    return own + others;
}

uint32_t owner_may_fit(owner *o, const uint64_t *bytes)
{
    bool fits = true, may_fail = false;
    for (int device = 0; device < o->in->devices; device++) {
        if (bytes[device] == 0)
            continue;
        uint64_t capacity = o->in->capacity_bytes;
        fits = fits && owner_used_bytes(o, device) + bytes[device] <= capacity;
        may_fail = may_fail || most_used(o, device) + bytes[device] > capacity;
    }
    if (o->in->overcommit)
        return MAY_OK;
    return (fits ? MAY_OK : 0) | (may_fail ? MAY(RVL_ERR_DEVICE_OOM) : 0);
}

/* ---- Changes ---- */

static bool is_moved(const owner *o, const slot *s, unsigned set, bool pause)
{
    (void)o;
    return s->addr != 0 && in_set(set, s->tag) && (s->state == RVL_STATE_ACTIVE) == pause;
}

void owner_paused(owner *o, unsigned set, bool discard)
{
    for (slot *s = o->slots; s < end_of(o); s++) {
        if (!is_moved(o, s, set, true))
            continue;
        s->state = RVL_STATE_PAUSED;
        s->held = !discard && s->policy != RVL_BACKUP_NONE;
        s->backup = s->content;
        s->content = CONTENT_UNKNOWN;
        o->tags[s->tag].pauses++;
    }
}

static void resume_slot(owner *o, slot *s, bool no_restore)
{
    s->state = RVL_STATE_ACTIVE;
    s->content = s->held && !no_restore ? s->backup : CONTENT_UNKNOWN;
    s->held = s->held && o->tags[s->tag].retain;
    o->tags[s->tag].resumes++;
}

void owner_resumed(owner *o, unsigned set, bool no_restore)
{
    for (slot *s = o->slots; s < end_of(o); s++)
        if (is_moved(o, s, set, false))
            resume_slot(o, s, no_restore);
    for (int i = 0; i < OWNER_TAGS; i++)
        owner_note_peak(o, i);
}

void owner_arrived(owner *o, unsigned set, bool no_restore)
{
    for (slot *s = o->slots; s < end_of(o); s++) {
        rvl_allocation found = {.struct_size = sizeof found};
        if (is_moved(o, s, set, false) &&
            ANSWER(&o->by, MAY_OK, rvl_allocation_find, o->in->context, s->addr, &found) ==
                RVL_OK &&
            found.state == RVL_STATE_ACTIVE)
            resume_slot(o, s, no_restore);
    }
    for (int i = 0; i < OWNER_TAGS; i++)
        owner_note_peak(o, i);
}
