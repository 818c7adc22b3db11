/* SPDX-License-Identifier: MIT */
#ifndef RVL_TESTS_HOOKS_NCCL_FAKE_H
#define RVL_TESTS_HOOKS_NCCL_FAKE_H

#include <cuda.h>

typedef CUresult (*fake_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                unsigned long long);
typedef int (*fake_alloc)(void **, size_t, void *);

__attribute__((visibility("default"))) CUresult
fake_nccl_take(fake_create create, int device, size_t bytes,
               CUmemGenericAllocationHandle *handle_out);
__attribute__((visibility("default"))) int fake_nccl_malloc(fake_alloc alloc, size_t bytes,
                                                            void **pointer_out);

/* A communicator, and what NCCL says of it. */
typedef struct fake_comm {
    int device, rank, rank_count;
} fake_comm;

#define FAKE_NCCL_CALL __attribute__((visibility("default"))) int
FAKE_NCCL_CALL ncclGetVersion(int *version);
FAKE_NCCL_CALL ncclCommCuDevice(const void *comm, int *device);
FAKE_NCCL_CALL ncclCommUserRank(const void *comm, int *rank);
FAKE_NCCL_CALL ncclCommCount(const void *comm, int *count);

#endif
