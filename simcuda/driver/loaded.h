/* SPDX-License-Identifier: MIT */
/*
 * The memory that the driver takes on a device for code. It loads lazily: registering or loading
 * code takes nothing. A kernel takes memory at its first launch, and its image with its first
 * kernel.
 */
#ifndef RVL_SIMCUDA_LOADED_H
#define RVL_SIMCUDA_LOADED_H

#include "simcuda/driver/driver.h"
#include "simcuda/driver/image.h"

/* The devices on which an image or a kernel is loaded. Zeroed: none. */
typedef struct rvli_loaded {
    uint64_t devices; /* bit d: on device d */
    unsigned losses;  /* the number of losses of code when `devices` was written */
} rvli_loaded;

/* All code on a device is lost. */
void rvli_loaded_lose(int device);

/*
 * Loads a kernel and its image on a device, unless they are loaded. entry NULL: nothing is known
 * of the kernel. CUDA_ERROR_OUT_OF_MEMORY: the device is full. The caller must hold a lock.
 */
CUresult rvli_loaded_kernel(int device, const rvli_image *image, rvli_loaded *image_at,
                            const rvli_kernel_entry *entry, rvli_loaded *entry_at);

#endif
