/* SPDX-License-Identifier: MIT */
/*
 * Which of a fixed list a name is, without going through the list: programs look up thousands of
 * functions by name, and pay for it. The table is made by the first that asks, which may be before
 * any constructor has run; several that make it at once write the same.
 */
#ifndef RVL_HOOKS_SHIM_NAME_TABLE_H
#define RVL_HOOKS_SHIM_NAME_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RVLI_NAME_TABLE_PLACES 256u
#define RVLI_NAME_TABLE_MAX 128u

typedef struct rvli_name_table {
    const char *(*at)(int index); /* NULL past the last; at most RVLI_NAME_TABLE_MAX */
    _Atomic bool ready;
    _Atomic uint8_t places[RVLI_NAME_TABLE_PLACES]; /* index + 1; 0: nobody's */
} rvli_name_table;

/* The index of the first of that name; -1: there is none. Thread-safe. */
int rvli_name_table_find(rvli_name_table *in, const char *name);

#endif
