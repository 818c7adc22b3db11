/* SPDX-License-Identifier: MIT */
/*
 * The address table against a sorted array: the same operations on both, every answer compared.
 *
 * Linked with --wrap for what its slabs come from, so that the host memory of the table can run out
 * on demand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/addrmap.h"
#include "base/error.h"

#define NODE_BYTES ((size_t)512)

static bool out_of_memory;
static size_t slab_bytes_given;

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    if (out_of_memory)
        return NULL;
    slab_bytes_given += size;
    return __real_aligned_alloc(alignment, size);
}

void *__real_rvli_memory_alloc(size_t bytes);
void *__wrap_rvli_memory_alloc(size_t bytes);

void *__wrap_rvli_memory_alloc(size_t bytes)
{
    if (out_of_memory)
        return NULL;
    slab_bytes_given += bytes;
    return __real_rvli_memory_alloc(bytes);
}

/* A value that is never NULL and can be told from the key. */
static void *value_of(uint64_t key)
{
    return (void *)(uintptr_t)((key << 1) | 1u);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The model: keys in order. */
typedef struct model {
    uint64_t *keys;
    size_t count;
} model;

/* Number of keys < key. */
static size_t model_below(const model *all, uint64_t key)
{
    size_t low = 0;
    size_t high = all->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (all->keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool model_has(const model *all, uint64_t key)
{
    size_t i = model_below(all, key);
    return i < all->count && all->keys[i] == key;
}

static void model_insert(model *all, uint64_t key)
{
    size_t i = model_below(all, key);
    memmove(&all->keys[i + 1], &all->keys[i], (all->count - i) * sizeof(key));
    all->keys[i] = key;
    all->count++;
}

static void model_remove(model *all, uint64_t key)
{
    size_t i = model_below(all, key);
    memmove(&all->keys[i], &all->keys[i + 1], (all->count - i - 1) * sizeof(key));
    all->count--;
}

static void assert_same_answers(const rvli_addrmap *map, const model *all, uint64_t key)
{
    const uint64_t untouched = 0x5a5a;
    uint64_t found = untouched;
    size_t i = model_below(all, key);
    bool exact = model_has(all, key);
    assert_ptr_equal(rvli_addrmap_get(map, key), exact ? value_of(key) : NULL);

    bool has_ceil = i < all->count;
    void *ceil = rvli_addrmap_ceil(map, key, &found);
    assert_ptr_equal(ceil, has_ceil ? value_of(all->keys[i]) : NULL);
    assert_int_equal(found, has_ceil ? all->keys[i] : untouched);

    found = untouched;
    size_t up_to = exact ? i + 1 : i;
    void *floor = rvli_addrmap_floor(map, key, &found);
    assert_ptr_equal(floor, up_to > 0 ? value_of(all->keys[up_to - 1]) : NULL);
    assert_int_equal(found, up_to > 0 ? all->keys[up_to - 1] : untouched);
}

/* Walks the whole table both ways. */
static void assert_same_order(const rvli_addrmap *map, const model *all)
{
    assert_int_equal(map->count, all->count);
    uint64_t from = 0;
    for (size_t i = 0; i < all->count; i++) {
        uint64_t key = 0;
        assert_ptr_equal(rvli_addrmap_ceil(map, from, &key), value_of(all->keys[i]));
        assert_int_equal(key, all->keys[i]);
        from = key + 1;
    }
    from = UINT64_MAX;
    for (size_t i = all->count; i > 0; i--) {
        uint64_t key = 0;
        assert_ptr_equal(rvli_addrmap_floor(map, from, &key), value_of(all->keys[i - 1]));
        assert_int_equal(key, all->keys[i - 1]);
        from = key - 1;
    }
}

static void put(rvli_addrmap *map, uint64_t key)
{
    assert_int_equal(rvli_addrmap_insert(map, key, value_of(key)), RVL_OK);
}

static void test_empty(void **state)
{
    (void)state;
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    uint64_t key = 7;
    assert_null(rvli_addrmap_get(&map, 0));
    assert_null(rvli_addrmap_floor(&map, UINT64_MAX, &key));
    assert_null(rvli_addrmap_ceil(&map, 0, &key));
    assert_null(rvli_addrmap_remove(&map, 0));
    assert_int_equal(key, 7);
    assert_int_equal(map.count, 0);
    rvli_addrmap_destroy(&map);
}

static void test_one_entry(void **state)
{
    (void)state;
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    put(&map, 1000);
    assert_int_equal(map.count, 1);
    assert_ptr_equal(rvli_addrmap_get(&map, 1000), value_of(1000));
    assert_ptr_equal(rvli_addrmap_floor(&map, 1000, NULL), value_of(1000));
    assert_ptr_equal(rvli_addrmap_ceil(&map, 1000, NULL), value_of(1000));
    assert_null(rvli_addrmap_floor(&map, 999, NULL));
    assert_null(rvli_addrmap_ceil(&map, 1001, NULL));
    assert_null(rvli_addrmap_remove(&map, 999));
    assert_ptr_equal(rvli_addrmap_remove(&map, 1000), value_of(1000));
    assert_null(rvli_addrmap_get(&map, 1000));
    assert_int_equal(map.count, 0);
    put(&map, 5);
    assert_ptr_equal(rvli_addrmap_ceil(&map, 0, NULL), value_of(5));
    rvli_addrmap_destroy(&map);
}

static void test_extreme_keys(void **state)
{
    (void)state;
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    uint64_t key = 0;
    put(&map, 0);
    put(&map, UINT64_MAX);
    assert_ptr_equal(rvli_addrmap_floor(&map, UINT64_MAX, &key), value_of(UINT64_MAX));
    assert_int_equal(key, UINT64_MAX);
    assert_ptr_equal(rvli_addrmap_floor(&map, UINT64_MAX - 1, &key), value_of(0));
    assert_int_equal(key, 0);
    assert_ptr_equal(rvli_addrmap_ceil(&map, 1, &key), value_of(UINT64_MAX));
    assert_int_equal(key, UINT64_MAX);
    assert_ptr_equal(rvli_addrmap_get(&map, UINT64_MAX), value_of(UINT64_MAX));
    assert_ptr_equal(rvli_addrmap_remove(&map, UINT64_MAX), value_of(UINT64_MAX));
    assert_ptr_equal(rvli_addrmap_remove(&map, 0), value_of(0));
    assert_int_equal(map.count, 0);
    rvli_addrmap_destroy(&map);
}

static void test_key_twice(void **state)
{
    (void)state;
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    for (uint64_t key = 0; key < 100; key++)
        put(&map, key);
    for (uint64_t key = 0; key < 100; key++) {
        assert_int_equal(rvli_addrmap_insert(&map, key, value_of(7)), RVL_ERR_INVALID);
        assert_ptr_equal(rvli_addrmap_get(&map, key), value_of(key));
    }
    assert_int_equal(rvli_error_get()->status, RVL_ERR_INVALID);
    assert_string_equal(rvli_error_get()->message, "the address is in the table already");
    assert_int_equal(map.count, 100);
    rvli_addrmap_destroy(&map);
}

/* The keys and how many of them: few collide in a wide range, many in a narrow one. */
static void run_random(uint64_t seed, uint64_t range, size_t most, size_t rounds)
{
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    model all = {.keys = malloc(most * sizeof(uint64_t)), .count = 0};
    assert_non_null(all.keys);
    uint64_t random = seed;
    bool growing = true;
    for (size_t round = 0; round < rounds; round++) {
        uint64_t key = next_random(&random) % range;
        bool add = next_random(&random) % 4 != 0 ? growing : !growing;
        if (add && all.count < most) {
            bool present = model_has(&all, key);
            assert_int_equal(rvli_addrmap_insert(&map, key, value_of(key)),
                             present ? RVL_ERR_INVALID : RVL_OK);
            if (!present)
                model_insert(&all, key);
        } else if (all.count > 0) {
            /* Half the time a key that is there, else one that seldom is. */
            if (next_random(&random) % 2 == 0)
                key = all.keys[next_random(&random) % all.count];
            bool present = model_has(&all, key);
            assert_ptr_equal(rvli_addrmap_remove(&map, key), present ? value_of(key) : NULL);
            if (present)
                model_remove(&all, key);
        }
        if (all.count == most || all.count == 0)
            growing = all.count == 0;
        assert_same_answers(&map, &all, next_random(&random) % range);
        assert_same_answers(&map, &all, key);
        if (round % 4096 == 0)
            assert_same_order(&map, &all);
    }
    assert_same_order(&map, &all);
    while (all.count > 0) {
        uint64_t key = all.keys[next_random(&random) % all.count];
        assert_ptr_equal(rvli_addrmap_remove(&map, key), value_of(key));
        model_remove(&all, key);
    }
    assert_null(rvli_addrmap_ceil(&map, 0, NULL));
    assert_int_equal(map.count, 0);
    assert_int_equal(map.height, 0);
    free(all.keys);
    rvli_addrmap_destroy(&map);
}

static void test_random_narrow(void **state)
{
    (void)state;
    run_random(1, 64, 64, 20000);
    run_random(2, 3000, 2000, 40000);
}

static void test_random_wide(void **state)
{
    (void)state;
    for (uint64_t seed = 3; seed < 6; seed++)
        run_random(seed, UINT64_MAX, 5000, 40000);
}

/* Inserts count keys in order or against it, checks, and removes them from either end. */
static void run_ordered(size_t count, bool ascending, bool remove_ascending)
{
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    model all = {.keys = malloc(count * sizeof(uint64_t)), .count = count};
    assert_non_null(all.keys);
    for (size_t i = 0; i < count; i++) {
        all.keys[i] = 4096 * (i + 1);
        put(&map, 4096 * (ascending ? i + 1 : count - i));
    }
    assert_same_order(&map, &all);
    for (size_t i = 0; i < count; i++) {
        uint64_t key = 4096 * (remove_ascending ? i + 1 : count - i);
        assert_ptr_equal(rvli_addrmap_remove(&map, key), value_of(key));
        uint64_t next = 0;
        void *end = remove_ascending ? rvli_addrmap_ceil(&map, 0, &next)
                                     : rvli_addrmap_floor(&map, UINT64_MAX, &next);
        uint64_t expected = remove_ascending ? key + 4096 : key - 4096;
        assert_ptr_equal(end, i + 1 < count ? value_of(expected) : NULL);
    }
    assert_int_equal(map.count, 0);
    free(all.keys);
    rvli_addrmap_destroy(&map);
}

static void test_ordered(void **state)
{
    (void)state;
    for (size_t count = 1; count < 3000; count = count * 3 / 2 + 1) {
        run_ordered(count, true, true);
        run_ordered(count, true, false);
        run_ordered(count, false, true);
        run_ordered(count, false, false);
    }
    run_ordered(40000, true, true); /* four levels */
    run_ordered(40000, false, false);
}

/* Bytes of slabs that count inserts took, from the first key on in steps of step. */
static size_t bytes_for(size_t count, uint64_t first, uint64_t step)
{
    slab_bytes_given = 0;
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    for (uint64_t i = 0; i < count; i++)
        put(&map, first + step * i);
    rvli_addrmap_destroy(&map);
    return slab_bytes_given;
}

static void test_ordered_inserts_fill_nodes(void **state)
{
    (void)state;
    const size_t count = 1000000;
    const size_t full_bytes = count / 31 * NODE_BYTES;
    /* Inner nodes are a thirtieth, and the last slab may be hardly used. */
    const size_t most_bytes = full_bytes + full_bytes / 20 + ((size_t)4 << 20);
    assert_in_range(bytes_for(count, 4096, 4096), full_bytes, most_bytes);
    assert_in_range(bytes_for(count, UINT64_MAX, (uint64_t)0 - 4096), full_bytes, most_bytes);
}

/* After a burst, memory of removed entries serves new ones. */
static void test_churn_reuses_nodes(void **state)
{
    (void)state;
    const size_t live = 20000;
    slab_bytes_given = 0;
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    uint64_t *keys = malloc(live * sizeof(*keys));
    assert_non_null(keys);
    uint64_t random = 11;
    for (size_t i = 0; i < live; i++) {
        keys[i] = next_random(&random);
        put(&map, keys[i]);
    }
    for (size_t round = 0; round < 20 * live; round++) {
        size_t i = next_random(&random) % live;
        assert_ptr_equal(rvli_addrmap_remove(&map, keys[i]), value_of(keys[i]));
        keys[i] = next_random(&random);
        put(&map, keys[i]);
    }
    assert_int_equal(map.count, live);
    /* Half full is the worst there is; slabs double, so as much again may be waiting. */
    assert_in_range(slab_bytes_given, live * 16, 2 * (live / 15 * NODE_BYTES * 11 / 10));
    free(keys);
    rvli_addrmap_destroy(&map);
}

static void test_no_memory_for_the_first(void **state)
{
    (void)state;
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    out_of_memory = true;
    assert_int_equal(rvli_addrmap_insert(&map, 1, value_of(1)), RVL_ERR_HOST_OOM);
    out_of_memory = false;
    assert_int_equal(rvli_error_get()->status, RVL_ERR_HOST_OOM);
    assert_string_equal(rvli_error_get()->message, "no host memory for the address table");
    assert_int_equal(map.count, 0);
    assert_null(rvli_addrmap_get(&map, 1));
    put(&map, 1);
    assert_ptr_equal(rvli_addrmap_get(&map, 1), value_of(1));
    rvli_addrmap_destroy(&map);
}

/*
 * Memory is refused to every insert once, and given the second time: whatever had to be split, the
 * failed one changed nothing. Removing needs no memory at all.
 */
static void run_without_memory(uint64_t seed, bool ordered)
{
    enum { COUNT = 3000 };
    rvli_addrmap map;
    rvli_addrmap_init(&map);
    uint64_t keys[COUNT];
    model all = {.keys = keys, .count = 0};
    uint64_t random = seed;
    size_t refused = 0;
    while (all.count < COUNT) {
        uint64_t key = ordered ? all.count * 8 : next_random(&random);
        out_of_memory = true;
        rvl_status status = rvli_addrmap_insert(&map, key, value_of(key));
        out_of_memory = false;
        if (status != RVL_OK) {
            refused++;
            assert_int_equal(status, RVL_ERR_HOST_OOM);
            assert_same_order(&map, &all);
            assert_null(rvli_addrmap_get(&map, key));
            put(&map, key);
        }
        model_insert(&all, key);
    }
    assert_true(refused > 3);
    assert_same_order(&map, &all);
    out_of_memory = true;
    while (all.count > 0) {
        uint64_t key = all.keys[next_random(&random) % all.count];
        assert_ptr_equal(rvli_addrmap_remove(&map, key), value_of(key));
        model_remove(&all, key);
    }
    out_of_memory = false;
    assert_int_equal(map.count, 0);
    rvli_addrmap_destroy(&map);
}

static void test_no_memory_to_split(void **state)
{
    (void)state;
    run_without_memory(21, false);
    run_without_memory(22, false);
    run_without_memory(23, true);
}

/* A split of several levels that gets some of its nodes and not all gives those back. */
static void test_memory_ends_within_a_split(void **state)
{
    (void)state;
    bool seen = false;
    for (size_t spare = 0; spare < 3; spare++) {
        rvli_addrmap map;
        rvli_addrmap_init(&map);
        /* A full leaf as root: the next insert needs two nodes. */
        for (uint64_t key = 0; key < 31; key++)
            put(&map, key);
        void *held[64];
        size_t count = 0;
        out_of_memory = true;
        while ((held[count] = rvli_pool_get(&map.nodes)) != NULL)
            count++;
        assert_true(count >= 2 && count < 64);
        for (size_t i = 0; i < spare; i++)
            rvli_pool_put(&map.nodes, held[--count]);
        rvl_status status = rvli_addrmap_insert(&map, 31, value_of(31));
        assert_int_equal(status, spare < 2 ? RVL_ERR_HOST_OOM : RVL_OK);
        assert_int_equal(map.count, spare < 2 ? 31 : 32);
        assert_int_equal(map.height, spare < 2 ? 0 : 1);
        for (size_t left = spare < 2 ? spare : 0; left > 0; left--) {
            assert_non_null(rvli_pool_get(&map.nodes));
            seen = true;
        }
        assert_null(rvli_pool_get(&map.nodes));
        out_of_memory = false;
        rvli_addrmap_destroy(&map);
    }
    assert_true(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_one_entry),
        cmocka_unit_test(test_extreme_keys),
        cmocka_unit_test(test_key_twice),
        cmocka_unit_test(test_random_narrow),
        cmocka_unit_test(test_random_wide),
        cmocka_unit_test(test_ordered),
        cmocka_unit_test(test_ordered_inserts_fill_nodes),
        cmocka_unit_test(test_churn_reuses_nodes),
        cmocka_unit_test(test_no_memory_for_the_first),
        cmocka_unit_test(test_no_memory_to_split),
        cmocka_unit_test(test_memory_ends_within_a_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
