/* SPDX-License-Identifier: MIT */
/*
 * Memory of tables.
 *
 * A table that is looked up at random misses twice in every place: the data, and the page tables
 * that lead to it. Large tables therefore lie on huge pages where the kernel has them. Small ones
 * come from the C library. All memory is zeroed.
 */
#ifndef RVL_BASE_MEMORY_H
#define RVL_BASE_MEMORY_H

#include <stddef.h>

/* NULL: no memory. */
void *rvli_memory_alloc(size_t bytes);
/* bytes as they were asked for; memory may be NULL. */
void rvli_memory_free(void *memory, size_t bytes);
/* Moves a table to larger memory. NULL: no memory, and the old one is as it was. */
void *rvli_memory_grow(void *memory, size_t bytes, size_t larger_bytes);

#endif
