/* SPDX-License-Identifier: MIT */
#include "base/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t read_capacity(const void *capacity, size_t bytes)
{
    uint32_t narrow = 0;
    size_t wide = 0;
    if (bytes == sizeof wide) {
        memcpy(&wide, capacity, sizeof wide);
        return wide;
    }
    memcpy(&narrow, capacity, sizeof narrow);
    return narrow;
}

static void write_capacity(void *capacity, size_t bytes, size_t value)
{
    uint32_t narrow = (uint32_t)value;
    memcpy(capacity, bytes == sizeof value ? (void *)&value : (void *)&narrow, bytes);
}

bool rvli_grow(void *list_inout, size_t item_bytes, void *capacity_inout, size_t capacity_bytes,
               size_t first)
{
    void *list = NULL; /* its type is the caller's, so it is copied, not cast */
    memcpy(&list, list_inout, sizeof list);
    size_t capacity = read_capacity(capacity_inout, capacity_bytes);
    if (capacity > SIZE_MAX / 2 / item_bytes)
        return false;
    size_t larger = capacity > 0 ? 2 * capacity : first;
    if (capacity_bytes < sizeof larger && larger > UINT32_MAX)
        return false;
    void *grown = realloc(list, larger * item_bytes);
    if (grown == NULL)
        return false;
    memcpy(list_inout, &grown, sizeof grown);
    write_capacity(capacity_inout, capacity_bytes, larger);
    return true;
}
