/* SPDX-License-Identifier: MIT */
/* The treap: every node's priority is at least that of its children. */
#include "predict/snapshot/block.h"

#include <stddef.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static uint64_t priority_of(const rvli_cached_block *block)
{
    uint64_t mixed = (block->addr >> 9) * GOLDEN;
    return (mixed ^ (mixed >> 29)) * GOLDEN;
}

static bool is_below(const rvli_cached_block *block, uint64_t key, uint64_t addr)
{
    return block->key != key ? block->key < key : block->addr < addr;
}

/* Attaches a child, which may be NULL, at a place below a parent. */
static void hang(rvli_cached_block **place, rvli_cached_block *parent, rvli_cached_block *child)
{
    *place = child;
    if (child != NULL)
        child->parent = parent;
}

void rvli_blocks_insert(rvli_cached_block **root, rvli_cached_block *block)
{
    rvli_cached_block *parent = NULL;
    block->priority = priority_of(block);
    while (*root != NULL && (*root)->priority >= block->priority) {
        parent = *root;
        root = is_below(parent, block->key, block->addr) ? &parent->right : &parent->left;
    }
    /* Split the tree at this place into blocks below the new one and blocks above it. */
    rvli_cached_block *rest = *root, *below_parent = block, *above_parent = block;
    rvli_cached_block **below = &block->left, **above = &block->right;
    hang(root, parent, block);
    while (rest != NULL) {
        if (is_below(rest, block->key, block->addr)) {
            hang(below, below_parent, rest);
            below_parent = rest;
            below = &rest->right;
            rest = rest->right;
        } else {
            hang(above, above_parent, rest);
            above_parent = rest;
            above = &rest->left;
            rest = rest->left;
        }
    }
    *below = NULL;
    *above = NULL;
}

void rvli_blocks_remove(rvli_cached_block **root, rvli_cached_block *block)
{
    rvli_cached_block *below = block->left, *above = block->right, *parent = block->parent;
    if (parent != NULL)
        root = parent->left == block ? &parent->left : &parent->right;
    while (below != NULL && above != NULL) {
        if (below->priority >= above->priority) {
            hang(root, parent, below);
            parent = below;
            root = &below->right;
            below = below->right;
        } else {
            hang(root, parent, above);
            parent = above;
            root = &above->left;
            above = above->left;
        }
    }
    hang(root, parent, below != NULL ? below : above);
}

rvli_cached_block *rvli_blocks_at_least(rvli_cached_block *root, uint64_t key, uint64_t addr)
{
    rvli_cached_block *found = NULL;
    while (root != NULL) {
        if (is_below(root, key, addr)) {
            root = root->right;
        } else {
            found = root;
            root = root->left;
        }
    }
    return found;
}

rvli_cached_block *rvli_blocks_below(rvli_cached_block *root, uint64_t key, uint64_t addr)
{
    rvli_cached_block *found = NULL;
    while (root != NULL) {
        if (is_below(root, key, addr)) {
            found = root;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    return found;
}

/* ---- Bins ---- */

#define SMALLEST_LOG2 9 /* log2 of RVLI_MIN_BLOCK */

/* Two bins for each power of two. The last one takes all larger sizes. */
static unsigned bin_of(uint64_t size)
{
    if (size < UINT64_C(1) << SMALLEST_LOG2)
        return 0;
    unsigned log2 = 63 - (unsigned)__builtin_clzll(size);
    unsigned bin = 2 * (log2 - SMALLEST_LOG2) + (unsigned)(size >> (log2 - 1) & 1);
    return bin < RVLI_BINS ? bin : RVLI_BINS - 1;
}

void rvli_bins_insert(rvli_bins *bins, rvli_cached_block *block)
{
    unsigned bin = bin_of(block->key);
    rvli_blocks_insert(&bins->sets[bin], block);
    bins->filled |= UINT64_C(1) << bin;
}

void rvli_bins_remove(rvli_bins *bins, rvli_cached_block *block)
{
    unsigned bin = bin_of(block->key);
    rvli_blocks_remove(&bins->sets[bin], block);
    if (bins->sets[bin] == NULL)
        bins->filled &= ~(UINT64_C(1) << bin);
}

rvli_cached_block *rvli_bins_at_least(const rvli_bins *bins, uint64_t size, uint64_t addr)
{
    unsigned bin = bin_of(size);
    rvli_cached_block *found = rvli_blocks_at_least(bins->sets[bin], size, addr);
    uint64_t larger = bins->filled & ~UINT64_C(1) << bin;
    if (found != NULL || larger == 0)
        return found;
    return rvli_blocks_at_least(bins->sets[__builtin_ctzll(larger)], 0, 0);
}

rvli_cached_block *rvli_bins_below(const rvli_bins *bins, uint64_t size, uint64_t addr)
{
    unsigned bin = bin_of(size);
    rvli_cached_block *found = rvli_blocks_below(bins->sets[bin], size, addr);
    uint64_t smaller = bins->filled & ((UINT64_C(1) << bin) - 1);
    if (found != NULL || smaller == 0)
        return found;
    return rvli_blocks_below(bins->sets[63 - __builtin_clzll(smaller)], UINT64_MAX, UINT64_MAX);
}
