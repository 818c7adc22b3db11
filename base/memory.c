/* SPDX-License-Identifier: MIT */
#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

static size_t whole_pages(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
}

/* Maps one huge page more than needed, and unmaps the unaligned parts. */
static void *map_aligned(size_t bytes)
{
    char *mapped =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)mapped % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        munmap(mapped, before);
    munmap(mapped + before + bytes, HUGE_PAGE - before);
    madvise(mapped + before, bytes, MADV_HUGEPAGE); /* only a hint */
    return mapped + before;
}

void *rvli_memory_alloc(size_t bytes)
{
    if (bytes < HUGE_PAGE)
        return calloc(1, bytes);
    return bytes > SIZE_MAX - 2 * HUGE_PAGE ? NULL : map_aligned(whole_pages(bytes));
}

void rvli_memory_free(void *memory, size_t bytes)
{
    if (bytes < HUGE_PAGE)
        free(memory);
    else if (memory != NULL)
        munmap(memory, whole_pages(bytes));
}

/*
 * Moves large memory page by page. Nothing is copied, and the memory never exists twice. The
 * destination was mapped for this purpose; mremap() replaces that mapping.
 */
static bool move_pages(void *from, size_t bytes, void *to)
{
    return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
}

void *rvli_memory_grow(void *memory, size_t bytes, size_t larger_bytes)
{
    void *larger = rvli_memory_alloc(larger_bytes);
    if (larger == NULL || memory == NULL)
        return larger;
    if (bytes >= HUGE_PAGE && move_pages(memory, whole_pages(bytes), larger))
        return larger;
    memcpy(larger, memory, bytes);
    rvli_memory_free(memory, bytes);
    return larger;
}
