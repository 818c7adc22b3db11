/* SPDX-License-Identifier: MIT */
/*
 * Finds a name in a fixed list by hash: programs look up thousands of functions by name, and this
 * adds to each look-up. The first look-up fills the table, possibly before any constructor has run.
 * Threads that fill it at the same time write equal values.
 */
#ifndef RVL_HOOKS_SHIM_NAME_TABLE_H
#define RVL_HOOKS_SHIM_NAME_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RVLI_NAME_TABLE_PLACES 256u
#define RVLI_NAME_TABLE_MAX 128u

typedef struct rvli_name_table {
    const char *(*at)(int index); /* NULL past the last; at most RVLI_NAME_TABLE_MAX names */
    _Atomic bool ready;
    _Atomic uint8_t places[RVLI_NAME_TABLE_PLACES]; /* index + 1; 0: empty */
} rvli_name_table;

/* The index of the first entry with that name; -1 if there is none. Thread-safe. */
int rvli_name_table_find(rvli_name_table *in, const char *name);

#endif
