/* SPDX-License-Identifier: MIT */
/*
 * cuBLAS. A call that computes only launches a kernel (simcuda/wire/kernel.h). It allocates no
 * memory beyond what its caller provides. Handles keep what is set, since PyTorch reads it back.
 * The names are those of the header. Its prototypes are not included, since one function here
 * stands for hundreds. The functions of the environment mode are in no header. cuSOLVER calls
 * them, and cannot be loaded without them. PyTorch loads it for the first
 * torch.linalg.solve_triangular().
 *
 * A handle has its own device memory: a workspace of 64 MiB, and two small pieces.
 * cublasCreate() of cuBLAS 13.1 makes these three allocations on an H200, as `reveille record`
 * saw them (traces/recorded/qwen2.5-32b-step-engine.rvt, allocations 265 to 267). PyTorch makes
 * a handle for each thread and stream that computes, including one for the backward pass. Other
 * cards use these sizes until one is measured.
 */
#include <cuda.h>
#include <stdlib.h>

#include "simcuda/blas/blas.h"
#include "simcuda/wire/current.h"
#include "simcuda/wire/kernel.h"

#define SUCCESS RVLI_BLAS_SUCCESS
#define NOT_INITIALIZED 1
#define ALLOC_FAILED 3
#define INVALID_VALUE 7
#define EXECUTION_FAILED 13
#define NOT_SUPPORTED RVLI_BLAS_NOT_SUPPORTED

static const size_t own_bytes[] = {1024, 128 << 10, 64 << 20};
#define OWN_PIECES (sizeof own_bytes / sizeof *own_bytes)

typedef struct handle {
    CUcontext context; /* owns the memory */
    CUdeviceptr own[OWN_PIECES];
    void *stream;
    int math_mode;
    int pointer_mode;
    int multiprocessors;
    int atomics;
    int environment;
} handle;

int cublasCreate_v2(handle **made);
int cublasDestroy_v2(handle *of);
int cublasSetStream_v2(handle *of, void *stream);
int cublasGetStream_v2(handle *of, void **stream);
int cublasSetWorkspace_v2(handle *of, void *workspace, size_t size_bytes);
int cublasSetMathMode(handle *of, int mode);
int cublasGetMathMode(handle *of, int *mode);
int cublasSetPointerMode_v2(handle *of, int mode);
int cublasGetPointerMode_v2(handle *of, int *mode);
int cublasSetSmCountTarget(handle *of, int count);
int cublasGetSmCountTarget(handle *of, int *count);
int cublasSetAtomicsMode(handle *of, int mode);
int cublasGetAtomicsMode(handle *of, int *mode);
int cublasSetEnvironmentMode(handle *of, int mode);
int cublasGetEnvironmentMode(handle *of, int *mode);
int cublasGetVersion_v2(handle *of, int *version);
const char *cublasGetStatusString(int status);
const char *cublasGetStatusName(int status);

static void give_back(handle *of)
{
    (void)cuCtxPushCurrent(of->context);
    for (size_t i = 0; i < OWN_PIECES; i++)
        if (of->own[i] != 0)
            (void)cuMemFree(of->own[i]);
    (void)cuCtxPopCurrent(NULL);
}

static CUresult take(handle *of)
{
    int device;
    CUresult result = rvli_current_or_first(&device);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetCurrent(&of->context);
    for (size_t i = 0; i < OWN_PIECES && result == CUDA_SUCCESS; i++)
        result = cuMemAlloc(&of->own[i], own_bytes[i]);
    return result;
}

int cublasCreate_v2(handle **made)
{
    if (made == NULL)
        return INVALID_VALUE;
    handle *new = calloc(1, sizeof *new);
    if (new == NULL)
        return ALLOC_FAILED;
    CUresult result = take(new);
    if (result == CUDA_SUCCESS) {
        *made = new;
        return SUCCESS;
    }
    if (new->context != NULL)
        give_back(new);
    free(new);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? ALLOC_FAILED : NOT_INITIALIZED;
}

int cublasDestroy_v2(handle *of)
{
    if (of == NULL)
        return NOT_INITIALIZED;
    give_back(of);
    free(of);
    return SUCCESS;
}

#define KEPT(setter, getter, type, field)                                                          \
    int setter(handle *of, type value)                                                             \
    {                                                                                              \
        of->field = value;                                                                         \
        return SUCCESS;                                                                            \
    }                                                                                              \
    int getter(handle *of, type *value)                                                            \
    {                                                                                              \
        *value = of->field;                                                                        \
        return SUCCESS;                                                                            \
    }

KEPT(cublasSetStream_v2, cublasGetStream_v2, void *, stream)
KEPT(cublasSetMathMode, cublasGetMathMode, int, math_mode)
KEPT(cublasSetPointerMode_v2, cublasGetPointerMode_v2, int, pointer_mode)
KEPT(cublasSetSmCountTarget, cublasGetSmCountTarget, int, multiprocessors)
KEPT(cublasSetAtomicsMode, cublasGetAtomicsMode, int, atomics)
KEPT(cublasSetEnvironmentMode, cublasGetEnvironmentMode, int, environment)

int cublasSetWorkspace_v2(handle *of, void *workspace, size_t size_bytes)
{
    (void)of;
    (void)workspace;
    (void)size_bytes;
    return SUCCESS;
}

int rvli_blas_compute(void *with, const rvli_product *product)
{
    const handle *of = with;
    if (of == NULL)
        return NOT_INITIALIZED;
    CUresult result = product != NULL ? rvli_product_launch(product, of->stream)
                                      : rvli_library_kernel(of->stream);
    return result == CUDA_SUCCESS ? SUCCESS : EXECUTION_FAILED;
}

int cublasGetVersion_v2(handle *of, int *version)
{
    (void)of;
    *version = RVLI_BLAS_VERSION;
    return SUCCESS;
}

const char *cublasGetStatusName(int status)
{
    return status == SUCCESS            ? "CUBLAS_STATUS_SUCCESS"
           : status == NOT_INITIALIZED  ? "CUBLAS_STATUS_NOT_INITIALIZED"
           : status == ALLOC_FAILED     ? "CUBLAS_STATUS_ALLOC_FAILED"
           : status == EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : status == NOT_SUPPORTED    ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                        : "CUBLAS_STATUS_INVALID_VALUE";
}

const char *cublasGetStatusString(int status)
{
    return cublasGetStatusName(status);
}
