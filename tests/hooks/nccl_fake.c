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

/* As version 2.28.9 answers: it has no function that suspends. */

int ncclGetVersion(int *version)
{
    *version = 22809;
    return 0;
}

int ncclCommCuDevice(const void *comm, int *device)
{
    *device = ((const fake_comm *)comm)->device;
    return 0;
}

int ncclCommUserRank(const void *comm, int *rank)
{
    *rank = ((const fake_comm *)comm)->rank;
    return 0;
}

int ncclCommCount(const void *comm, int *count)
{
    *count = ((const fake_comm *)comm)->rank_count;
    return 0;
}
