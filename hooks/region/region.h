/* SPDX-License-Identifier: MIT */
/* Allocating and freeing as a caller of the CUDA runtime sees it: values of cudaError_t. */
#ifndef RVL_HOOKS_REGION_REGION_H
#define RVL_HOOKS_REGION_REGION_H

#include <stdbool.h>
#include <stddef.h>

/* Allocates on a device by the calling thread's settings. Says why not, unless memory is short. */
int rvli_region_alloc(int device, size_t size, void **pointer_out);

/*
 * Frees what a region allocated. false: it is none of ours, and somebody else's to free.
 * *error_out: as cudaFree() would answer.
 */
bool rvli_region_free(void *pointer, int *error_out);

/* The device of the calling thread's context. A value of cudaError_t. */
int rvli_region_current_device(int *device_out);

#endif
