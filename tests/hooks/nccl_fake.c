/* SPDX-License-Identifier: MIT */
/*
 * An NCCL that is none: it allocates by functions that it is given, so that the calls come from a
 * library of that name.
 */
#include <cuda.h>

#include "nccl_fake.h"

CUresult fake_nccl_take(fake_create create, int device, size_t bytes,
                        CUmemGenericAllocationHandle *handle_out)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUresult result = create(handle_out, bytes, &properties, 0);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; /* comes back here */
}

int fake_nccl_malloc(fake_alloc alloc, size_t bytes, void **pointer_out)
{
    int error = alloc(pointer_out, bytes, NULL);
    return error == 0 ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}
