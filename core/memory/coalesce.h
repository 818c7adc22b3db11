/* SPDX-License-Identifier: MIT */
/*
 * Coalescing: small allocations of a tag share memory.
 *
 * The driver maps and unmaps whole handles, at microseconds for each call, so thousands of small
 * allocations cost thousands of calls. With coalescing, a tag's small allocations are riders: their
 * granules lie in a carrier, a range with one block. A carrier is in its tag's list and moves like
 * one allocation. A rider is in the table of addresses, and its memory, backup and state are those
 * of its carrier. Adding and removing a rider only changes tables.
 *
 * A carrier belongs to one tag, device, policy, access list and set of flags. So allocations only
 * share memory if they are paused together, and no tag can read content that another has left.
 */
#ifndef RVL_CORE_MEMORY_COALESCE_H
#define RVL_CORE_MEMORY_COALESCE_H

#include "core/tables.h"

/* Checks whether a tag may have carriers of this size on every device of the context. 0 is none. */
rvl_status rvli_coalesce_check(const rvl_context *context, uint64_t coalesce_bytes);

/* Returns the size of the carriers for a described allocation, or 0 if it does not ride. */
uint64_t rvli_coalesce_bytes(const rvli_allocation *draft);

/*
 * Makes a rider, in a carrier with room or in a new one. RVL_ERR_DEVICE_OOM: there is no memory for
 * a carrier. RVL_ERR_HOST_OOM, or the backend's error. On failure nothing has changed.
 */
rvl_status rvli_coalesce_alloc(rvl_context *context, const rvli_allocation *draft,
                               uint64_t carrier_bytes, rvl_addr *addr_out);

/* ---- With the lock held ---- */

/* Returns whether an allocation is a rider, and not the last in its carrier. */
bool rvli_rides_with_others(const rvli_allocation *allocation);
/* Frees a rider that is not the last in its carrier. */
void rvli_rider_leave(rvl_context *context, rvli_allocation *rider);

/* A closed carrier takes no new riders. */
void rvli_carrier_close(rvli_carrier *carrier);
void rvli_carrier_open(rvli_carrier *carrier);

#endif
