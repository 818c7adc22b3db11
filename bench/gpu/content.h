/* SPDX-License-Identifier: MIT */
/*
 * What lies in the memory that is measured, and whether it came back.
 *
 * Every granule holds noise, which no disk makes less of, and ends with a page that is different in
 * every granule and version. Checks look at those pages alone, or at everything.
 */
#ifndef RVL_BENCH_GPU_CONTENT_H
#define RVL_BENCH_GPU_CONTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "subject.h"

typedef struct content content;

/* For the allocations of a work. Their addresses stay where they are. */
content *content_new(const work *w, const uint64_t *addrs);

/* Writes a new version of everything. */
void content_change_all(content *c);

/* Writes a new version of one granule of each allocation, another one each time. */
void content_change_some(content *c);

/* Whether all is there; whole: not only the last page of each granule. */
bool content_is_there(const content *c, bool whole);

/* Whether memory at addr holds all that allocation i was given. */
bool content_is_at(const content *c, size_t i, uint64_t addr);

#endif
