/* SPDX-License-Identifier: MIT */
#include "predict/llm/graph/items.h"

#include <stdlib.h>

#define ITEMS_OF_CHUNK 128

/* Unused items form a list through themselves, chunks a list through their first bytes. */
typedef struct link {
    struct link *next;
} link;

static bool grow(rvli_items *pool)
{
    char *chunk = malloc(sizeof(max_align_t) + ITEMS_OF_CHUNK * pool->item_bytes);
    if (chunk == NULL)
        return false;
    ((link *)chunk)->next = pool->chunks;
    pool->chunks = chunk;
    for (size_t i = ITEMS_OF_CHUNK; i > 0; i--)
        rvli_items_give(pool, chunk + sizeof(max_align_t) + (i - 1) * pool->item_bytes);
    return true;
}

void *rvli_items_take(rvli_items *pool, bool *failed)
{
    if (pool->unused == NULL && !grow(pool)) {
        *failed = true;
        return NULL;
    }
    link *item = pool->unused;
    pool->unused = item->next;
    return item;
}

void rvli_items_give(rvli_items *pool, void *item)
{
    ((link *)item)->next = pool->unused;
    pool->unused = item;
}

void rvli_items_free(rvli_items *pool)
{
    for (link *next, *chunk = pool->chunks; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *pool = (rvli_items){0};
}
