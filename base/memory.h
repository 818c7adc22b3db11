/* SPDX-License-Identifier: MIT */
/*
 * Memory for tables.
 *
 * A random look-up in a large table misses twice: once for the data, and once for the page tables
 * that lead to it. Large tables therefore use huge pages where the kernel has them. Small tables
 * come from the C library. All memory is zeroed.
 */
#ifndef RVL_BASE_MEMORY_H
#define RVL_BASE_MEMORY_H

#include <stddef.h>

/* Returns NULL if there is no memory. */
void *rvli_memory_alloc(size_t bytes);
/* bytes: the size passed to rvli_memory_alloc(). memory may be NULL. */
void rvli_memory_free(void *memory, size_t bytes);
/* Moves a table to a larger allocation. NULL: no memory, and the old table is unchanged. */
void *rvli_memory_grow(void *memory, size_t bytes, size_t larger_bytes);

#endif
