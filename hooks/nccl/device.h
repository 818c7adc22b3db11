/* SPDX-License-Identifier: MIT */
/*
 * The device of a communicator, through the driver. The communicator has already created its
 * context.
 */
#ifndef RVL_HOOKS_NCCL_DEVICE_H
#define RVL_HOOKS_NCCL_DEVICE_H

#include "reveille/status.h"

/*
 * Enter makes the device current on the calling thread, until leave. Otherwise NCCL restores device
 * 0, the default of a new thread, and creates a context of hundreds of MiB there.
 */
rvl_status rvli_device_enter(int device);
void rvli_device_leave(int device);

/* Stores the free bytes of the device. */
rvl_status rvli_device_free_bytes(int device, uint64_t *free_bytes_out);

#endif
