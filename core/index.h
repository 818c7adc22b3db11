/* SPDX-License-Identifier: MIT */
/*
 * Allocations by address.
 *
 * Exact addresses are looked up with every free: a hash table (base/intmap). Interior addresses and
 * order are asked for now and then: an ordered map (base/addrmap), brought up to date by the one
 * who asks. What was allocated since the last question is pending; what is freed while it is
 * pending never costs the ordered map anything. All functions want the context's lock.
 */
#ifndef RVL_CORE_INDEX_H
#define RVL_CORE_INDEX_H

#include "base/addrmap.h"
#include "base/intmap.h"

struct rvli_allocation;

/* An allocation's place among the pending ones, once it is in the ordered map. */
#define RVLI_INDEX_ORDERED UINT32_MAX

typedef struct rvli_index {
    rvli_intmap exact;
    rvli_addrmap ordered;
    struct rvli_allocation **pending;
    uint32_t pending_count;
    uint32_t pending_capacity;
} rvli_index;

void rvli_index_init(rvli_index *index);
void rvli_index_destroy(rvli_index *index);

/* RVL_ERR_HOST_OOM changes nothing. */
rvl_status rvli_index_insert(rvli_index *index, struct rvli_allocation *allocation);
void rvli_index_remove(rvli_index *index, struct rvli_allocation *allocation);

/* The allocation that begins at addr, NULL if none. */
struct rvli_allocation *rvli_index_get(const rvli_index *index, uint64_t addr);

/*
 * The allocation that contains addr; the one that begins at or above addr. NULL if none.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_index_containing(rvli_index *index, uint64_t addr,
                                 struct rvli_allocation **allocation_out);
rvl_status rvli_index_next(rvli_index *index, uint64_t addr,
                           struct rvli_allocation **allocation_out);

/* Any allocation, NULL if there is none; and how many there are. */
struct rvli_allocation *rvli_index_any(const rvli_index *index);
size_t rvli_index_count(const rvli_index *index);

#endif
