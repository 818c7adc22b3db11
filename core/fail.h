/* SPDX-License-Identifier: MIT */
/* Completing the error record of a failed call with what only core knows. */
#ifndef RVL_CORE_FAIL_H
#define RVL_CORE_FAIL_H

#include "core/tables.h"

/*
 * Adds tag, device, bytes asked for and, when the device ran out of memory, bytes free; and puts
 * the sentence together: `resume of "kv_cache" needs 94.2 GiB, 61.5 GiB free on device 0: out of
 * ...`. What had no room is recorded. what: "resume". tag may be NULL. Calls memory_info and the
 * listener: without the lock.
 */
void rvli_fail(rvl_context *context, const char *what, const rvli_tag *tag, int device,
               uint64_t requested_bytes);

#endif
