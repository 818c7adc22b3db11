/* SPDX-License-Identifier: MIT */
/* What a program without a CUDA runtime has nobody to ask for. */
#include "plugin.h"

int cudaGetDevice(int *device)
{
    *device = -1;
    return 35;
}

int cudaSetDevice(int device)
{
    (void)device;
    return 35;
}

int cudaStreamCreate(void **stream)
{
    *stream = NULL;
    return 35;
}

int cuda_chain(void)
{
    return -1;
}
