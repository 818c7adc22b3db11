/* SPDX-License-Identifier: MIT */
/*
 * cuSOLVER's handles for dense matrices, and their settings.
 *
 * A handle takes 96 MiB: on an H100, each cusolverDnCreate() took 100,663,296 bytes
 * (bench/gpu/driver/workspaces.py, bench/results/2026-11-27-h100/handles.txt). Of these, 64 MiB
 * belong to its cuBLAS handle (simcuda/blas/blas.c). The first handle takes a page for small
 * pieces, as cuBLAS's does.
 *
 * The memory for the code of a function's kernels is assumed: 384 KiB for each function and
 * type. A PyTorch process that used one function with four types took 2 to 6 MiB more than its
 * handle (torch_math.csv there, the columns in use).
 */
#include "simcuda/math/solver.h"

#include <stdlib.h>

#include "simcuda/math/library.h"

#define CODE_BYTES ((uint64_t)384 << 10)

typedef struct handle {
    rvli_math_memory memory;
    void *stream;
    int deterministic, math_mode, emulation;
} handle;

int cusolverDnCreate(handle **made);
int cusolverDnDestroy(handle *of);
int cusolverDnSetStream(handle *of, void *stream);
int cusolverDnGetStream(handle *of, void **stream);
int cusolverDnSetDeterministicMode(handle *of, int mode);
int cusolverDnGetDeterministicMode(handle *of, int *mode);
int cusolverDnSetMathMode(handle *of, int mode);
int cusolverDnGetMathMode(handle *of, int *mode);
int cusolverDnSetEmulationStrategy(handle *of, int mode);
int cusolverDnGetEmulationStrategy(handle *of, int *mode);
int cusolverGetVersion(int *version);

int cusolverDnCreate(handle **made)
{
    static const size_t own_bytes[] = {1024, (size_t)64 << 20, (size_t)32 << 20};
    if (made == NULL)
        return RVLI_MATH_INVALID_VALUE;
    handle *new = calloc(1, sizeof *new);
    if (new == NULL)
        return RVLI_MATH_ALLOC_FAILED;
    CUresult result = rvli_math_take(&new->memory, own_bytes, sizeof own_bytes / sizeof *own_bytes);
    if (result == CUDA_SUCCESS) {
        *made = new;
        return RVLI_MATH_SUCCESS;
    }
    free(new);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? RVLI_MATH_ALLOC_FAILED : RVLI_MATH_NOT_INITIALIZED;
}

int cusolverDnDestroy(handle *of)
{
    if (of == NULL)
        return RVLI_MATH_NOT_INITIALIZED;
    rvli_math_give_back(&of->memory);
    free(of);
    return RVLI_MATH_SUCCESS;
}

RVLI_MATH_KEPT(cusolverDnSetStream, cusolverDnGetStream, void *, stream)
RVLI_MATH_KEPT(cusolverDnSetDeterministicMode, cusolverDnGetDeterministicMode, int, deterministic)
RVLI_MATH_KEPT(cusolverDnSetMathMode, cusolverDnGetMathMode, int, math_mode)
RVLI_MATH_KEPT(cusolverDnSetEmulationStrategy, cusolverDnGetEmulationStrategy, int, emulation)

int rvli_solver_compute(const char *name, void *with)
{
    const handle *of = with;
    if (of == NULL)
        return RVLI_MATH_NOT_INITIALIZED;
    return rvli_math_launch(name, CODE_BYTES, of->stream) == CUDA_SUCCESS
               ? RVLI_MATH_SUCCESS
               : RVLI_MATH_EXECUTION_FAILED;
}

/* ---- Settings of functions. Their content is not read ---- */

RVLI_MATH_NOTES(cusolverDnCreateParams, cusolverDnDestroyParams)
RVLI_MATH_NOTES(cusolverDnCreateSyevjInfo, cusolverDnDestroySyevjInfo)
RVLI_MATH_NOTES(cusolverDnCreateGesvdjInfo, cusolverDnDestroyGesvdjInfo)

#define SET(name, type)                                                                            \
    int name(void *of, type value);                                                                \
    int name(void *of, type value)                                                                 \
    {                                                                                              \
        (void)value;                                                                               \
        return of != NULL ? RVLI_MATH_SUCCESS : RVLI_MATH_INVALID_VALUE;                           \
    }

SET(cusolverDnXgesvdjSetMaxSweeps, int)
SET(cusolverDnXgesvdjSetSortEig, int)
SET(cusolverDnXgesvdjSetTolerance, double)
SET(cusolverDnXsyevjSetMaxSweeps, int)
SET(cusolverDnXsyevjSetSortEig, int)
SET(cusolverDnXsyevjSetTolerance, double)

int cusolverGetVersion(int *version)
{
    if (version == NULL)
        return RVLI_MATH_INVALID_VALUE;
    *version = RVLI_SOLVER_VERSION;
    return RVLI_MATH_SUCCESS;
}
