/* SPDX-License-Identifier: MIT */
/*
 * An ordered map from addresses to pointers: a B+ tree of 512-byte nodes.
 *
 * A node is a header word, then its keys, then its slots: values in a leaf, children in an inner
 * node. The keys of a node take four cache lines, which are prefetched together before the search.
 * So a level costs about one miss, and the search has no branch to mispredict. keys[i] of an inner
 * node separates the keys of child i (all smaller) from those of child i + 1 (equal or greater). It
 * may outlive the entry that it was copied from.
 *
 * An insert looks at the path first and gets every node that splitting will need, before it changes
 * anything. Without memory, nothing has changed. A split in the middle of the tree halves the node.
 * A split at either end of the tree leaves the old node full, so that ascending and descending
 * addresses (allocators hand out both) fill their nodes. A remove merges a node that is less than
 * half full with a neighbour, or balances the two. It needs no new nodes.
 */
#include "base/addrmap.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"

enum {
    MAX_KEYS = 31,
    MAX_SLOTS = MAX_KEYS + 1, /* an inner node has one more child than keys */
    MIN_KEYS = MAX_KEYS / 2,
    MAX_HEIGHT = 20, /* 2^64 keys in half-full nodes need 16 */
};

typedef struct rvli_addrmap_node {
    size_t count; /* of keys */
    uint64_t keys[MAX_KEYS];
    void *slots[MAX_SLOTS];
} node;

static_assert(sizeof(node) == 64 + 64 * 7, "a node is eight cache lines");

/* The nodes from the root to a leaf, by level (0: leaf), and the child taken at each inner node. */
typedef struct path {
    node *nodes[MAX_HEIGHT];
    size_t taken[MAX_HEIGHT];
    bool at_first; /* the leaf is the first of the tree */
    bool at_last;  /* the leaf is the last of the tree */
} path;

/* Where to cut a full node. */
typedef enum cut { CUT_MIDDLE, CUT_KEEP_RIGHT_FULL, CUT_KEEP_LEFT_FULL } cut;

static void prefetch_keys(const node *at)
{
    const char *line = (const char *)at;
    __builtin_prefetch(line);
    __builtin_prefetch(line + 64);
    __builtin_prefetch(line + 128);
    __builtin_prefetch(line + 192);
}

/*
 * Returns the number of keys < key. Always ten comparisons, none of them a branch: three choose a
 * group of eight, and seven count within it (the eighth is known). Unused keys are UINT64_MAX,
 * which is never below a key.
 */
static inline size_t keys_below(const node *at, uint64_t key)
{
    const uint64_t *keys = at->keys;
    size_t group = ((size_t)(keys[7] < key) + (keys[15] < key) + (keys[23] < key)) * 8;
    keys += group;
    return group + (keys[0] < key) + (keys[1] < key) + (keys[2] < key) + (keys[3] < key) +
           (keys[4] < key) + (keys[5] < key) + (keys[6] < key);
}

/* Returns the number of keys <= key. */
static inline size_t keys_up_to(const node *at, uint64_t key)
{
    return key == UINT64_MAX ? at->count : keys_below(at, key + 1);
}

/* Sets the number of keys, and fills the unused keys as the search expects. */
static void set_count(node *at, size_t count)
{
    at->count = count;
    memset(&at->keys[count], 0xff, (MAX_KEYS - count) * sizeof(at->keys[0]));
}

static node *child_of(const node *inner, size_t i)
{
    return inner->slots[i];
}

static node *leaf_of(const rvli_addrmap *map, uint64_t key)
{
    node *at = map->root;
    for (uint32_t level = map->height; level > 0; level--) {
        prefetch_keys(at);
        at = child_of(at, keys_up_to(at, key));
    }
    prefetch_keys(at);
    return at;
}

static path path_to(const rvli_addrmap *map, uint64_t key)
{
    path way;
    way.at_first = true;
    way.at_last = true;
    node *at = map->root;
    for (uint32_t level = map->height; level > 0; level--) {
        prefetch_keys(at);
        size_t i = keys_up_to(at, key);
        way.nodes[level] = at;
        way.taken[level] = i;
        way.at_first = way.at_first && i == 0;
        way.at_last = way.at_last && i == at->count;
        at = child_of(at, i);
    }
    prefetch_keys(at);
    way.nodes[0] = at;
    return way;
}

