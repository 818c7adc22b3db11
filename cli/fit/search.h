/* SPDX-License-Identifier: MIT */
/*
 * Finds the largest value that fits, with few tries, several of them at once.
 *
 * Doubles the first value until one does not fit. Then divides the interval between. Finally tries
 * a few values above the edge, because an allocator that rounds can have room for a larger value.
 * Keeps all tries, so that they can be shown with the result. If only certain values are allowed,
 * the same is done with their positions in the list.
 */
#ifndef RVL_CLI_FIT_SEARCH_H
#define RVL_CLI_FIT_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 64 doublings, 64 divisions with up to 64 values at once, and the tries above the edge. */
#define SEARCH_TRIES_MAX 8192u
#define SEARCH_AT_ONCE_MAX 64u

typedef struct search_try {
    uint64_t at; /* the value, or its position in the list */
    bool answered;
    bool fits;
} search_try;

typedef struct search {
    const uint64_t *list; /* the values in ascending order; NULL: all from first to last */
    uint64_t first;       /* the bounds of `at` */
    uint64_t last;
    search_try *tries; /* room for SEARCH_TRIES_MAX, in the order in which they were proposed */
    size_t count;
} search;

/* Begins a search in a range, or in a list of at least one value in ascending order, which must
 * stay until the end. The caller ends it by search_end(). false: no memory. */
bool search_begin(search *of, uint64_t first, uint64_t last);
bool search_begin_list(search *of, const uint64_t *list, size_t count);
void search_end(search *of);

/*
 * Writes the values to try next, in ascending order, at most `capacity` and SEARCH_AT_ONCE_MAX.
 * Returns their number; 0: the search is complete. First call search_answer() for all earlier
 * values.
 */
size_t search_next(search *of, uint64_t *values_out, size_t capacity);

/* Records whether a value fits. */
void search_answer(search *of, uint64_t value, bool fits);

/* Finds the largest value that fits below the edge. false: none fits there. */
bool search_largest(const search *of, uint64_t *value_out);

/* Finds the smallest value that does not fit. false: all values that were tried fit; after a
 * complete search, the last value does, too. */
bool search_edge(const search *of, uint64_t *value_out);

/* Whether a value above the edge fits again. Finds the largest such value. */
bool search_again(const search *of, uint64_t *value_out);

#endif
