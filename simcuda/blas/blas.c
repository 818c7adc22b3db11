/* SPDX-License-Identifier: MIT */
/*
 * cuBLAS. A call that computes is taken, and does nothing: it allocates no memory that its caller
 * does not give it. Handles keep what is set, since PyTorch reads it back. Names are the header's;
 * its prototypes are not wanted, since one function here stands for hundreds.
 */
#include <stdlib.h>

#define SUCCESS 0
#define ALLOC_FAILED 3
#define INVALID_VALUE 7
#define NOT_SUPPORTED 15

typedef struct handle {
    void *stream;
    int math_mode;
    int pointer_mode;
    int multiprocessors;
    int atomics;
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
int cublasGetVersion_v2(handle *of, int *version);
const char *cublasGetStatusString(int status);
const char *cublasGetStatusName(int status);

int cublasCreate_v2(handle **made)
{
    if (made == NULL)
        return INVALID_VALUE;
    *made = calloc(1, sizeof **made);
    return *made != NULL ? SUCCESS : ALLOC_FAILED;
}

int cublasDestroy_v2(handle *of)
{
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

int cublasSetWorkspace_v2(handle *of, void *workspace, size_t size_bytes)
{
    (void)of;
    (void)workspace;
    (void)size_bytes;
    return SUCCESS;
}

int cublasGetVersion_v2(handle *of, int *version)
{
    (void)of;
    *version = RVLI_BLAS_VERSION;
    return SUCCESS;
}

const char *cublasGetStatusName(int status)
{
    return status == SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                     : "CUBLAS_STATUS_INVALID_VALUE";
}

const char *cublasGetStatusString(int status)
{
    return cublasGetStatusName(status);
}
