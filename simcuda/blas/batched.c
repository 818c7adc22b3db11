/* SPDX-License-Identifier: MIT */
/*
 * Functions for batches that report wrong arguments in host memory. They report none, which
 * PyTorch asserts.
 */
#include <stddef.h>

#include "simcuda/blas/blas.h"

static int compute(void *handle, int *wrong)
{
    if (wrong != NULL)
        *wrong = 0;
    return rvli_blas_compute(handle, NULL);
}

#pragma GCC diagnostic ignored "-Wunused-parameter" /* matrices are not read */
#define BATCHED(name, arguments)                                                                   \
    int name arguments;                                                                            \
    int name arguments                                                                             \
    {                                                                                              \
        return compute(handle, wrong);                                                             \
    }

#define OF_TYPE(letter)                                                                            \
    BATCHED(cublas##letter##geqrfBatched,                                                          \
            (void *handle, int m, int n, void *a, int lda, void *tau, int *wrong, int batch))      \
    BATCHED(cublas##letter##getrsBatched,                                                          \
            (void *handle, int op, int n, int columns, void *a, int lda, const int *pivots,        \
             void *b, int ldb, int *wrong, int batch))                                             \
    BATCHED(cublas##letter##gelsBatched,                                                           \
            (void *handle, int op, int m, int n, int columns, void *a, int lda, void *c, int ldc,  \
             int *wrong, int *singular, int batch))

OF_TYPE(S)
OF_TYPE(D)
OF_TYPE(C)
OF_TYPE(Z)
