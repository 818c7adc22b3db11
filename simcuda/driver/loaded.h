/* SPDX-License-Identifier: MIT */
/*
 * What the driver takes on a device for code. It loads lazily: nothing is taken for what a program
 * registers or loads, except for a kernel when it is launched first, and for its image with the
 * first kernel of it.
 */
#ifndef RVL_SIMCUDA_LOADED_H
#define RVL_SIMCUDA_LOADED_H

#include "simcuda/driver/driver.h"
#include "simcuda/driver/image.h"

/* Where an image, or a kernel, has been loaded. All zeroes: nowhere. */
typedef struct rvli_loaded {
    uint64_t devices; /* bit d: on device d */
    unsigned losses;  /* so many times code had been lost when this was written */
} rvli_loaded;

/* All code on a device is lost. */
void rvli_loaded_lose(int device);

/*
 * Loads a kernel, and its image, on a device where they are not yet. entry NULL: nothing is known
 * of it. CUDA_ERROR_OUT_OF_MEMORY: the device is full. The caller locks.
 */
CUresult rvli_loaded_kernel(int device, const rvli_image *image, rvli_loaded *image_at,
                            const rvli_kernel_entry *entry, rvli_loaded *entry_at);

#endif
