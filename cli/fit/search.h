/* SPDX-License-Identifier: MIT */
/*
 * The largest value that fits, in as few tries as there need be, several at once.
 *
 * From the first value on it is doubled until one does not fit; then what lies between is divided.
 * At the edge a few values above it are tried, too: an allocator that rounds can have room for one
 * that is larger. What was tried stays, so that the answer can be shown with its grounds.
 */
#ifndef RVL_CLI_FIT_SEARCH_H
#define RVL_CLI_FIT_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 64 doublings, as many halvings with up to 64 values at once, and what is tried above the edge. */
#define SEARCH_TRIES_MAX 8192u
#define SEARCH_AT_ONCE_MAX 64u

typedef struct search_try {
    uint64_t value;
    bool answered;
    bool fits;
} search_try;

typedef struct search {
    uint64_t first;
    uint64_t last;
    search_try *tries; /* room for SEARCH_TRIES_MAX, in the order in which they were asked for */
    size_t count;
} search;

/* false: no memory. */
bool search_begin(search *of, uint64_t first, uint64_t last);
void search_end(search *of);

/*
 * Writes values that are to be tried next, rising, at most `capacity` and SEARCH_AT_ONCE_MAX.
 * Returns how many; 0: the answer is there. All that was asked for must have been answered.
 */
size_t search_next(search *of, uint64_t *values_out, size_t capacity);

void search_answer(search *of, uint64_t value, bool fits);

/* The largest value below which none was found that does not fit. false: the first does not fit. */
bool search_largest(const search *of, uint64_t *value_out);

/* The smallest value that does not fit. false: all do that were tried, and so does the last. */
bool search_edge(const search *of, uint64_t *value_out);

/* Whether a value above one that does not fit fits again; the largest of them. */
bool search_again(const search *of, uint64_t *value_out);

#endif
