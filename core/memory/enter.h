/* SPDX-License-Identifier: MIT */
/*
 * Adds an allocation to the tables, and removes it. Lies below the code that makes and frees
 * allocations.
 *
 * Its address goes into the index, its memory to its tag and the ledger. A rider only has an
 * address: its memory is its carrier's. All functions require the lock.
 */
#ifndef RVL_CORE_MEMORY_ENTER_H
#define RVL_CORE_MEMORY_ENTER_H

#include "core/tables.h"

/* Adds the memory to its tag and to the ledger. */
void rvli_enter_memory(rvl_context *context, rvli_allocation *allocation);

/* Adds the address: numbers and counts it. RVL_ERR_HOST_OOM changes nothing. */
rvl_status rvli_enter_address(rvl_context *context, rvli_allocation *allocation);

/* Removes an address. The record then belongs to the caller. */
void rvli_forget_address(rvl_context *context, rvli_allocation *allocation);

#endif
