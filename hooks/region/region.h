/* SPDX-License-Identifier: MIT */
/* Allocation and free as in the CUDA runtime: they return values of cudaError_t. */
#ifndef RVL_HOOKS_REGION_REGION_H
#define RVL_HOOKS_REGION_REGION_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Allocates on a device by the calling thread's settings. Prints errors other than lack of memory.
 */
int rvli_region_alloc(int device, size_t size, void **pointer_out);

/*
 * Frees memory of a region. Returns false if the memory is not Reveille's. *error_out: the result
 * that cudaFree() would return.
 */
bool rvli_region_free(void *pointer, int *error_out);

/* Stores the device of the calling thread's context. Returns a value of cudaError_t. */
int rvli_region_current_device(int *device_out);

#endif