void rvli_addrmap_init(rvli_addrmap *map)
{
    *map = (rvli_addrmap){0};
    rvli_pool_init(&map->nodes, sizeof(node));
}

void rvli_addrmap_destroy(rvli_addrmap *map)
{
    rvli_pool_destroy(&map->nodes);
    *map = (rvli_addrmap){.nodes = map->nodes};
}

/* Inserts a key at i. */
static void open_key(node *at, size_t i, uint64_t key)
{
    memmove(&at->keys[i + 1], &at->keys[i], (at->count - i) * sizeof(at->keys[0]));
    at->keys[i] = key;
}

static void open_slot(node *at, size_t i, size_t slots, void *slot)
{
    memmove(&at->slots[i + 1], &at->slots[i], (slots - i) * sizeof(at->slots[0]));
    at->slots[i] = slot;
}

static void leaf_add(node *leaf, size_t i, uint64_t key, void *value)
{
    open_key(leaf, i, key);
    open_slot(leaf, i, leaf->count, value);
    leaf->count++;
}

/* Adds child after key. Child i was split, and its upper part begins at key. */
static void inner_add(node *inner, size_t i, uint64_t key, node *child)
{
    open_key(inner, i, key);
    open_slot(inner, i + 1, inner->count + 1, child);
    inner->count++;
}

/* Returns how many elements of a full node stay on the left. */
static size_t kept_left(cut where, size_t fewest)
{
    switch (where) {
    case CUT_KEEP_LEFT_FULL:
        return MAX_KEYS - fewest;
    case CUT_KEEP_RIGHT_FULL:
        return fewest;
    case CUT_MIDDLE:
        break;
    }
    return MAX_KEYS / 2 + 1;
}

/*
 * Splits a full leaf into itself and right, and adds the entry at position i. Returns the key that
 * separates the two.
 */
static uint64_t leaf_split(node *leaf, node *right, cut where, size_t i, uint64_t key, void *value)
{
    size_t left_count = kept_left(where, 0);
    set_count(right, MAX_KEYS - left_count);
    memcpy(right->keys, &leaf->keys[left_count], right->count * sizeof(right->keys[0]));
    memcpy(right->slots, &leaf->slots[left_count], right->count * sizeof(right->slots[0]));
    set_count(leaf, left_count);
    if (where == CUT_KEEP_RIGHT_FULL || (where == CUT_MIDDLE && i <= left_count))
        leaf_add(leaf, i, key, value);
    else
        leaf_add(right, i - left_count, key, value);
    return right->keys[0];
}

/*
 * Splits a full inner node into itself and right, and adds child after *key_io at position i.
 * *key_io becomes the key that separates the two.
 */
static void inner_split(node *inner, node *right, cut where, size_t i, uint64_t *key_io,
                        node *child)
{
    /* The key at left_count moves up to the parent. */
    size_t left_count = kept_left(where, 1);
    uint64_t parting = inner->keys[left_count];
    set_count(right, MAX_KEYS - left_count - 1);
    memcpy(right->keys, &inner->keys[left_count + 1], right->count * sizeof(right->keys[0]));
    memcpy(right->slots, &inner->slots[left_count + 1],
           (right->count + 1) * sizeof(right->slots[0]));
    set_count(inner, left_count);
    if (i <= left_count)
        inner_add(inner, i, *key_io, child);
    else
        inner_add(right, i - left_count - 1, *key_io, child);
    *key_io = parting;
}

/* Gets the nodes for adding to a full leaf: one for each full level, and a root if all are full. */
static bool nodes_for_split(rvli_addrmap *map, const path *way, node **nodes)
{
    size_t needed = 0;
    while (needed <= map->height && way->nodes[needed]->count == MAX_KEYS)
        needed++;
    if (needed > map->height)
        needed++;
    for (size_t i = 0; i < needed; i++) {
        nodes[i] = rvli_pool_get(&map->nodes);
        if (!nodes[i]) {
            while (i > 0)
                rvli_pool_put(&map->nodes, nodes[--i]);
            return false;
        }
    }
    return true;
}

