/* SPDX-License-Identifier: MIT */
/*
 * Coalescing: small allocations of a tag share memory.
 *
 * The driver maps and unmaps whole handles, at microseconds a call, so thousands of small
 * allocations cost thousands of calls. With coalescing on, a tag's small allocations ride: their
 * granules lie in a carrier, a range with one block behind it. A carrier is in its tag's list and
 * moves as one allocation would; a rider is in the table of addresses, and what it knows of memory,
 * backup and state is its carrier's. Boarding and leaving touch tables alone.
 *
 * A carrier belongs to one tag, device, policy, access list and set of flags, so nothing is shared
 * that is not paused together, and no tag can read what another left behind.
 */
#ifndef RVL_CORE_MEMORY_COALESCE_H
#define RVL_CORE_MEMORY_COALESCE_H

#include "core/tables.h"

/* Whether a tag may have carriers of this size on every device of the context; 0 is none. */
rvl_status rvli_coalesce_check(const rvl_context *context, uint64_t coalesce_bytes);

/* The size of the carriers that a described allocation is to ride in; 0: it is to be alone. */
uint64_t rvli_coalesce_bytes(const rvli_allocation *draft);

/*
 * Makes an allocation that rides, in a carrier that has room or in a new one. RVL_ERR_DEVICE_OOM:
 * there is no memory for a carrier. RVL_ERR_HOST_OOM and what the backend answers; nothing has
 * changed then.
 */
rvl_status rvli_coalesce_alloc(rvl_context *context, const rvli_allocation *draft,
                               uint64_t carrier_bytes, rvl_addr *addr_out);

/* ---- With the lock held ---- */

/* Whether an allocation is a rider, and not the last of its carrier. */
bool rvli_rides_with_others(const rvli_allocation *allocation);
/* Such a rider is freed. */
void rvli_rider_leave(rvl_context *context, rvli_allocation *rider);

/* Nobody boards a closed carrier. */
void rvli_carrier_close(rvli_carrier *carrier);
void rvli_carrier_open(rvli_carrier *carrier);

#endif
