/* SPDX-License-Identifier: MIT */
/* Completes the error record of a failed call with facts that only core knows. */
#ifndef RVL_CORE_FAIL_H
#define RVL_CORE_FAIL_H

#include "core/tables.h"

/*
 * Adds tag, device, requested bytes and, when the device ran out of memory, free bytes, and
 * composes the message: `resume of "kv_cache" needs 94.2 GiB, 61.5 GiB free on device 0: out of
 * ...`. Records a refusal when the device ran out of memory. what: "resume". tag may be NULL. Calls
 * memory_info and the listener, so the lock must not be held.
 */
void rvli_fail(rvl_context *context, const char *what, const rvli_tag *tag, int device,
               uint64_t requested_bytes);

#endif
