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

/* Hangs what may be nothing at a place below a parent. */
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
    /* The tree that is here is divided into what is below the block and what is above it. */
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
