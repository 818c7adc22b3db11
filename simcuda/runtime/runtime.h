/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the simulated runtime, libcudart, share. Like CUDA's, it uses
 * only the driver's public functions. A thread has a current device. The first call that needs
 * the device retains its primary context.
 *
 * Every function ends in rvli_done(), which keeps an error for cudaGetLastError().
 */
#ifndef RVL_SIMCUDA_RUNTIME_H
#define RVL_SIMCUDA_RUNTIME_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#ifndef RVLI_RUNTIME_VERSION
#define RVLI_RUNTIME_VERSION CUDART_VERSION /* twelve.h has another version */
#endif

/* Keeps an error, and returns it. */
cudaError_t rvli_done(cudaError_t error);

/* Converts a driver result to a runtime error. All but a few have equal numbers. */
cudaError_t rvli_error_of(CUresult result);

/* rvli_done() for a driver result. */
cudaError_t rvli_driven(CUresult result);

/* Makes sure that this thread has its device's context. */
CUresult rvli_runtime_ready(void);

/* Ends a function with a driver call, in this thread's context. */
#define RVLI_PASS(call)                                                                            \
    do {                                                                                           \
        CUresult ready = rvli_runtime_ready();                                                     \
        return rvli_driven(ready == CUDA_SUCCESS ? (call) : ready);                                \
    } while (0)

/* A function that equals one of the driver's: its parameters, and the arguments to pass. */
#define RVLI_PASSED(name, driver, declared, passed)                                                \
    cudaError_t name declared                                                                      \
    {                                                                                              \
        RVLI_PASS(driver passed);                                                                  \
    }

#endif
