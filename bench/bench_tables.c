/* SPDX-License-Identifier: MIT */
/*
 * The tables alone: base/addrmap against a hash table plus a red-black tree.
 *
 * Both do the same work on the same keys with N entries live: one operation is a random remove, an
 * insert of a new key, and a look-up of an interior address (floor); times are per pair of remove
 * and insert, and per look-up. The second table keeps its links in the entries, as uthash and
 * sys/tree.h do; bytes per entry count those links, buckets and nodes, and not the entry itself.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bsd/sys/tree.h>

static bool hash_failed;

#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(entry) (hash_failed = true)
#include <uthash.h>

#include "base/addrmap.h"

#define GRANULE_BYTES ((uint64_t)2 << 20)
#define FEWEST_ROUNDS ((size_t)1 << 21)

typedef struct item {
    uint64_t addr;
    UT_hash_handle hh;
    RB_ENTRY(item) link;
} item;

RB_HEAD(item_tree, item);

static int item_compare(const item *a, const item *b)
{
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Spelt out: the _STATIC forms of sys/tree.h need a macro that libbsd defines in its overlay only.
 */
#define UNUSED_STATIC __attribute__((unused)) static
RB_PROTOTYPE_INTERNAL(item_tree, item, link, item_compare, UNUSED_STATIC)
RB_GENERATE_INTERNAL(item_tree, item, link, item_compare, UNUSED_STATIC)

/* One kind of table, in the three operations compared. */
typedef struct table_ops {
    const char *name;
    bool (*insert)(item *entry);
    bool (*remove)(item *entry);
    item *(*floor)(uint64_t addr);
    size_t (*bytes_per_entry)(size_t count);
    void (*clear)(void);
} table_ops;

static rvli_addrmap map;

static bool map_insert(item *entry)
{
    return rvli_addrmap_insert(&map, entry->addr, entry) == RVL_OK;
}

static bool map_remove(item *entry)
{
    return rvli_addrmap_remove(&map, entry->addr) == entry;
}

static item *map_floor(uint64_t addr)
{
    return rvli_addrmap_floor(&map, addr, NULL);
}

static size_t map_bytes_per_entry(size_t count)
{
    return rvli_pool_bytes(&map.nodes) / count;
}

static void map_clear(void)
{
    rvli_addrmap_destroy(&map);
}

static item *by_addr;
static struct item_tree in_order = RB_INITIALIZER(&in_order);

static bool pair_insert(item *entry)
{
    HASH_ADD(hh, by_addr, addr, sizeof(entry->addr), entry);
    return !hash_failed && RB_INSERT(item_tree, &in_order, entry) == NULL;
}

/* Found by address in the hash table first, as a free by address would be. */
static bool pair_remove(item *entry)
{
    item *found = NULL;
    HASH_FIND(hh, by_addr, &entry->addr, sizeof(entry->addr), found);
    if (found != entry)
        return false;
    HASH_DEL(by_addr, found);
    RB_REMOVE(item_tree, &in_order, found);
    return true;
}

static item *pair_floor(uint64_t addr)
{
    item *at = RB_ROOT(&in_order);
    item *best = NULL;
    while (at) {
        if (at->addr <= addr) {
            best = at;
            at = RB_RIGHT(at, link);
        } else {
            at = RB_LEFT(at, link);
        }
    }
    return best;
}

static size_t pair_bytes_per_entry(size_t count)
{
    size_t buckets = by_addr->hh.tbl->num_buckets * sizeof(UT_hash_bucket);
    return sizeof(item) - offsetof(item, hh) + buckets / count;
}

static void pair_clear(void)
{
    HASH_CLEAR(hh, by_addr);
    RB_INIT(&in_order);
}

static const table_ops tables[] = {
    {"addrmap", map_insert, map_remove, map_floor, map_bytes_per_entry, map_clear},
    {"uthash+RB", pair_insert, pair_remove, pair_floor, pair_bytes_per_entry, pair_clear},
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* A key that is not live: a granule of a 47-bit address space, told apart by the serial number. */
static uint64_t new_addr(uint64_t *random, uint64_t serial)
{
    return (next_random(random) % ((uint64_t)1 << 26)) * GRANULE_BYTES + serial % GRANULE_BYTES;
}

static bool fail(const char *table, const char *what)
{
    fprintf(stderr, "bench_tables: %s: %s\n", table, what);
    return false;
}

/* Replaces random entries by new ones; false if the table answered wrongly. */
static bool churn(const table_ops *table, item *items, size_t count, size_t rounds)
{
    uint64_t random = 88172645463325252u;
    for (size_t round = 0; round < rounds; round++) {
        item *entry = &items[next_random(&random) % count];
        if (!table->remove(entry))
            return fail(table->name, "an entry was not found");
        entry->addr = new_addr(&random, count + round);
        if (!table->insert(entry))
            return fail(table->name, "an entry was not added");
    }
    return true;
}

static bool look_up(const table_ops *table, const item *items, size_t count, size_t rounds)
{
    uint64_t random = 362436069u;
    for (size_t round = 0; round < rounds; round++) {
        const item *entry = &items[next_random(&random) % count];
        if (table->floor(entry->addr) != entry)
            return fail(table->name, "an address was not found");
    }
    return true;
}

static bool measure(const table_ops *table, size_t count)
{
    item *items = calloc(count, sizeof(*items));
    if (!items)
        return fail(table->name, "no host memory");
    size_t rounds = count > FEWEST_ROUNDS ? count : FEWEST_ROUNDS;
    uint64_t random = 1;
    bool fine = true;
    for (size_t i = 0; i < count && fine; i++) {
        items[i].addr = new_addr(&random, i);
        fine = table->insert(&items[i]);
    }
    fine = fine && churn(table, items, count, rounds); /* to a steady state */
    double start = now_ns();
    fine = fine && churn(table, items, count, rounds);
    double churned = now_ns();
    fine = fine && look_up(table, items, count, rounds);
    double looked = now_ns();
    if (fine)
        printf("%-10s %9zu %16.1f %12.1f %14zu\n", table->name, count,
               (churned - start) / (double)rounds, (looked - churned) / (double)rounds,
               table->bytes_per_entry(count));
    table->clear();
    free(items);
    return fine;
}

int main(void)
{
    static const size_t counts[] = {1000, 10000, 100000, 1000000};
    rvli_addrmap_init(&map);
    printf("%-10s %9s %16s %12s %14s\n", "table", "entries", "remove+insert ns", "floor ns",
           "bytes/entry");
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (size_t j = 0; j < sizeof(tables) / sizeof(tables[0]); j++) {
            if (!measure(&tables[j], counts[i]))
                return 1;
        }
    }
    return 0;
}
