/* SPDX-License-Identifier: MIT */
/* Waiting for copies and fills that are queued on devices. */
#ifndef RVL_CORE_COPIES_H
#define RVL_CORE_COPIES_H

#include "core/tables.h"

/*
 * Waits for the queued work of every device in a mask. Returns the first error, after waiting for
 * all.
 */
rvl_status rvli_copies_wait(rvl_context *context, uint64_t device_mask);

/*
 * Copies may still run after a failed wait. Makes sure that none does, as far as the device
 * responds.
 */
void rvli_copies_quiesce(rvl_context *context, uint64_t device_mask);

#endif
