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

void search_end(search *of)
{
    free(of->tries);
    of->tries = NULL;
}

static search_try *find(const search *of, uint64_t value)
{
    for (size_t i = 0; i < of->count; i++)
        if (of->tries[i].value == value)
            return &of->tries[i];
    return NULL;
}

void search_answer(search *of, uint64_t value, bool fits)
{
    search_try *tried = find(of, value);
    if (tried == NULL)
        return;
    tried->answered = true;
    tried->fits = fits;
}

bool search_edge(const search *of, uint64_t *value_out)
{
    bool found = false;
    for (size_t i = 0; i < of->count; i++) {
        const search_try *each = &of->tries[i];
        if (!each->answered || each->fits || (found && each->value >= *value_out))
            continue;
        *value_out = each->value;
        found = true;
    }
    return found;
}

/* Finds the largest value that fits below a bound, or, with above_it, above it. */
static bool largest(const search *of, uint64_t bound, bool above_it, uint64_t *value_out)
{
    bool found = false;
    for (size_t i = 0; i < of->count; i++) {
        const search_try *each = &of->tries[i];
        bool counts =
            each->answered && each->fits && (above_it ? each->value > bound : each->value < bound);
        if (!counts || (found && each->value <= *value_out))
            continue;
        *value_out = each->value;
        found = true;
    }
    return found;
}

bool search_largest(const search *of, uint64_t *value_out)
{
    uint64_t edge = 0;
    if (search_edge(of, &edge))
        return largest(of, edge, false, value_out);
    return largest(of, 0, true, value_out) || largest(of, UINT64_MAX, false, value_out);
}

bool search_again(const search *of, uint64_t *value_out)
{
    uint64_t edge = 0;
    return search_edge(of, &edge) && largest(of, edge, true, value_out);
}

/* ---- Next values ---- */

typedef struct proposal {
    search *of;
    uint64_t *values;
    size_t capacity;
    size_t count;
} proposal;

static void propose(proposal *to, uint64_t value)
{
    if (to->count == to->capacity || to->of->count == SEARCH_TRIES_MAX ||
        find(to->of, value) != NULL)
        return;
    to->of->tries[to->of->count++] = (search_try){.value = value};
    to->values[to->count++] = value;
}

static uint64_t doubled(const search *of, uint64_t value)
{
    uint64_t next = value > 0 ? value * 2 : 1;
    return value > of->last / 2 || next > of->last ? of->last : next;
}

static void propose_larger(proposal *to)
{
    const search *of = to->of;
    uint64_t value;
    if (!search_largest(of, &value)) {
        propose(to, of->first);
        value = of->first;
    }
    while (to->count < to->capacity && value < of->last) {
        value = doubled(of, value);
        propose(to, value);
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
    bool has_edge = search_edge(of, &edge), has_fit = search_largest(of, &fits);
    if (!has_edge)
        propose_larger(&to);
    else if (has_fit && edge - fits > 1)
        propose_between(&to, fits, edge);
    else if (has_fit && !looked_above(of, edge))
        propose_above(&to, edge);
    return to.count;
}
