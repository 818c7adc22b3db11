/* SPDX-License-Identifier: MIT */
/*
 * Allocations by address.
 *
 * Every free looks up an exact address, so those are in a hash table (base/intmap). Interior
 * addresses and order are needed less often. For them there is an ordered map (base/addrmap), which
 * each query first brings up to date. Allocations made since the last query are pending. One that
 * is freed while pending never costs the ordered map anything. All functions require the context's
 * lock.
 */
#ifndef RVL_CORE_INDEX_H
#define RVL_CORE_INDEX_H

#include "base/addrmap.h"
#include "base/intmap.h"

struct rvli_allocation;

/* The pending slot of an allocation that is already in the ordered map. */
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

/* Returns the allocation that begins at addr, or NULL. */
struct rvli_allocation *rvli_index_get(const rvli_index *index, uint64_t addr);

/*
 * Finds the allocation that contains addr, or the first that begins at or above addr. NULL if there
 * is none. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_index_containing(rvli_index *index, uint64_t addr,
                                 struct rvli_allocation **allocation_out);
rvl_status rvli_index_next(rvli_index *index, uint64_t addr,
                           struct rvli_allocation **allocation_out);

/* Returns any allocation, or NULL; and the number of allocations. */
struct rvli_allocation *rvli_index_any(const rvli_index *index);
size_t rvli_index_count(const rvli_index *index);

#endif