static cut cut_at(const path *way, size_t position)
{
    if (way->at_last && position == MAX_KEYS)
        return CUT_KEEP_LEFT_FULL;
    if (way->at_first && position == 0)
        return CUT_KEEP_RIGHT_FULL;
    return CUT_MIDDLE;
}

/* Adds an entry at `position` of the full leaf at the end of the path. */
static rvl_status insert_split(rvli_addrmap *map, const path *way, size_t position, uint64_t key,
                               void *value)
{
    node *nodes[MAX_HEIGHT + 1];
    if (!nodes_for_split(map, way, nodes))
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the address table");
    cut where = cut_at(way, position);
    node *child = nodes[0];
    uint64_t parting = leaf_split(way->nodes[0], child, where, position, key, value);
    for (uint32_t level = 1; level <= map->height; level++) {
        node *inner = way->nodes[level];
        if (inner->count < MAX_KEYS) {
            inner_add(inner, way->taken[level], parting, child);
            return RVL_OK;
        }
        inner_split(inner, nodes[level], where, way->taken[level], &parting, child);
        child = nodes[level];
    }
    node *root = nodes[map->height + 1];
    set_count(root, 1);
    root->keys[0] = parting;
    root->slots[0] = map->root;
    root->slots[1] = child;
    map->root = root;
    map->height++;
    return RVL_OK;
}

static rvl_status insert_first(rvli_addrmap *map, uint64_t key, void *value)
{
    node *root = rvli_pool_get(&map->nodes);
    if (!root)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the address table");
    set_count(root, 0);
    leaf_add(root, 0, key, value);
    map->root = root;
    return RVL_OK;
}

rvl_status rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value)
{
    rvl_status status = RVL_OK;
    if (!map->root) {
        status = insert_first(map, key, value);
    } else {
        path way = path_to(map, key);
        node *leaf = way.nodes[0];
        size_t i = keys_below(leaf, key);
        if (i < leaf->count && leaf->keys[i] == key)
            return rvli_error(RVL_ERR_INVALID, "the address is in the table already");
        if (leaf->count < MAX_KEYS)
            leaf_add(leaf, i, key, value);
        else
            status = insert_split(map, &way, i, key, value);
    }
    if (status == RVL_OK)
        map->count++;
    return status;
}

/* Removes key i and slot j. */
static void node_drop(node *at, size_t i, size_t j, size_t slots)
{
    memmove(&at->keys[i], &at->keys[i + 1], (at->count - i - 1) * sizeof(at->keys[0]));
    memmove(&at->slots[j], &at->slots[j + 1], (slots - j - 1) * sizeof(at->slots[0]));
    at->count--;
    at->keys[at->count] = UINT64_MAX;
}

/*
 * Two neighbours as one row. For leaves, the keys of both. For inner nodes, the parent's key lies
 * between them as well.
 */
typedef struct row {
    size_t count; /* of keys */
    size_t slots;
    uint64_t keys[2 * MAX_KEYS + 1];
    void *values[2 * MAX_SLOTS];
} row;

static void row_read(row *all, const node *left, const node *right, const uint64_t *parting)
{
    size_t inner = parting ? 1 : 0; /* an inner node has one more slot than keys, and the parent's
                                       key between */
    memcpy(all->keys, left->keys, left->count * sizeof(left->keys[0]));
    if (parting)
        all->keys[left->count] = *parting;
    memcpy(&all->keys[left->count + inner], right->keys, right->count * sizeof(right->keys[0]));
    memcpy(all->values, left->slots, (left->count + inner) * sizeof(left->slots[0]));
    memcpy(&all->values[left->count + inner], right->slots,
           (right->count + inner) * sizeof(right->slots[0]));
    all->count = left->count + inner + right->count;
    all->slots = all->count + inner;
}

/* Fills a node with `count` keys of the row from `first` on, and their slots. */
static void row_write(const row *all, size_t first, size_t count, bool inner, node *at)
{
    set_count(at, count);
    memcpy(at->keys, &all->keys[first], count * sizeof(at->keys[0]));
    memcpy(at->slots, &all->values[first], (count + (inner ? 1u : 0u)) * sizeof(at->slots[0]));
}

/*
 * Merges children i and i + 1 of parent if one node has room for both, and balances them otherwise.
 * Returns true if they were merged: parent has one child fewer.
 */
