/* SPDX-License-Identifier: MIT */
#include "hooks/shim/name_table.h"

#include <string.h>

static unsigned place_of(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (hash ^ hash >> 16) % RVLI_NAME_TABLE_PLACES;
}

static int find(const rvli_name_table *in, const char *name)
{
    for (unsigned place = place_of(name);; place = (place + 1) % RVLI_NAME_TABLE_PLACES) {
        int index = atomic_load_explicit(&in->places[place], memory_order_relaxed) - 1;
        if (index < 0 || strcmp(in->at(index), name) == 0)
            return index;
    }
}

static void fill(rvli_name_table *in)
{
    for (int index = 0; in->at(index) != NULL; index++) {
        unsigned place = place_of(in->at(index));
        for (;; place = (place + 1) % RVLI_NAME_TABLE_PLACES) {
            int there = atomic_load_explicit(&in->places[place], memory_order_relaxed) - 1;
            if (there >= 0 && strcmp(in->at(there), in->at(index)) != 0)
                continue;
            if (there < 0)
                atomic_store_explicit(&in->places[place], (uint8_t)(index + 1),
                                      memory_order_relaxed);
            break;
        }
    }
    atomic_store_explicit(&in->ready, true, memory_order_release);
}

int rvli_name_table_find(rvli_name_table *in, const char *name)
{
    if (!atomic_load_explicit(&in->ready, memory_order_acquire))
        fill(in);
    return find(in, name);
}
