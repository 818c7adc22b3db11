/* SPDX-License-Identifier: MIT */
/*
 * An address range handed out in contiguous pieces.
 *
 * Lowest address first, so that what was used before is used again, and what lies high can be given
 * back. Free pieces are kept by address and merged with their neighbours. Knows nothing of what the
 * addresses hold. Not thread-safe: the owner locks.
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

/* [begin, begin + size) is free. begin must not be 0. RVL_ERR_HOST_OOM. */
rvl_status rvli_arena_init(rvli_arena *arena, uint64_t begin, uint64_t size);
void rvli_arena_destroy(rvli_arena *arena);

/* A piece of size bytes, 0: there is none. */
uint64_t rvli_arena_take(rvli_arena *arena, uint64_t size);

/* Gives a piece back. RVL_ERR_HOST_OOM: it stays taken. */
rvl_status rvli_arena_give(rvli_arena *arena, uint64_t begin, uint64_t size);

#endif
