/* SPDX-License-Identifier: MIT */
/* A device in a sentence, for messages: its name, its free memory, and the holders of the rest. */
#include <stdbool.h>

#include "base/error.h"
#include "base/text.h"
#include "core/tables.h"
#include "reveille/version.h"

enum { HOLDERS_SHOWN = 8 };

typedef struct share {
    const char *name;
    rvl_tag number;
    uint64_t active_bytes;
    uint64_t paused_bytes;
} share;

static share share_of(const rvl_context *context, rvl_tag number, int device)
{
    const rvli_tag *tag = rvli_tag_get(context, number);
    const rvli_holder *holder = tag != NULL ? tag->holders[device] : NULL;
    if (holder == NULL)
        return (share){0};
    const char *name = tag->key->name;
    return (share){.name = name[0] != '\0' ? name : "untagged",
                   .number = number,
                   .active_bytes = holder->bytes,
                   .paused_bytes = holder->paused_bytes};
}

static uint64_t weight(const share *of)
{
    return of->active_bytes + of->paused_bytes;
}

/* Returns whether a comes before b: the larger first, and the older tag of two equal ones. */
static bool before(const share *a, const share *b)
{
    return weight(a) != weight(b) ? weight(a) > weight(b) : a->number < b->number;
}

/*
 * Finds the first share after `last` (NULL: the first of all), and counts those from there on. With
 * the lock held.
 */
static share next_share(const rvl_context *context, int device, const share *last, uint32_t *left)
{
    share found = {0};
    *left = 0;
    for (rvl_tag number = 1; number <= atomic_load(&context->tag_count); number++) {
        share each = share_of(context, number, device);
        if (weight(&each) == 0 || (last != NULL && !before(last, &each)))
            continue;
        (*left)++;
        if (found.number == 0 || before(&each, &found))
            found = each;
    }
    return found;
}

static void add_share(rvli_text *text, const share *of)
{
    rvli_text_add(text, of->name);
    rvli_text_add(text, " ");
    if (of->active_bytes > 0)
        rvli_text_add_bytes(text, of->active_bytes);
    if (of->active_bytes > 0 && of->paused_bytes > 0)
        rvli_text_add(text, " and ");
    if (of->paused_bytes > 0) {
        rvli_text_add_bytes(text, of->paused_bytes);
        rvli_text_add(text, " paused");
    }
}

/* With the lock held. */
static void add_holders(rvli_text *text, const rvl_context *context, int device)
{
    uint32_t left;
    share each = next_share(context, device, NULL, &left);
    rvli_text_add(text, left > 0 ? "; held here: " : "; nothing is held here");
    for (int i = 0; i < HOLDERS_SHOWN && left > 0; i++) {
        rvli_text_add(text, i > 0 ? ", " : "");
        add_share(text, &each);
        each = next_share(context, device, &each, &left);
    }
    if (left > 0) {
        rvli_text_add(text, " and ");
        rvli_text_add_u64(text, left);
        rvli_text_add(text, " more tags");
    }
}

/* Returns the memory that no allocation of this context explains. With the lock held. */
static uint64_t held_elsewhere(const rvli_device *device, uint64_t in_use_bytes)
{
    uint64_t own = device->ledger.used_bytes - device->ledger.external_bytes;
    return in_use_bytes > own ? in_use_bytes - own : 0;
}

static void write_summary(rvli_text *text, rvl_context *context, int device, uint64_t free_bytes,
                          uint64_t total_bytes)
{
    const rvli_device *on = &context->devices[device];
    rvli_text_add(text, "Reveille ");
    rvli_text_add(text, rvl_version());
    rvli_text_add(text, ", device ");
    rvli_text_add_u64(text, (uint64_t)on->facts.ordinal);
    if (on->facts.name[0] != '\0') { /* a simulated device may have no name */
        rvli_text_add(text, " (");
        rvli_text_add(text, on->facts.name);
        rvli_text_add(text, ")");
    }
    rvli_text_add(text, ": ");
    rvli_text_add_bytes(text, total_bytes);
    rvli_text_add(text, ", ");
    rvli_text_add_bytes(text, free_bytes);
    rvli_text_add(text, " free");
    rvli_lock(context);
    add_holders(text, context, device);
    uint64_t elsewhere = held_elsewhere(on, total_bytes - free_bytes);
    rvli_unlock(context);
    if (elsewhere > 0) {
        rvli_text_add(text, "; by all else ");
        rvli_text_add_bytes(text, elsewhere);
    }
}

rvl_status rvl_device_get_summary(rvl_context *context, int device, char *text_out,
                                  size_t text_bytes)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    rvl_status status = rvl_device_get_memory(context, device, &free_bytes, &total_bytes);
    if (status == RVL_OK && (text_out == NULL || text_bytes == 0))
        status = rvli_error(RVL_ERR_INVALID, "no place for the text");
    if (status != RVL_OK)
        return status;
    rvli_text text = rvli_text_begin(text_out, text_bytes);
    write_summary(&text, context, device, free_bytes, total_bytes);
    return RVL_OK;
}
