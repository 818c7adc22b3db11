/* SPDX-License-Identifier: MIT */
#include "fit/search.h"

#include <stdlib.h>

/* Offsets of the values to try above the edge: powers of two, because allocators round to them. */
static const uint64_t above[] = {1, 2, 4, 8};

bool search_begin(search *of, uint64_t first, uint64_t last)
{
    *of = (search){.first = first, .last = last};
    of->tries = calloc(SEARCH_TRIES_MAX, sizeof *of->tries);
    return of->tries != NULL;
}

bool search_begin_list(search *of, const uint64_t *list, size_t count)
{
    bool begun = search_begin(of, 0, count - 1);
    of->list = list;
    return begun;
}

void search_end(search *of)
{
    free(of->tries);
    of->tries = NULL;
}

static uint64_t value_at(const search *of, uint64_t at)
{
    return of->list != NULL ? of->list[at] : at;
}

static search_try *find(const search *of, uint64_t at)
{
    for (size_t i = 0; i < of->count; i++)
        if (of->tries[i].at == at)
            return &of->tries[i];
    return NULL;
}

void search_answer(search *of, uint64_t value, bool fits)
{
    for (size_t i = 0; i < of->count; i++)
        if (value_at(of, of->tries[i].at) == value) {
            of->tries[i].answered = true;
            of->tries[i].fits = fits;
        }
}

/* Finds the smallest that does not fit. */
static bool edge_at(const search *of, uint64_t *at_out)
{
    bool found = false;
    for (size_t i = 0; i < of->count; i++) {
        const search_try *each = &of->tries[i];
        if (!each->answered || each->fits || (found && each->at >= *at_out))
            continue;
        *at_out = each->at;
        found = true;
    }
    return found;
}

/* Finds the largest that fits, below an edge or above it. */
static bool fit_at(const search *of, const uint64_t *below, const uint64_t *above_it,
                   uint64_t *at_out)
{
    bool found = false;
    for (size_t i = 0; i < of->count; i++) {
        const search_try *each = &of->tries[i];
        bool counts = each->answered && each->fits && (below == NULL || each->at < *below) &&
                      (above_it == NULL || each->at > *above_it);
        if (!counts || (found && each->at <= *at_out))
            continue;
        *at_out = each->at;
        found = true;
    }
    return found;
}

static bool largest_at(const search *of, uint64_t *at_out)
{
    uint64_t edge = 0;
    return fit_at(of, edge_at(of, &edge) ? &edge : NULL, NULL, at_out);
}

bool search_edge(const search *of, uint64_t *value_out)
{
    uint64_t at = 0;
    bool found = edge_at(of, &at);
    if (found)
        *value_out = value_at(of, at);
    return found;
}

bool search_largest(const search *of, uint64_t *value_out)
{
    uint64_t at = 0;
    bool found = largest_at(of, &at);
    if (found)
        *value_out = value_at(of, at);
    return found;
}

bool search_again(const search *of, uint64_t *value_out)
{
    uint64_t edge = 0, at = 0;
    bool found = edge_at(of, &edge) && fit_at(of, NULL, &edge, &at);
    if (found)
        *value_out = value_at(of, at);
    return found;
}

/* ---- Next values ---- */

typedef struct proposal {
    search *of;
    uint64_t *values;
    size_t capacity;
    size_t count;
} proposal;

static void propose(proposal *to, uint64_t at)
{
    if (to->count == to->capacity || to->of->count == SEARCH_TRIES_MAX || find(to->of, at) != NULL)
        return;
    to->of->tries[to->of->count++] = (search_try){.at = at};
    to->values[to->count++] = value_at(to->of, at);
}

static uint64_t doubled(const search *of, uint64_t at)
{
    uint64_t next = at > 0 ? at * 2 : 1;
    return at > of->last / 2 || next > of->last ? of->last : next;
}

static void propose_larger(proposal *to)
{
    const search *of = to->of;
    uint64_t at;
    if (!largest_at(of, &at)) {
        propose(to, of->first);
        at = of->first;
    }
    while (to->count < to->capacity && at < of->last) {
        at = doubled(of, at);
        propose(to, at);
    }
}

static void propose_between(proposal *to, uint64_t fits, uint64_t edge)
{
    uint64_t between = edge - fits - 1;
    uint64_t parts = to->capacity < between ? to->capacity : between;
    for (uint64_t i = 1; i <= parts; i++)
        propose(to, fits + (uint64_t)((long double)(between + 1) * i / (parts + 1)));
    if (to->count == 0) /* rounding gave only values that were tried */
        propose(to, fits + 1);
}

static void propose_above(proposal *to, uint64_t edge)
{
    for (size_t i = 0; i < sizeof above / sizeof *above; i++)
        if (above[i] <= to->of->last - edge)
            propose(to, edge + above[i]);
}

/* Whether all values to try above the edge have been proposed. */
static bool looked_above(const search *of, uint64_t edge)
{
    for (size_t i = 0; i < sizeof above / sizeof *above; i++)
        if (above[i] <= of->last - edge && find(of, edge + above[i]) == NULL)
            return false;
    return true;
}

size_t search_next(search *of, uint64_t *values_out, size_t capacity)
{
    proposal to = {.of = of,
                   .values = values_out,
                   .capacity = capacity < SEARCH_AT_ONCE_MAX ? capacity : SEARCH_AT_ONCE_MAX};
    uint64_t edge = 0, fits = 0;
    bool has_edge = edge_at(of, &edge), has_fit = largest_at(of, &fits);
    if (!has_edge)
        propose_larger(&to);
    else if (has_fit && edge - fits > 1)
        propose_between(&to, fits, edge);
    else if (has_fit && !looked_above(of, edge))
        propose_above(&to, edge);
    return to.count;
}
