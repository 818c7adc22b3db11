/* SPDX-License-Identifier: MIT */
/*
 * What CUDA devices are, and how much of each is truly in use, held by this process or another.
 *
 * NVML answers without a context and at any time; without it (libnvidia-ml.so.1, or the library
 * that RVL_NVML_LIBRARY names) the driver is asked, where the program has a primary context already
 * and none is made for it. Devices are numbered as the program's CUDA numbers them.
 */
#ifndef RVL_HOOKS_RECORD_USAGE_H
#define RVL_HOOKS_RECORD_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/context.h"

#define RVLI_USAGE_NAME_BYTES 128u

typedef struct rvli_usage_device {
    uint32_t place; /* of the card in this machine, alike in all its processes if NVML tells it */
    char name[RVLI_USAGE_NAME_BYTES];
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
    bool always; /* can be read before the program has a context there */
} rvli_usage_device;

/*
 * Opens the driver, and NVML if there is one; does nothing the second time. It holds no lock while
 * it loads libraries, so that it may run inside somebody's dlopen(). RVL_ERR_NO_DRIVER,
 * RVL_ERR_DRIVER_TOO_OLD, RVL_ERR_NO_DEVICE or RVL_ERR_HOST_OOM. Thread-safe.
 */
rvl_status rvli_usage_load(void);

/* Whether a device has a primary context; true if that is unknown. Needs nothing loaded. */
bool rvli_usage_active(int device);

/* Below: good after it has answered RVL_OK once. */
int rvli_usage_count(void);
const rvli_usage_device *rvli_usage_device_at(int device);

/* The device of the calling thread's context; -1: it has none. */
int rvli_usage_current(void);

/* Bytes in use of the whole device. false: unknown now. */
bool rvli_usage_read(int device, uint64_t *used_bytes_out);

#endif
