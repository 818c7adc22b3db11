/* SPDX-License-Identifier: MIT */
/* The device of a communicator, by the driver. The communicator has made its context there. */
#ifndef RVL_HOOKS_NCCL_DEVICE_H
#define RVL_HOOKS_NCCL_DEVICE_H

#include "reveille/status.h"

/*
 * The device is the calling thread's from enter to leave. Without it NCCL puts back device 0, which
 * a new thread has, and makes a context of hundreds of MiB there.
 */
rvl_status rvli_device_enter(int device);
void rvli_device_leave(int device);

/* What is free on it. */
rvl_status rvli_device_free_bytes(int device, uint64_t *free_bytes_out);

#endif