static bool join(rvli_addrmap *map, node *parent, size_t i, bool inner)
{
    node *left = child_of(parent, i);
    node *right = child_of(parent, i + 1);
    row all;
    row_read(&all, left, right, inner ? &parent->keys[i] : NULL);
    if (all.count <= MAX_KEYS) {
        row_write(&all, 0, all.count, inner, left);
        node_drop(parent, i, i + 1, parent->count + 1);
        rvli_pool_put(&map->nodes, right);
        return true;
    }
    size_t left_count = all.count / 2;
    parent->keys[i] = all.keys[left_count];
    size_t right_first = left_count + (inner ? 1u : 0u); /* in an inner node the key moves up */
    row_write(&all, 0, left_count, inner, left);
    row_write(&all, right_first, all.count - right_first, inner, right);
    return false;
}

/* Rebalances the nodes on the path up from a leaf that lost an entry. */
static void rebalance(rvli_addrmap *map, const path *way)
{
    for (uint32_t level = 0; level < map->height; level++) {
        if (way->nodes[level]->count >= MIN_KEYS)
            return;
        node *parent = way->nodes[level + 1];
        size_t taken = way->taken[level + 1];
        size_t left = taken < parent->count ? taken : taken - 1;
        if (!join(map, parent, left, level > 0))
            return;
    }
    node *root = map->root;
    if (root->count > 0)
        return;
    map->root = map->height > 0 ? child_of(root, 0) : NULL;
    if (map->height > 0)
        map->height--;
    rvli_pool_put(&map->nodes, root);
}

void *rvli_addrmap_remove(rvli_addrmap *map, uint64_t key)
{
    if (!map->root)
        return NULL;
    path way = path_to(map, key);
    node *leaf = way.nodes[0];
    size_t i = keys_below(leaf, key);
    if (i == leaf->count || leaf->keys[i] != key)
        return NULL;
    void *value = leaf->slots[i];
    node_drop(leaf, i, i, leaf->count);
    map->count--;
    rebalance(map, &way);
    return value;
}

void *rvli_addrmap_get(const rvli_addrmap *map, uint64_t key)
{
    if (!map->root)
        return NULL;
    const node *leaf = leaf_of(map, key);
    size_t i = keys_below(leaf, key);
    return i < leaf->count && leaf->keys[i] == key ? leaf->slots[i] : NULL;
}

static void *entry(const node *leaf, size_t i, uint64_t *key_out)
{
    if (key_out)
        *key_out = leaf->keys[i];
    return leaf->slots[i];
}

/* Returns the last entry to the left of the path, or NULL. */
static void *entry_before(const path *way, uint32_t height, uint64_t *key_out)
{
    uint32_t level = 1;
    while (level <= height && way->taken[level] == 0)
        level++;
    if (level > height)
        return NULL;
    const node *at = child_of(way->nodes[level], way->taken[level] - 1);
    while (--level > 0)
        at = child_of(at, at->count);
    return entry(at, at->count - 1, key_out);
}

/* Returns the first entry to the right of the path, or NULL. */
static void *entry_after(const path *way, uint32_t height, uint64_t *key_out)
{
    uint32_t level = 1;
    while (level <= height && way->taken[level] == way->nodes[level]->count)
        level++;
    if (level > height)
        return NULL;
    const node *at = child_of(way->nodes[level], way->taken[level] + 1);
    while (--level > 0)
        at = child_of(at, 0);
    return entry(at, 0, key_out);
}

void *rvli_addrmap_floor(const rvli_addrmap *map, uint64_t key, uint64_t *key_out)
{
    if (!map->root)
        return NULL;
    path way = path_to(map, key);
    size_t i = keys_up_to(way.nodes[0], key);
    if (i > 0)
        return entry(way.nodes[0], i - 1, key_out);
    return entry_before(&way, map->height, key_out);
}

void *rvli_addrmap_ceil(const rvli_addrmap *map, uint64_t key, uint64_t *key_out)
{
    if (!map->root)
        return NULL;
    path way = path_to(map, key);
    size_t i = keys_below(way.nodes[0], key);
    if (i < way.nodes[0]->count)
        return entry(way.nodes[0], i, key_out);
    return entry_after(&way, map->height, key_out);
}
