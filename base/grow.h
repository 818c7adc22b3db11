/* SPDX-License-Identifier: MIT */
/* Lists that double when they are full, and keep their items and capacity if there is no memory. */
#ifndef RVL_BASE_GROW_H
#define RVL_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether the list has room for one more item, which it makes if necessary. list: a pointer to the
 * items, made by realloc(); NULL at first. capacity: an unsigned integer of 4 or 8 bytes; 0 at
 * first, then `first`. Both are lvalues and evaluated more than once. false: no memory, and nothing
 * has changed.
 */
#define RVLI_ROOM(list, count, capacity, first)                                                    \
    ((count) < (capacity) || RVLI_GROW(list, capacity, first))

/* Doubles the list. Arguments and result are those of RVLI_ROOM(). */
#define RVLI_GROW(list, capacity, first)                                                           \
    rvli_grow(&(list), sizeof *(list), &(capacity), sizeof(capacity), (first))

/* For a list of pointers, where clang-tidy takes sizeof *list for a mistake. */
bool rvli_grow(void *list_inout, size_t item_bytes, void *capacity_inout, size_t capacity_bytes,
               size_t first);

#endif
