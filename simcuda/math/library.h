/* SPDX-License-Identifier: MIT */
/*
 * What the simulated cuFFT, cuSOLVER and cuSPARSE share: memory of a handle, and kernels. Their
 * code takes memory the first time.
 */
#ifndef RVL_SIMCUDA_MATH_LIBRARY_H
#define RVL_SIMCUDA_MATH_LIBRARY_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define RVLI_MATH_PIECES 3

/* Memory that a library takes for itself. */
typedef struct rvli_math_memory {
    CUcontext context; /* it owns the memory */
    CUdeviceptr pieces[RVLI_MATH_PIECES];
} rvli_math_memory;

/* Makes a context where there is none, as the libraries' own runtime does. A size of 0 is no piece.
 */
CUresult rvli_math_take(rvli_math_memory *memory, const size_t *sizes, size_t count);
void rvli_math_give_back(rvli_math_memory *memory);

/*
 * Launches a kernel of a name, which brings so much code the first time. CUDA_ERROR_OUT_OF_MEMORY:
 * no room for it, and nothing was launched.
 */
CUresult rvli_math_launch(const char *name, uint64_t code_bytes, CUstream stream);

/* The code alone. */
CUresult rvli_math_load(const char *name, uint64_t code_bytes);

#endif
