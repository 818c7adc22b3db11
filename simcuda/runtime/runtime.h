/* SPDX-License-Identifier: MIT */
/*
 * What the files of the simulated runtime, libcudart, share. It stands on the driver's public
 * functions alone, as CUDA's does: a thread has a current device. Its primary context is retained
 * by the first call that needs it.
 *
 * Every function ends in rvli_done(), which keeps a failure for cudaGetLastError().
 */
#ifndef RVL_SIMCUDA_RUNTIME_H
#define RVL_SIMCUDA_RUNTIME_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#ifndef RVLI_RUNTIME_VERSION
#define RVLI_RUNTIME_VERSION CUDART_VERSION /* twelve.h has another */
#endif

/* Keeps what failed, and answers it. */
cudaError_t rvli_done(cudaError_t error);

/* The driver's result as the runtime's error. Their numbers are the same except for a few. */
cudaError_t rvli_error_of(CUresult result);

/* rvli_done() of it. */
cudaError_t rvli_driven(CUresult result);

/* Sees to it that this thread has its device's context. */
CUresult rvli_runtime_ready(void);

/* Ends a function with a call of the driver, in this thread's context. */
#define RVLI_PASS(call)                                                                            \
    do {                                                                                           \
        CUresult ready = rvli_runtime_ready();                                                     \
        return rvli_driven(ready == CUDA_SUCCESS ? (call) : ready);                                \
    } while (0)

/* A function that is one of the driver's: what it takes, and what it passes on. */
#define RVLI_PASSED(name, driver, declared, passed)                                                \
    cudaError_t name declared                                                                      \
    {                                                                                              \
        RVLI_PASS(driver passed);                                                                  \
    }

#endif
