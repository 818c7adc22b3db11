/* SPDX-License-Identifier: MIT */
/* Waiting for copies and fills that were queued on devices. */
#ifndef RVL_CORE_COPIES_H
#define RVL_CORE_COPIES_H

#include "core/tables.h"

/* Waits for what was queued on every device of a mask; the first error, after all were waited for.
 */
rvl_status rvli_copies_wait(rvl_context *context, uint64_t device_mask);

/* After a failed wait copies may still run: makes sure that none does, as far as the device
 * answers. */
void rvli_copies_quiesce(rvl_context *context, uint64_t device_mask);

#endif
