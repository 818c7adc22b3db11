/* SPDX-License-Identifier: MIT */
/*
 * The sizes of workspaces that cuSOLVER's functions return (solver_size.h). Arguments are those
 * of NVIDIA's documentation. Matrices are not read.
 */
#include <limits.h>
#include <stddef.h>

#include "simcuda/math/solver.h"
#include "simcuda/math/solver_size.h"

#define LOWER 0 /* CUBLAS_FILL_MODE_LOWER */

/* A size that does not fit in an int is an error: what a card returns for such sizes is
 * unusable. */
static int answer(int *workspace, uint64_t size)
{
    if (workspace == NULL || size > INT_MAX)
        return RVLI_MATH_INVALID_VALUE;
    *workspace = (int)size;
    return RVLI_MATH_SUCCESS;
}

static int is_size(int64_t size)
{
    return size >= 0;
}

static uint64_t potrf(rvli_solver_type type, int fill, int n)
{
    const uint64_t bytes = rvli_solver_type_bytes(type);
    return (rvli_solver_potrf_bytes(type, fill == LOWER, (uint64_t)n) + bytes - 1) / bytes;
}

/* Defines a function for one type: its arguments, the condition that no size is negative, and
 * the workspace size. */
#define BUFFER(name, arguments, sizes, size)                                                       \
    int cusolverDn##name##_bufferSize arguments;                                                   \
    int cusolverDn##name##_bufferSize arguments                                                    \
    {                                                                                              \
        if (handle == NULL)                                                                        \
            return RVLI_MATH_NOT_INITIALIZED;                                                      \
        if (!(sizes))                                                                              \
            return RVLI_MATH_INVALID_VALUE;                                                        \
        return answer(work, size);                                                                 \
    }

#define M ((uint64_t)m)
#define N ((uint64_t)n)
#define K ((uint64_t)k)
#define OF_N is_size(n)
#define OF_M_N is_size(m) && is_size(n)
#define OF_M_N_K is_size(m) && is_size(n) && is_size(k)

