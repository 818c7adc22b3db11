/* SPDX-License-Identifier: MIT */
/*
 * Allocates contiguous pieces of an address range.
 *
 * The lowest free address is used first, so used memory is reused and high memory can be released.
 * Free pieces are kept by address and merged with their neighbours. The arena does not access the
 * memory. Not thread-safe: the owner locks.
 */
#ifndef RVL_BACKENDS_CUDA_ARENA_H
#define RVL_BACKENDS_CUDA_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addrmap.h"

typedef struct rvli_arena {
    rvli_addrmap free; /* start to size, as a pointer's value */
    uint64_t free_bytes;
} rvli_arena;

/* Begins with [begin, begin + size) free. begin must not be 0. RVL_ERR_HOST_OOM. */
rvl_status rvli_arena_init(rvli_arena *arena, uint64_t begin, uint64_t size);
void rvli_arena_destroy(rvli_arena *arena);

/* Allocates a piece of size bytes. Returns 0 if there is none. */
uint64_t rvli_arena_take(rvli_arena *arena, uint64_t size);

/* Frees a piece. RVL_ERR_HOST_OOM: it stays allocated. */
rvl_status rvli_arena_give(rvli_arena *arena, uint64_t begin, uint64_t size);

#endif
