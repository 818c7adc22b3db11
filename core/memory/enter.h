/* SPDX-License-Identifier: MIT */
/*
 * Entering an allocation into the tables, and taking it out: below those who make and free them.
 *
 * Its address is in the index, its memory with its tag and in the ledger. A rider has an address
 * alone: the memory is its carrier's. All with the lock held.
 */
#ifndef RVL_CORE_MEMORY_ENTER_H
#define RVL_CORE_MEMORY_ENTER_H

#include "core/tables.h"

/* Enters the memory: with its tag, and in the ledger. */
void rvli_enter_memory(rvl_context *context, rvli_allocation *allocation);

/* Enters the address: numbers it, counts it. RVL_ERR_HOST_OOM changes nothing. */
rvl_status rvli_enter_address(rvl_context *context, rvli_allocation *allocation);

/* Takes an address out again. The record is the caller's. */
void rvli_forget_address(rvl_context *context, rvli_allocation *allocation);

#endif