/* orgqr and some others have different names for complex numbers. */
#define BUFFERS(letter, q, sym)                                                                    \
    BUFFER(letter##potrf, (void *handle, int fill, int n, void *a, int lda, int *work), OF_N,      \
           potrf(RVLI_SOLVER_##letter, fill, n))                                                   \
    BUFFER(letter##getrf, (void *handle, int m, int n, void *a, int lda, int *work), OF_M_N,       \
           rvli_solver_getrf(RVLI_SOLVER_##letter, M, N))                                          \
    BUFFER(letter##sytrf, (void *handle, int n, void *a, int lda, int *work), OF_N,                \
           rvli_solver_sytrf(RVLI_SOLVER_##letter, N))                                             \
    BUFFER(letter##geqrf, (void *handle, int m, int n, void *a, int lda, int *work), OF_M_N,       \
           rvli_solver_geqrf(M, N))                                                                \
    BUFFER(letter##q##gqr,                                                                         \
           (void *handle, int m, int n, int k, void *a, int lda, void *tau, int *work), OF_M_N_K,  \
           rvli_solver_orgqr(M, N, K))                                                             \
    BUFFER(letter##q##mqr,                                                                         \
           (void *handle, int side, int op, int m, int n, int k, void *a, int lda, void *tau,      \
            void *c, int ldc, int *work),                                                          \
           OF_M_N_K, rvli_solver_ormqr(M, N, K))                                                   \
    BUFFER(letter##gesvd, (void *handle, int m, int n, int *work), OF_M_N,                         \
           rvli_solver_gesvd(M, N))                                                                \
    BUFFER(letter##sym##evd,                                                                       \
           (void *handle, int job, int fill, int n, void *a, int lda, void *w, int *work), OF_N,   \
           rvli_solver_syevd(N))                                                                   \
    BUFFER(letter##sym##evj,                                                                       \
           (void *handle, int job, int fill, int n, void *a, int lda, void *w, int *work,          \
            void *settings),                                                                       \
           OF_N, rvli_solver_syevj(N))                                                             \
    BUFFER(letter##sym##evjBatched,                                                                \
           (void *handle, int job, int fill, int n, void *a, int lda, void *w, int *work,          \
            void *settings, int batch),                                                            \
           OF_N &&is_size(batch), rvli_solver_syevj_batch(N, (uint64_t)batch))                     \
    BUFFER(letter##gesvdj,                                                                         \
           (void *handle, int job, int economy, int m, int n, void *a, int lda, void *s, void *u,  \
            int ldu, void *v, int ldv, int *work, void *settings),                                 \
           OF_M_N, rvli_solver_gesvdj(economy != 0, M, N))                                         \
    BUFFER(letter##gesvdjBatched,                                                                  \
           (void *handle, int job, int m, int n, void *a, int lda, void *s, void *u, int ldu,      \
            void *v, int ldv, int *work, void *settings, int batch),                               \
           OF_M_N &&is_size(batch), rvli_solver_gesvdj_batch())                                    \
    BUFFER(letter##gesvdaStridedBatched,                                                           \
           (void *handle, int job, int rank, int m, int n, void *a, int lda, long long stride_a,   \
            void *s, long long stride_s, void *u, int ldu, long long stride_u, void *v, int ldv,   \
            long long stride_v, int *work, int batch),                                             \
           OF_M_N &&is_size(batch),                                                                \
           rvli_solver_gesvda(RVLI_SOLVER_##letter, M, N, (uint64_t)batch))

#pragma GCC diagnostic ignored "-Wunused-parameter" /* most arguments are not read */
BUFFERS(S, or, sy)
BUFFERS(D, or, sy)
BUFFERS(C, un, he)
BUFFERS(Z, un, he)

/* ---- 64-bit functions: bytes on the device, and on the host ---- */

/* Converts a matrix's cudaDataType. Other types were not measured. */
static int type_of(int data_type, rvli_solver_type *type)
{
    static const int types[] = {0, 1, 4, 5}; /* CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F */
    for (int i = 0; i < 4; i++)
        if (types[i] == data_type) {
            *type = (rvli_solver_type)i;
            return 1;
        }
    return 0;
}

#define WIDE(name, arguments, sizes, size)                                                         \
    int cusolverDn##name##_bufferSize arguments;                                                   \
    int cusolverDn##name##_bufferSize arguments                                                    \
    {                                                                                              \
        rvli_solver_type type;                                                                     \
        if (handle == NULL)                                                                        \
            return RVLI_MATH_NOT_INITIALIZED;                                                      \
        if (!(sizes) || device_bytes == NULL || host_bytes == NULL)                                \
            return RVLI_MATH_INVALID_VALUE;                                                        \
        if (!type_of(type_a, &type))                                                               \
            return RVLI_SOLVER_NOT_SUPPORTED;                                                      \
        *device_bytes = (size_t)(size);                                                            \
        *host_bytes = 0;                                                                           \
        return RVLI_MATH_SUCCESS;                                                                  \
    }

/* The bytes of numbers of a type, plus 128 bytes. */
static uint64_t bytes_of(rvli_solver_type type, uint64_t numbers)
{
    return rvli_solver_type_bytes(type) * numbers + 128;
}

WIDE(Xpotrf,
     (void *handle, void *settings, int fill, int64_t n, int type_a, const void *a, int64_t lda,
      int compute, size_t *device_bytes, size_t *host_bytes),
     OF_N, rvli_solver_potrf_bytes(type, fill == LOWER, N))
WIDE(Xgeqrf,
     (void *handle, void *settings, int64_t m, int64_t n, int type_a, const void *a, int64_t lda,
      int type_tau, const void *tau, int compute, size_t *device_bytes, size_t *host_bytes),
     OF_M_N, bytes_of(type, rvli_solver_geqrf(M, N)))
WIDE(Xsyevd,
     (void *handle, void *settings, int job, int fill, int64_t n, int type_a, const void *a,
      int64_t lda, int type_w, const void *w, int compute, size_t *device_bytes,
      size_t *host_bytes),
     OF_N, bytes_of(type, rvli_solver_syevd(N)))
WIDE(XsyevBatched,
     (void *handle, void *settings, int job, int fill, int64_t n, int type_a, const void *a,
      int64_t lda, int type_w, const void *w, int compute, size_t *device_bytes, size_t *host_bytes,
      int64_t batch),
     OF_N &&is_size(batch), rvli_solver_syev_batch_bytes(type, N, (uint64_t)batch))
WIDE(Xgeev,
     (void *handle, void *settings, int left, int right, int64_t n, int type_a, const void *a,
      int64_t lda, int type_w, const void *w, int type_left, const void *vl, int64_t ldvl,
      int type_right, const void *vr, int64_t ldvr, int compute, size_t *device_bytes,
      size_t *host_bytes),
     OF_N, rvli_solver_type_bytes(type) * rvli_solver_geev(N))
WIDE(Xsytrs,
     (void *handle, int fill, int64_t n, int64_t m, int type_a, const void *a, int64_t lda,
      const int64_t *pivots, int type_b, void *b, int64_t ldb, size_t *device_bytes,
      size_t *host_bytes),
     OF_M_N, 0)
