/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/graph_share.h"

#define PAGE_BYTES ((size_t)2 << 20)

/*
 * Measured on an H200 and an H100, driver 580 (bench/gpu/driver/graph_arguments.py and facts.c).
 * Slots have these sizes. With other sizes, no rule of this form gives the measured values.
 *
 * Arguments begin at byte 528 of the constant bank that a slot holds, where ptxas puts them for
 * these cards. So the limits are 1264 and 2288 bytes. Cards were measured on both sides of the
 * limits (1100 and 1280, 2048 and 2300), and up to 4000. Beyond 7664 bytes, several of the
 * largest slots are assumed.
 *
 * Any ROOM_BYTES from 1968 to 2044 KiB gives the measured values of both kinds.
 */
#define LAUNCH_BYTES ((size_t)512)
#define BEFORE_ARGUMENTS_BYTES 528u
#define ROOM_BYTES ((size_t)2000 << 10)

static const size_t slot_bytes[RVLI_GRAPH_SLOT_SIZES] = {1792, 2816, 8192};

rvli_graph_share rvli_graph_share_begin(void)
{
    return (rvli_graph_share){.argument_rooms = {ROOM_BYTES}, .launch_rooms = {ROOM_BYTES}};
}

void rvli_graph_needs_add(rvli_graph_needs *needs, uint64_t argument_bytes)
{
    const size_t largest = RVLI_GRAPH_SLOT_SIZES - 1;
    size_t bytes = BEFORE_ARGUMENTS_BYTES + (size_t)argument_bytes, size = 0;
    while (size < largest && bytes > slot_bytes[size])
        size++;
    needs->slots[size] += size < largest ? 1 : (bytes - 1) / slot_bytes[largest] + 1;
    needs->kernels++;
}

/* The smallest room with so many bytes. NULL: there is none. */
static size_t *room_for(size_t rooms[RVLI_GRAPH_ROOMS], size_t bytes)
{
    size_t *found = NULL;
    for (size_t i = 0; i < RVLI_GRAPH_ROOMS; i++)
        if (rooms[i] >= bytes && (found == NULL || rooms[i] < *found))
            found = &rooms[i];
    return found;
}

/* Returns the number of pages to take for contiguous bytes. The rest of a new page replaces the
 * smallest room. */
static size_t put(size_t rooms[RVLI_GRAPH_ROOMS], size_t bytes)
{
    if (bytes >= PAGE_BYTES)
        return (bytes - 1) / PAGE_BYTES + 1;
    size_t *room = room_for(rooms, bytes), *smallest = room_for(rooms, 0);
    if (room != NULL)
        *room -= bytes;
    else if (*smallest < PAGE_BYTES - bytes)
        *smallest = PAGE_BYTES - bytes;
    return room == NULL;
}

static size_t use(rvli_graph_slots *slots, size_t count, size_t each_bytes,
                  size_t rooms[RVLI_GRAPH_ROOMS])
{
    size_t missing = slots->used + count > slots->made ? slots->used + count - slots->made : 0;
    slots->used += count;
    slots->made += missing;
    return put(rooms, missing * each_bytes);
}

/* Frees slots. They may belong to a destroyed context. */
static void leave(rvli_graph_slots *slots, size_t count)
{
    slots->used -= count < slots->used ? count : slots->used;
}

size_t rvli_graph_share_add(rvli_graph_share *share, const rvli_graph_needs *needs)
{
    size_t pages = use(&share->launches, needs->kernels, LAUNCH_BYTES, share->launch_rooms);
    for (size_t i = 0; i < RVLI_GRAPH_SLOT_SIZES; i++)
        pages += use(&share->arguments[i], needs->slots[i], slot_bytes[i], share->argument_rooms);
    return pages;
}

void rvli_graph_share_drop(rvli_graph_share *share, const rvli_graph_needs *needs)
{
    leave(&share->launches, needs->kernels);
    for (size_t i = 0; i < RVLI_GRAPH_SLOT_SIZES; i++)
        leave(&share->arguments[i], needs->slots[i]);
}
